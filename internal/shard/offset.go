package shard

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sort"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/shardapi"
)

// Live documents are counted in runs of ids, so that the number of documents
// before an id needs a scan of one run only. A run that has grown too long is
// counted again by whoever next asks for an offset.
const (
	runSize = 1024
	runMax  = 4 * runSize
)

// idCounts is the runs of a copy, in order. A run reaches from its first id to
// that of the next one; the first run begins with the empty id.
type idCounts struct {
	first []string
	live  []int64
}

// idDelta is a document that came (1) or went (-1).
type idDelta struct {
	id    string
	delta int64
}

// idDeltas collects what writes do while a run is counted.
type idDeltas struct {
	from  string
	to    string // exclusive
	toEnd bool   // there is no upper end
	list  []idDelta
}

// run finds the run of an id.
func (k *idCounts) run(id string) int {
	return sort.Search(len(k.first), func(i int) bool { return k.first[i] > id }) - 1
}

// add counts a document in or out.
func (k *idCounts) add(d idDelta) { k.live[k.run(d.id)] += d.delta }

// before counts the documents of all runs before the i-th.
func (k *idCounts) before(i int) (n int64) {
	for _, live := range k.live[:i] {
		n += live
	}
	return n
}

// noteIDs tells the counts what a batch did. The caller holds mu.
func (c *Copy) noteIDs(list []idDelta) {
	if c.ids != nil {
		for _, d := range list {
			c.ids.add(d)
		}
	}
	if w := c.idWait; w != nil {
		for _, d := range list {
			if d.id >= w.from && (w.toEnd || d.id < w.to) {
				w.list = append(w.list, d)
			}
		}
	}
}

// listHead answers what comes before the rows of a list.
func (c *Copy) listHead(ctx context.Context, req *shardapi.ListRequest) (*shardapi.ListHead, error) {
	c.mu.Lock()
	head := &shardapi.ListHead{Seq: c.count.seq, TotalRows: c.count.docs}
	err := c.closed
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	switch req.Table {
	case shardapi.TableLocal:
		head.TotalRows = 0
	case shardapi.TableDesign:
		if head.TotalRows, err = countLive(c.store.NewIter(c.listTable(req.Table))); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
	}
	if req.Offset && req.Start != nil && req.Table != shardapi.TableLocal {
		if head.Offset, err = c.offset(ctx, req, head.TotalRows); err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
	}
	if req.Table == shardapi.TableDesign {
		return head, c.settle(ctx) // what was counted may be newer than the sequence (I3)
	}
	return head, c.mark.waitSeq(ctx, head.Seq)
}

// offset counts the live documents before the start of a list in its direction.
func (c *Copy) offset(ctx context.Context, req *shardapi.ListRequest, total int64) (int64, error) {
	id := *req.Start
	if req.Descending {
		id += "\x00" // count what is at or below the start, then look from the other side
	}
	var below int64
	var err error
	if req.Table == shardapi.TableDesign {
		lower, upper := c.listTable(req.Table)
		if k := c.appendInfoKey(nil, id); bytes.Compare(k, upper) < 0 {
			upper = k
		}
		if bytes.Compare(lower, upper) < 0 {
			below, err = countLive(c.store.NewIter(lower, upper))
		}
	} else {
		below, total, err = c.liveBelow(ctx, id)
	}
	if err != nil || !req.Descending {
		return below, err
	}
	return total - below, nil
}

// liveBelow counts the live documents whose id is below the given one, and all.
func (c *Copy) liveBelow(ctx context.Context, id string) (below, total int64, err error) {
	c.build.Lock()
	defer c.build.Unlock()
	for {
		c.mu.Lock()
		if c.closed != nil {
			c.mu.Unlock()
			return 0, 0, c.closed
		}
		if c.ids == nil {
			c.mu.Unlock()
			if err := c.countRun(ctx, -1); err != nil {
				return 0, 0, err
			}
			continue
		}
		run := c.ids.run(id)
		if c.ids.live[run] > runMax {
			c.mu.Unlock()
			if err := c.countRun(ctx, run); err != nil {
				return 0, 0, err
			}
			continue
		}
		below, total = c.ids.before(run), c.count.docs
		from := c.appendInfoKey(nil, c.ids.first[run])
		snap := c.store.NewSnapshot()
		c.mu.Unlock()
		rest, err := int64(0), error(nil)
		if to := c.appendInfoKey(nil, id); bytes.Compare(from, to) < 0 {
			rest, err = countLive(snap.NewIter(from, to))
		}
		if cerr := snap.Close(); err == nil {
			err = cerr
		}
		if err == nil {
			err = c.settle(ctx)
		}
		return below + rest, total, err
	}
}

// countRun counts the documents of a run (-1: of the whole copy) and replaces it
// by runs of a good length. Writes go on meanwhile; what they do is noted and
// added at the end. The caller holds build.
func (c *Copy) countRun(ctx context.Context, run int) error {
	lower, upper := c.tableRange(tableInfo)
	c.mu.Lock()
	wait := &idDeltas{toEnd: true}
	if run >= 0 {
		wait.from = c.ids.first[run]
		lower = c.appendInfoKey(nil, wait.from)
		if run+1 < len(c.ids.first) {
			wait.to, wait.toEnd = c.ids.first[run+1], false
			upper = c.appendInfoKey(nil, wait.to)
		}
	}
	c.idWait = wait
	snap := c.store.NewSnapshot()
	c.mu.Unlock()

	fresh := &idCounts{first: []string{wait.from}, live: []int64{0}}
	it, err := snap.NewIter(lower, upper)
	if err == nil {
		err = eachLive(ctx, it, func(id []byte) {
			last := len(fresh.live) - 1
			if fresh.live[last] == runSize {
				fresh.first = append(fresh.first, string(id))
				fresh.live = append(fresh.live, 0)
				last++
			}
			fresh.live[last]++
		})
	}
	if cerr := snap.Close(); err == nil {
		err = cerr
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.idWait = nil
	if err != nil {
		return err
	}
	for _, d := range wait.list {
		fresh.add(d)
	}
	if run < 0 {
		c.ids = fresh
		return nil
	}
	c.ids.first = slices.Replace(c.ids.first, run, run+1, fresh.first...)
	c.ids.live = slices.Replace(c.ids.live, run, run+1, fresh.live...)
	return nil
}

// eachLive calls fn with the id of every live document of an iterator over info
// rows, and closes it.
func eachLive(ctx context.Context, it *kv.Iter, fn func(id []byte)) (err error) {
	rows := 0
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var h header
		if _, err = parseHeader(it.Value(), &h); err == nil && !h.deleted {
			fn(it.Key()[prefixLen:])
		}
		if rows++; rows%4096 == 0 && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return err
}

// countLive counts the live documents of an iterator over info rows.
func countLive(it *kv.Iter, err error) (n int64, _ error) {
	if err != nil {
		return 0, err
	}
	err = eachLive(context.Background(), it, func([]byte) { n++ })
	return n, err
}

// countRange counts the rows of an iterator.
func countRange(it *kv.Iter, err error) (n int64, _ error) {
	if err != nil {
		return 0, err
	}
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	return n, it.Close()
}
