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

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// openStore opens a store on fs and closes it with the test.
func openStore(t testing.TB, fs kv.FS) *kv.Store {
	t.Helper()
	s, err := kv.Open("store", kv.Options{FS: fs, MinFree: -1, OnFatal: func(err error) { t.Errorf("store failed: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// openLocal opens a registry and closes it with the test.
func openLocal(t testing.TB, s *kv.Store, o Options) *Local {
	t.Helper()
	l, err := Open(t.Context(), s, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

func names(l *Local, q NamesQuery) []string { return slices.Collect(l.Names(q)) }

func everyName(l *Local) []string { return names(l, NamesQuery{Limit: -1}) }

func TestFirstStart(t *testing.T) {
	t.Parallel()
	fs := kv.NewCrashFS()
	s := openStore(t, fs.FS())
	l := openLocal(t, s, Options{})
	if got, want := everyName(l), []string{"_replicator", "_users"}; !slices.Equal(got, want) {
		t.Fatalf("databases at first start: %v", got)
	}
	uuid := l.UUID()
	if len(uuid) != 32 || l.Self() != "divan@127.0.0.1" || l.Account() != "divan" {
		t.Fatalf("identity: %q %q %q", uuid, l.Self(), l.Account())
	}
	if err := l.SetSetting(t.Context(), "admin", []byte("hash")); err != nil {
		t.Fatal(err)
	}
	l.Close()
	l = openLocal(t, s, Options{Node: "divan@other"})
	if l.UUID() != uuid {
		t.Error("another uuid after the second start")
	}
	if v, ok := l.Setting("admin"); !ok || string(v) != "hash" {
		t.Errorf("setting: %q %v", v, ok)
	}
	d, err := l.Get("_users")
	if err != nil || d.Shards[0].Copies[0].Node != "divan@other" {
		t.Errorf("copy of a renamed node: %+v, %v", d, err)
	}
}

func TestCreateRefuses(t *testing.T) {
	t.Parallel()
	l := openLocal(t, openStore(t, kv.NewCrashFS().FS()), Options{})
	for _, c := range []struct {
		spec CreateSpec
		kind model.Kind
	}{
		{CreateSpec{Name: "Upper"}, model.KindForbidden},
		{CreateSpec{Name: "_users"}, model.KindPrecondition},
		{CreateSpec{Name: "a", Q: -1}, model.KindBadRequest},
		{CreateSpec{Name: "a", Q: MaxQ + 1}, model.KindBadRequest},
		{CreateSpec{Name: "a", N: -1}, model.KindBadRequest},
	} {
		if _, err := l.Create(t.Context(), c.spec); model.KindOf(err) != c.kind || err == nil {
			t.Errorf("Create(%+v) = %v", c.spec, err)
		}
	}
	if _, err := l.Delete(t.Context(), "none"); !errors.Is(err, model.ErrDBNotFound) {
		t.Errorf("Delete of none: %v", err)
	}
	if _, err := l.SetRevsLimit(t.Context(), "_users", 0); model.KindOf(err) != model.KindBadRequest {
		t.Errorf("SetRevsLimit 0: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := l.Create(ctx, CreateSpec{Name: "a"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Create with a context that has ended: %v", err)
	}
	if _, err := l.Create(t.Context(), CreateSpec{Name: "a"}); err != nil {
		t.Errorf("Create after refusals: %v", err)
	}
}

// sameDatabase compares what a restart must keep.
func sameDatabase(a, b *Database) bool {
	return string(appendRow(nil, a, "")) == string(appendRow(nil, b, "")) && a.Name == b.Name
}

// TestRandomAgainstModel runs random changes against a map, through power cuts
// and restarts.
func TestRandomAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rnd := rand.New(rand.NewPCG(seed, 2))
			ctx := context.Background()
			dropped := map[shardapi.CopyID]bool{}
			used := map[shardapi.CopyID]bool{}
			o := Options{Drop: func(_ context.Context, id shardapi.CopyID) error { dropped[id] = true; return nil }}
			fs := kv.NewCrashFS()
			store, err := kv.Open("store", kv.Options{FS: fs.FS(), MinFree: -1})
			if err != nil {
				t.Fatal(err)
			}
			l, err := Open(ctx, store, o)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]*Database{}
			for _, name := range everyName(l) {
				want[name], _ = l.Get(name)
			}
			for step := range 300 {
				name := string(rune('a' + rnd.IntN(8)))
				old := want[name]
				switch op := rnd.IntN(20); {
				case op < 8:
					spec := CreateSpec{Name: name, Q: rnd.IntN(5), N: rnd.IntN(4), Partitioned: rnd.IntN(2) == 0}
					d, err := l.Create(ctx, spec)
					if (err == nil) != (old == nil) || err != nil && !errors.Is(err, model.ErrDBExists) {
						t.Fatalf("step %d: create %s: %v", step, name, err)
					}
					if err == nil {
						// As many copies as asked for, or 3, though one node keeps one.
						if n := spec.N; d.N != n && (n != 0 || d.N != 3) {
							t.Fatalf("step %d: %d copies, asked for %d", step, d.N, n)
						}
						want[name] = d
						for _, s := range d.Shards {
							if id := s.Copies[0].ID; used[id] {
								t.Fatalf("step %d: copy number %d used twice", step, id)
							} else {
								used[id] = true
							}
						}
					}
				case op < 13:
					_, err := l.Delete(ctx, name)
					if (err == nil) != (old != nil) || err != nil && !errors.Is(err, model.ErrDBNotFound) {
						t.Fatalf("step %d: delete %s: %v", step, name, err)
					}
					if old != nil {
						for _, s := range old.Shards {
							if !dropped[s.Copies[0].ID] {
								t.Fatalf("step %d: copy %d not dropped", step, s.Copies[0].ID)
							}
						}
					}
					delete(want, name)
				case op < 16:
					d, err := l.SetRevsLimit(ctx, name, step+1)
					if (err == nil) != (old != nil) {
						t.Fatalf("step %d: revs limit: %v", step, err)
					}
					if err == nil {
						want[name] = d
					}
				case op < 18:
					d, err := l.SetSecurity(ctx, name, fmt.Appendf(nil, `{"x":%d}`, step))
					if (err == nil) != (old != nil) {
						t.Fatalf("step %d: security: %v", step, err)
					}
					if err == nil {
						want[name] = d
					}
				default: // the power goes
					after := fs.Crash()
					l.Close()
					store.Close()
					fs = after
					if store, err = kv.Open("store", kv.Options{FS: fs.FS(), MinFree: -1}); err != nil {
						t.Fatal(err)
					}
					if l, err = Open(ctx, store, o); err != nil {
						t.Fatal(err)
					}
				}
				var wantNames []string
				for n := range want {
					wantNames = append(wantNames, n)
				}
				slices.Sort(wantNames)
				if got := everyName(l); !slices.Equal(got, wantNames) {
					t.Fatalf("step %d: names %v, want %v", step, got, wantNames)
				}
				for n, d := range want {
					got, err := l.Get(n)
					if err != nil || !sameDatabase(got, d) {
						t.Fatalf("step %d: %s is %+v, %v, want %+v", step, n, got, err, d)
					}
				}
			}
			l.Close()
			store.Close()
		})
	}
}

// TestUnfinishedDrop lets the drop fail and finds it done at the next start.
func TestUnfinishedDrop(t *testing.T) {
	t.Parallel()
	s := openStore(t, kv.NewCrashFS().FS())
	broken := errors.New("no")
	l := openLocal(t, s, Options{Drop: func(context.Context, shardapi.CopyID) error { return broken }})
	d, err := l.Create(t.Context(), CreateSpec{Name: "a", Q: 3})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Delete(t.Context(), "a"); !errors.Is(err, broken) {
		t.Fatalf("delete: %v", err)
	}
	if _, err := l.Get("a"); !errors.Is(err, model.ErrDBNotFound) {
		t.Fatalf("the database is still there: %v", err)
	}
	l.Close()
	var dropped []shardapi.CopyID
	drop := func(_ context.Context, id shardapi.CopyID) error { dropped = append(dropped, id); return nil }
	openLocal(t, s, Options{Drop: drop}).Close()
	want := []shardapi.CopyID{d.Shards[0].Copies[0].ID, d.Shards[1].Copies[0].ID, d.Shards[2].Copies[0].ID}
	if !slices.Equal(dropped, want) {
		t.Fatalf("dropped %v at the start, want %v", dropped, want)
	}
	dropped = nil
	openLocal(t, s, Options{Drop: drop}).Close()
	if len(dropped) != 0 {
		t.Fatalf("dropped %v a second time", dropped)
	}
}

// TestConcurrentCreate has many create one name: one succeeds, and it is durable
// when the others hear of it.
func TestConcurrentCreate(t *testing.T) {
	t.Parallel()
	fs := kv.NewCrashFS()
	l := openLocal(t, openStore(t, fs.FS()), Options{})
	for round := range 20 {
		name := fmt.Sprintf("db%d", round)
		var made atomic.Int32
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				switch _, err := l.Create(t.Context(), CreateSpec{Name: name}); {
				case err == nil:
					made.Add(1)
				case !errors.Is(err, model.ErrDBExists):
					t.Errorf("create: %v", err)
				}
				if _, err := l.Get(name); err != nil {
					t.Errorf("not there after an answer: %v", err)
				}
			})
		}
		wg.Wait()
		if made.Load() != 1 {
			t.Fatalf("%d creates succeeded", made.Load())
		}
	}
	after := openLocal(t, openStore(t, fs.Crash().FS()), Options{})
	if n := len(everyName(after)); n != 22 {
		t.Fatalf("%d databases after a power cut, want 22", n)
	}
}

// TestNothingVisibleBeforeDurable lets the fsync of a create fail: nobody may
// have seen the database or its event.
func TestNothingVisibleBeforeDurable(t *testing.T) {
	t.Parallel()
	fs, faults := kv.FailingFS(kv.NewCrashFS().FS())
	failed := make(chan error, 1)
	store, err := kv.Open("store", kv.Options{FS: fs, MinFree: -1, OnFatal: func(err error) { failed <- err }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	l := openLocal(t, store, Options{})
	last := l.LastEvent()
	faults.FailSyncs(kv.LogFiles, errors.New("no sync"))
	if d, err := l.Create(t.Context(), CreateSpec{Name: "a"}); err == nil {
		t.Fatalf("created %+v without a sync", d)
	}
	<-failed
	if d, err := l.Get("a"); !errors.Is(err, model.ErrDBNotFound) {
		t.Errorf("the database is visible: %+v, %v", d, err)
	}
	if slices.Contains(everyName(l), "a") || l.LastEvent() != last {
		t.Error("the name or the event is visible")
	}
	if _, err := l.Create(t.Context(), CreateSpec{Name: "b"}); err == nil {
		t.Error("created behind the closed gate")
	}
}
