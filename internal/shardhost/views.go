package shardhost

import (
	"context"
	"sync"

	"github.com/divandb/divan/internal/index/view"
	"github.com/divandb/divan/internal/shardapi"
)

// View implements shardapi.Shard.
func (s handle) View(ctx context.Context, req *shardapi.ViewRequest) (*shardapi.ViewHead, shardapi.Stream[shardapi.ViewRow], error) {
	if s.h.opts.Index == nil {
		return nil, nil, errNoIndexes
	}
	e, err := s.h.acquire(s.id)
	if err != nil {
		return nil, nil, err
	}
	indexes := s.h.indexesOf(e, s.id)
	var x *viewIndex
	if req.Update == shardapi.UpdateFirst {
		x, err = indexes.useUpdated(ctx, &req.Def, e.copy.Seq(), true)
	} else {
		x, err = indexes.use(&req.Def)
	}
	if err != nil {
		e.release()
		return nil, nil, err
	}
	head, rows, err := x.index.Query(ctx, req)
	if req.Update == shardapi.UpdateAfter && indexes.behind(x) {
		s.h.warm.lazily(s.id, &req.Def)
	}
	if err != nil {
		indexes.done(x)
		e.release()
		return nil, nil, err
	}
	return head, &viewRows{held: held[shardapi.ViewRow]{Stream: rows, entry: e}, of: indexes, x: x}, nil
}

// viewRows is a query under way: it keeps the copy open and the index in use.
type viewRows struct {
	held[shardapi.ViewRow]
	of   *copyIndexes
	x    *viewIndex
	once sync.Once
}

// Next gives the next batch. The rows of a dropped copy go while they are read, so
// what was read after that is no answer.
func (r *viewRows) Next() ([]shardapi.ViewRow, error) {
	rows, err := r.held.Next()
	if why := r.of.closedBy(); why != nil {
		rows, err = nil, why
	}
	if err != nil {
		r.Close() // its error is the stream's, which was given
	}
	return rows, err
}

// Close ends the query.
func (r *viewRows) Close() error {
	err := r.held.Close()
	r.once.Do(func() { r.of.done(r.x) })
	return err
}

// ViewInfo implements shardapi.Shard.
func (s handle) ViewInfo(_ context.Context, sigs []string) (*shardapi.ViewInfo, error) {
	if s.h.opts.Index == nil {
		return nil, errNoIndexes
	}
	e, err := s.h.acquire(s.id)
	if err != nil {
		return nil, err
	}
	defer e.release()
	return s.h.indexesOf(e, s.id).info(sigs)
}

// info tells of indexes taken together. A signature that stands there twice counts
// once: two views may have one index.
func (s *copyIndexes) info(sigs []string) (*shardapi.ViewInfo, error) {
	out := &shardapi.ViewInfo{}
	seen := make(map[string]struct{}, len(sigs))
	for _, sig := range sigs {
		if _, again := seen[sig]; again {
			continue
		}
		seen[sig] = struct{}{}
		x, err := s.look(sig, out)
		if err != nil {
			return nil, err
		}
		sizes, err := x.Sizes()
		if err != nil {
			return nil, err
		}
		out.SizeFile += sizes.File
		out.SizeActive += sizes.Active
		out.SizeExternal += sizes.External
		if seq := x.Seq(); len(seen) == 1 || seq < out.Seq {
			out.Seq = seq
		}
	}
	out.CopySeq = s.copy.Seq() // after the others, so that none is ahead of it
	return out, nil
}

// look gives an index, open or not, and adds what goes on with it.
func (s *copyIndexes) look(sig string, out *shardapi.ViewInfo) (*view.Index, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return nil, s.closed
	}
	if x := s.open[sig]; x != nil {
		out.Updating = out.Updating || x.pass != nil
		out.Waiting += x.waiting
		return x.index, nil
	}
	// What a size is does not depend on the rest of the definition.
	return view.Open(view.Options{Store: s.h.opts.Index, Copy: uint64(s.id), Sig: sig})
}
