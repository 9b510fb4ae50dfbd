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
	W    int        // copies that must have it; 0: a majority of those that exist
	User model.User // who writes, for validation functions
}

// WriteResult answers a write.
type WriteResult struct {
	Results []model.EditResult // one per edit, in order
	// Accepted means that it is written, on fewer copies than were asked for.
	Accepted bool
}

// A bulk write is cut into pieces of this size: a copy holds up all its other
// writers while it works on one, and needs several times its size in memory.
const (
	pieceEdits = 10_000
	pieceBytes = 16 << 20
)

// Write applies edits, each on the range of its document. Edits of one range are
// one batch, unless there are very many of them; ranges are independent: when some
// fail and others do not, the failure stands in the results of its edits, and when
// all fail it is the error.
func (c *Coordinator) Write(ctx context.Context, db *cluster.Database, edits []model.Edit, o WriteOptions) (WriteResult, error) {
	out := WriteResult{Accepted: o.W > db.Copies()}
	if len(edits) == 0 {
		return out, nil
	}
	n := piece(edits)
	if n == len(edits) {
		results, err := c.writePiece(ctx, db, edits, &o)
		if err != nil {
			return WriteResult{Accepted: out.Accepted}, err
		}
		out.Results = results
		return out, nil
	}
	out.Results = make([]model.EditResult, 0, len(edits))
	var first error
	worked := false
	for ; len(edits) > 0; n = piece(edits) {
		// After a failure the others are tried all the same: staged bytes that no write
		// has named would stay for a while.
		results, err := c.writePiece(ctx, db, edits[:n], &o)
		if err != nil {
			if first == nil {
				first = err
			}
			for i := range edits[:n] {
				results = append(results, model.EditResult{ID: edits[i].ID, Err: asModelError(err)})
			}
		} else {
			worked = true
		}
		out.Results = append(out.Results, results...)
		edits = edits[n:]
	}
	if !worked {
		return WriteResult{}, first
	}
	return out, nil
}

// piece gives how many of the edits are written at once.
func piece(edits []model.Edit) int {
	size := 0
	for i := range edits {
		e := &edits[i]
		// A revision of a history and an attachment cost more than their few bytes.
		if size += len(e.Body) + 64*len(e.Path) + 256*len(e.Atts); i > 0 && size > pieceBytes || i == pieceEdits {
			return i
		}
	}
	return len(edits)
}

// writePiece writes edits with one call per range.
func (c *Coordinator) writePiece(ctx context.Context, db *cluster.Database, edits []model.Edit, o *WriteOptions) ([]model.EditResult, error) {
	g, index := group(db, len(edits), func(i int) string { return edits[i].ID })
	if g == nil {
		resp, err := c.Shard(db, index).Write(ctx, writeRequest(db, edits, o))
		if err != nil {
			return nil, c.Explain(db, err)
		}
		return resp.Results, nil
	}

	results := make([]model.EditResult, len(edits))
	failures := make([]error, len(db.Shards))
	first := c.fanOut(ctx, g.used, func(ctx context.Context, index int) error {
		failures[index] = Guard(func() error {
			at := g.positions(index)
			part := make([]model.Edit, len(at))
			for i, p := range at {
				part[i] = edits[p]
			}
			resp, err := c.Shard(db, index).Write(ctx, writeRequest(db, part, o))
			if err != nil {
				return c.Explain(db, err)
			}
			for i, p := range at {
				results[p] = resp.Results[i]
			}
			return nil
		})
		return failures[index]
	})
	if first == nil {
		return results, nil
	}
	failed := 0
	for _, index := range g.used {
		err := failures[index]
		if err == nil {
			continue
		}
		failed++
		for _, p := range g.positions(index) {
			results[p] = model.EditResult{ID: edits[p].ID, Err: asModelError(err)}
		}
	}
	if failed == len(g.used) {
		return nil, first
	}
	return results, nil
}

// writeRequest makes the request for one range.
func writeRequest(db *cluster.Database, edits []model.Edit, o *WriteOptions) *shardapi.WriteRequest {
	return &shardapi.WriteRequest{Edits: edits, RevsLimit: db.RevsLimit, DB: db.Name, User: o.User, Security: db.Security}
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
