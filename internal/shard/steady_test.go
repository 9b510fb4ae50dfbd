package shard

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// A steady stream shows every document as it was at its beginning, once, though
// all of them change while it is read and its iterators are made anew.
func TestSteadyChanges(t *testing.T) {
	t.Parallel()
	store, err := openStore(kv.NewCrashFS().FS(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := Open(store, 1, Prepare(Options{IterMax: time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	const docs = 3 * batchRows
	revs := make(map[string]model.Rev, docs)
	for i := range docs {
		id := fmt.Sprintf("d%04d", i)
		revs[id] = mustWrite(t, c, 0, model.Edit{ID: id, Body: []byte(`{"v":1}`)})[0].Rev
	}
	st, err := c.SteadyChanges(t.Context(), &shardapi.ChangesRequest{Limit: -1, IncludeDocs: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	seen := make(map[string]bool, docs)
	for {
		rows, err := st.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range rows {
			if seen[rows[i].ID] || string(rows[i].Doc.Body) != `{"v":1}` {
				t.Fatalf("%s came as %s (seen %v)", rows[i].ID, rows[i].Doc.Body, seen[rows[i].ID])
			}
			seen[rows[i].ID] = true
		}
		var edits []model.Edit
		for id, rev := range revs {
			edits = append(edits, model.Edit{ID: id, Parent: rev, Body: []byte(`{"v":2}`)})
		}
		for _, r := range mustWrite(t, c, 0, edits...) {
			revs[r.ID] = r.Rev
		}
		v := &st.(*changeStream).view
		waitUntil(t, func() bool { v.mu.Lock(); defer v.mu.Unlock(); return v.iter == nil })
		if v.snap == nil {
			t.Fatal("the clock took the snapshot")
		}
	}
	if len(seen) != docs || st.Seq() != docs {
		t.Fatalf("%d documents up to %d", len(seen), st.Seq())
	}
	if st.(*changeStream).snap != nil {
		t.Fatal("the end keeps the snapshot")
	}
}

// waitUntil waits for what the clock does.
func waitUntil(t *testing.T, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it does not happen")
		}
	}
}
