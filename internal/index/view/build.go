package view

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"

	"github.com/divandb/divan/internal/kv"
)

// A build puts in the rows first and computes all nodes in one pass at the end. It
// pays when most segments would be touched anyway, and some more than once.
const (
	buildChanges = 5000 // fewer are not worth hiding the changes until the end
	buildShare   = 4    // the part of the rows, 1 in …, that must be about to change
)

// build is what queries see while the rows are ahead of the nodes.
type build struct {
	before *held // nil: nothing
	// fresh has the documents that may have rows, if the build began with none. It
	// is for the goroutine that changes the index.
	fresh *freshIDs
}

// held is a snapshot of the store that several use.
type held struct {
	snap *kv.Snapshot
	uses atomic.Int32
}

// release ends one use.
func (h *held) release() error {
	if h.uses.Add(-1) == 0 {
		return h.snap.Close()
	}
	return nil
}

// release ends the build's own use.
func (b *build) release() error {
	if b.before == nil {
		return nil
	}
	return b.before.release()
}

// Begin tells how many changes are ahead, so that the index can choose between
// keeping its reductions as it goes and computing them once at the end.
func (x *Index) Begin(changes int64) error {
	if err := x.alive(); err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.build != nil || changes < buildChanges || changes < x.now.rows/buildShare {
		return nil
	}
	x.build = &build{}
	if x.now.rows > 0 {
		x.build.before = &held{snap: x.o.Store.NewSnapshot()}
		x.build.before.uses.Store(1)
	} else {
		x.build.fresh = &freshIDs{hash: x.hash}
	}
	return nil
}

// inBuild gives the build under way; nil if the nodes are kept up to date.
func (x *Index) inBuild() *build {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.build
}

// isNew tells whether a document surely has no rows, and notes that it has some
// from now on.
func (b *build) isNew(id string) bool {
	if b == nil || b.fresh == nil {
		return false
	}
	had, full := b.fresh.add(id)
	if full {
		b.fresh = nil
	}
	return !had
}

// Finish ends what Begin began: what queries see is up to date afterwards.
func (x *Index) Finish(ctx context.Context) error {
	if err := x.alive(); err != nil {
		return err
	}
	if x.inBuild() == nil {
		return nil
	}
	if now := x.state(); now.building {
		if err := x.buildNodes(ctx, now); err != nil {
			return err
		}
	}
	x.mu.Lock()
	b := x.build
	x.build = nil
	x.mu.Unlock()
	if b == nil {
		return nil // closed meanwhile
	}
	return b.release()
}

// builder computes all nodes from the rows, from below, with one open node a level.
type builder struct {
	x     *Index
	ctx   context.Context
	runs  rowRuns
	done  []*entry // segments of level 1 whose states may still be missing
	open  [maxLevel + 3][]*entry
	batch *kv.Batch
	size  int64
}

// nodeBatch is how many bytes of nodes go into one batch.
const nodeBatch = 1 << 20

// doneSegments is how many segments are reduced together.
const doneSegments = 256

// buildNodes writes all nodes anew and ends the build. A crash before its last
// batch leaves the build as it was.
func (x *Index) buildNodes(ctx context.Context, now *meta) (err error) {
	b := &builder{x: x, ctx: ctx, runs: rowRuns{reducer: x.o.Reducer}, batch: x.o.Store.NewBatch()}
	defer func() { b.batch.Close() }()
	b.batch.DeleteRange(x.keys.bounds(tableNode))
	next := *now
	if next.rows, err = b.scan(); err != nil {
		return err
	}
	if err := b.flush(); err != nil {
		return err
	}
	if err := b.root(&next); err != nil {
		return err
	}
	next.building, next.nodes = false, b.size
	if err := x.commit(b.batch, &next); err != nil {
		return err
	}
	x.cache.reset(next.version)
	return nil
}

// scan walks the rows and cuts them into segments.
func (b *builder) scan() (rows int64, err error) {
	x := b.x
	lower, upper := x.keys.bounds(tableRow)
	it, err := x.o.Store.NewIter(lower, upper)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	prefix := len(lower)
	e := &entry{}
	var stored storedRow
	for valid := it.First(); valid; valid = it.Next() {
		row := it.Key()[prefix:]
		if x.hash.level(row) > 0 {
			b.close(e)
			e = &entry{key: bytes.Clone(row)}
			if len(b.done) >= doneSegments || b.runs.full() {
				if err := b.flush(); err != nil {
					return 0, err
				}
			}
		}
		e.count++
		rows++
		if x.o.Reducer != nil {
			if err := stored.read(it, prefix, x.o.Partitioned); err != nil {
				return 0, err
			}
			if err := b.runs.add(&stored); err != nil {
				return 0, err
			}
		}
	}
	b.close(e)
	return rows, it.Error()
}

// close ends a segment of level 1.
func (b *builder) close(e *entry) {
	b.runs.close(&e.state)
	b.done = append(b.done, e)
}

// flush reduces the segments that have come together and hands them up.
func (b *builder) flush() error {
	if b.ctx.Err() != nil {
		return context.Cause(b.ctx)
	}
	if err := b.runs.flush(b.ctx); err != nil {
		return err
	}
	done := b.done
	b.done = nil
	return b.feed(lowestRoot, done)
}

// feed puts segments into the nodes of a level and writes the nodes that are
// complete by that.
func (b *builder) feed(level int, below []*entry) error {
	var complete []*freshNode
	for _, e := range below {
		if open := b.open[level]; len(open) > 0 && b.x.hash.level(e.key) >= level {
			complete = append(complete, &freshNode{nodeRef: nodeRef{level, open[0].key}, entries: open})
			b.open[level] = nil
		}
		b.open[level] = append(b.open[level], e)
	}
	return b.write(complete)
}

// write writes complete nodes of one level and feeds the level above.
func (b *builder) write(complete []*freshNode) error {
	if len(complete) == 0 {
		return nil
	}
	calls := stateRuns{reducer: b.x.o.Reducer}
	above := make([]*entry, len(complete))
	for i, f := range complete {
		above[i] = &entry{key: f.boundary, count: countOf(f.entries)}
		if calls.reducer != nil {
			calls.add(statesOf(f.entries), &above[i].state)
		}
		b.size += f.put(b.x.keys, b.batch)
	}
	if err := calls.flush(b.ctx); err != nil {
		return err
	}
	if size := b.batch.Size(); size > nodeBatch {
		if err := commit(b.x.o.Store, b.batch); err != nil {
			return err
		}
		b.x.memory.wrote(b.x.o.Store, int64(size))
		b.batch = b.x.o.Store.NewBatch()
	}
	return b.feed(complete[0].level+1, above)
}

// root completes the open nodes from below, up to the one that has no other
// beside it.
func (b *builder) root(next *meta) error {
	level := lowestRoot
	for len(b.open[level+1]) > 0 {
		open := b.open[level]
		b.open[level] = nil
		if err := b.write([]*freshNode{{nodeRef: nodeRef{level, open[0].key}, entries: open}}); err != nil {
			return err
		}
		level++
	}
	top := b.open[level]
	next.version++
	next.height, next.total = level, nil
	if b.x.o.Reducer != nil {
		calls := stateRuns{reducer: b.x.o.Reducer}
		calls.add(statesOf(top), &next.total)
		if err := calls.flush(b.ctx); err != nil {
			return err
		}
	}
	next.root = node{text: appendEntries(nil, top)}
	return nil
}
