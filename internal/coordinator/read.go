package coordinator

import (
	"context"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/shardapi"
)

// Read answers several documents, one answer per query, in order. r is the number
// of copies to ask (0: a majority); more than exist is not an error.
func (c *Coordinator) Read(ctx context.Context, db *cluster.Database, queries []shardapi.DocQuery, r int) ([]shardapi.DocAnswer, error) {
	if len(queries) == 0 {
		return nil, nil
	}
	g, index := group(db, len(queries), func(i int) string { return queries[i].ID })
	if g == nil {
		resp, err := c.Shard(db, index).Read(ctx, &shardapi.ReadRequest{Queries: queries})
		if err != nil {
			return nil, c.Explain(db, err)
		}
		return resp.Answers, nil
	}
	out := make([]shardapi.DocAnswer, len(queries))
	err := c.fanOut(ctx, g.used, func(ctx context.Context, index int) error {
		at := g.positions(index)
		part := make([]shardapi.DocQuery, len(at))
		for i, p := range at {
			part[i] = queries[p]
		}
		resp, err := c.Shard(db, index).Read(ctx, &shardapi.ReadRequest{Queries: part})
		if err != nil {
			return err
		}
		for i, p := range at {
			out[p] = resp.Answers[i]
		}
		return nil
	})
	if err != nil {
		return nil, c.Explain(db, err)
	}
	return out, nil
}

// ReadOne answers one document.
func (c *Coordinator) ReadOne(ctx context.Context, db *cluster.Database, query shardapi.DocQuery, r int) (shardapi.DocAnswer, error) {
	resp, err := c.shardOf(db, query.ID).Read(ctx, &shardapi.ReadRequest{Queries: []shardapi.DocQuery{query}})
	if err != nil {
		return shardapi.DocAnswer{}, c.Explain(db, err)
	}
	return resp.Answers[0], nil
}
