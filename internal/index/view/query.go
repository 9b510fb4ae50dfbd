package view

import (
	"context"
	"errors"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// Query answers from the index as it is.
func (x *Index) Query(ctx context.Context, req *shardapi.ViewRequest) (*shardapi.ViewHead, shardapi.Stream[shardapi.ViewRow], error) {
	if req.Reduce && x.o.Reducer == nil {
		return nil, nil, &model.Error{Kind: model.KindBadRequest, Name: "query_parse_error", Reason: "Reduce is invalid for map-only views."}
	}
	st := &stream{x: x, ctx: ctx, req: *req, left: req.Limit}
	st.base.lo, st.base.hi = x.base(req.Partition)
	sight, err := x.look()
	if err != nil {
		return nil, nil, err
	}
	if sight == nil {
		st.ended = true
		return &shardapi.ViewHead{}, st, nil
	}
	st.sight = sight
	head, err := st.head()
	if err == nil {
		// Most answers are one batch: with it the store is given back at once, and no
		// clock is needed.
		err = st.first()
	}
	if err != nil {
		return nil, nil, errors.Join(err, st.Close())
	}
	return head, st, nil
}

// span is a run of row keys from lo (included) to hi (excluded; nil: the end).
type span struct{ lo, hi []byte }

// base gives the rows that a query may see.
func (x *Index) base(partition string) (lo, hi []byte) {
	if !x.o.Partitioned {
		return nil, nil
	}
	lo = appendEscaped(nil, partition)
	hi, _ = appendAfter(nil, lo) // ends with 1, which has a successor
	return lo, hi
}

// bounds sets now to the rows of a range. A border counts its id only beside its
// key.
func (st *stream) bounds(r *shardapi.KeyRange) {
	desc := st.req.Descending
	low := border{key: r.Start, id: r.StartID, hasID: r.HasStartID, after: desc}
	high := border{key: r.End, id: r.EndID, hasID: r.HasEndID, after: desc == r.ExclusiveEnd}
	if desc {
		low, high = high, low
	}
	st.now = st.base
	if low.key != nil {
		st.loRoom = st.place(st.loRoom[:0], &low)
		st.now.lo = st.loRoom
	}
	if high.key != nil {
		st.hiRoom = st.place(st.hiRoom[:0], &high)
		st.now.hi = st.hiRoom
	}
	st.bounded = true
}

// border is one end of a range: before all rows of its key (and id), or after them.
type border struct {
	key   []byte
	id    string
	hasID bool
	after bool
}

// place appends the row key where a border with a key lies.
func (st *stream) place(dst []byte, b *border) []byte {
	dst = st.x.appendSort(append(dst, st.base.lo...), b.key)
	if b.hasID {
		dst = appendEscaped(dst, b.id)
	}
	if b.after {
		dst, _ = appendAfter(dst[:0], dst) // in place; a sort key never begins with 255
	}
	return dst
}

// head computes what comes before the rows, and leaves the iterator at the start
// where it can.
func (st *stream) head() (*shardapi.ViewHead, error) {
	s := st.sight
	head := &shardapi.ViewHead{TotalRows: s.m.rows, Seq: s.m.seq}
	if st.req.Reduce && !st.req.Offset {
		return head, nil
	}
	var before int64
	if st.x.o.Partitioned {
		var err error
		if before, err = s.rank(st.base.lo); err != nil {
			return nil, err
		}
		last, err := s.rank(st.base.hi)
		if err != nil {
			return nil, err
		}
		head.TotalRows = last - before
	}
	if !st.req.Offset || len(st.req.Ranges) == 0 {
		return head, nil
	}
	st.bounds(&st.req.Ranges[0])
	if st.req.Descending {
		n, err := s.rank(st.now.hi)
		head.Offset = before + head.TotalRows - n
		return head, err
	}
	if len(st.now.lo) == 0 {
		return head, nil
	}
	n, err := s.rank(st.now.lo)
	head.Offset = n - before
	st.placed = true
	return head, err
}
