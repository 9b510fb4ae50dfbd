package view

import (
	"sync"

	"github.com/divandb/divan/internal/kv"
)

// Sizes of an index in bytes.
type Sizes struct{ File, Active, External int64 }

// Sizes measures the index.
func (x *Index) Sizes() (Sizes, error) {
	m := x.state()
	after, _ := appendAfter(nil, x.keys.prefix) // begins with keySpace, which has a successor
	disk, err := x.o.Store.DiskUsage(x.keys.prefix, after)
	if err != nil {
		return Sizes{}, err
	}
	file := disk + x.memory.bytes(x.o.Store)
	// Tables are compressed; no part may be larger than the whole.
	return Sizes{File: file, Active: min(m.active+m.nodes, file), External: m.external}, nil
}

// unflushed counts the bytes that only memtables have, where the store's figures
// do not see them.
type unflushed struct {
	mu   sync.Mutex
	gens []generation
}

// generation is a memtable's share.
type generation struct {
	gen   uint64
	bytes int64
}

// wrote counts a batch that was applied.
func (u *unflushed) wrote(store *kv.Store, bytes int64) {
	gen := store.Unflushed()
	u.mu.Lock()
	defer u.mu.Unlock()
	if n := len(u.gens); n > 0 && u.gens[n-1].gen == gen {
		u.gens[n-1].bytes += bytes
		return
	}
	u.prune(store)
	u.gens = append(u.gens, generation{gen, bytes})
}

// bytes adds them up.
func (u *unflushed) bytes(store *kv.Store) (n int64) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.prune(store)
	for _, g := range u.gens {
		n += g.bytes
	}
	return n
}

// prune forgets the memtables that are tables by now.
func (u *unflushed) prune(store *kv.Store) {
	done, kept := store.FlushedGen(), u.gens[:0]
	for _, g := range u.gens {
		if g.gen >= done {
			kept = append(kept, g)
		}
	}
	u.gens = kept
}
