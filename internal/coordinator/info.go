package coordinator

import (
	"context"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/shardapi"
)

// Info is the state of a database: the sums over its ranges.
type Info struct {
	shardapi.Info          // Seq is the sum of Seqs
	Seqs          []uint64 // durable sequence per range, in the order of db.Shards
}

// Info adds up the copies' counters.
func (c *Coordinator) Info(ctx context.Context, db *cluster.Database) (*Info, error) {
	parts := make([]*shardapi.Info, len(db.Shards))
	err := c.each(ctx, db, func(ctx context.Context, i int, s shardapi.Shard) (err error) {
		parts[i], err = s.Info(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := &Info{Seqs: make([]uint64, len(parts))}
	for i, p := range parts {
		out.Seqs[i] = p.Seq
		out.Seq += p.Seq
		out.DocCount += p.DocCount
		out.DocDelCount += p.DocDelCount
		out.SizeFile += p.SizeFile
		out.SizeExternal += p.SizeExternal
		out.SizeActive += p.SizeActive
		out.StaleBytes += p.StaleBytes
		out.StaleRevsKept += p.StaleRevsKept
		out.Compacting = out.Compacting || p.Compacting
	}
	return out, nil
}

// Seqs gives the durable sequence of every range.
func (c *Coordinator) Seqs(ctx context.Context, db *cluster.Database) ([]uint64, error) {
	info, err := c.Info(ctx, db)
	if err != nil {
		return nil, err
	}
	return info.Seqs, nil
}

// PartitionInfo counts a partition, which lies in one range.
func (c *Coordinator) PartitionInfo(ctx context.Context, db *cluster.Database, partition string) (*shardapi.PartitionInfo, error) {
	info, err := c.Shard(db, db.ShardOfPartition(partition)).PartitionInfo(ctx, partition)
	return info, c.Explain(db, err)
}

// Sync returns once everything written so far is durable.
func (c *Coordinator) Sync(ctx context.Context, db *cluster.Database) error {
	return c.each(ctx, db, func(ctx context.Context, _ int, s shardapi.Shard) error { return s.Sync(ctx) })
}
