package designs_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/design"
	"github.com/divandb/divan/internal/designs"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
	"github.com/divandb/divan/internal/shardhost"
)

// node is a real node without its HTTP side, and a Service on it. Its copies count
// what is asked of them, and a list can be held up.
type node struct {
	shardapi.Host
	registry *cluster.Local
	coord    *coordinator.Coordinator
	known    *designs.Service

	lists, reads atomic.Int64
	// onList is called before a copy is asked for a list.
	onList atomic.Pointer[func(context.Context) error]
	// afterList is called when a list is open, and so as old as it will ever be.
	afterList atomic.Pointer[func()]
}

func (n *node) hosts(string) shardapi.Host { return n }

type nodes func(string) shardapi.Host

func (f nodes) Host(name string) shardapi.Host { return f(name) }

// Shard gives a copy that counts.
func (n *node) Shard(id shardapi.CopyID) shardapi.Shard { return counted{n.Host.Shard(id), n} }

type counted struct {
	shardapi.Shard
	n *node
}

func (c counted) List(ctx context.Context, req *shardapi.ListRequest) (*shardapi.ListHead, shardapi.Stream[shardapi.Row], error) {
	c.n.lists.Add(1)
	if f := c.n.onList.Load(); f != nil {
		if err := (*f)(ctx); err != nil {
			return nil, nil, err
		}
	}
	head, rows, err := c.Shard.List(ctx, req)
	if f := c.n.afterList.Load(); f != nil && err == nil {
		batch, err := rows.Next() // it has seen the store now
		rows = &begun{rows, batch, err}
		(*f)()
	}
	return head, rows, err
}

// begun is a stream whose first batch is there.
type begun struct {
	shardapi.Stream[shardapi.Row]
	batch []shardapi.Row
	err   error
}

func (b *begun) Next() ([]shardapi.Row, error) {
	if b.batch != nil || b.err != nil {
		batch, err := b.batch, b.err
		b.batch, b.err = nil, nil
		return batch, err
	}
	return b.Stream.Next()
}

func (c counted) Read(ctx context.Context, req *shardapi.ReadRequest) (*shardapi.ReadResponse, error) {
	c.n.reads.Add(1)
	return c.Shard.Read(ctx, req)
}

