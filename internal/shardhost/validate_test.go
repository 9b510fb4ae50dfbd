package shardhost_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
	"github.com/divandb/divan/internal/shardhost"
	"github.com/divandb/divan/internal/testserver"
)

// defs are definitions that a test sets.
type defs struct {
	defined atomic.Pointer[shardhost.Defined]
	err     atomic.Pointer[error]
	changed atomic.Int64
}

func (d *defs) Of(context.Context, shardapi.CopyID) (*shardhost.Defined, error) {
	if err := d.err.Load(); err != nil {
		return nil, *err
	}
	return d.defined.Load(), nil
}

// validated is a copy whose writes pass validation functions.
type validated struct {
	shardapi.Shard
	*defs
	dir string
}

// newValidated makes a copy on real workers. Each text is the validation function
// of a design document of its own.
func newValidated(t testing.TB, functions ...string) *validated {
	t.Helper()
	pool := jsvm.New(jsvm.Options{Command: []string{testserver.Binary(t), "js-worker"}, Workers: 2, CallTime: 2 * time.Second})
	v := &validated{defs: &defs{}, dir: t.TempDir()}
	v.define(functions...)
	store, err := kv.Open(v.dir+"/store", kv.Options{MinFree: -1, CacheBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	host, err := shardhost.New(store, v.dir, shardhost.Options{JS: pool, Definitions: v.defs,
		OnDesign: func(id shardapi.CopyID) {
			if id == 7 {
				v.changed.Add(1)
			}
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(host.Close(), pool.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	v.Shard = host.Shard(7)
	return v
}

func (v *validated) define(functions ...string) {
	d := &shardhost.Defined{}
	for i, f := range functions {
		id := fmt.Sprintf("_design/%d", i)
		d.Validators = append(d.Validators, shardhost.Validator{Design: id, Func: f,
			Program: jsvm.Program{Key: fmt.Sprintf("%s/%x", id, f), Design: []byte(`{"lib":{"m":"exports.word = 'from a module'"}}`)}})
	}
	v.defined.Store(d)
}

// write gives the results of a write in one line each: the revision's position, or
// name and reason of the refusal.
func (v *validated) write(t testing.TB, edits ...model.Edit) []model.EditResult {
	t.Helper()
	resp, err := v.Shard.Write(context.Background(), &shardapi.WriteRequest{Edits: edits, DB: "db",
		User: model.User{Name: "jo", Roles: []string{"r1", "r2"}}, Security: []byte(`{"admins":{}}`)})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Results) != len(edits) {
		t.Fatalf("%d results for %d edits", len(resp.Results), len(edits))
	}
	for i := range edits {
		if resp.Results[i].ID != edits[i].ID {
			t.Fatalf("result %d is of %q, not %q", i, resp.Results[i].ID, edits[i].ID)
		}
	}
	return resp.Results
}

func (v *validated) one(t testing.TB, e model.Edit) model.EditResult {
	t.Helper()
	return v.write(t, e)[0]
}

// must writes an edit that no function may refuse.
func (v *validated) must(t testing.TB, e model.Edit) model.Rev {
	t.Helper()
	r := v.one(t, e)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	return r.Rev
}

// has tells whether the copy has a live document.
func (v *validated) has(t testing.TB, id string) bool {
	t.Helper()
	resp, err := v.Read(context.Background(), &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: id}}})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Answers[0].Found && !resp.Answers[0].Docs[0].Deleted
}

func edit(id, body string) model.Edit { return model.Edit{ID: id, Body: []byte(body)} }

func on(rev model.Rev, e model.Edit) model.Edit { e.Parent = rev; return e }

func deletion(e model.Edit) model.Edit { e.Deleted = true; return e }

// path makes an edit a replicated one, of revisions written as "3-c 2-b 1-a".
func path(e model.Edit, revs string) model.Edit {
	e.Replicated = true
	for _, text := range strings.Fields(revs) {
		rev, err := model.ParseRev(text)
		if err != nil {
			panic(err)
		}
		e.Path = append(e.Path, rev)
	}
	return e
}

// spy lets everything pass but documents with the member see, and says what it saw.
const spy = `function(n, o, u, s) { if (n.see) throw({forbidden: JSON.stringify([n, o, u, s])}); }`

const context4 = `,{"db":"db","name":"jo","roles":["r1","r2"]},{"admins":{}}]`

// TestWhatValidatorsSee compares the arguments word by word.
func TestWhatValidatorsSee(t *testing.T) {
	t.Parallel()
	v := newValidated(t, spy)
	saw := func(e model.Edit, want string) {
		t.Helper()
		r := v.one(t, e)
		if r.Err == nil || r.Err.Name != "forbidden" || r.Err.Kind != model.KindForbidden {
			t.Fatalf("%+v", r)
		}
		if want = "[" + want + context4; r.Err.Reason != want {
			t.Errorf("got  %s\nwant %s", r.Err.Reason, want)
		}
	}
	saw(edit("a", `{"see":1}`), `{"_id":"a","see":1},null`)
	saw(deletion(edit("a", `{"see":1}`)), `{"_id":"a","see":1,"_deleted":true},null`)
	r1 := v.must(t, edit("a", `{"n":1}`))
	h1 := r1.Hash
	old := fmt.Sprintf(`{"_id":"a","_rev":"1-%s","n":1,"_revisions":{"start":1,"ids":["%s"]}}`, h1, h1)
	saw(on(r1, edit("a", `{"see":1,"x":"é\n"}`)), fmt.Sprintf(`{"_id":"a","_rev":"1-%s","see":1,"x":"é\n","_revisions":{"start":1,"ids":["%s"]}},%s`, h1, h1, old))
	saw(on(r1, deletion(edit("a", `{"see":1}`))), fmt.Sprintf(`{"_id":"a","_rev":"1-%s","see":1,"_deleted":true,"_revisions":{"start":1,"ids":["%s"]}},%s`, h1, h1, old))
	r2 := v.must(t, on(r1, deletion(edit("a", `{}`))))
	saw(edit("a", `{"see":1}`), `{"_id":"a","see":1},null`)
	saw(on(r2, edit("a", `{"see":1}`)), fmt.Sprintf(`{"_id":"a","_rev":"%s","see":1,"_revisions":{"start":2,"ids":["%s"]}},{"_id":"a","_rev":"%s","_deleted":true,"_revisions":{"start":2,"ids":["%s","%s"]}}`,
		r2, r2.Hash, r2, r2.Hash, h1))

	// Replicated: the nearest ancestor that has a body here.
	saw(path(edit("b", `{"see":1}`), "2-y 1-x"), `{"_id":"b","_rev":"2-y","see":1,"_revisions":{"start":2,"ids":["y","x"]}},null`)
	v.must(t, path(edit("b", `{"n":1}`), "2-y 1-x"))
	oldB := `{"_id":"b","_rev":"2-y","n":1,"_revisions":{"start":2,"ids":["y","x"]}}`
	saw(path(edit("b", `{"see":1}`), "4-w 3-z 2-y 1-x"), `{"_id":"b","_rev":"4-w","see":1,"_revisions":{"start":4,"ids":["w","z","y","x"]}},`+oldB)
	saw(path(edit("b", `{"see":1}`), "2-other"), `{"_id":"b","_rev":"2-other","see":1,"_revisions":{"start":2,"ids":["other"]}},null`)
	v.must(t, path(edit("b", `{"n":2}`), "4-w 3-z 2-y 1-x"))
	saw(path(edit("b", `{"see":1}`), "4-v 3-z 2-y 1-x"), `{"_id":"b","_rev":"4-v","see":1,"_revisions":{"start":4,"ids":["v","z","y","x"]}},`+oldB)

	// Histories are cut for the old document only.
	rev := v.must(t, edit("long", `{}`))
	for i := range 30 {
		rev = v.must(t, on(rev, edit("long", fmt.Sprintf(`{"n":%d}`, i))))
	}
	r := v.one(t, on(rev, edit("long", `{"see":1}`)))
	if n := strings.Count(r.Err.Reason, `","`); n < oldRevisions || n > oldRevisions+20 {
		t.Errorf("history of %d revisions or so: %s", n, r.Err.Reason)
	}
}

// oldRevisions is how much of its history the old document shows.
const oldRevisions = 20

// TestAttachmentsSeen shows attachments as stubs, new and kept ones.
func TestAttachmentsSeen(t *testing.T) {
	t.Parallel()
	v := newValidated(t, spy)
	staged := func(name, data string) model.AttachmentEdit {
		s, err := v.Stage(t.Context(), strings.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		return model.AttachmentEdit{Staged: s.Ticket, Attachment: model.Attachment{Name: name, ContentType: "text/plain",
			Blob: s.Blob, Digest: s.Digest, Length: s.Length, EncodedLength: s.Length}}
	}
	e := edit("a", `{}`)
	e.Atts = []model.AttachmentEdit{staged("old", "abc")}
	r1 := v.must(t, e)
	e = on(r1, edit("a", `{"see":1}`))
	e.Atts = []model.AttachmentEdit{{Stub: true, Attachment: model.Attachment{Name: "old"}}, staged("new", "abcdef")}
	got := v.one(t, e).Err.Reason
	oldStub := `"old":{"content_type":"text/plain","revpos":1,"digest":"md5-kAFQmDzST7DWlj99KOF/cg==","length":3,"stub":true}`
	newStub := `"new":{"content_type":"text/plain","revpos":2,"digest":"md5-6AtQFwmJUPxYqtg8jBSXjg==","length":6,"stub":true}`
	if !strings.Contains(got, `"_attachments":{`+oldStub+`,`+newStub+`}},{"_id"`) || !strings.Contains(got, `"_attachments":{`+oldStub+`}},{"db"`) {
		t.Error(got)
	}
}

// TestRefusals has functions refuse in every way, in one write with others that
// pass.
func TestRefusals(t *testing.T) {
	t.Parallel()
	v := newValidated(t,
		`function(n) { if (n.bad) throw({forbidden: 'no bad'}); if (n.who) throw({unauthorized: 'who?'}); }`,
		`function(n) { var m = require('lib/m'); if (n.broken) n.a.b.c(); if (n.text) throw('text'); if (n.word) throw({forbidden: m.word}); }`,
		`(newDoc) => { while (newDoc.forever) {} }`)
	results := v.write(t,
		edit("0", `{}`), edit("1", `{"bad":1,"broken":1}`), edit("2", `{}`), edit("3", `{"who":1}`), edit("4", `{"broken":1}`),
		edit("5", `{"text":1}`), edit("6", `{"forever":true}`), edit("7", `{"word":1}`), edit("8", `{}`), edit("9", `{"bad":1,"who":1}`))
	want := []struct {
		kind         model.Kind
		name, reason string
	}{
		{}, {model.KindForbidden, "forbidden", "no bad"}, {}, {model.KindUnauthorized, "unauthorized", "who?"},
		{model.KindInternal, "TypeError", ""}, {model.KindInternal, "unknown_error", "text"},
		{model.KindInternal, "script_stopped", ""}, {model.KindForbidden, "forbidden", "from a module"}, {},
		{model.KindForbidden, "forbidden", "no bad"},
	}
	for i, r := range results {
		w := want[i]
		if w.name == "" {
			if r.Err != nil || r.Rev.Pos != 1 || !v.has(t, r.ID) {
				t.Errorf("%d: %+v", i, r)
			}
			continue
		}
		if r.Err == nil || r.Err.Kind != w.kind || r.Err.Name != w.name || w.reason != "" && r.Err.Reason != w.reason || r.Err.Reason == "" || !r.Rev.IsZero() {
			t.Errorf("%d: %+v, want %+v", i, r.Err, w)
		}
		if v.has(t, r.ID) {
			t.Errorf("%d is written", i)
		}
	}
	if r := v.write(t, edit("x", `{"bad":1}`), edit("y", `{"who":1}`)); r[0].Err == nil || r[1].Err == nil {
		t.Errorf("a write of which nothing is left: %+v", r)
	}
}

// TestManyEdits validates more than fits into one message.
func TestManyEdits(t *testing.T) {
	t.Parallel()
	v := newValidated(t, `function(n) { if (n.i % 7 == 3) throw({forbidden: 'seven ' + n.i}); }`, `function(n) { if (n.i % 5 == 3) throw({forbidden: 'five ' + n.i}); }`)
	var edits []model.Edit
	for i := range 1000 {
		edits = append(edits, edit(fmt.Sprintf("d%04d", i), fmt.Sprintf(`{"i":%d,"pad":%q}`, i, strings.Repeat("x", i))))
	}
	for i, r := range v.write(t, edits...) {
		want := ""
		if i%5 == 3 {
			want = fmt.Sprintf("five %d", i)
		}
		if i%7 == 3 {
			want = fmt.Sprintf("seven %d", i)
		}
		if (want == "") != (r.Err == nil) || r.Err != nil && r.Err.Reason != want || v.has(t, r.ID) != (want == "") {
			t.Fatalf("%d: %+v, want %q", i, r, want)
		}
	}
}

// TestLargeOldDocuments replaces large documents by small ones: those that are
// there go to the functions in several messages.
func TestLargeOldDocuments(t *testing.T) {
	t.Parallel()
	v := newValidated(t, `function(n, o) { if (o && (o.i != n.i || o.text.length != 100000)) throw({forbidden: 'another document'}); if (n.i == 17) throw({forbidden: 'no'}); }`)
	var edits []model.Edit
	for i := range 30 {
		id := fmt.Sprint("d", i)
		e := on(v.must(t, edit(id, fmt.Sprintf(`{"i":%d,"text":%q}`, i%17, strings.Repeat("x", 100_000)))), edit(id, fmt.Sprintf(`{"i":%d}`, i%17)))
		if i == 20 {
			e = on(e.Parent, edit(id, `{"i":17}`))
		}
		edits = append(edits, e)
	}
	for i, r := range v.write(t, edits...) {
		if (r.Err == nil) != (i != 20) {
			t.Errorf("%d: %+v", i, r)
		}
	}
}

// TestConflictGoesFirst refuses what is in conflict before any function sees it,
// and leaves no way around the functions by way of the edits beside it.
func TestConflictGoesFirst(t *testing.T) {
	t.Parallel()
	v := newValidated(t, `function(n, o) { if (n.bad) throw({forbidden: 'no'}); }`)
	r1 := v.must(t, edit("a", `{}`))
	r2 := v.must(t, on(r1, edit("a", `{"n":2}`)))
	gone := v.must(t, edit("gone", `{}`))
	gone = v.must(t, on(gone, deletion(edit("gone", `{}`))))
	for i, e := range []model.Edit{
		edit("a", `{"bad":1}`), on(r1, edit("a", `{"bad":1}`)), on(model.Rev{Pos: 2, Hash: "none"}, edit("a", `{"bad":1}`)),
		on(r1, edit("none", `{"bad":1}`)), on(gone, deletion(edit("gone", `{"bad":1}`))), deletion(edit("gone", `{"bad":1}`)),
	} {
		if r := v.one(t, e); !errors.Is(r.Err, model.ErrConflict) {
			t.Errorf("%d: %+v", i, r.Err)
		}
	}
	// The revision of an edit can be computed ahead, and so the one that builds on it
	// can stand beside it in one write.
	next := document.NewRev(r2, false, []byte(`{"n":3}`), nil)
	r := v.write(t, on(r2, edit("a", `{"n":3}`)), on(next, edit("a", `{"bad":1}`)))
	if r[0].Err != nil || r[0].Rev != next || r[1].Err == nil {
		t.Errorf("%+v", r)
	}
	r = v.write(t, on(next, deletion(edit("a", `{}`))), edit("a", `{"bad":1}`))
	if r[0].Err != nil || r[1].Err == nil || v.has(t, "a") {
		t.Errorf("%+v", r)
	}
	// Of two edits of which the first is refused the second counts.
	r = v.write(t, edit("two", `{"bad":1}`), edit("two", `{}`), edit("two", `{"n":1}`))
	if r[0].Err == nil || r[1].Err != nil || !errors.Is(r[2].Err, model.ErrConflict) {
		t.Errorf("%+v", r)
	}
}

// TestKnownRevisions takes what is there already without asking anybody.
func TestKnownRevisions(t *testing.T) {
	t.Parallel()
	v := newValidated(t)
	v.must(t, path(edit("a", `{"bad":1}`), "2-b 1-a"))
	v.define(`function(n) { throw({forbidden: 'nothing any more'}); }`)
	for _, known := range []string{"2-b 1-a", "1-a"} {
		if r := v.one(t, path(edit("a", `{"other":1}`), known)); r.Err != nil || r.Rev.String() != strings.Fields(known)[0] {
			t.Errorf("%s: %+v", known, r)
		}
	}
	if r := v.one(t, path(edit("a", `{}`), "3-c 2-b 1-a")); r.Err == nil {
		t.Errorf("%+v", r)
	}
	if r := v.one(t, path(edit("a", `{}`), "")); r.Err == nil {
		t.Errorf("a replicated edit without a revision: %+v", r)
	}
	resp, err := v.Read(t.Context(), &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: "a", Want: shardapi.WantBody}}})
	if err != nil || string(resp.Answers[0].Docs[0].Body) != `{"bad":1}` {
		t.Errorf("%+v, %v", resp, err)
	}
}

