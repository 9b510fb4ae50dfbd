package view

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/reduce"
	"github.com/divandb/divan/internal/shardapi"
)

func TestDropAndLists(t *testing.T) {
	t.Parallel()
	store := openStore(t, kv.NewCrashFS().FS())
	defer store.Close()
	ctx := context.Background()
	all := map[uint64][]string{0: {"a"}, 255: {"a", "b", strings.Repeat("x", 64)}, ^uint64(0): {"z", "\xff\xff"}}
	put := func(id uint64, sig string) {
		x := mustOpen(t, Options{Copy: id, Sig: sig}, store)
		if err := x.Apply(ctx, []DocRows{{ID: "d", Rows: []Row{{[]byte("1"), []byte("2")}}}}, 9); err != nil {
			t.Fatal(err)
		}
	}
	for id, sigs := range all {
		for _, sig := range sigs {
			put(id, sig)
		}
	}
	check := func() {
		t.Helper()
		copies, err := Copies(store)
		if err != nil {
			t.Fatal(err)
		}
		var want []uint64
		for id, sigs := range all {
			if len(sigs) > 0 {
				want = append(want, id)
			}
			got, err := Signatures(store, id)
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(got)
			if !slices.Equal(got, sigs) {
				t.Fatalf("copy %d has %q, want %q", id, got, sigs)
			}
			for _, sig := range sigs {
				if x := mustOpen(t, Options{Copy: id, Sig: sig}, store); x.Seq() != 9 || countRows(t, x) != 1 {
					t.Fatalf("copy %d lost %q", id, sig)
				}
			}
		}
		slices.Sort(want)
		if !slices.Equal(copies, want) {
			t.Fatalf("copies %d, want %d", copies, want)
		}
	}
	check()
	if err := Drop(store, 255, "b"); err != nil {
		t.Fatal(err)
	}
	all[255] = slices.Delete(all[255], 1, 2)
	check()
	if x := mustOpen(t, Options{Copy: 255, Sig: "b"}, store); x.Seq() != 0 || countRows(t, x) != 0 {
		t.Fatal("a dropped index is still there")
	}
	for _, id := range []uint64{255, ^uint64(0)} {
		if err := DropCopy(store, id); err != nil {
			t.Fatal(err)
		}
		all[id] = nil
		check()
	}
	if _, err := Open(Options{Store: store, Sig: strings.Repeat("x", 65)}); err == nil {
		t.Fatal("a signature too long was taken")
	}
}

// TestUnchanged shows that a document whose rows did not change writes nothing but
// the checkpoint.
func TestUnchanged(t *testing.T) {
	t.Parallel()
	store := openStore(t, kv.NewCrashFS().FS())
	defer store.Close()
	x := mustOpen(t, Options{Copy: 1, Sig: "s", Reducer: ordered{}}, store)
	docs := []DocRows{{ID: "d", Rows: []Row{{[]byte("1"), bytes.Repeat([]byte("1"), 5000)}, {[]byte("0"), []byte("2")}}}}
	for seq := range uint64(2) {
		before := store.Metrics().BytesIn
		if err := x.Apply(context.Background(), docs, seq+1); err != nil {
			t.Fatal(err)
		}
		if wrote := store.Metrics().BytesIn - before; (wrote > 5000) != (seq == 0) {
			t.Fatalf("update %d wrote %d bytes", seq, wrote)
		}
	}
	if x.Seq() != 2 {
		t.Fatalf("sequence %d", x.Seq())
	}
}

// TestLargeRows puts in rows with keys and values far larger than a block of the
// store, many to a document.
func TestLargeRows(t *testing.T) {
	t.Parallel()
	store := openStore(t, kv.NewCrashFS().FS())
	defer store.Close()
	o := Options{Copy: 1, Sig: "s", Reducer: ordered{}, bits: 2}
	x := mustOpen(t, o, store)
	m := &naive{o: o, docs: map[string][]Row{}}
	var docs []DocRows
	for i := range 12 {
		d := DocRows{ID: fmt.Sprintf("d%d", i)}
		for k := range 3 {
			key := fmt.Appendf(nil, `["%s",%d]`, strings.Repeat("Long Key ", 1<<(i+1)), k)
			d.Rows = append(d.Rows, Row{key, fmt.Appendf(nil, `"%s"`, strings.Repeat("v", 1<<(i+6)))})
		}
		docs = append(docs, d)
	}
	many := DocRows{ID: "many"}
	for i := range 3000 {
		many.Rows = append(many.Rows, Row{fmt.Append(nil, i%7), fmt.Append(nil, i)})
	}
	docs = append(docs, many)
	for seq := range uint64(3) {
		if seq == 1 {
			docs[12].Rows = docs[12].Rows[500:]
		}
		if err := x.Apply(context.Background(), docs, seq+1); err != nil {
			t.Fatal(err)
		}
		m.apply(docs)
		if err := checkIndex(x, m); err != nil {
			t.Fatal(err)
		}
		for _, level := range []int{shardapi.GroupNone, shardapi.GroupExact, 1} {
			for _, desc := range []bool{false, true} {
				m.check(t, x, &shardapi.ViewRequest{Limit: -1, Reduce: true, GroupLevel: level, Descending: desc, Ranges: make([]shardapi.KeyRange, 1)})
			}
		}
		m.check(t, x, &shardapi.ViewRequest{Limit: -1, Offset: true, Ranges: make([]shardapi.KeyRange, 1)})
	}
}

