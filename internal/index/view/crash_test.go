package view

import (
	"context"
	"errors"

	"maps"
	"math/rand/v2"
	"testing"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/reduce"
	"github.com/divandb/divan/internal/shardapi"
)

// history is every state an index went through, by its sequence.
type history struct {
	steps [][]DocRows
	after []map[string][]Row
}

func makeHistory(r maker, o Options, n int) *history {
	h := &history{}
	m := &naive{o: o, docs: map[string][]Row{}}
	h.after = append(h.after, map[string][]Row{})
	for range n {
		docs := r.docs(1<<r.IntN(8), o.Partitioned)
		m.apply(docs)
		h.steps = append(h.steps, docs)
		h.after = append(h.after, maps.Clone(m.docs))
	}
	return h
}

// advance runs the steps behind the checkpoint, some of them as builds, and calls
// cut after some of what it does.
func (h *history) advance(x *Index, r maker, cut func()) error {
	ctx := context.Background()
	for int(x.Seq()) < len(h.steps) {
		build := r.IntN(3) == 0
		if build {
			if err := x.Begin(1 << 40); err != nil {
				return err
			}
		}
		for range 1 + r.IntN(6) {
			at := int(x.Seq())
			if at == len(h.steps) {
				break
			}
			if err := x.Apply(ctx, h.steps[at], uint64(at+1)); err != nil {
				return err
			}
			cut()
		}
		if err := x.Finish(ctx); err != nil {
			return err
		}
		cut()
	}
	return nil
}

// TestCrash cuts the power at random moments of updates and builds. What is left
// must be one of the states the index went through, or a build under way that
// shows nothing; and going on from there must end in the same rows and nodes.
func TestCrash(t *testing.T) {
	t.Parallel()
	building, cuts := 0, 0
	for seed := range uint64(5) {
		o := Options{Copy: 3, Sig: "s", bits: 1 + int(seed%2)}
		if seed%3 > 0 {
			o.Reducer = ordered{}
		}
		o.Partitioned = seed == 4
		r := maker{rand.New(rand.NewPCG(seed, 5))}
		h := makeHistory(r, o, 30)
		disk := kv.NewCrashFS()
		var left []*kv.CrashFS
		store := openStore(t, disk.FS())
		x := mustOpen(t, o, store)
		err := h.advance(x, r, func() {
			if r.IntN(12) > 0 {
				return
			}
			if r.IntN(2) == 0 {
				// Else nothing would ever be on the disk: the log is not synced.
				if err := store.Flush(); err != nil {
					t.Error(err)
				}
			}
			left = append(left, disk.CrashKeeping(r.IntN(101), r.Uint64()))
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		for i, fs := range left {
			cuts++
			store := openStore(t, fs.FS())
			x := mustOpen(t, o, store)
			if x.now.building {
				building++
				if n := countRows(t, x); n != 0 {
					t.Fatalf("seed %d, cut %d: %d rows shown of an unfinished build", seed, i, n)
				}
			} else if x.Seq() > 0 {
				if err := checkIndex(x, &naive{o: o, docs: h.after[x.Seq()]}); err != nil {
					t.Fatalf("seed %d, cut %d, sequence %d: %v", seed, i, x.Seq(), err)
				}
			}
			if err := h.advance(x, r, func() {}); err != nil {
				t.Fatal(err)
			}
			if x.now.building {
				// The cut came behind the last step: only the nodes are missing.
				if err := x.Finish(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
			if err := checkIndex(x, &naive{o: o, docs: h.after[len(h.steps)]}); err != nil {
				t.Fatalf("seed %d, cut %d, at the end: %v", seed, i, err)
			}
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if building == 0 || building == cuts {
		t.Fatalf("%d of %d cuts came during a build: the test sees too little", building, cuts)
	}
}

func mustOpen(t testing.TB, o Options, store *kv.Store) *Index {
	t.Helper()
	o.Store = store
	x, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// countRows reads all rows of a view.
func countRows(t testing.TB, x *Index) int {
	t.Helper()
	_, st, err := x.Query(context.Background(), &shardapi.ViewRequest{Limit: -1, Ranges: make([]shardapi.KeyRange, 1), Partition: "p"})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := readAll(st)
	if err != nil {
		t.Fatal(err)
	}
	return len(rows)
}

// TestFinishFails lets the reduction fail in the middle of a build: the index
// keeps showing what it had, and the next Finish ends the build.
func TestFinishFails(t *testing.T) {
	t.Parallel()
	store := openStore(t, kv.NewCrashFS().FS())
	defer store.Close()
	red := &failing{}
	x := mustOpen(t, Options{Copy: 1, Sig: "s", Reducer: red, bits: 2}, store)
	ctx := context.Background()
	m := &naive{o: x.o, docs: map[string][]Row{}}
	r := maker{rand.New(rand.NewPCG(9, 9))}
	apply := func() error {
		docs := r.docs(200, false)
		err := x.Apply(ctx, docs, x.Seq()+1)
		if err == nil {
			m.apply(docs)
		}
		return err
	}
	if err := apply(); err != nil {
		t.Fatal(err)
	}
	before := countRows(t, x)
	red.after = 1
	if err := apply(); err == nil {
		t.Fatal("an update went through without its reductions")
	}
	if err := checkIndex(x, m); err != nil {
		t.Fatal(err)
	}
	if err := x.Begin(1 << 40); err != nil {
		t.Fatal(err)
	}
	if err := apply(); err != nil {
		t.Fatal(err)
	}
	red.after = 1
	if err := x.Finish(ctx); err == nil {
		t.Fatal("a build went through without its reductions")
	}
	if n := countRows(t, x); n != before {
		t.Fatalf("%d rows shown after a failed build, want the %d from before", n, before)
	}
	if err := x.Begin(1); err != nil {
		t.Fatal(err)
	}
	if err := apply(); err != nil {
		t.Fatal(err)
	}
	if err := x.Finish(ctx); err != nil {
		t.Fatal(err)
	}
	if err := checkIndex(x, m); err != nil {
		t.Fatal(err)
	}
	if n := countRows(t, x); n != len(m.rows("")) {
		t.Fatalf("%d rows shown, want %d", n, len(m.rows("")))
	}
}

// failing is a reduction that fails once, in its call number after.
type failing struct {
	ordered
	after int
}

func (f *failing) Reduce(ctx context.Context, runs []reduce.Run) ([][]byte, error) {
	if f.after > 0 {
		if f.after--; f.after == 0 {
			return nil, errors.New("no worker")
		}
	}
	return f.ordered.Reduce(ctx, runs)
}
