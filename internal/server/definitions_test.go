package server

import (
	"context"
	"errors"
	"testing"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/designs"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardhost"
)

// defining is a node without HTTP and without JavaScript, so that its copies take
// design documents as they come, and its definitions.
type defining struct {
	*definitions
	coord *coordinator.Coordinator
	db    *cluster.Database
}

func newDefining(t testing.TB) *defining {
	t.Helper()
	dir := t.TempDir()
	store, err := kv.Open(dir+"/store", kv.Options{MinFree: -1, CacheBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	d := &defining{definitions: newDefinitions()}
	if _, err := d.Of(t.Context(), 1); !errors.Is(err, errNotReady) {
		t.Errorf("before the start: %v", err)
	}
	d.changed(1) // nobody there to hear it
	host, err := shardhost.New(store, dir, shardhost.Options{Definitions: d.definitions, OnDesign: d.changed})
	if err != nil {
		t.Fatal(err)
	}
	registry, err := cluster.Open(t.Context(), store, cluster.Options{Drop: host.Drop, CopySeq: host.CopySeq})
	if err != nil {
		t.Fatal(err)
	}
	d.own(registry, host)
	d.coord = coordinator.New(registry, oneNode{host}, coordinator.Options{})
	d.bind(designs.New(d.coord))
	t.Cleanup(func() {
		registry.Close()
		if err := errors.Join(host.Close(), store.Close()); err != nil {
			t.Error(err)
		}
	})
	if d.db, err = registry.Create(t.Context(), cluster.CreateSpec{Name: "a", Q: 2}); err != nil {
		t.Fatal(err)
	}
	return d
}

func (d *defining) put(t testing.TB, e model.Edit) model.Rev {
	t.Helper()
	res, err := d.coord.Write(t.Context(), d.db, []model.Edit{e}, coordinator.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if res.Results[0].Err != nil {
		t.Fatal(res.Results[0].Err)
	}
	return res.Results[0].Rev
}

// of gives what every copy must say alike.
func (d *defining) of(t testing.TB) *shardhost.Defined {
	t.Helper()
	var first *shardhost.Defined
	for i := range d.db.Shards {
		got, err := d.Of(t.Context(), d.db.Shards[i].Copies[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		if first != nil && got != first {
			t.Error("two copies of one database are told different things")
		}
		first = got
	}
	return first
}

// TestDefinitions follows the design documents of a database: what was written is
// defined when its writer hears of it.
func TestDefinitions(t *testing.T) {
	t.Parallel()
	d := newDefining(t)
	if got := d.of(t); len(got.Views)+len(got.Validators) != 0 || got.Partitioned {
		t.Fatalf("%+v", got)
	}
	rev := d.put(t, model.Edit{ID: "_design/a", Body: []byte(`{"views":{"x":{"map":"X"},"y":{"map":"Y"}},"validate_doc_update":"V","autoupdate":false}`)})
	d.put(t, model.Edit{ID: "_design/b", Body: []byte(`{"language":"erlang","validate_doc_update":"E","views":{"x":{"map":"X"}}}`)})
	d.put(t, model.Edit{ID: "_design/c", Body: []byte(`{"views":3}`)})
	got := d.of(t)
	if len(got.Views) != 1 || len(got.Validators) != 2 {
		t.Fatalf("%+v", got)
	}
	v := got.Views[0]
	if v.Design != "_design/a" || v.AutoUpdate || len(v.Views) != 2 || v.Views[1].Name != "y" || v.Views[1].Map != "Y" || v.Views[1].Sig == "" {
		t.Errorf("%+v", v)
	}
	if f := got.Validators[0]; f.Design != "_design/a" || f.Func != "V" || f.Err != nil || f.Program.Key == "" {
		t.Errorf("%+v", f)
	}
	if f := got.Validators[1]; f.Err == nil || f.Err.Name != "unknown_query_language" {
		t.Errorf("%+v", f)
	}
	d.put(t, model.Edit{ID: "_design/a", Parent: rev, Deleted: true, Body: []byte(`{}`)})
	if got := d.of(t); len(got.Views) != 0 || len(got.Validators) != 1 {
		t.Errorf("%+v", got)
	}
	if _, err := d.Of(t.Context(), 999); !errors.Is(err, model.ErrCopyClosed) {
		t.Errorf("a copy of nothing: %v", err)
	}
}

// TestDefinitionsCost holds that what every write asks for costs no memory.
func TestDefinitionsCost(t *testing.T) {
	d := newDefining(t)
	id := d.db.Shards[0].Copies[0].ID
	d.of(t)
	if n := testing.AllocsPerRun(100, func() {
		if _, err := d.Of(context.Background(), id); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkDefinitions(b *testing.B) {
	d := newDefining(b)
	id := d.db.Shards[0].Copies[0].ID
	d.of(b)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := d.Of(b.Context(), id); err != nil {
			b.Fatal(err)
		}
	}
}
