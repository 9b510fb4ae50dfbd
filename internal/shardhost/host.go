// Package shardhost holds the shard copies of this node: it opens them when they
// are asked for, closes them when they are idle, drops them for good, compacts
// them in the background, and keeps their indexes. It is the local implementation
// of the contract in package shardapi.
package shardhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shard"
	"github.com/divandb/divan/internal/shardapi"
)

// Options sets up a Host. The zero value is good.
type Options struct {
	// MaxOpen is how many copies stay open when idle; default 20,000 (an open
	// copy takes under 1 KB).
	MaxOpen int
	// InlineMax is the largest attachment kept in the store; default 64 KiB.
	InlineMax int
	// CompactEvery is how often copies are looked at; default 5 s; <0: never.
	CompactEvery time.Duration
	// CompactBytes is how many bytes of superseded bodies a copy may have before
	// it is compacted; default 1 MiB; <0: none.
	CompactBytes int64
	// CompactShare is the share of the bytes in use that they must exceed too;
	// default 0.2; <0: none.
	CompactShare float64
	// CompactGrace is how long a superseded body stays at least; default 60 s;
	// <0: not at all.
	CompactGrace time.Duration
	// StagedFor is how long staged attachment bytes wait for their write;
	// default 15 min.
	StagedFor time.Duration
	// OnUpdate is called after every durable change of documents of a copy with
	// its sequence. It runs on the writer's goroutine and must not block.
	OnUpdate func(id shardapi.CopyID, seq uint64)
	// Index is the store of indexes; nil: views answer that there is none.
	Index *kv.Store
	// JS runs the functions of design documents.
	JS *jsvm.Pool
	// Definitions tells what is defined for a copy; nil: nothing.
	Definitions Definitions
	// OnDesign is called after every durable change of a design document in a copy,
	// before its writer hears of it.
	OnDesign func(id shardapi.CopyID)
	// IndexDelay is how long after the first change of a copy its indexes are brought
	// up to date in the background, so that a bulk load is not slowed by tiny passes;
	// default 1 s.
	IndexDelay time.Duration
	// IndexGrace is how long an index that nobody defines any more stays at least;
	// default 60 s.
	IndexGrace time.Duration
	// Database names the database of a copy for the log; nil: only its number is
	// logged.
	Database func(id shardapi.CopyID) string
	// Logger takes what goes wrong in the background; default slog.Default.
	Logger *slog.Logger
}

