package shard

import (
	"context"
	"fmt"
	"testing"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// The filter never denies an id it was given, and denies most others.
func TestKnownIDs(t *testing.T) {
	t.Parallel()
	k := &knownIDs{}
	const n = 100_000
	for i := range n {
		if !k.add(fmt.Sprint("id", i)) {
			t.Fatal("full")
		}
	}
	wrong := 0
	for i := range n {
		if !k.has(fmt.Sprint("id", i)) {
			t.Fatalf("id%d is denied", i)
		}
		if k.has(fmt.Sprint("other", i)) {
			wrong++
		}
	}
	if wrong > n/20 {
		t.Errorf("%d of %d strangers are let through", wrong, n)
	}
	bytes := 0
	for _, l := range k.layers {
		bytes += 8 * len(l.bits)
	}
	t.Logf("%d bytes for %d ids, %.2f %% of strangers let through", bytes, n, 100*float64(wrong)/n)
	if (&knownIDs{}).has("x") {
		t.Error("an empty filter knows something")
	}
}

// A copy that is opened with documents in it makes its filter from the store while
// writes go on, and still finds every document.
func TestKnownIsMadeFromTheStore(t *testing.T) {
	t.Parallel()
	store, err := kv.Open("data", kv.Options{FS: kv.NewCrashFS().FS(), MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	open := func() *Copy {
		c, err := Open(store, 1, Prepare(Options{}))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	write := func(c *Copy, from, to int) (conflicts int) {
		req := &shardapi.WriteRequest{}
		for i := from; i < to; i++ {
			req.Edits = append(req.Edits, model.Edit{ID: fmt.Sprint("d", i), Body: []byte(`{}`)})
		}
		resp, err := c.Write(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range resp.Results {
			if r.Err != nil {
				conflicts++
			}
		}
		return conflicts
	}
	c := open()
	if c.known == nil || write(c, 0, 1000) != 0 || !c.known.has("d7") {
		t.Fatal("a new copy notes its documents")
	}
	c = open() // the first one is idle
	if c.known != nil {
		t.Fatal("a filter out of nothing")
	}
	if got := write(c, 500, 1500); got != 500 {
		t.Fatalf("%d conflicts, want 500", got)
	}
	next := 1500
	for c.known == nil {
		if next > 20_000 {
			t.Fatal("no filter was made")
		}
		if write(c, next, next+500) != 0 {
			t.Fatal("conflicts")
		}
		next += 500
	}
	if got := write(c, 0, next+100); got != next {
		t.Fatalf("%d conflicts, want %d", got, next)
	}
}
