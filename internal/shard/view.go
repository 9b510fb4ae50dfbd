package shard

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/divandb/divan/internal/kv"
)

// The size of a batch of a stream: rows, and bytes of documents.
const (
	batchRows  = 256
	batchBytes = 1 << 20
	// batchScan is how many rows a filter may pass over before the stream gives
	// a batch, perhaps an empty one, so that the reader can show signs of life.
	batchScan = 2000
)

// view is a stream's sight of the store: a snapshot and an iterator, given up
// when they are old and made again where the stream stands. The lock lets the
// clock close the sight of a reader that has stopped asking.
type view struct {
	c            *Copy
	ctx          context.Context
	lower, upper []byte

	mu    sync.Mutex
	snap  *kv.Snapshot // nil while there is none
	iter  *kv.Iter
	body  *kv.Iter // over bodies, for include_docs of a list; made when first needed
	timer *time.Timer
	shut  bool
	seq   uint64 // the sequence the sight is at least as new as

	// steady keeps the snapshot to the end; only its iterators are made anew.
	steady bool
}

// open makes the sight, if there is none, and waits until all of it is durable
// (I3). fresh tells that the iterator must be placed. The caller holds mu.
func (v *view) open() (fresh bool, err error) {
	if v.shut {
		return false, errors.New("shard: the stream is closed")
	}
	if v.iter != nil {
		return false, v.c.alive()
	}
	if err := v.ctx.Err(); err != nil {
		return false, context.Cause(v.ctx)
	}
	if v.snap != nil {
		if err := v.c.alive(); err != nil {
			return false, err
		}
		return true, v.iterate()
	}
	before, _, err := v.c.present()
	if err != nil {
		return false, err
	}
	v.snap = v.c.store.NewSnapshot()
	if err := v.iterate(); err != nil {
		return false, err
	}
	v.seq = before
	// Everything the snapshot shows was applied by now.
	if err := v.c.settle(v.ctx); err != nil {
		return false, errors.Join(err, v.drop())
	}
	return true, nil
}

// iterate makes the iterator of a snapshot and starts its clock. The caller holds
// mu.
func (v *view) iterate() (err error) {
	if v.iter, err = v.snap.NewIter(v.lower, v.upper); err != nil {
		v.iter = nil
		return errors.Join(err, v.drop())
	}
	v.timer = time.AfterFunc(v.c.opts.IterMax, v.expire)
	return nil
}

// expire is the clock's call.
func (v *view) expire() {
	v.mu.Lock()
	defer v.mu.Unlock()
	// An error of the iterator would have been seen by Next.
	if v.steady {
		_ = v.dropIters()
	} else {
		_ = v.drop()
	}
}

// drop gives the sight up. The caller holds mu.
func (v *view) drop() (err error) {
	err = v.dropIters()
	if v.snap != nil {
		err = errors.Join(err, v.snap.Close())
		v.snap = nil
	}
	return err
}

// dropIters gives the iterators up, which keep files, but not the snapshot, which
// keeps only what is overwritten meanwhile. The caller holds mu.
func (v *view) dropIters() (err error) {
	if v.timer != nil {
		v.timer.Stop()
		v.timer = nil
	}
	if v.iter != nil {
		err = v.iter.Close()
		v.iter = nil
	}
	if v.body != nil {
		err = errors.Join(err, v.body.Close())
		v.body = nil
	}
	return err
}

// Close ends the stream.
func (v *view) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shut = true
	return v.drop()
}

// arena collects the texts of a batch and turns them into one string, so that a
// row costs no allocation of its own. Places are kept as offsets until then.
type arena struct {
	buf []byte
}

// span is a text in an arena.
type span struct{ from, to int }

// add appends a text.
func (a *arena) add(b []byte) span {
	from := len(a.buf)
	a.buf = append(a.buf, b...)
	return span{from, len(a.buf)}
}

// addRev appends the hash of a stored revision at the front of b.
func (a *arena) addRev(b []byte) (pos uint64, hash span, rest []byte, ok bool) {
	from := len(a.buf)
	pos, _, rest, a.buf, ok = cutRev(b, a.buf)
	return pos, span{from, len(a.buf)}, rest, ok
}

// of cuts a span out of the arena's text.
func (s span) of(text string) string { return text[s.from:s.to] }
