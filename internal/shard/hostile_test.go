package shard

import (
	"bytes"
	"fmt"
	"io"
	"testing"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// memoryCopy gives a copy on a store in memory.
func memoryCopy(t *testing.T, o Options) *Copy {
	t.Helper()
	store, err := openStore(kv.NewCrashFS().FS(), true)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := Open(store, 1, Prepare(o))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// mustWrite writes edits none of which may be refused.
func mustWrite(t *testing.T, c *Copy, limit int, edits ...model.Edit) []model.EditResult {
	t.Helper()
	resp, err := c.Write(t.Context(), &shardapi.WriteRequest{Edits: edits, RevsLimit: limit})
	if err != nil {
		t.Fatal(err)
	}
	for i := range resp.Results {
		if resp.Results[i].Err != nil {
			t.Fatalf("edit %d: %v", i, resp.Results[i].Err)
		}
	}
	return resp.Results
}

// TestManyConflictsInOneWrite brings thousands of leaves of one document at once.
// Work per edit that grew with the square of the leaves would take minutes, under
// the lock that all writers of the range need.
func TestManyConflictsInOneWrite(t *testing.T) {
	t.Parallel()
	c := memoryCopy(t, Options{})
	const leaves = 8000
	edits := make([]model.Edit, leaves)
	revs := make([]model.Rev, leaves)
	for i := range edits {
		revs[i] = model.Rev{Pos: 2, Hash: fmt.Sprintf("%032x", i)}
		edits[i] = model.Edit{ID: "d", Body: []byte("{}"), Replicated: true, Path: []model.Rev{revs[i], {Pos: 1, Hash: "a"}}}
	}
	mustWrite(t, c, 0, edits...)
	resp, err := c.Read(t.Context(), &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: "d", AllLeaves: true}}})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(resp.Answers[0].Docs); n != leaves {
		t.Fatalf("%d leaves, want %d", n, leaves)
	}
	// And asking for all of them, and as many unknown ones, must not multiply either.
	for i := range leaves {
		revs = append(revs, model.Rev{Pos: 3, Hash: fmt.Sprintf("%032x", i)})
	}
	diff, err := c.RevsDiff(t.Context(), &shardapi.RevsDiffRequest{IDs: []string{"d"}, Revs: [][]model.Rev{revs}})
	if err != nil {
		t.Fatal(err)
	}
	if n := len(diff.Diffs[0].Missing); n != leaves {
		t.Fatalf("%d missing, want %d", n, leaves)
	}
	if err := checkCopy(c); err != nil {
		t.Fatal(err)
	}
}