func newNode(t testing.TB) *node {
	t.Helper()
	dir := t.TempDir()
	store, err := kv.Open(dir+"/store", kv.Options{MinFree: -1, CacheBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	// Without JavaScript the copies take design documents as they come.
	host, err := shardhost.New(store, dir, shardhost.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := &node{Host: host}
	if n.registry, err = cluster.Open(t.Context(), store, cluster.Options{Drop: host.Drop, CopySeq: host.CopySeq}); err != nil {
		t.Fatal(err)
	}
	n.coord = coordinator.New(n.registry, nodes(n.hosts), coordinator.Options{})
	n.known = designs.New(n.coord)
	t.Cleanup(func() {
		n.registry.Close()
		if err := errors.Join(host.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return n
}

func (n *node) create(t testing.TB, spec cluster.CreateSpec) *cluster.Database {
	t.Helper()
	db, err := n.registry.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// put writes a document, on top of a revision if one is given, and tells nobody.
func (n *node) put(t testing.TB, db *cluster.Database, id, body string, parent ...model.Rev) model.Rev {
	t.Helper()
	e := model.Edit{ID: id, Body: []byte(body), Deleted: body == ""}
	if e.Deleted {
		e.Body = []byte("{}")
	}
	if len(parent) > 0 {
		e.Parent = parent[0]
	}
	res, err := n.coord.Write(t.Context(), db, []model.Edit{e}, coordinator.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if res.Results[0].Err != nil {
		t.Fatal(res.Results[0].Err)
	}
	return res.Results[0].Rev
}

// ids names the documents of a set.
func (n *node) ids(t testing.TB, db *cluster.Database) string {
	t.Helper()
	set, err := n.known.All(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, d := range set.Docs {
		out = append(out, d.ID+"@"+d.Rev.String()[:1])
	}
	return strings.Join(out, " ")
}

const aView = `{"views":{"v":{"map":"function(doc){}"}}}`

// TestSets reads, keeps and forgets.
func TestSets(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	db := n.create(t, cluster.CreateSpec{Name: "a", Q: 4})
	if got := n.ids(t, db); got != "" {
		t.Fatalf("an empty database has %s", got)
	}
	rev := n.put(t, db, "_design/b", aView)
	n.put(t, db, "_design/a", aView)
	n.put(t, db, "other", `{"views":3}`)
	if got := n.ids(t, db); got != "" {
		t.Fatalf("what nobody has told of is known: %s", got)
	}
	n.known.Changed(db)
	if got := n.ids(t, db); got != "_design/a@1 _design/b@1" {
		t.Fatalf("got %s", got)
	}
	before := n.lists.Load()
	for _, id := range []string{"a", "_design/b"} {
		d, err := n.known.Get(t.Context(), db, id)
		if err != nil || !strings.HasSuffix(d.ID, id) || len(d.Views) != 1 {
			t.Fatalf("%s: %+v, %v", id, d, err)
		}
	}
	n.ids(t, db)
	if n.lists.Load() != before || n.reads.Load() != 0 {
		t.Errorf("what is known cost %d lists and %d reads", n.lists.Load()-before, n.reads.Load())
	}
	rev = n.put(t, db, "_design/b", `{"filters":{}}`, rev)
	n.known.Changed(db)
	if d, err := n.known.Get(t.Context(), db, "b"); err != nil || d.Rev != rev || len(d.Views) != 0 || string(d.Body) != `{"filters":{}}` {
		t.Fatalf("%+v, %v", d, err)
	}
	other := n.create(t, cluster.CreateSpec{Name: "other"})
	if got := n.ids(t, other); got != "" {
		t.Errorf("another database has %s", got)
	}
	if _, err := n.registry.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	again := n.create(t, cluster.CreateSpec{Name: "a"})
	if got := n.ids(t, again); got != "" {
		t.Errorf("a database created again has %s", got)
	}
	n.known.Changed(db)
	if _, err := n.known.All(t.Context(), db); !errors.Is(err, model.ErrDBNotFound) {
		t.Errorf("a deleted database: %v", err)
	}
}

// TestAbsent tells apart what was never there, what was deleted, and what cannot be
// read.
func TestAbsent(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	db := n.create(t, cluster.CreateSpec{Name: "a", Partitioned: true})
	rev := n.put(t, db, "_design/gone", aView)
	n.put(t, db, "_design/gone", "", rev)
	n.put(t, db, "_design/broken", `{"views":3}`)
	n.put(t, db, "_design/good", aView)
	for id, want := range map[string]error{
		"none": model.ErrMissing, "gone": model.ErrDeleted, "_design/gone": model.ErrDeleted,
		"broken": &model.Error{Kind: model.KindBadRequest, Name: "invalid_design_doc", Reason: "`views` field must have object type"},
	} {
		if d, err := n.known.Get(t.Context(), db, id); !errors.Is(err, want) {
			t.Errorf("%s: %v, %v, want %v", id, d, err, want)
		}
	}
	if got := n.ids(t, db); got != "_design/good@1" {
		t.Errorf("got %s", got)
	}
	d, err := n.known.Get(t.Context(), db, "good")
	if err != nil || !d.Views[0].Partitioned {
		t.Errorf("%+v, %v", d, err)
	}
}

// TestSharedLoad has many ask at once: one reads for all.
func TestSharedLoad(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	db := n.create(t, cluster.CreateSpec{Name: "a", Q: 1})
	n.put(t, db, "_design/a", aView)
	entered, leave := make(chan struct{}, 100), make(chan struct{})
	hold := func(context.Context) error { entered <- struct{}{}; <-leave; return nil }
	n.onList.Store(&hold)
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if set, err := n.known.All(context.Background(), db); err != nil || len(set.Docs) != 1 {
				t.Errorf("%v, %v", set, err)
			}
		})
	}
	<-entered
	close(leave)
	wg.Wait()
	if got := n.lists.Load(); got != 1 {
		t.Errorf("%d lists for one set", got)
	}
}

// TestReaderGoesAway cancels the one who reads: the others get their set.
func TestReaderGoesAway(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	db := n.create(t, cluster.CreateSpec{Name: "a", Q: 1})
	n.put(t, db, "_design/a", aView)
	entered := make(chan struct{}, 1)
	var first atomic.Bool
	hold := func(ctx context.Context) error {
		if first.Swap(true) {
			return nil
		}
		entered <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	n.onList.Store(&hold)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := n.known.All(ctx, db); !errors.Is(err, context.Canceled) {
			t.Errorf("the reader who went away: %v", err)
		}
	})
	<-entered
	for range 5 {
		wg.Go(func() {
			if set, err := n.known.All(context.Background(), db); err != nil || len(set.Docs) != 1 {
				t.Errorf("%v, %v", set, err)
			}
		})
	}
	wg.Go(func() {
		late, stop := context.WithCancel(context.Background())
		stop()
		if _, err := n.known.All(late, db); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("one who does not wait: %v", err)
		}
	})
	cancel()
	wg.Wait()
}

// TestChangedDuringLoad changes a design document while a list that does not have
// the change is on its way: whoever asks after the change does not get the old
// state, and it is not kept.
func TestChangedDuringLoad(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	db := n.create(t, cluster.CreateSpec{Name: "a", Q: 1})
	rev := n.put(t, db, "_design/a", aView)
	entered, leave := make(chan struct{}), make(chan struct{})
	var first atomic.Bool
	hold := func() {
		if !first.Swap(true) {
			close(entered)
			<-leave
		}
	}
	n.afterList.Store(&hold)
	old := make(chan string)
	go func() { old <- n.ids(t, db) }()
	<-entered
	n.put(t, db, "_design/a", `{}`, rev)
	n.known.Changed(db)
	if got := n.ids(t, db); got != "_design/a@2" {
		t.Errorf("after the change: %s", got)
	}
	close(leave)
	if got := <-old; got != "_design/a@1" {
		t.Errorf("the list held up gave %s, so this test shows nothing", got)
	}
	if got := n.ids(t, db); got != "_design/a@2" {
		t.Errorf("the old state was kept: %s", got)
	}
}

// TestRace has databases written to and asked about at once; at the end everybody
// knows the last state.
func TestRace(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	db := n.create(t, cluster.CreateSpec{Name: "a", Q: 2})
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			id := fmt.Sprintf("_design/%d", w)
			var rev model.Rev
			for i := range 25 {
				rev = n.put(t, db, id, fmt.Sprintf(`{"n":%d}`, i), rev)
				n.known.Changed(db)
				d, err := n.known.Get(context.Background(), db, id)
				if err != nil || d.Rev != rev {
					t.Errorf("written %v, known %+v, %v", rev, d, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if set, err := n.known.All(t.Context(), db); err != nil || len(set.Docs) != 4 {
		t.Errorf("%v, %v", set, err)
	}
}

// TestDerive makes one thing of a set, whoever asks.
func TestDerive(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	db := n.create(t, cluster.CreateSpec{Name: "a", Q: 1})
	set, err := n.known.All(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	fn := func(*cluster.Database, *designs.Set) any { return new(int) }
	first := set.Derive(db, fn)
	if second := set.Derive(db, fn); first.(*int) != second.(*int) {
		t.Error("made twice")
	}
}

// TestPrograms holds the rule of keys: equal keys, equal text.
func TestPrograms(t *testing.T) {
	t.Parallel()
	a := &cluster.Database{Name: "a", Instance: [8]byte{1}}
	b := &cluster.Database{Name: "b", Instance: [8]byte{2}}
	parse := func(id, rev, body string) *design.Doc {
		d, err := design.Parse(id, []byte(body), design.Options{})
		if err != nil {
			t.Fatal(err)
		}
		d.Rev = model.Rev{Pos: 1, Hash: rev}
		return d
	}
	first := parse("_design/d", "aa", `{"views":{"v":{"map":"M"},"w":{"map":"N"},"lib":{"x":"1"}}}`)
	prog := designs.Program(a, first)
	if want := `{"_id":"_design/d","_rev":"1-aa","views":{"v":{"map":"M"},"w":{"map":"N"},"lib":{"x":"1"}}}`; string(prog.Design) != want {
		t.Errorf("got  %s\nwant %s", prog.Design, want)
	}
	v, w := designs.ViewDef(a, first, &first.Views[0]), designs.ViewDef(a, first, &first.Views[1])
	if v.Program.Key != w.Program.Key || v.Sig == w.Sig || v.Map != "M" || w.Name != "w" || v.Design != "_design/d" {
		t.Errorf("%+v\n%+v", v, w)
	}
	if string(v.Program.Design) != `{"views":{"lib":{"x":"1"}}}` {
		t.Errorf("views see %s", v.Program.Design)
	}
	// A new revision that leaves the view and its modules alone changes nothing of it.
	second := parse("_design/d", "bb", `{"views":{"v":{"map":"M"},"w":{"map":"other"},"lib":{"x":"1"}}}`)
	v2 := designs.ViewDef(a, second, &second.Views[0])
	if v2.Program.Key != v.Program.Key || v2.Sig != v.Sig {
		t.Errorf("%+v\n%+v", v, v2)
	}
	third := parse("_design/d", "cc", `{"views":{"v":{"map":"M"},"lib":{"x":"2"}}}`)
	keys := map[string]bool{}
	for _, key := range []string{
		prog.Key, v.Program.Key, designs.Program(b, first).Key, designs.Program(a, second).Key,
		designs.ViewDef(b, first, &first.Views[0]).Program.Key, designs.ViewDef(a, third, &third.Views[0]).Program.Key,
		designs.Program(a, parse("_design/d/1-aa", "aa", `{}`)).Key,
		designs.Program(a, parse("_design/e", "aa", `{}`)).Key,
	} {
		if keys[key] {
			t.Errorf("key %s twice", key)
		}
		keys[key] = true
	}
}

// BenchmarkAll is what every write pays.
func BenchmarkAll(b *testing.B) {
	n := newNode(b)
	db := n.create(b, cluster.CreateSpec{Name: "a", Q: 1})
	n.put(b, db, "_design/a", aView)
	ctx := context.Background()
	b.Run("all", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := n.known.All(ctx, db); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := n.known.Get(ctx, db, "_design/a"); err != nil {
				b.Fatal(err)
			}
		}
	})
}
