package shard

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// TestCountsGrow asks for offsets and pending rows of a copy that grows past the
// length at which a run of ids is cut, and past the part of the log that is
// simply counted.
func TestCountsGrow(t *testing.T) {
	t.Parallel()
	store, err := openStore(kv.NewCrashFS().FS(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := Open(store, 1, Prepare(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(5, 5))
	var ids []string
	seqOf := make(map[string]uint64)
	check := func() {
		t.Helper()
		for range 10 {
			id := fmt.Sprintf("%05d", rng.IntN(100_000))
			n := int64(sort.SearchStrings(ids, id))
			head, st, err := c.List(t.Context(), &shardapi.ListRequest{Start: &id, Offset: true})
			if err != nil {
				t.Fatal(err)
			}
			if err := st.Close(); err != nil {
				t.Fatal(err)
			}
			if head.Offset != n || head.TotalRows != int64(len(ids)) {
				t.Fatalf("offset of %q is %d of %d, want %d of %d", id, head.Offset, head.TotalRows, n, len(ids))
			}
			since := rng.Uint64N(c.count.seq + 1)
			n = 0
			for _, seq := range seqOf {
				n += b2i(seq > since)
			}
			if got, err := c.Pending(t.Context(), since); err != nil || got != n {
				t.Fatalf("pending since %d: %d (%v), want %d", since, got, err, n)
			}
		}
	}
	for range 24 {
		var edits []model.Edit
		for range 500 {
			id := fmt.Sprintf("%05d", rng.IntN(100_000))
			if _, twice := seqOf[id]; twice {
				continue
			}
			seqOf[id] = c.count.seq + uint64(len(edits)) + 1
			edits = append(edits, model.Edit{ID: id, Body: []byte(`{}`)})
			ids = append(ids, id)
		}
		if _, err := c.Write(t.Context(), &shardapi.WriteRequest{Edits: edits}); err != nil {
			t.Fatal(err)
		}
		slices.Sort(ids)
		check()
	}
	if n := slices.Max(c.ids.live); len(c.ids.first) < 3 || n > runMax+500 {
		t.Fatalf("%d runs, the longest of %d", len(c.ids.first), n)
	}
	// Deleting moves rows to the end of the log and takes documents away.
	var edits []model.Edit
	for i := 0; i < len(ids); i += 3 {
		resp, err := c.Read(t.Context(), &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: ids[i]}}})
		if err != nil {
			t.Fatal(err)
		}
		seqOf[ids[i]] = c.count.seq + uint64(len(edits)) + 1
		edits = append(edits, model.Edit{ID: ids[i], Deleted: true, Parent: resp.Answers[0].Docs[0].Rev, Body: []byte(`{}`)})
	}
	if _, err := c.Write(t.Context(), &shardapi.WriteRequest{Edits: edits}); err != nil {
		t.Fatal(err)
	}
	for _, e := range edits {
		at, _ := slices.BinarySearch(ids, e.ID)
		ids = slices.Delete(ids, at, at+1)
	}
	check()
}

// TestPartitionInfo counts one partition among others.
func TestPartitionInfo(t *testing.T) {
	t.Parallel()
	store, err := openStore(kv.NewCrashFS().FS(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := Open(store, 1, Prepare(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	var edits []model.Edit
	for _, id := range []string{"a:1", "a:2", "ab:1", "a", "b:1", "a:3"} {
		edits = append(edits, model.Edit{ID: id, Body: []byte(`{"x":1}`), Deleted: id == "a:3"})
	}
	if _, err := c.Write(t.Context(), &shardapi.WriteRequest{Edits: edits}); err != nil {
		t.Fatal(err)
	}
	info, err := c.PartitionInfo(t.Context(), "a")
	if err != nil || info.DocCount != 2 || info.DocDelCount != 1 || info.SizeExternal != 21 || info.SizeActive <= 21 {
		t.Fatalf("%+v %v", info, err)
	}
}

// TestLatestGivesEachLeafOnce asks for two ancestors of one leaf, and for a
// revision with two descendants.
func TestLatestGivesEachLeafOnce(t *testing.T) {
	t.Parallel()
	store, err := openStore(kv.NewCrashFS().FS(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := Open(store, 1, Prepare(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	rev := func(pos uint64, hash string) model.Rev { return model.Rev{Pos: pos, Hash: hash} }
	one, two, three, other := rev(1, "a"), rev(2, "b"), rev(3, "c"), rev(2, "x")
	for _, path := range [][]model.Rev{{three, two, one}, {other, one}} {
		if _, err := c.Write(t.Context(), &shardapi.WriteRequest{Edits: []model.Edit{{ID: "d", Replicated: true, Path: path, Body: []byte(`{}`)}}}); err != nil {
			t.Fatal(err)
		}
	}
	resp, err := c.Read(t.Context(), &shardapi.ReadRequest{Queries: []shardapi.DocQuery{
		{ID: "d", Revs: []model.Rev{two, three}, Latest: true},
		{ID: "d", Revs: []model.Rev{one}, Latest: true},
		{ID: "d", Revs: []model.Rev{two}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range [][]model.Rev{{three}, {three, other}, nil} {
		var got []model.Rev
		for _, d := range resp.Answers[i].Docs {
			got = append(got, d.Rev)
		}
		if !slices.Equal(got, want) {
			t.Errorf("query %d gave %v, want %v", i, got, want)
		}
	}
	if m := resp.Answers[2].Missing; len(m) != 1 || m[0] != two {
		t.Errorf("missing %v", m)
	}
}