// withDefaults fills what was left out.
func (o Options) withDefaults() Options {
	if o.MaxOpen <= 0 {
		o.MaxOpen = 20_000
	}
	if o.CompactEvery == 0 {
		o.CompactEvery = 5 * time.Second
	}
	if o.CompactBytes == 0 {
		o.CompactBytes = 1 << 20
	}
	if o.CompactShare == 0 {
		o.CompactShare = 0.2
	}
	if o.CompactGrace == 0 {
		o.CompactGrace = time.Minute
	}
	o.CompactGrace = max(o.CompactGrace, 0)
	if o.StagedFor <= 0 {
		o.StagedFor = 15 * time.Minute
	}
	if o.IndexDelay <= 0 {
		o.IndexDelay = time.Second
	}
	if o.IndexGrace <= 0 {
		o.IndexGrace = time.Minute
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Host holds the copies of this node.
type Host struct {
	store *kv.Store
	dir   string // of attachment files
	opts  Options
	shard *shard.Options

	mu      sync.RWMutex
	open    map[shardapi.CopyID]*entry
	dropped map[shardapi.CopyID]struct{} // numbers are never reused, so this only grows
	closed  bool

	// dirty are copies that a look of the background loop may be worth.
	dirtyMu sync.Mutex
	dirty   map[shardapi.CopyID]struct{}

	passes passes
	warm   *warmer // nil without a store of indexes

	ctx  context.Context // ends with the host
	stop context.CancelFunc
	work sync.WaitGroup
}

// entry is an open copy.
type entry struct {
	once sync.Once // opens it
	copy *shard.Copy
	err  error
	seen atomic.Pointer[shard.Copy] // copy, for those who did not go through once
	// refs are calls and streams under way. They are raised under Host.mu, or by
	// somebody who holds one.
	refs    atomic.Int64
	indexes atomic.Pointer[copyIndexes] // nil until somebody asks for one
}

// New makes the host of the copies in store; large attachments are files below
// dir/blobs. What a crash left there is removed.
func New(store *kv.Store, dir string, o Options) (*Host, error) {
	h := &Host{
		store: store, dir: filepath.Join(dir, "blobs"), opts: o.withDefaults(),
		open: make(map[shardapi.CopyID]*entry), dropped: make(map[shardapi.CopyID]struct{}),
		dirty: make(map[shardapi.CopyID]struct{}),
	}
	if err := shard.TidyBlobs(store, h.dir); err != nil {
		return nil, err
	}
	h.shard = shard.Prepare(shard.Options{BlobDir: h.dir, InlineMax: o.InlineMax, OnUpdate: h.updated})
	ctx, stop := context.WithCancelCause(context.Background())
	h.ctx, h.stop = ctx, func() { stop(model.ErrClosed) }
	if h.opts.CompactEvery > 0 {
		h.work.Add(1)
		go h.background(ctx)
	}
	if h.opts.Index != nil {
		h.passes.init()
		h.warm = newWarmer(h)
		h.work.Go(h.warm.run)
	}
	return h, nil
}

// markDirty has the background loop look at a copy.
func (h *Host) markDirty(id uint64) {
	h.dirtyMu.Lock()
	h.dirty[shardapi.CopyID(id)] = struct{}{}
	h.dirtyMu.Unlock()
}

// updated hears of every durable change.
func (h *Host) updated(id, seq uint64) {
	h.markDirty(id)
	if h.warm != nil {
		h.warm.changed(shardapi.CopyID(id))
	}
	if h.opts.OnUpdate != nil {
		h.opts.OnUpdate(shardapi.CopyID(id), seq)
	}
}

// Close ends the background work and refuses every further call. Streams must be
// closed before the store is.
func (h *Host) Close() error {
	h.stop()
	h.passes.end()
	h.mu.Lock()
	h.closed = true
	open := h.open
	h.open = make(map[shardapi.CopyID]*entry)
	h.mu.Unlock()
	for _, e := range open {
		e.once.Do(func() { e.err = model.ErrClosed })
		if e.copy != nil {
			e.copy.Close(model.ErrClosed)
		}
	}
	h.work.Wait()
	var errs []error
	for _, e := range open {
		if s := e.indexes.Load(); s != nil {
			errs = append(errs, s.release())
		}
	}
	return errors.Join(errs...)
}

// acquire gives an open copy; the caller must release the entry.
func (h *Host) acquire(id shardapi.CopyID) (*entry, error) {
	h.mu.RLock()
	e := h.open[id]
	if e != nil {
		e.refs.Add(1)
		h.mu.RUnlock()
	} else {
		h.mu.RUnlock()
		h.mu.Lock()
		if _, gone := h.dropped[id]; gone {
			h.mu.Unlock()
			return nil, model.ErrCopyClosed
		}
		if h.closed {
			h.mu.Unlock()
			return nil, model.ErrClosed
		}
		if e = h.open[id]; e == nil {
			if len(h.open) >= h.opts.MaxOpen {
				h.evict()
			}
			e = new(entry)
			h.open[id] = e
		}
		e.refs.Add(1)
		h.mu.Unlock()
	}
	e.once.Do(func() {
		e.copy, e.err = shard.Open(h.store, uint64(id), h.shard)
		e.seen.Store(e.copy)
		if e.err == nil && e.copy.NeedsCompaction(h.opts.CompactBytes, h.opts.CompactShare) {
			h.markDirty(uint64(id)) // an earlier process did not come to it
		}
	})
	if e.err != nil {
		h.mu.Lock()
		if h.open[id] == e {
			delete(h.open, id) // the next call tries again
		}
		h.mu.Unlock()
		e.refs.Add(-1)
		return nil, e.err
	}
	return e, nil
}

// release ends a use.
func (e *entry) release() { e.refs.Add(-1) }

// evict closes a tenth of the idle copies. The caller holds mu, so that no use
// can begin; a copy that is idle has nothing that opening it again would not find.
func (h *Host) evict() {
	enough := max(1, h.opts.MaxOpen/10)
	for id, e := range h.open {
		if c := e.seen.Load(); e.refs.Load() != 0 || c == nil || !c.Idle() {
			continue
		}
		if s := e.indexes.Load(); s != nil {
			if err := s.release(); err != nil {
				h.opts.Logger.Warn("closing an index", "copy", uint64(id), "error", err)
			}
		}
		delete(h.open, id)
		if enough--; enough == 0 {
			return
		}
	}
}

// CopySeq gives the sequence of a copy by one cheap read, without opening it.
func (h *Host) CopySeq(id shardapi.CopyID) (uint64, error) {
	return shard.ReadSeq(h.store, uint64(id))
}

// Drop closes the copy for good and removes its data: one range deletion. Files
// go in the background.
func (h *Host) Drop(_ context.Context, id shardapi.CopyID) error {
	h.mu.Lock()
	if h.closed {
		h.mu.Unlock()
		return model.ErrClosed
	}
	h.dropped[id] = struct{}{}
	e := h.open[id]
	delete(h.open, id)
	h.work.Add(1) // under the lock: Close waits only after it has set closed
	h.mu.Unlock()
	done := h.work.Done
	defer func() { done() }()
	var indexes *copyIndexes
	if e != nil {
		e.once.Do(func() { e.err = model.ErrCopyClosed })
		if e.copy != nil {
			e.copy.Close(model.ErrCopyClosed)
			indexes = h.indexesOf(e, id) // made now, so that nobody makes them later
			indexes.close(model.ErrCopyClosed)
		}
	}
	b := h.store.NewBatch()
	b.Frees = true
	b.DeleteRange(shard.KeyRange(uint64(id)))
	commit, err := h.store.Apply(b)
	if err != nil {
		return errors.Join(fmt.Errorf("drop copy: %w", err), b.Close())
	}
	if err := commit.Wait(); err != nil {
		return fmt.Errorf("drop copy: %w", err)
	}
	finish := done
	done = func() {} // the goroutine takes over
	go func() {
		defer finish()
		h.dropIndexes(id, indexes)
		if err := os.RemoveAll(shard.BlobPath(h.dir, uint64(id))); err != nil {
			// The next start removes them: no row names them any more.
			h.opts.Logger.Warn("attachment files of a dropped copy stay for now", "copy", uint64(id), "error", err)
		}
	}()
	return nil
}

// Tasks lists the background work on the copies.
func (h *Host) Tasks(_ context.Context) ([]shardapi.Task, error) {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.closed {
		return nil, model.ErrClosed
	}
	tasks := h.passes.tasks()
	for _, e := range h.open {
		c := e.seen.Load()
		if e.refs.Load() == 0 || c == nil {
			continue // a compaction is a use
		}
		if t, running := c.Task(); running {
			tasks = append(tasks, t)
		}
	}
	return tasks, nil
}
