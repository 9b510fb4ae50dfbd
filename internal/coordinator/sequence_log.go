package coordinator

import (
	"context"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/shardapi"
)

// Changes streams the sequence log of one range.
func (c *Coordinator) Changes(ctx context.Context, db *cluster.Database, index int, req *shardapi.ChangesRequest) (shardapi.ChangeStream, error) {
	s, err := c.Shard(db, index).Changes(ctx, req)
	return s, c.Explain(db, err)
}

// Updated waits until the durable sequence of a range is above after.
func (c *Coordinator) Updated(ctx context.Context, db *cluster.Database, index int, after uint64) (uint64, error) {
	seq, err := c.Shard(db, index).Updated(ctx, after)
	return seq, c.Explain(db, err)
}

// Pending counts the changes after a vector of sequences, over all ranges.
func (c *Coordinator) Pending(ctx context.Context, db *cluster.Database, seqs []uint64) (int64, error) {
	parts := make([]int64, len(db.Shards))
	err := c.each(ctx, db, func(ctx context.Context, i int, s shardapi.Shard) (err error) {
		parts[i], err = s.Pending(ctx, seqs[i])
		return err
	})
	var sum int64
	for _, n := range parts {
		sum += n
	}
	return sum, err
}
