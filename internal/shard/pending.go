package shard

import (
	"context"
	"encoding/binary"
	"fmt"
)

// The sequence log is counted in buckets of 64 sequences, and those in pages of
// 1024, so that counting what is above a sequence needs no scan of the log. Only
// pages that have rows take memory.
const (
	bucketBits = 6
	pageBits   = 16
	pageSize   = 1 << (pageBits - bucketBits)
	// scanPending is how near the end of the log rows are simply counted.
	scanPending = 4096
)

// seqCounts is the number of rows per bucket.
type seqCounts struct {
	pages map[uint64]*seqPage
}

// seqPage is 1024 buckets.
type seqPage struct {
	total   int64
	buckets [pageSize]uint8 // at most 64 each
}

// seqDelta is a document that moved in the log; from 0 means it was not there.
type seqDelta struct{ from, to uint64 }

// seqDeltas collects what writes do while the log is counted.
type seqDeltas struct{ list []seqDelta }

// add counts a row in (1) or out (-1).
func (k *seqCounts) add(seq uint64, delta int) {
	page := k.pages[seq>>pageBits]
	if page == nil {
		page = new(seqPage)
		k.pages[seq>>pageBits] = page
	}
	page.total += int64(delta)
	page.buckets[seq>>bucketBits%pageSize] += uint8(delta) // -1 wraps, as it should
	if page.total == 0 {
		delete(k.pages, seq>>pageBits)
	}
}

// move counts a document's move.
func (k *seqCounts) move(d seqDelta) {
	if d.from != 0 {
		k.add(d.from, -1)
	}
	k.add(d.to, 1)
}

// above counts the rows in buckets wholly above the bucket of seq.
func (k *seqCounts) above(seq uint64) (n int64) {
	at := seq >> pageBits
	for number, page := range k.pages {
		if number > at {
			n += page.total
		}
	}
	if page := k.pages[at]; page != nil {
		for _, b := range page.buckets[seq>>bucketBits%pageSize+1:] {
			n += int64(b)
		}
	}
	return n
}

// noteSeqs tells the counts what a batch did. The caller holds mu.
func (c *Copy) noteSeqs(list []seqDelta) {
	if c.seqs != nil {
		for _, d := range list {
			c.seqs.move(d)
		}
	} else if c.seqWait != nil {
		c.seqWait.list = append(c.seqWait.list, list...)
	}
}

// Pending counts the rows of the log above since.
func (c *Copy) Pending(ctx context.Context, since uint64) (int64, error) {
	c.mu.Lock()
	seq, rows, err := c.count.seq, c.count.docs+c.count.dels, c.closed
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	if err := c.mark.waitSeq(ctx, seq); err != nil {
		return 0, err
	}
	switch {
	case since >= seq:
		return 0, nil
	case since == 0:
		return rows, nil
	case seq-since <= scanPending:
		n, err := c.countSeqs(since+1, 0)
		if err != nil {
			return 0, err
		}
		return n, c.settle(ctx) // rows of later writes may be among them (I3)
	}
	if err := c.buildSeqs(ctx); err != nil {
		return 0, err
	}
	// The rest of since's own bucket is counted in the store, seen at the moment
	// at which the buckets are summed.
	c.mu.Lock()
	n := c.seqs.above(since)
	end := (since>>bucketBits + 1) << bucketBits
	snap := c.store.NewSnapshot()
	c.mu.Unlock()
	rest, err := countRange(snap.NewIter(c.appendSeqKey(nil, since+1), c.appendSeqKey(nil, end)))
	if cerr := snap.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return 0, fmt.Errorf("pending: %w", err)
	}
	return n + rest, c.settle(ctx)
}

// countSeqs counts rows of the log from a sequence on; to 0 means to the end.
func (c *Copy) countSeqs(from, to uint64) (int64, error) {
	_, upper := c.tableRange(tableSeq)
	if to != 0 {
		upper = c.appendSeqKey(nil, to)
	}
	n, err := countRange(c.store.NewIter(c.appendSeqKey(nil, from), upper))
	if err != nil {
		return 0, fmt.Errorf("pending: %w", err)
	}
	return n, nil
}

// buildSeqs counts the log once. Writes go on meanwhile; what they do is noted
// and added at the end.
func (c *Copy) buildSeqs(ctx context.Context) error {
	c.build.Lock()
	defer c.build.Unlock()
	c.mu.Lock()
	if c.seqs != nil || c.closed != nil {
		defer c.mu.Unlock()
		return c.closed
	}
	c.seqWait = new(seqDeltas)
	snap := c.store.NewSnapshot()
	c.mu.Unlock()

	counts := &seqCounts{pages: make(map[uint64]*seqPage)}
	it, err := snap.NewIter(c.tableRange(tableSeq))
	if err == nil {
		rows := 0
		for ok := it.First(); ok && err == nil; ok = it.Next() {
			counts.add(binary.BigEndian.Uint64(it.Key()[prefixLen:]), 1)
			if rows++; rows%4096 == 0 && ctx.Err() != nil {
				err = context.Cause(ctx)
			}
		}
		if cerr := it.Close(); err == nil {
			err = cerr
		}
	}
	if cerr := snap.Close(); err == nil {
		err = cerr
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		for _, d := range c.seqWait.list {
			counts.move(d)
		}
		c.seqs = counts
	}
	c.seqWait = nil
	return err
}
