package coordinator

import (
	"context"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// RevsDiff tells, per document and in order, which of the revisions are unknown.
func (c *Coordinator) RevsDiff(ctx context.Context, db *cluster.Database, req *shardapi.RevsDiffRequest) ([]shardapi.RevsDiff, error) {
	if len(req.IDs) == 0 {
		return nil, nil
	}
	g, index := group(db, len(req.IDs), func(i int) string { return req.IDs[i] })
	if g == nil {
		resp, err := c.Shard(db, index).RevsDiff(ctx, req)
		if err != nil {
			return nil, c.Explain(db, err)
		}
		return resp.Diffs, nil
	}
	out := make([]shardapi.RevsDiff, len(req.IDs))
	err := c.fanOut(ctx, g.used, func(ctx context.Context, index int) error {
		at := g.positions(index)
		part := &shardapi.RevsDiffRequest{IDs: make([]string, len(at)), Revs: make([][]model.Rev, len(at))}
		for i, p := range at {
			part.IDs[i], part.Revs[i] = req.IDs[p], req.Revs[p]
		}
		resp, err := c.Shard(db, index).RevsDiff(ctx, part)
		if err != nil {
			return err
		}
		for i, p := range at {
			out[p] = resp.Diffs[i]
		}
		return nil
	})
	if err != nil {
		return nil, c.Explain(db, err)
	}
	return out, nil
}
