package shardhost_test

import (
	"testing"

	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/shardapi"
	"github.com/divandb/divan/internal/shardapi/conformance"
	"github.com/divandb/divan/internal/shardhost"
	"github.com/divandb/divan/internal/testserver"
)

// The copies of this node keep the promises of shardapi.
func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Run(t, func(t *testing.T) shardapi.Host {
		closes := func(close func() error) {
			t.Cleanup(func() {
				if err := close(); err != nil {
					t.Error(err)
				}
			})
		}
		dir := t.TempDir()
		store, err := kv.Open(dir+"/store", kv.Options{MinFree: -1, CacheBytes: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		closes(store.Close)
		indexes, err := kv.Open(dir+"/index", kv.Options{MinFree: -1, CacheOf: store, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		closes(indexes.Close)
		scripts := jsvm.New(jsvm.Options{Command: []string{testserver.Binary(t), "js-worker"}})
		closes(scripts.Close)
		h, err := shardhost.New(store, dir, shardhost.Options{Index: indexes, JS: scripts})
		if err != nil {
			t.Fatal(err)
		}
		closes(h.Close)
		return h
	})
}
