// Package view keeps the index of a view of one copy in the index store: its
// rows in key order, and reductions of runs of rows beside them, so that a
// reduction, a group, an offset or a count over any range costs the logarithm of
// the rows and not a walk over them. DESIGN.md tells how.
package view

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/reduce"
)

// Options of an Index.
type Options struct {
	Store        *kv.Store // of indexes
	Copy         uint64
	Sig          string         // of the view's definition, at most 64 bytes
	Reducer      reduce.Reducer // nil: none
	RawCollation bool
	Partitioned  bool

	bits int // of every level of a new index; 0: the usual
}

// Index is the index of one view of one copy. One goroutine at a time may change
// it; any number may query it meanwhile.
type Index struct {
	o    Options
	keys keys
	hash hasher

	mu     sync.RWMutex
	now    *meta // as stored, or of an index that is not stored yet
	build  *build
	closed bool
	// epoch is odd while a batch is on its way: a snapshot taken while it stands at
	// one even number shows what now says.
	epoch atomic.Uint64
	cache nodeCache

	// Of the goroutine that changes the index.
	diff   differ
	memory unflushed
}

// DocRows are all rows of one document; those it had before are replaced.
type DocRows struct {
	ID   string
	Rows []Row
}

// Row is what one emit made.
type Row struct{ Key, Value []byte }

// Open opens an index, which may not exist yet.
func Open(o Options) (*Index, error) {
	if o.Sig == "" || len(o.Sig) > maxSig {
		return nil, fmt.Errorf("index/view: a signature of %d bytes", len(o.Sig))
	}
	x := &Index{o: o, keys: keys{prefix: appendIndex(nil, o.Copy, o.Sig)}}
	x.diff.x = x
	v, ok, err := o.Store.Get(x.keys.meta())
	if err != nil {
		return nil, err
	}
	if ok {
		x.now = &meta{}
		err = x.now.parse(bytes.Clone(v.Bytes()))
		v.Release()
	} else {
		x.now = emptyMeta(rand.Uint64())
		if o.bits != 0 {
			x.now.first, x.now.bits = o.bits, o.bits
		}
	}
	if err != nil {
		return nil, err
	}
	x.cache.version = x.now.version
	x.hash = newHasher(x.now.seed, x.now.first, x.now.bits)
	if x.now.building {
		x.build = &build{} // what was shown before the crash is gone
	}
	return x, nil
}

// Close gives back what a build under way holds of the store. The index may not be
// used afterwards; streams that are open go on.
func (x *Index) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.closed = true
	x.cache.reset(0)
	if x.build == nil {
		return nil
	}
	b := x.build
	x.build = nil
	return b.release()
}

// Seq is the sequence up to which everything is in the index.
func (x *Index) Seq() uint64 { return x.state().seq }

// state gives the present counters.
func (x *Index) state() *meta {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.now
}

// setState makes what was written the present state.
func (x *Index) setState(stored []byte) error {
	m := &meta{}
	if err := m.parse(stored); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.now = m
	return nil
}

// alive tells whether the index may be changed.
func (x *Index) alive() error {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if x.closed {
		return model.ErrClosed
	}
	return nil
}
