package coordinator_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
	"github.com/divandb/divan/internal/shardhost"
)

// oneNode is a real node without its HTTP side.
type oneNode struct {
	host     *shardhost.Host
	registry *cluster.Local
	coord    *coordinator.Coordinator
	js       *jsvm.Pool // nil unless a test makes it
}

// Host gives the one node's copies whatever the name.
func (n *oneNode) Host(string) shardapi.Host { return n.host }

// newNode starts a node and stops it with the test.
func newNode(t testing.TB) *oneNode {
	t.Helper()
	dir := t.TempDir()
	store, err := kv.Open(dir+"/store", kv.Options{MinFree: -1, CacheBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	n := &oneNode{}
	var registry atomic.Pointer[cluster.Local]
	n.host, err = shardhost.New(store, dir, shardhost.Options{OnUpdate: func(id shardapi.CopyID, seq uint64) {
		if r := registry.Load(); r != nil {
			r.Touched(id, seq)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	n.registry, err = cluster.Open(t.Context(), store, cluster.Options{Drop: n.host.Drop, CopySeq: n.host.CopySeq})
	if err != nil {
		t.Fatal(err)
	}
	registry.Store(n.registry)
	n.coord = coordinator.New(n.registry, n, coordinator.Options{})
	t.Cleanup(func() {
		n.registry.Close()
		if err := n.host.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// create makes a database.
func (n *oneNode) create(t testing.TB, spec cluster.CreateSpec) *cluster.Database {
	t.Helper()
	d, err := n.registry.Create(t.Context(), spec)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// put writes documents and gives their revisions; every write must succeed.
func (n *oneNode) put(t testing.TB, d *cluster.Database, edits ...model.Edit) []model.Rev {
	t.Helper()
	res, err := n.coord.Write(t.Context(), d, edits, coordinator.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	revs := make([]model.Rev, len(edits))
	for i, r := range res.Results {
		if r.Err != nil || r.ID != edits[i].ID {
			t.Fatalf("result %d of %q: %+v", i, edits[i].ID, r)
		}
		revs[i] = r.Rev
	}
	return revs
}

// doc makes a small document.
func doc(id string) model.Edit {
	return model.Edit{ID: id, Body: fmt.Appendf(nil, `{"is":%q}`, id)}
}