// TestManyKeys asks for ten thousand keys at once.
func TestManyKeys(t *testing.T) {
	t.Parallel()
	store := openStore(t, kv.NewCrashFS().FS())
	defer store.Close()
	x := mustOpen(t, Options{Copy: 1, Sig: "s", Reducer: ordered{}}, store)
	var docs []DocRows
	for i := range 5000 {
		docs = append(docs, DocRows{ID: fmt.Sprint(i), Rows: []Row{{fmt.Append(nil, i*2), []byte("1")}}})
	}
	if err := x.Apply(context.Background(), docs, 1); err != nil {
		t.Fatal(err)
	}
	for _, reduced := range []bool{false, true} {
		req := &shardapi.ViewRequest{Limit: -1, Reduce: reduced, GroupLevel: shardapi.GroupExact}
		for i := range 10_000 {
			k := fmt.Append(nil, (i*7919)%10_000)
			req.Ranges = append(req.Ranges, shardapi.KeyRange{Start: k, End: k})
		}
		_, st, err := x.Query(context.Background(), req)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := readAll(st)
		if err != nil {
			t.Fatal(err)
		}
		if len(rows) != 5000 {
			t.Fatalf("%d rows", len(rows))
		}
		last := -1
		for _, r := range rows {
			if r.Range <= last || !bytes.Equal(r.Key, req.Ranges[r.Range].Start) {
				t.Fatalf("range %d after %d has key %s", r.Range, last, r.Key)
			}
			last = r.Range
		}
	}
}

// TestQueriesWhileUpdating lets queries run against updates and builds. Every
// state has rows of one generation only, so a mixture would show.
func TestQueriesWhileUpdating(t *testing.T) {
	t.Parallel()
	store := openStore(t, kv.NewCrashFS().FS())
	defer store.Close()
	x := mustOpen(t, Options{Copy: 1, Sig: "s", Reducer: ordered{}, bits: 2}, store)
	ctx := context.Background()
	const docs = 200
	generation := func(g int) (out []DocRows) {
		for i := range docs {
			// Later generations have more rows, some at other places.
			d := DocRows{ID: fmt.Sprint("d", i)}
			for k := range 1 + g%3 {
				d.Rows = append(d.Rows, Row{fmt.Appendf(nil, "[%d,%d]", i%10, i*g%50+k), fmt.Append(nil, g)})
			}
			out = append(out, d)
		}
		return out
	}
	if err := x.Apply(ctx, generation(1), 1); err != nil {
		t.Fatal(err)
	}
	var stop atomic.Bool
	var work sync.WaitGroup
	for w := range 4 {
		work.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 3))
			for !stop.Load() {
				if err := oneGeneration(x, r, docs); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for g := 2; g < 18; g++ {
		if g%5 == 0 {
			if err := x.Begin(1 << 40); err != nil {
				t.Fatal(err)
			}
		}
		if err := x.Apply(ctx, generation(g), uint64(g)); err != nil {
			t.Fatal(err)
		}
		if err := x.Finish(ctx); err != nil {
			t.Fatal(err)
		}
		if _, err := x.Sizes(); err != nil {
			t.Fatal(err)
		}
	}
	stop.Store(true)
	work.Wait()
}

// oneGeneration asks one query and checks that its answer is of one moment.
func oneGeneration(x *Index, r *rand.Rand, docs int) error {
	req := &shardapi.ViewRequest{Limit: -1, Ranges: make([]shardapi.KeyRange, 1), Descending: r.IntN(2) == 0}
	req.Reduce = r.IntN(2) == 0
	if req.Reduce {
		req.GroupLevel = []int{shardapi.GroupNone, 1, shardapi.GroupExact}[r.IntN(3)]
	}
	head, st, err := x.Query(context.Background(), req)
	if err != nil {
		return err
	}
	rows, err := readAll(st)
	if err != nil {
		return err
	}
	want := docs * (1 + int(head.Seq)%3)
	count := 0
	for _, row := range rows {
		if req.Reduce {
			n, err := ordered{}.Final(row.Value)
			if err != nil {
				return err
			}
			var c int
			fmt.Sscan(string(n), &c)
			count += c
			continue
		}
		count++
		if string(row.Value) != fmt.Sprint(head.Seq) {
			return fmt.Errorf("sequence %d shows a row of %s", head.Seq, row.Value)
		}
	}
	if count != want || head.TotalRows != int64(want) {
		return fmt.Errorf("sequence %d: %d rows and a total of %d, want %d", head.Seq, count, head.TotalRows, want)
	}
	return nil
}

