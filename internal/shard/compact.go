package shard

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/revtree"
	"github.com/divandb/divan/internal/shardapi"
)

// compactRows is how many superseded bodies go in one batch: the sequencer is
// held meanwhile, so writers wait no longer than for a small bulk write.
const compactRows = 64

// progress is how far a compaction has come.
type progress struct {
	mu             sync.Mutex
	active         bool
	started, moved time.Time
	done, total    int64
}

func (p *progress) running() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.active
}

func (p *progress) begin(now time.Time, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active, p.started, p.moved, p.done, p.total = true, now, now, 0, total
}

func (p *progress) add(now time.Time, n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved = now
	p.done += n
	p.total = max(p.total, p.done)
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.active = false
}

// Task describes the compaction that runs, if one does.
func (c *Copy) Task() (t shardapi.Task, running bool) {
	p := &c.work
	p.mu.Lock()
	defer p.mu.Unlock()
	return shardapi.Task{
		Type: "database_compaction", Copy: shardapi.CopyID(c.id),
		StartedOn: p.started.Unix(), UpdatedOn: p.moved.Unix(),
		ChangesDone: p.done, TotalChanges: p.total, Phase: "document_bodies",
	}, p.active
}

// NeedsCompaction tells whether superseded bodies take more than least bytes and
// more than the given share of what is in use.
func (c *Copy) NeedsCompaction(least int64, share float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := &c.count
	return c.closed == nil && k.staleRevs > 0 && k.staleBytes >= least && float64(k.staleBytes) >= share*float64(k.active)
}

// Compact removes the bodies that were superseded before a time. Leaves are never
// touched (I5). It may be ended at any moment, by a crash too: each batch removes
// bodies together with their notes.
func (c *Copy) Compact(ctx context.Context, before time.Time) (removed int64, err error) {
	c.tidy.Lock()
	defer c.tidy.Unlock()
	c.mu.Lock()
	total := c.count.staleRevs
	c.mu.Unlock()
	c.work.begin(c.opts.Now(), total)
	defer c.work.end()
	from, upper := c.tableRange(tableStale)
	for {
		if err := ctx.Err(); err != nil {
			return removed, context.Cause(ctx)
		}
		rows, err := c.staleRows(from, upper, before.UnixMilli())
		if err != nil {
			return removed, fmt.Errorf("compact: %w", err)
		}
		if len(rows) == 0 {
			return removed, nil
		}
		gone, p, err := c.removeStale(rows)
		if err != nil {
			return removed, fmt.Errorf("compact: %w", err)
		}
		if err := c.finish(p); err != nil {
			return removed, fmt.Errorf("compact: %w", err)
		}
		c.unlinkGone(gone)
		removed += int64(len(rows))
		c.work.add(c.opts.Now(), int64(len(rows)))
		// Go on behind the last row: the store steps over removed ones slowly.
		from = append(rows[len(rows)-1].key, 0)
	}
}

// staleNote is a row of the stale table.
type staleNote struct {
	staleRow
	key []byte
	id  string
	rev model.Rev
}

// staleRows reads the next notes that are old enough. Rows are in the order of
// their sequence, and so nearly of their time: the first young one ends it.
func (c *Copy) staleRows(from, upper []byte, before int64) (rows []staleNote, err error) {
	it, err := c.store.NewIter(from, upper)
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok && len(rows) < compactRows; ok = it.Next() {
		n := staleNote{key: append([]byte(nil), it.Key()...)}
		if n.staleRow, err = parseStale(it.Value()); err != nil {
			break
		}
		if n.at > before {
			break
		}
		var rest []byte
		if n.id, rest, ok = cutEscaped(n.key[prefixLen+8:]); ok {
			n.rev, _, ok = takeRev(rest)
		}
		if !ok {
			err = corrupt("note of a superseded body")
			break
		}
		rows = append(rows, n)
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return rows, err
}

// compactDoc is a document while its superseded bodies go.
type compactDoc struct {
	head header
	tree revtree.Tree
	gone []model.Rev
}

// removeStale removes bodies in one batch.
func (c *Copy) removeStale(rows []staleNote) (gone []model.BlobID, p pending, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return nil, p, c.closed
	}
	next := c.count
	b := c.store.NewBatch()
	b.Frees = true
	docs := make(map[string]*compactDoc, len(rows))
	var changes blobChanges
	for i := range rows {
		n := &rows[i]
		d := docs[n.id]
		if d == nil {
			d = new(compactDoc)
			if err := c.loadCompact(n.id, d); err != nil {
				_ = b.Close()
				return nil, p, err
			}
			docs[n.id] = d
		}
		if err := c.removeBody(b, n, d, &changes); err != nil {
			_ = b.Close()
			return nil, p, err
		}
		b.Delete(n.key)
		next.staleBytes = max(0, next.staleBytes-n.bytes)
		next.staleRevs = max(0, next.staleRevs-1)
	}
	for id, d := range docs {
		if d.tree.Len() > 0 {
			b.Set(c.appendInfoKey(nil, id), d.tree.Append(appendHeader(nil, &d.head)))
		}
	}
	if gone, err = c.applyBlobChanges(b, &next, changes.list, nil, nil); err != nil {
		_ = b.Close()
		return nil, p, err
	}
	c.pinGone(gone)
	if p, err = c.apply(b, &next); err != nil {
		_ = b.Close()
		for _, id := range gone {
			c.blobs.unpin(id)
		}
		return nil, p, err
	}
	return gone, p, nil
}

// loadCompact reads a document's info row.
func (c *Copy) loadCompact(id string, d *compactDoc) error {
	val, found, err := c.store.Get(c.appendInfoKey(nil, id))
	if err != nil || !found {
		return err
	}
	defer val.Release()
	tree, err := parseInfo(val.Bytes(), &d.head)
	if err != nil {
		return err
	}
	return d.tree.Decode(tree)
}

// removeBody removes one body and its references, unless its revision is a leaf:
// stemming may forget a revision that replication then brings again.
func (c *Copy) removeBody(b *kv.Batch, n *staleNote, d *compactDoc, changes *blobChanges) error {
	if i := d.tree.Find(n.rev); i >= 0 {
		if d.tree.IsLeaf(i) {
			return nil
		}
		d.tree.Node(i).HasBody = false
	}
	for _, r := range d.gone {
		if r == n.rev {
			return nil
		}
	}
	d.gone = append(d.gone, n.rev)
	key := c.appendBodyKey(nil, n.id, n.rev)
	if n.atts {
		val, found, err := c.store.Get(key)
		if err != nil {
			return err
		}
		if found {
			atts, _, err := parseBody(val.Bytes())
			val.Release()
			if err != nil {
				return err
			}
			for i := range atts {
				changes.add(atts[i].Blob, -1)
			}
		}
	}
	b.Delete(key)
	return nil
}