// TestRefusedAttachments leaves no bytes of what is refused, and keeps those of the
// edits beside it.
func TestRefusedAttachments(t *testing.T) {
	t.Parallel()
	v := newValidated(t, `function(n) { if (n.bad) throw({forbidden: 'no'}); }`)
	big := bytes.Repeat([]byte("0123456789abcdef"), 10_000)
	with := func(e model.Edit, ticket string) model.Edit {
		e.Atts = []model.AttachmentEdit{{Staged: ticket, Attachment: model.Attachment{Name: "f", ContentType: "x/y"}}}
		return e
	}
	stage := func(n byte) string {
		s, err := v.Stage(t.Context(), bytes.NewReader(append([]byte{n}, big...)))
		if err != nil {
			t.Fatal(err)
		}
		return s.Ticket
	}
	files := func() (count int) {
		err := filepath.WalkDir(filepath.Join(v.dir, "blobs"), func(_ string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() {
				count++
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return count
	}
	refused := stage(1)
	shared := stage(2)
	r := v.write(t, with(edit("a", `{"bad":1}`), refused), with(edit("b", `{}`), shared), with(edit("c", `{"bad":1}`), shared))
	if r[0].Err == nil || r[1].Err != nil || r[2].Err == nil {
		t.Fatalf("%+v", r)
	}
	if n := files(); n != 1 {
		t.Errorf("%d files, want that of b alone", n)
	}
	if _, err := v.Shard.Write(t.Context(), &shardapi.WriteRequest{Edits: []model.Edit{with(edit("d", `{}`), refused)}}); err == nil {
		t.Error("the ticket of a refused edit can be used again")
	}
	// A write that fails as a whole has used its tickets up too.
	broken := errors.New("no definitions")
	v.err.Store(&broken)
	if _, err := v.Shard.Write(t.Context(), &shardapi.WriteRequest{Edits: []model.Edit{with(edit("e", `{}`), stage(3))}}); !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	v.err.Store(nil)
	cancelled, cancel := context.WithCancel(t.Context())
	ticket := stage(4)
	cancel()
	if _, err := v.Shard.Write(cancelled, &shardapi.WriteRequest{Edits: []model.Edit{with(edit("f", `{}`), ticket)}}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if n := files(); n != 1 {
		t.Errorf("%d files are left", n)
	}
}

// TestUnrunnable refuses everything where a function cannot run.
func TestUnrunnable(t *testing.T) {
	t.Parallel()
	v := newValidated(t)
	why := &model.Error{Kind: model.KindInternal, Name: "unknown_query_language", Reason: "erlang"}
	v.defined.Store(&shardhost.Defined{Validators: []shardhost.Validator{{Design: "_design/e", Err: why}}})
	if r := v.one(t, edit("a", `{}`)); !errors.Is(r.Err, why) {
		t.Errorf("%+v", r)
	}
	if r := v.one(t, edit("_design/a", `{}`)); r.Err != nil {
		t.Errorf("%+v", r)
	}
}
