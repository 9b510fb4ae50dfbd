package design

import (
	"errors"
	"testing"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// FuzzParse holds that Parse takes every object or refuses it with words for the
// client, that what it gives does not depend on the order of its work, and that
// every view is found by its name.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{}`, `[]`, `{"views":{"v":{"map":"function(doc){}","reduce":"_sum","options":{"collation":"raw"}},"lib":{"a":"b"}}}`,
		`{"language":"query","views":{"i":{"map":{"fields":{"a":"asc"}},"reduce":"_count"}},"validate_doc_update":{}}`,
		`{"filters":{"f":"x","g":{}},"shows":{},"lists":{"l":"y"},"updates":{"u":"z"},"rewrites":[1],"validate_doc_update":"v"}`,
		`{"options":{"local_seq":true,"include_design":false,"partitioned":true},"autoupdate":{"views":false},"rewrites":"r"}`,
		`{"views":{"":{"map":""},"a\"b":{"map":"\ud83d\ude00"}},"language":"erlang"}`,
	} {
		f.Add([]byte(s), true)
	}
	f.Fuzz(func(t *testing.T, in []byte, partitioned bool) {
		norm, err := rawjson.Normalize(nil, in, 50)
		if err != nil {
			return
		}
		before := string(norm)
		d, err := Parse("_design/d", norm, Options{Partitioned: partitioned})
		if string(norm) != before {
			t.Fatal("Parse changed its input")
		}
		if err != nil {
			var e *model.Error
			if !errors.As(err, &e) || e.Kind != model.KindBadRequest || e.Reason == "" {
				t.Fatal(err)
			}
			return
		}
		again, err := Parse("_design/d", norm, Options{Partitioned: partitioned})
		if err != nil || len(again.Views) != len(d.Views) {
			t.Fatalf("%s: %v", norm, err)
		}
		for i := range d.Views {
			v := &d.Views[i]
			if found, ok := d.View(v.Name); !ok || found != v || again.Views[i].Sig != v.Sig || len(v.Sig) != hashDigits {
				t.Fatalf("%s: view %q", norm, v.Name)
			}
			if i > 0 && d.Views[i-1].Name >= v.Name {
				t.Fatalf("%s: views out of order", norm)
			}
		}
		if _, err := rawjson.Normalize(nil, d.ViewsDesign, 60); err != nil {
			t.Fatalf("%s: %s: %v", norm, d.ViewsDesign, err)
		}
		if len(d.Functions()) != len(again.Functions()) {
			t.Fatalf("%s: functions differ", norm)
		}
	})
}
