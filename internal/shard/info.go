package shard

import (
	"context"
	"fmt"

	"github.com/divandb/divan/internal/shardapi"
)

// Info gives the copy's counters as of a durable moment.
func (c *Copy) Info(ctx context.Context) (*shardapi.Info, error) {
	c.mu.Lock()
	k, err := c.count, c.closed
	c.pruneUnflushed()
	file := k.fileBytes
	for _, u := range c.unflush {
		file += u.bytes
	}
	c.mu.Unlock()
	if err != nil {
		return nil, err
	}
	disk, err := c.store.DiskUsage(KeyRange(c.id))
	if err != nil {
		return nil, fmt.Errorf("info: %w", err)
	}
	if err := c.mark.waitSeq(ctx, k.seq); err != nil {
		return nil, err
	}
	// The leaves are counted each with its own attachments and before tables are
	// compressed. Shared attachments and compression make the whole smaller, and no
	// part may be larger than the whole: clients tell by the two what is to be gained
	// by a compaction.
	return &shardapi.Info{
		Seq: k.seq, DocCount: k.docs, DocDelCount: k.dels,
		SizeFile: disk + file, SizeExternal: k.external, SizeActive: min(k.active, disk+file),
		StaleBytes: k.staleBytes, StaleRevsKept: k.staleRevs, Compacting: c.work.running(),
	}, nil
}

// PartitionInfo counts the documents whose id starts with "partition:".
func (c *Copy) PartitionInfo(ctx context.Context, partition string) (*shardapi.PartitionInfo, error) {
	if err := c.alive(); err != nil {
		return nil, err
	}
	// ';' follows ':'.
	it, err := c.store.NewIter(c.appendInfoKey(nil, partition+":"), c.appendInfoKey(nil, partition+";"))
	if err != nil {
		return nil, fmt.Errorf("partition info: %w", err)
	}
	info := new(shardapi.PartitionInfo)
	rows := 0
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		var h header
		if _, err = parseHeader(it.Value(), &h); err != nil {
			break
		}
		if h.deleted {
			info.DocDelCount++
		} else {
			info.DocCount++
		}
		info.SizeExternal += h.external
		info.SizeActive += h.active
		if rows++; rows%4096 == 0 && ctx.Err() != nil {
			err = context.Cause(ctx)
		}
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return nil, fmt.Errorf("partition info: %w", err)
	}
	return info, c.settle(ctx)
}