// TestSlowReader lets the clock take the store away between batches: the answer
// is complete all the same, in both directions, rows and groups.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	store := openStore(t, kv.NewCrashFS().FS())
	defer store.Close()
	o := Options{Copy: 1, Sig: "s", Reducer: ordered{}, bits: 2}
	x := mustOpen(t, o, store)
	m := &naive{o: o, docs: map[string][]Row{}}
	var docs []DocRows
	for i := range 2000 {
		docs = append(docs, DocRows{ID: fmt.Sprint(i), Rows: []Row{{fmt.Appendf(nil, "[%d,1]", i/2), []byte("1")}}})
	}
	if err := x.Apply(context.Background(), docs, 1); err != nil {
		t.Fatal(err)
	}
	m.apply(docs)
	for _, level := range []int{0, 1, shardapi.GroupExact} {
		for _, desc := range []bool{false, true} {
			req := &shardapi.ViewRequest{Limit: -1, Descending: desc, Reduce: level != 0, GroupLevel: level, Ranges: make([]shardapi.KeyRange, 3)}
			req.Ranges[0].Start, req.Ranges[0].End = []byte("[3]"), []byte("[700]")
			if desc {
				req.Ranges[0].Start, req.Ranges[0].End = req.Ranges[0].End, req.Ranges[0].Start
			}
			_, want := m.query(req)
			_, st, err := x.Query(context.Background(), req)
			if err != nil {
				t.Fatal(err)
			}
			got, err := readAll(expiring{st.(*stream)})
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(want) {
				t.Fatalf("level %d descending %t: %d rows, want %d", level, desc, len(got), len(want))
			}
			for i := range got {
				if !sameRow(&got[i], &want[i]) {
					t.Fatalf("level %d descending %t, row %d: %s, want %s", level, desc, i, showRow(got, i), showRow(want, i))
				}
			}
		}
	}
	// The clock itself.
	_, st, err := x.Query(context.Background(), &shardapi.ViewRequest{Limit: -1, Ranges: make([]shardapi.KeyRange, 1)})
	if err != nil {
		t.Fatal(err)
	}
	if s := st.(*stream); s.timer == nil || !s.timer.Reset(time.Hour) {
		t.Fatal("no clock watches over a stream that is not at its end")
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}

// expiring is a stream whose clock runs out after each batch.
type expiring struct{ *stream }

func (e expiring) Next() ([]shardapi.ViewRow, error) {
	e.expire()
	return e.stream.Next()
}

// TestBuiltin holds the reductions of package reduce against a plain computation.
func TestBuiltin(t *testing.T) {
	t.Parallel()
	store := openStore(t, kv.NewCrashFS().FS())
	defer store.Close()
	sum, err := reduce.Builtin("_sum")
	if err != nil {
		t.Fatal(err)
	}
	x := mustOpen(t, Options{Copy: 1, Sig: "s", Reducer: sum}, store)
	var docs []DocRows
	want := map[string]int{}
	for i := range 3000 {
		docs = append(docs, DocRows{ID: fmt.Sprint(i), Rows: []Row{{fmt.Appendf(nil, "[%d,%d]", i%3, i), fmt.Append(nil, i)}}})
		want[fmt.Sprintf("[%d]", i%3)] += i
	}
	if err := x.Apply(context.Background(), docs, 1); err != nil {
		t.Fatal(err)
	}
	_, st, err := x.Query(context.Background(), &shardapi.ViewRequest{Limit: -1, Reduce: true, GroupLevel: 1, Ranges: make([]shardapi.KeyRange, 1)})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := readAll(st)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		v, err := sum.Final(r.Value)
		if err != nil || string(v) != fmt.Sprint(want[string(r.Key)]) {
			t.Fatalf("%s: %s, want %d (%v)", r.Key, v, want[string(r.Key)], err)
		}
		delete(want, string(r.Key))
	}
	if len(want) > 0 {
		t.Fatalf("no groups for %v", want)
	}
}

// TestLevels looks at the spread of the hash.
func TestLevels(t *testing.T) {
	t.Parallel()
	h := newHasher(12345, firstBits, levelBits)
	const rows = 1 << 16
	var at [maxLevel + 1]int
	for i := range rows {
		at[h.level(fmt.Appendf(nil, "%07d", i))]++
	}
	first, second := rows-at[0], rows-at[0]-at[1]
	if first < rows/16*9/10 || first > rows/16*11/10 || second < rows/512*5/10 || second > rows/512*15/10 {
		t.Fatalf("rows by level: %d", at)
	}
}

// TestSizes looks at the figures of an index.
func TestSizes(t *testing.T) {
	t.Parallel()
	store := openStore(t, kv.NewCrashFS().FS())
	defer store.Close()
	x := mustOpen(t, Options{Copy: 1, Sig: "s"}, store)
	r := maker{rand.New(rand.NewPCG(4, 4))}
	for seq := range uint64(20) {
		if err := x.Apply(context.Background(), r.docs(100, false), seq+1); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		s, err := x.Sizes()
		if err != nil {
			t.Fatal(err)
		}
		if s.External <= 0 || s.Active <= s.External || s.File < s.Active {
			t.Fatalf("%+v", s)
		}
		if err := store.Flush(); err != nil {
			t.Fatal(err)
		}
	}
}
