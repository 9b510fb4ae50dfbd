package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// brief writes events as "type name" for comparing.
func brief(events []Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.Type.String()+" "+e.Name)
	}
	return out
}

func eventsAfter(l *Local, since uint64) []Event {
	return slices.Collect(l.Events(since, false, -1))
}

// waitEvents collects n events after since.
func waitEvents(t *testing.T, l *Local, since uint64, n int) []Event {
	t.Helper()
	for {
		last := l.LastEvent()
		if got := eventsAfter(l, since); len(got) >= n {
			return got
		}
		if _, err := l.WaitEvents(t.Context(), last); err != nil {
			t.Fatal(err)
		}
	}
}

// TestUpdatedEvents writes, stops and starts: the newest row of a type stays, the
// last write is never without its event, and a lost one is derived.
func TestUpdatedEvents(t *testing.T) {
	store := openStore(t, kv.NewCrashFS().FS())
	l := openLocal(t, store, Options{UpdateEvery: 50 * time.Millisecond})
	d, err := l.Create(t.Context(), CreateSpec{Name: "a", Q: 2})
	if err != nil {
		t.Fatal(err)
	}
	since := l.LastEvent()
	one, two := d.Shards[0].Copies[0].ID, d.Shards[1].Copies[0].ID
	l.Touched(one, 1)
	first := waitEvents(t, l, since, 1)
	if got := brief(first); !slices.Equal(got, []string{"updated a"}) {
		t.Fatalf("after the first write: %v", got)
	}
	for seq := range uint64(1000) {
		l.Touched(one, seq+2)
		l.Touched(two, seq+1)
	}
	waitEvents(t, l, first[0].Seq, 1)
	// Only the newest of a type stays.
	if got := brief(eventsAfter(l, since)); !slices.Equal(got, []string{"updated a"}) {
		t.Errorf("rows after two events: %v", got)
	}
	// The last sum is in the row: nothing is derived at the next start.
	for {
		last := l.LastEvent()
		if l.entryOf("a").sum() == l.recordedSum(t, "a") {
			break
		}
		if _, err := l.WaitEvents(t.Context(), last); err != nil {
			t.Fatal(err)
		}
	}
	l.Close() // after which nothing is on its way any more
	last := l.LastEvent()
	seqs := map[shardapi.CopyID]uint64{one: 1001, two: 1000}
	copySeq := func(id shardapi.CopyID) (uint64, error) { return seqs[id], nil }
	l = openLocal(t, store, Options{CopySeq: copySeq})
	if l.LastEvent() != last {
		t.Errorf("a start with nothing lost wrote %v", brief(eventsAfter(l, last)))
	}
	l.Close()
	// A write whose event was lost with the process.
	seqs[two]++
	l = openLocal(t, store, Options{CopySeq: copySeq})
	if got := brief(eventsAfter(l, last)); !slices.Equal(got, []string{"updated a"}) {
		t.Errorf("derived %v", got)
	}
}

// entryOf and recordedSum look inside.
func (l *Local) entryOf(name string) *entry {
	l.seen.RLock()
	defer l.seen.RUnlock()
	return l.seen.dbs[name]
}

