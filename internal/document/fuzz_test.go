package document

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// FuzzParse holds that whatever passes Parse has a clean body with exactly the
// members that are not special, and comes back as it was.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `{"_id":"a","_rev":"1-b","x":1,"_deleted":true}`,
		`{"x":1,"_revisions":{"start":2,"ids":["b","a"]},"\u005fid":"q\"","y\\":{"_z":[]}}`,
		`{"_attachments":{"a":{"data":"aGk="},"b":{"stub":true},"c":{"follows":true,"length":1}},"k":null}`,
		`{"_access":[],"_conflicts":[],"z":""}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		norm, err := rawjson.Normalize(nil, in, 50)
		if err != nil {
			return
		}
		p, err := Parse(norm, ParseOptions{Replicated: true})
		if err != nil {
			var e *model.Error
			if !errors.As(err, &e) || e.Kind != model.KindBadRequest {
				t.Fatal(err)
			}
			return
		}
		body, err := rawjson.Normalize(nil, p.Body, 50)
		if err != nil || !bytes.Equal(body, p.Body) {
			t.Fatalf("body %s: %v", p.Body, err)
		}
		var want, got []string
		for name, value := range rawjson.Members(norm) {
			s := string(name)
			if !strings.HasPrefix(s, "_") || s == "_access" || strings.HasPrefix(s, "_replication_") {
				want = append(want, s+":"+string(value))
			}
		}
		for name, value := range rawjson.Members(p.Body) {
			got = append(got, string(name)+":"+string(value))
		}
		if strings.Join(got, ",") != strings.Join(want, ",") {
			t.Fatalf("%s\ngot  %v\nwant %v", norm, got, want)
		}
		if !p.HasID {
			p.ID = "x"
		}
		d := &model.Doc{ID: p.ID, Rev: p.Rev, Path: p.Path, Deleted: p.Deleted, Body: p.Body}
		out, err := Append(nil, d, &PrintOptions{Revs: true})
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse(out, ParseOptions{Replicated: true})
		if err != nil {
			t.Fatalf("%s: %v", out, err)
		}
		if again.ID != p.ID || again.Rev != p.Rev || len(again.Path) != len(p.Path) || again.Deleted != p.Deleted || !bytes.Equal(again.Body, p.Body) {
			t.Fatalf("%s\ncame back as %+v", out, *again)
		}
	})
}
