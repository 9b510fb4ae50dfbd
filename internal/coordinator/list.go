package coordinator

import (
	"context"
	"io"
	"math"

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
	if part.Limit >= 0 && req.Skip > 0 {
		if part.Limit > math.MaxInt64-req.Skip {
			part.Limit = -1 // both are a client's; the window keeps the limit
		} else {
			part.Limit += req.Skip
		}
	}
	head := &ListHead{}
	var streams []shardapi.Stream[shardapi.Row]
	if req.Partition != "" || len(db.Shards) == 1 {
		index := 0
		if req.Partition != "" {
			index = db.ShardOfPartition(req.Partition)
		}
		h, s, err := c.Shard(db, index).List(ctx, &part)
		if err != nil {
			return nil, nil, c.Explain(db, err)
		}
		head.TotalRows, head.Offset = h.TotalRows, h.Offset
		if req.Partition == "" {
			head.Seqs = []uint64{h.Seq}
		}
		streams = append(streams, s)
	} else {
		heads := make([]*shardapi.ListHead, len(db.Shards))
		streams = make([]shardapi.Stream[shardapi.Row], len(db.Shards))
		err := c.each(ctx, db, func(ctx context.Context, i int, s shardapi.Shard) (err error) {
			own := part // a copy may keep what it is given
			heads[i], streams[i], err = s.List(ctx, &own)
			return err
		})
		if err != nil {
			for _, s := range streams {
				if s != nil {
					s.Close()
				}
			}
			return nil, nil, err
		}
		head.Seqs = make([]uint64, len(heads))
		for i, h := range heads {
			head.TotalRows += h.TotalRows
			head.Offset += h.Offset
			head.Seqs[i] = h.Seq
		}
	}
	if req.Offset {
		last := max(head.TotalRows, head.Offset)
		head.Offset += min(max(req.Skip, 0), last-head.Offset)
	}
	var out shardapi.Stream[shardapi.Row]
	if len(streams) == 1 {
		out = streams[0]
		if req.Skip <= 0 {
			return head, out, nil // the copy keeps the limit itself
		}
	} else {
		out = newMerge(streams, part.Descending)
	}
	return head, &window{from: out, skip: max(req.Skip, 0), left: req.Limit}, nil
}

// window leaves out the first rows of a stream and ends it at a limit.
type window struct {
	from shardapi.Stream[shardapi.Row]
	skip int64
	left int64 // <0: no limit
}

// Next gives the part of the next batch that lies in the window.
func (w *window) Next() ([]shardapi.Row, error) {
	if w.left == 0 {
		return nil, io.EOF
	}
	rows, err := w.from.Next()
	if err != nil {
		return nil, err
	}
	if w.skip > 0 {
		n := min(w.skip, int64(len(rows)))
		rows, w.skip = rows[n:], w.skip-n
	}
	if w.left >= 0 {
		rows = rows[:min(w.left, int64(len(rows)))]
		w.left -= int64(len(rows))
	}
	return rows, nil
}

// Close ends the stream below.
func (w *window) Close() error { return w.from.Close() }