func (l *Local) recordedSum(t *testing.T, name string) uint64 {
	t.Helper()
	var sum uint64
	err := scan(l.store, tableEvent, func(_, val []byte) error {
		ev, err := decodeEvent(1, val)
		if err == nil && ev.Name == name && ev.Type == EventUpdated {
			sum = ev.sum
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum
}

// TestUpdatedRateInSimulatedTime walks through the rule: at once, then at most
// once per second, the owed one at the end of the second, and idle again.
func TestUpdatedRateInSimulatedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, err := kv.Open("store", kv.Options{FS: kv.NewCrashFS().FS(), MinFree: -1})
		if err != nil {
			t.Fatal(err)
		}
		l, err := Open(t.Context(), store, Options{})
		if err != nil {
			t.Fatal(err)
		}
		d, err := l.Create(t.Context(), CreateSpec{Name: "a", Q: 1})
		if err != nil {
			t.Fatal(err)
		}
		id := d.Shards[0].Copies[0].ID
		numbers := []uint64{l.LastEvent()}
		step := func(seq uint64, wait time.Duration) {
			if seq > 0 {
				l.Touched(id, seq)
			}
			synctest.Wait()
			time.Sleep(wait)
			synctest.Wait()
			numbers = append(numbers, l.LastEvent())
		}
		step(1, 0)                    // at once
		step(2, 0)                    // owed
		step(3, 998*time.Millisecond) // still
		step(0, 2*time.Millisecond)   // the owed one, of both
		step(0, 5*time.Second)        // nothing more
		step(4, 0)                    // idle again: at once
		step(4, 5*time.Second)        // nothing new: no event
		base := numbers[0]
		for i := range numbers {
			numbers[i] -= base
		}
		if want := []uint64{0, 1, 1, 1, 2, 2, 3, 3}; !slices.Equal(numbers, want) {
			t.Errorf("events so far after each step: %v, want %v", numbers, want)
		}
		l.Close()
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// TestEventsRules checks the log against a list that keeps the newest of each
// name and type, in both directions, with limits, and after a restart.
func TestEventsRules(t *testing.T) {
	t.Parallel()
	fs := kv.NewCrashFS()
	store := openStore(t, fs.FS())
	l := openLocal(t, store, Options{UpdateEvery: time.Nanosecond})
	rnd := rand.New(rand.NewPCG(7, 7))
	var want []string
	for _, e := range eventsAfter(l, 0) {
		want = append(want, e.Type.String()+" "+e.Name)
	}
	note := func(s string) {
		if i := slices.Index(want, s); i >= 0 {
			want = slices.Delete(want, i, i+1)
		}
		want = append(want, s)
	}
	seqs := map[string]uint64{}
	for range 400 {
		name := fmt.Sprintf("db%d", rnd.IntN(6))
		d, err := l.Get(name)
		switch {
		case err != nil:
			if _, err := l.Create(t.Context(), CreateSpec{Name: name, Q: 1}); err != nil {
				t.Fatal(err)
			}
			seqs[name] = 0
			note("created " + name)
		case rnd.IntN(3) == 0:
			if _, err := l.Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
			note("deleted " + name)
		default:
			last := l.LastEvent()
			seqs[name]++
			l.Touched(d.Shards[0].Copies[0].ID, seqs[name])
			if _, err := l.WaitEvents(t.Context(), last); err != nil {
				t.Fatal(err)
			}
			note("updated " + name)
		}
	}
	check := func(l *Local) {
		t.Helper()
		all := eventsAfter(l, 0)
		if got := brief(all); !slices.Equal(got, want) {
			t.Fatalf("events %v\nwant %v", got, want)
		}
		for _, since := range []int{0, 1, len(all) / 2, len(all) - 1} {
			if got := eventsAfter(l, all[since].Seq); !slices.Equal(got, all[since+1:]) {
				t.Fatalf("after %d: %v", since, got)
			}
		}
		back := slices.Collect(l.Events(0, true, -1))
		slices.Reverse(back)
		if !slices.Equal(back, all) {
			t.Fatalf("descending: %v", brief(back))
		}
		if got := slices.Collect(l.Events(0, true, 2)); len(got) != 2 || got[0] != all[len(all)-1] {
			t.Fatalf("newest two: %v", got)
		}
		if got := slices.Collect(l.Events(0, false, 3)); !slices.Equal(got, all[:3]) {
			t.Fatalf("oldest three: %v", got)
		}
	}
	check(l)
	after := openLocal(t, openStore(t, fs.Crash().FS()), Options{CopySeq: func(id shardapi.CopyID) (uint64, error) {
		if d, ok := l.ByCopy(id); ok {
			return seqs[d.Name], nil
		}
		return 0, nil
	}})
	check(after)
}

// TestConcurrentChanges lets many change, touch, list and wait at once; readers
// of events must see every number in order.
func TestConcurrentChanges(t *testing.T) {
	t.Parallel()
	l := openLocal(t, openStore(t, kv.NewCrashFS().FS()), Options{UpdateEvery: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var changers, readers sync.WaitGroup
	for w := range 4 {
		changers.Go(func() {
			for i := range 60 {
				name := fmt.Sprintf("db%d", (w+i)%5)
				if d, err := l.Create(ctx, CreateSpec{Name: name, Q: 1}); err == nil {
					l.Touched(d.Shards[0].Copies[0].ID, 1)
				} else if !errors.Is(err, model.ErrDBExists) {
					t.Errorf("create: %v", err)
				}
				if _, err := l.SetRevsLimit(ctx, name, i+1); err != nil && !errors.Is(err, model.ErrDBNotFound) {
					t.Errorf("limit: %v", err)
				}
				if d, err := l.Get(name); err == nil {
					l.Touched(d.Shards[0].Copies[0].ID, uint64(i))
				}
				if _, err := l.Delete(ctx, name); err != nil && !errors.Is(err, model.ErrDBNotFound) {
					t.Errorf("delete: %v", err)
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			var at uint64
			for {
				if _, err := l.WaitEvents(ctx, at); err != nil {
					return
				}
				for ev := range l.Events(at, false, -1) {
					if ev.Seq <= at {
						t.Errorf("event %d after %d", ev.Seq, at)
					}
					at = ev.Seq
				}
				everyName(l)
			}
		})
	}
	changers.Wait()
	cancel()
	readers.Wait()
}

// TestEventsOfDeletedDatabases keeps only the newest deletions, on disk too.
func TestEventsOfDeletedDatabases(t *testing.T) {
	t.Parallel()
	store := openStore(t, kv.NewCrashFS().FS())
	l := openLocal(t, store, Options{KeepDeleted: 3})
	for i := range 10 {
		for _, name := range []string{fmt.Sprintf("db%d", i), "again"} {
			if _, err := l.Create(t.Context(), CreateSpec{Name: name, Q: 1}); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Delete(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
	}
	want := []string{"created _replicator", "created _users"}
	for round := range 2 {
		got := brief(eventsAfter(l, 0))
		var rest []string
		for _, s := range got {
			if !slices.Contains(want, s) {
				rest = append(rest, s)
			}
		}
		// Of the newest deletions, "again" and at least the last one of the others.
		if !slices.Contains(rest, "deleted again") || !slices.Contains(rest, "deleted db9") || !slices.Contains(rest, "created again") || len(rest) > 6 {
			t.Fatalf("round %d: %v", round, rest)
		}
		l.Close()
		l = openLocal(t, store, Options{KeepDeleted: 3})
		if again := brief(eventsAfter(l, 0)); !slices.Equal(again, got) {
			t.Fatalf("after a restart %v, before %v", again, got)
		}
	}
	if len(l.log.latest) > 5 || len(l.seen.events.newest) > 5 {
		t.Fatalf("%d and %d names remembered", len(l.log.latest), len(l.seen.events.newest))
	}
}

// TestStartOnFullDisk opens a registry that owes an event on a disk with no room:
// it starts, and writes the event when there is room.
func TestStartOnFullDisk(t *testing.T) {
	t.Parallel()
	fs := kv.NewCrashFS()
	store := openStore(t, fs.FS())
	l := openLocal(t, store, Options{})
	if _, err := l.Create(t.Context(), CreateSpec{Name: "a", Q: 1}); err != nil {
		t.Fatal(err)
	}
	l.Close()
	var free atomic.Int64
	full, err := kv.Open("store", kv.Options{FS: fs.Crash().FS(), MinFree: 1 << 20, FreeEvery: time.Millisecond,
		FreeSpace: func() (int64, error) { return free.Load(), nil }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { full.Close() })
	if !full.Full() {
		t.Fatal("the store does not know that the disk is full")
	}
	l = openLocal(t, full, Options{UpdateEvery: time.Millisecond, CopySeq: func(shardapi.CopyID) (uint64, error) { return 5, nil }})
	if _, err := l.Create(t.Context(), CreateSpec{Name: "b"}); !errors.Is(err, model.ErrStorageFull) {
		t.Fatalf("create on a full disk: %v", err)
	}
	if _, err := l.Delete(t.Context(), "_users"); err != nil {
		t.Fatalf("delete on a full disk: %v", err)
	}
	last := l.LastEvent()
	free.Store(1 << 30)
	if got := waitEvents(t, l, last, 2); !slices.Equal(brief(got), []string{"updated _replicator", "updated a"}) {
		t.Fatalf("once there is room: %v", brief(got))
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	l := openLocal(t, openStore(t, kv.NewCrashFS().FS()), Options{})
	all := []string{"_replicator", "_users"}
	for i := range 600 { // more than two chunks
		name := fmt.Sprintf("db%03d", i)
		if _, err := l.Create(t.Context(), CreateSpec{Name: name, Q: 1}); err != nil {
			t.Fatal(err)
		}
		all = append(all, name)
	}
	rnd := rand.New(rand.NewPCG(3, 4))
	pick := func() *string {
		switch rnd.IntN(4) {
		case 0:
			return nil
		case 1:
			s := fmt.Sprintf("db%03dx", rnd.IntN(620))
			return &s
		}
		s := fmt.Sprintf("db%03d", rnd.IntN(620))
		return &s
	}
	for range 500 {
		q := NamesQuery{Start: pick(), End: pick(), ExclusiveEnd: rnd.IntN(2) == 0,
			Descending: rnd.IntN(2) == 0, Skip: int64(rnd.IntN(3) * 100), Limit: int64(rnd.IntN(400) - 1)}
		var want []string
		sorted := slices.Clone(all)
		if q.Descending {
			slices.Reverse(sorted)
		}
		for _, n := range sorted {
			beyond := func(bound *string) int { // >0: n is past the bound
				switch {
				case n == *bound:
					return 0
				case (n > *bound) != q.Descending:
					return 1
				}
				return -1
			}
			if q.Start != nil && beyond(q.Start) < 0 || q.End != nil && (beyond(q.End) > 0 || q.ExclusiveEnd && n == *q.End) {
				continue
			}
			want = append(want, n)
		}
		want = want[min(int(q.Skip), len(want)):]
		if q.Limit >= 0 {
			want = want[:min(int(q.Limit), len(want))]
		}
		if got := names(l, q); !slices.Equal(got, want) {
			t.Fatalf("%+v: %d names %.3v, want %d %.3v", q, len(got), got, len(want), want)
		}
	}
}

// BenchmarkOpen10000 opens a registry of 10,000 databases.
func BenchmarkOpen10000(b *testing.B) {
	store := openStore(b, kv.NewCrashFS().FS())
	l, err := Open(b.Context(), store, Options{})
	if err != nil {
		b.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range 64 {
		wg.Go(func() {
			for i := w; i < 10000; i += 64 {
				d, err := l.Create(b.Context(), CreateSpec{Name: fmt.Sprintf("db%d", i)})
				if err != nil {
					b.Error(err)
					return
				}
				l.Touched(d.Shards[0].Copies[0].ID, 1)
			}
		})
	}
	wg.Wait()
	l.Close()
	for b.Loop() {
		l, err := Open(b.Context(), store, Options{})
		if err != nil {
			b.Fatal(err)
		}
		l.Close()
	}
}

// BenchmarkTouched is the cost every write pays.
func BenchmarkTouched(b *testing.B) {
	l := openLocal(b, openStore(b, kv.NewCrashFS().FS()), Options{})
	d, err := l.Create(b.Context(), CreateSpec{Name: "a"})
	if err != nil {
		b.Fatal(err)
	}
	var seq uint64
	for b.Loop() {
		seq++
		l.Touched(d.Shards[0].Copies[0].ID, seq)
	}
}
