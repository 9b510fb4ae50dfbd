package shardhost

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// background looks after the copies until the host is closed.
func (h *Host) background(ctx context.Context) {
	defer h.work.Done()
	tick := time.NewTicker(h.opts.CompactEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			h.tidy(ctx)
		}
	}
}

// tidy compacts the copies that need it and gives up what was staged long ago.
func (h *Host) tidy(ctx context.Context) {
	h.dirtyMu.Lock()
	ids := make([]shardapi.CopyID, 0, len(h.dirty))
	for id := range h.dirty {
		ids = append(ids, id)
	}
	h.dirtyMu.Unlock()
	for _, id := range ids {
		if ctx.Err() != nil {
			return
		}
		keep, err := h.compactGuarded(ctx, id)
		if err != nil && ctx.Err() == nil && model.KindOf(err) != model.KindUnavailable {
			h.opts.Logger.Error("compaction failed", "copy", uint64(id), "error", err)
		}
		if !keep {
			h.dirtyMu.Lock()
			delete(h.dirty, id)
			h.dirtyMu.Unlock()
		}
	}
	before := time.Now().Add(-h.opts.StagedFor)
	for _, e := range h.entries() {
		if err := e.seen.Load().ExpireStaged(before); err != nil {
			h.opts.Logger.Warn("staged attachment bytes stay for now", "error", err)
		}
		e.release()
	}
}

// entries gives the open copies, each to be released.
func (h *Host) entries() []*entry {
	h.mu.RLock()
	defer h.mu.RUnlock()
	out := make([]*entry, 0, len(h.open))
	for _, e := range h.open {
		if e.seen.Load() != nil {
			e.refs.Add(1)
			out = append(out, e)
		}
	}
	return out
}

// compactGuarded is compactIfNeeded without its panics: in this goroutine one would
// end the process, and start after start, as the copy is looked at again. Those out
// of the store end it by themselves.
func (h *Host) compactGuarded(ctx context.Context, id shardapi.CopyID) (keep bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			keep, err = false, fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return h.compactIfNeeded(ctx, id)
}

// compactIfNeeded compacts a copy that has grown. keep tells that it is to be
// looked at again though nothing is written: its stale bodies are still young.
func (h *Host) compactIfNeeded(ctx context.Context, id shardapi.CopyID) (keep bool, err error) {
	e, err := h.acquire(id)
	if err != nil {
		if errors.Is(err, model.ErrCopyClosed) {
			err = nil
		}
		return false, err
	}
	defer e.release()
	if !e.copy.NeedsCompaction(h.opts.CompactBytes, h.opts.CompactShare) {
		return false, nil
	}
	_, err = e.copy.Compact(ctx, time.Now().Add(-h.opts.CompactGrace))
	return e.copy.NeedsCompaction(h.opts.CompactBytes, h.opts.CompactShare), err
}

// Compact compacts a copy now, whatever it holds; the grace period is kept.
func (h *Host) Compact(ctx context.Context, id shardapi.CopyID) error {
	e, err := h.acquire(id)
	if err != nil {
		return err
	}
	defer e.release()
	_, err = e.copy.Compact(ctx, time.Now().Add(-h.opts.CompactGrace))
	return err
}
