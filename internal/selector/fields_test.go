package selector

import (
	"testing"

	"github.com/divandb/divan/internal/model"
)

func TestFields(t *testing.T) {
	t.Parallel()
	doc := []byte(`{"_id":"x","a":{"b":1.50,"c":[1,{"d":2}],"e.f":3},"n":null}`)
	for _, c := range []struct{ fields, want string }{
		{`["n","_id"]`, `{"n":null,"_id":"x"}`},
		{`["a.b"]`, `{"a":{"b":1.50}}`},
		{`["a.b","n","a.c"]`, `{"a":{"b":1.50,"c":[1,{"d":2}]},"n":null}`},
		{`["a.b","a"]`, `{"a":{"b":1.50,"c":[1,{"d":2}],"e.f":3}}`},
		{`["a","a.b"]`, `{"a":{"b":1.50,"c":[1,{"d":2}],"e.f":3}}`},
		{`["a.e\\.f"]`, `{"a":{"e.f":3}}`},
		{`["a.c.1.d"]`, `{"a":{"c":{"1":{"d":2}}}}`},
		{`["none","a.none","n.x","_id.x"]`, `{}`},
		{`["_id","_id"]`, `{"_id":"x"}`},
	} {
		f, err := ParseFields([]byte(c.fields))
		if err != nil {
			t.Errorf("%s: %v", c.fields, err)
			continue
		}
		if got := string(f.Append(nil, doc)); got != c.want {
			t.Errorf("%s: %s, want %s", c.fields, got, c.want)
		}
	}
	if f, err := ParseFields([]byte(`[]`)); f != nil || err != nil {
		t.Errorf("no fields: %v %v", f, err)
	}
	for _, bad := range []string{`{}`, `"a"`, `5`, `[5]`, `[null]`, `[["a"]]`} {
		if _, err := ParseFields([]byte(bad)); model.KindOf(err) != model.KindBadRequest {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
