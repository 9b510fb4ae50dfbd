package coordinator

import (
	"bytes"
	"context"
	"strings"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/reduce"
	"github.com/divandb/divan/internal/shardapi"
)

// ViewRequest asks a view of a database.
type ViewRequest struct {
	shardapi.ViewRequest
	Skip int64
}

// ViewHead comes before the rows.
type ViewHead struct {
	TotalRows int64
	Offset    int64    // with Skip counted in
	Seqs      []uint64 // per range, what the indexes are at; nil for a partition
}

// View streams the rows of a view in order, or its groups, reduced over all
// ranges and with final values.
func (c *Coordinator) View(ctx context.Context, db *cluster.Database, req *ViewRequest) (*ViewHead, shardapi.Stream[shardapi.ViewRow], error) {
	var reducer reduce.Reducer
	if req.Reduce {
		var err error
		if reducer, err = c.reducer(&req.Def); err != nil {
			return nil, nil, err
		}
	}
	part := req.ViewRequest
	part.Limit = limitOfParts(req.Limit, req.Skip)
	part.Offset = req.Offset && !req.Reduce
	head := &ViewHead{}
	var out shardapi.Stream[shardapi.ViewRow]
	merged := false
	if req.Partition != "" || len(db.Shards) == 1 {
		index := 0
		if req.Partition != "" {
			index = db.ShardOfPartition(req.Partition)
		}
		h, rows, err := c.Shard(db, index).View(ctx, &part)
		if err != nil {
			return nil, nil, c.Explain(db, err)
		}
		head.TotalRows, head.Offset = h.TotalRows, h.Offset
		if req.Partition == "" {
			head.Seqs = []uint64{h.Seq}
		}
		out = rows
	} else {
		heads, sources, cancel, err := openRanges(ctx, c, db, func(ctx context.Context, s shardapi.Shard) (*shardapi.ViewHead, shardapi.Stream[shardapi.ViewRow], error) {
			own := part // a copy may keep what it is given
			return s.View(ctx, &own)
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
		out, merged = newMerge(sources, cancel, keyOrder(req.Descending)), true
	}
	skip := max(req.Skip, 0)
	if req.Reduce {
		return head, &groupStream{ctx: ctx, from: out, join: merged, reducer: reducer,
			whole: req.GroupLevel == shardapi.GroupNone, skip: skip, left: req.Limit}, nil
	}
	if part.Offset {
		head.Offset += min(skip, max(head.TotalRows-head.Offset, 0))
	}
	if !merged && skip == 0 {
		return head, out, nil // the copy keeps the limit itself
	}
	return head, &window[shardapi.ViewRow]{from: out, skip: skip, left: req.Limit}, nil
}

// reducer gives the reduction of a view.
func (c *Coordinator) reducer(def *shardapi.ViewDef) (reduce.Reducer, error) {
	switch {
	case def.Reduce == "":
		return nil, &model.Error{Kind: model.KindBadRequest, Name: "query_parse_error", Reason: "Reduce is invalid for map-only views."}
	case reduce.IsBuiltin(def.Reduce):
		return reduce.Builtin(def.Reduce)
	}
	return reduce.Script(c.o.JS, def.Program, def.Reduce), nil
}

// keyOrder is the order of a view's rows: the ranges of keys as they were asked
// for, keys and ids within them. A document lies in one range of the database, so
// all rows that are equal in this order come from one copy, which has ordered
// them; equal groups come from several.
func keyOrder(descending bool) func(a, b *shardapi.ViewRow) bool {
	return func(a, b *shardapi.ViewRow) bool {
		if a.Range != b.Range {
			return a.Range < b.Range
		}
		order := bytes.Compare(a.Sort, b.Sort)
		if order == 0 {
			order = strings.Compare(a.ID, b.ID)
		}
		return order < 0 != descending && order != 0
	}
}

// ViewInfo gives the state of indexes, per range.
func (c *Coordinator) ViewInfo(ctx context.Context, db *cluster.Database, sigs []string) ([]*shardapi.ViewInfo, error) {
	parts := make([]*shardapi.ViewInfo, len(db.Shards))
	err := c.each(ctx, db, func(ctx context.Context, i int, s shardapi.Shard) (err error) {
		parts[i], err = s.ViewInfo(ctx, sigs)
		return err
	})
	if err != nil {
		return nil, err
	}
	return parts, nil
}
