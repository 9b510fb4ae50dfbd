package model

import (
	"strings"
	"testing"
)

func TestValidDBName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"a": true, "a/b": true, "t1_$()+-/x": true, "_users": true, "_replicator": true,
		"_global_changes": true, "team/_users": true, "a/b/_replicator": true,
		"": false, "A": false, "1a": false, "_x": false, "aB": false, "a b": false, "/_users": false,
		"_users/a": false, "A/_users": false, "a.b": false, "ä": false, "__users": false,
		strings.Repeat("a", MaxDBName):   true,
		strings.Repeat("a", MaxDBName+1): false,
	} {
		if got := ValidDBName(name); got != want {
			t.Errorf("ValidDBName(%q) = %v, want %v", name, got, want)
		}
	}
}
