package coordinator

import (
	"context"
	"errors"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// WriteOptions of a write.
type WriteOptions struct {
	W int // copies that must have it; 0: a majority of those that exist
}

// WriteResult answers a write.
type WriteResult struct {
	Results []model.EditResult // one per edit, in order
	// Accepted means that it is written, on fewer copies than were asked for.
	Accepted bool
}

// Write applies edits, each on the range of its document. Edits of one range are
// one batch; ranges are independent: when some fail and others do not, the
// failure stands in the results of its edits, and when all fail it is the error.
func (c *Coordinator) Write(ctx context.Context, db *cluster.Database, edits []model.Edit, o WriteOptions) (WriteResult, error) {
	out := WriteResult{Accepted: o.W > db.Copies()}
	if len(edits) == 0 {
		return out, nil
	}
	g, index := group(db, len(edits), func(i int) string { return edits[i].ID })
	if g == nil {
		resp, err := c.Shard(db, index).Write(ctx, &shardapi.WriteRequest{Edits: edits, RevsLimit: db.RevsLimit})
		if err != nil {
			return out, c.Explain(db, err)
		}
		out.Results = resp.Results
		return out, nil
	}

	out.Results = make([]model.EditResult, len(edits))
	failures := make([]error, len(db.Shards))
	first := c.fanOut(ctx, g.used, func(ctx context.Context, index int) error {
		failures[index] = Guard(func() error {
			at := g.positions(index)
			part := make([]model.Edit, len(at))
			for i, p := range at {
				part[i] = edits[p]
			}
			resp, err := c.Shard(db, index).Write(ctx, &shardapi.WriteRequest{Edits: part, RevsLimit: db.RevsLimit})
			if err != nil {
				return c.Explain(db, err)
			}
			for i, p := range at {
				out.Results[p] = resp.Results[i]
			}
			return nil
		})
		return failures[index]
	})
	if first == nil {
		return out, nil
	}
	failed := 0
	for _, index := range g.used {
		err := failures[index]
		if err == nil {
			continue
		}
		failed++
		for _, p := range g.positions(index) {
			out.Results[p] = model.EditResult{ID: edits[p].ID, Err: asModelError(err)}
		}
	}
	if failed == len(g.used) {
		return WriteResult{}, first
	}
	return out, nil
}

// asModelError gives the *model.Error in err, or wraps what has none as a fault
// of ours.
func asModelError(err error) *model.Error {
	var e *model.Error
	if errors.As(err, &e) {
		return e
	}
	return &model.Error{Kind: model.KindInternal, Name: "internal_server_error", Reason: "The write failed; whether it took place is unknown.", Err: err}
}
