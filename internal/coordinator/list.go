package coordinator

import (
	"context"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/shardapi"
)

// ListRequest asks for a run of a database's documents.
type ListRequest struct {
	shardapi.ListRequest
	Skip int64
	// Partition, when set, is the partition that Start and End lie in: only its
	// range is asked.
	Partition string
}

// ListHead comes before the rows.
type ListHead struct {
	TotalRows int64    // live documents in the table; of the asked range only, with Partition
	Offset    int64    // live documents before the first row, skipped ones included
	Seqs      []uint64 // durable sequence per range; nil with Partition
}

// List streams documents in id order over all ranges.
func (c *Coordinator) List(ctx context.Context, db *cluster.Database, req *ListRequest) (*ListHead, shardapi.Stream[shardapi.Row], error) {
	part := req.ListRequest
	part.Limit = limitOfParts(req.Limit, req.Skip)
	head := &ListHead{}
	var out shardapi.Stream[shardapi.Row]
	if req.Partition != "" || len(db.Shards) == 1 {
		index := 0
		if req.Partition != "" {
			index = db.ShardOfPartition(req.Partition)
		}
		h, rows, err := c.Shard(db, index).List(ctx, &part)
		if err != nil {
			return nil, nil, c.Explain(db, err)
		}
		head.TotalRows, head.Offset = h.TotalRows, h.Offset
		if req.Partition == "" {
			head.Seqs = []uint64{h.Seq}
		}
		out = rows
	} else {
		heads, sources, cancel, err := openRanges(ctx, c, db, func(ctx context.Context, s shardapi.Shard) (*shardapi.ListHead, shardapi.Stream[shardapi.Row], error) {
			own := part // a copy may keep what it is given
			return s.List(ctx, &own)
		})
		if err != nil {
			return nil, nil, err
		}
		head.Seqs = make([]uint64, len(heads))
		for i, h := range heads {
			head.TotalRows += h.TotalRows
			head.Offset += h.Offset
			head.Seqs[i] = h.Seq
		}
		out = newMerge(sources, cancel, idOrder(part.Descending))
	}
	if req.Offset {
		last := max(head.TotalRows, head.Offset)
		head.Offset += min(max(req.Skip, 0), last-head.Offset)
	}
	if _, merged := out.(*merge[shardapi.Row]); !merged && req.Skip <= 0 {
		return head, out, nil // the copy keeps the limit itself
	}
	return head, &window[shardapi.Row]{from: out, skip: max(req.Skip, 0), left: req.Limit}, nil
}

// idOrder is the order of ids. No id is in two ranges.
func idOrder(descending bool) func(a, b *shardapi.Row) bool {
	if descending {
		return func(a, b *shardapi.Row) bool { return a.ID > b.ID }
	}
	return func(a, b *shardapi.Row) bool { return a.ID < b.ID }
}
