//go:build !race

package jsvm_test

import (
	"os"
	"testing"
)

// workerCommand starts a worker of these tests: the test binary itself, see TestMain.
func workerCommand(t testing.TB) []string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return []string{self, "js-worker"}
}