// TestBatchesCountLeaves streams documents with many conflicts: a batch is bounded
// by what it takes, not by its rows alone.
func TestBatchesCountLeaves(t *testing.T) {
	t.Parallel()
	c := memoryCopy(t, Options{})
	const docs, leaves = 40, 1500
	for d := range docs {
		edits := make([]model.Edit, leaves)
		for i := range edits {
			edits[i] = model.Edit{ID: fmt.Sprint(d), Body: []byte("{}"), Replicated: true, Path: []model.Rev{{Pos: 1, Hash: fmt.Sprintf("%032x", i)}}}
		}
		mustWrite(t, c, 0, edits...)
	}
	most, rows := 0, 0
	feed, err := c.Changes(t.Context(), &shardapi.ChangesRequest{Limit: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer feed.Close()
	for {
		batch, err := feed.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		most, rows = max(most, len(batch)), rows+len(batch)
	}
	if bound := 1 + batchBytes/(32*leaves); most > bound || rows != docs {
		t.Errorf("changes: %d rows, up to %d in a batch, want %d and %d", rows, most, docs, bound)
	}
	most, rows = 0, 0
	_, list, err := c.List(t.Context(), &shardapi.ListRequest{Limit: -1, IncludeDocs: true, Want: shardapi.WantLeaves})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	for {
		batch, err := list.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		most, rows = max(most, len(batch)), rows+len(batch)
	}
	if bound := 1 + batchBytes/(64*leaves); most > bound || rows != docs {
		t.Errorf("list: %d rows, up to %d in a batch, want %d and %d", rows, most, docs, bound)
	}
}

// TestManyAttachments writes a document with thousands of attachments, keeps them
// as stubs, and lets go of them.
func TestManyAttachments(t *testing.T) {
	t.Parallel()
	c := memoryCopy(t, Options{})
	ctx := t.Context()
	const count = 5000
	edit := model.Edit{ID: "d", Body: []byte("{}"), Atts: make([]model.AttachmentEdit, count)}
	for i := range edit.Atts {
		s, err := c.Stage(ctx, bytes.NewReader(fmt.Append(nil, i)))
		if err != nil {
			t.Fatal(err)
		}
		edit.Atts[i] = model.AttachmentEdit{Attachment: model.Attachment{Name: fmt.Sprint(i), ContentType: "a/b"}, Staged: s.Ticket}
	}
	first := mustWrite(t, c, 0, edit)[0].Rev
	stubs := func() []model.AttachmentEdit {
		atts := make([]model.AttachmentEdit, count)
		for i := range atts {
			atts[i] = model.AttachmentEdit{Attachment: model.Attachment{Name: fmt.Sprint(i)}, Stub: true}
		}
		return atts
	}
	second := mustWrite(t, c, 0, model.Edit{ID: "d", Body: []byte(`{"a":1}`), Parent: first, Atts: stubs()})[0].Rev
	third := model.Rev{Pos: 3, Hash: "third"}
	mustWrite(t, c, 0, model.Edit{ID: "d", Body: []byte(`{"a":2}`), Replicated: true, Path: []model.Rev{third, second, first}, Atts: stubs()})
	if err := checkCopy(c); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, c, 0, model.Edit{ID: "d", Body: []byte("{}"), Parent: third, Deleted: true})
	if _, err := c.Compact(ctx, c.opts.Now().Add(1e9)); err != nil {
		t.Fatal(err)
	}
	if err := checkCopy(c); err != nil {
		t.Fatal(err)
	}
	if _, found, err := c.readBlobRow(&model.BlobID{}); found || err != nil {
		t.Fatal(found, err)
	}
}

// TestForgottenRevisionIsMadeAgain makes, by an ordinary edit, a revision that
// stemming has forgotten and whose body compaction has not removed yet: the old
// body's references to attachments must not stay.
func TestForgottenRevisionIsMadeAgain(t *testing.T) {
	t.Parallel()
	c := memoryCopy(t, Options{})
	s, err := c.Stage(t.Context(), bytes.NewReader([]byte("bytes")))
	if err != nil {
		t.Fatal(err)
	}
	att := model.AttachmentEdit{Attachment: model.Attachment{Name: "a", ContentType: "a/b"}, Staged: s.Ticket}
	stub := []model.AttachmentEdit{{Attachment: model.Attachment{Name: "a"}, Stub: true}}
	first := mustWrite(t, c, 1, model.Edit{ID: "d", Body: []byte("{}"), Atts: []model.AttachmentEdit{att}})[0].Rev
	edit := model.Edit{ID: "d", Body: []byte(`{"a":1}`), Parent: first, Atts: stub}
	second := mustWrite(t, c, 1, edit)[0].Rev
	mustWrite(t, c, 1, model.Edit{ID: "d", Body: []byte(`{"a":2}`), Parent: second, Atts: stub})
	mustWrite(t, c, 1, model.Edit{ID: "d", Body: []byte("{}"), Replicated: true, Path: []model.Rev{first}, Atts: stub})
	if again := mustWrite(t, c, 1, edit)[0].Rev; again != second {
		t.Fatalf("%v is another revision than %v", again, second)
	}
	if err := checkCopy(c); err != nil {
		t.Fatal(err)
	}
}
