package shardhost_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardhost"
)

// TestDesignChecked takes good design documents and refuses the others with the
// place, new edits and replicated ones.
func TestDesignChecked(t *testing.T) {
	t.Parallel()
	v := newValidated(t, `function(n) { throw({forbidden: 'design documents are not asked about'}); }`)
	for i, good := range []string{
		`{}`, `{"views":{"v":{"map":"function(doc){ emit(doc._id) }","reduce":"_sum"}}}`,
		`{"views":{"v":{"map":"doc => emit(1)","reduce":"function(k,v,r){return 1}"},"lib":{"broken":"function("}}}`,
		`{"filters":{"f":"function(doc,req){return true}","lib":{"x":"broken("}},"language":"javascript"}`,
		`{"validate_doc_update":"function(n,o,u,s){}","updates":{"u":"function(d,r){}"},"shows":{"s":"function(){}"},"lists":{"l":"function(){}"},"rewrites":"function(r){}"}`,
		`{"language":"erlang","views":{"v":{"map":"fun(Doc) -> ok end."}}}`,
		`{"language":"query","views":{"v":{"map":{"fields":{}},"reduce":"_count"}}}`,
	} {
		for _, e := range []model.Edit{edit("_design/good", good), path(edit(fmt.Sprintf("_design/rep%d", i), good), "2-b 1-a")} {
			r := v.one(t, e)
			if r.Err != nil {
				t.Errorf("%s: %v", good, r.Err)
				continue
			}
			v.must(t, on(r.Rev, deletion(edit(e.ID, `{"views":3}`))))
		}
	}
	for _, c := range []struct{ body, name, reason string }{
		{`{"views":3}`, "invalid_design_doc", "`views` field must have object type"},
		{`{"views":{"v":{"map":"function(d){}","reduce":"_foo"}}}`, "invalid_design_doc", "`_foo` is not a supported reduce function."},
		{`{"options":{"partitioned":true}}`, "invalid_design_doc", "partitioned option cannot be true in a non-partitioned database."},
		{`{"views":{"v":{"map":"function(doc){ emit( }"}}}`, "compilation_error", "Compilation of the map function in the 'v' view failed: "},
		{`{"views":{"v":{"map":"function(doc){}","reduce":"function("}}}`, "compilation_error", "Compilation of the reduce function in the 'v' view failed: "},
		{`{"views":{"v":{"map":"3 + 4"}}}`, "compilation_error", "Compilation of the map function in the 'v' view failed: "},
		{`{"views":{"v":{"map":""}}}`, "compilation_error", "Compilation of the map function in the 'v' view failed: "},
		{`{"filters":{"f":"function("}}`, "compilation_error", "Compilation of the filter function 'f' failed: "},
		{`{"validate_doc_update":"function("}`, "compilation_error", "Compilation of the validate_doc_update function failed: "},
		{`{"updates":{"u":"function("}}`, "compilation_error", "Compilation of the update function 'u' failed: "},
		{`{"shows":{"s":"function("}}`, "compilation_error", "Compilation of the show function 's' failed: "},
		{`{"lists":{"l":"function("}}`, "compilation_error", "Compilation of the list function 'l' failed: "},
		{`{"rewrites":"function("}`, "compilation_error", "Compilation of the rewrites function failed: "},
	} {
		for _, e := range []model.Edit{edit("_design/bad", c.body), path(edit("_design/bad", c.body), "1-a")} {
			r := v.one(t, e)
			if r.Err == nil || r.Err.Kind != model.KindBadRequest || r.Err.Name != c.name || !strings.HasPrefix(r.Err.Reason, c.reason) {
				t.Errorf("%s: %+v", c.body, r.Err)
			}
			if c.name == "compilation_error" && r.Err != nil && len(r.Err.Reason) == len(c.reason) {
				t.Errorf("%s: no place in %q", c.body, r.Err.Reason)
			}
		}
	}
	rev := v.must(t, edit("_design/d", `{}`))
	if r := v.one(t, edit("_design/d", `{"views":3}`)); !errors.Is(r.Err, model.ErrConflict) {
		t.Errorf("conflict goes first: %v", r.Err)
	}
	if r := v.one(t, on(rev, edit("_design/d", `{"views":3}`))); r.Err == nil || r.Err.Name != "invalid_design_doc" {
		t.Errorf("%v", r.Err)
	}
	v.defined.Store(&shardhost.Defined{Partitioned: true})
	v.must(t, edit("_design/p", `{"options":{"partitioned":true}}`))
}

// TestOnDesign hears of every design document that was written, when the writer
// does, and of nothing else.
func TestOnDesign(t *testing.T) {
	t.Parallel()
	v := newValidated(t)
	heard := func(want int64) {
		t.Helper()
		if got := v.changed.Swap(0); got != want {
			t.Errorf("heard %d times, want %d", got, want)
		}
	}
	v.must(t, edit("a", `{}`))
	heard(0)
	rev := v.must(t, edit("_design/a", `{}`))
	heard(1)
	v.one(t, edit("_design/a", `{}`))
	heard(0)
	v.one(t, on(rev, edit("_design/a", `{"views":3}`)))
	heard(0)
	v.write(t, edit("b", `{}`), edit("_design/b", `{}`), edit("_design/c", `{"views":3}`))
	heard(1)
	v.must(t, on(rev, deletion(edit("_design/a", `{}`))))
	heard(1)
	v.must(t, path(edit("_design/r", `{}`), "1-a"))
	heard(1)
	v.must(t, path(edit("_design/r", `{}`), "1-a"))
	heard(0)
}
