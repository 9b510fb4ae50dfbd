package shardhost

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/divandb/divan/internal/index/view"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/reduce"
	"github.com/divandb/divan/internal/shard"
	"github.com/divandb/divan/internal/shardapi"
)

// copyIndexes are the indexes of one open copy.
//
//	X1 An index is in one pass at a time.
//	X2 An index is removed only while no pass and no query uses it, under mu, so that
//	   whoever asks for it next begins with an empty one. Those of a dropped copy go
//	   when its passes have ended; queries under way on them fail.
//	X3 An index answers update=true only after a pass of this process went through
//	   the whole log: one that a crash or a client's leaving cut short may lack
//	   documents and reductions although its checkpoint is high enough.
type copyIndexes struct {
	h     *Host
	id    shardapi.CopyID
	entry *entry
	copy  *shard.Copy

	mu     sync.Mutex
	open   map[string]*viewIndex // by signature
	passes map[*pass]struct{}
	closed error
}

// viewIndex is an open index of a view. Its copyIndexes' mu guards it.
type viewIndex struct {
	index   *view.Index
	pass    *pass            // under way; nil: none
	whole   uint64           // all that the copy had at this sequence is in it (X3)
	known   bool             // whole is worth something
	cut     bool             // a pass was cut short: what was shown before it is held in the store
	def     shardapi.ViewDef // with which it was cut
	kills   int              // of the catch-up that has not come to its end
	users   int              // queries under way
	given   bool             // its view was given up, and the last user closes it
	waiting int64            // requests that wait for a pass
}

// indexesOf gives the indexes of an open copy.
func (h *Host) indexesOf(e *entry, id shardapi.CopyID) *copyIndexes {
	if s := e.indexes.Load(); s != nil {
		return s
	}
	s := &copyIndexes{h: h, id: id, entry: e, copy: e.copy, open: make(map[string]*viewIndex), passes: make(map[*pass]struct{})}
	if !e.indexes.CompareAndSwap(nil, s) {
		return e.indexes.Load()
	}
	return s
}

// get opens an index. The caller holds mu.
func (s *copyIndexes) get(def *shardapi.ViewDef) (*viewIndex, error) {
	if s.closed != nil {
		return nil, s.closed
	}
	if x := s.open[def.Sig]; x != nil {
		return x, nil
	}
	o := view.Options{Store: s.h.opts.Index, Copy: uint64(s.id), Sig: def.Sig, RawCollation: def.RawCollation, Partitioned: def.Partitioned}
	switch {
	case def.Reduce == "":
	case reduce.IsBuiltin(def.Reduce):
		r, err := reduce.Builtin(def.Reduce)
		if err != nil {
			return nil, err
		}
		o.Reducer = r
	default:
		o.Reducer = reduce.Script(s.h.opts.JS, def.Program, def.Reduce)
	}
	index, err := view.Open(o)
	if err == nil && index.Seq() > s.copy.Seq() {
		// The store of documents is an older one than the index was made of.
		s.h.log(s.id).Warn("an index is ahead of its documents and is built anew", "design", def.Design, "view", def.Name)
		if err = errors.Join(index.Close(), view.Drop(o.Store, o.Copy, o.Sig)); err == nil {
			index, err = view.Open(o)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the index of view %s: %w", def.Name, err)
	}
	if len(s.open) == 0 {
		s.h.warm.lookLater(s.id) // an earlier process may not have come to it
	}
	x := &viewIndex{index: index}
	s.open[def.Sig] = x
	return x, nil
}

// use gives the index of a view as it is, to be let go with done.
func (s *copyIndexes) use(def *shardapi.ViewDef) (*viewIndex, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.h.passes.failure(s.id, def.Sig); err != nil {
		return nil, err
	}
	x, err := s.get(def)
	if err != nil {
		return nil, err
	}
	x.users++
	return x, nil
}

// useUpdated gives the index of a view when it has all that the copy had at a
// sequence, to be let go with done.
func (s *copyIndexes) useUpdated(ctx context.Context, def *shardapi.ViewDef, want uint64, client bool) (*viewIndex, error) {
	var siblings []shardapi.ViewDef // asked for when a pass must be started
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		if err := s.h.passes.failure(s.id, def.Sig); err != nil {
			return nil, err
		}
		x, err := s.get(def)
		if err != nil {
			return nil, err
		}
		if x.pass == nil {
			if x.known && x.whole >= want {
				x.users++
				return x, nil
			}
			if siblings == nil {
				s.mu.Unlock() // whoever knows the design documents may have to read them
				siblings = s.siblings(ctx, def)
				s.mu.Lock()
				continue
			}
			if err := s.start(x, def, siblings); err != nil {
				return nil, err
			}
		}
		if err := s.wait(ctx, x, client); err != nil {
			return nil, err
		}
	}
}

// behind tells whether an index lacks something the copy has.
func (s *copyIndexes) behind(x *viewIndex) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !x.known || x.whole < s.copy.Seq()
}

// done ends a use.
func (s *copyIndexes) done(x *viewIndex) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.users--
	if x.given && x.users == 0 {
		s.letGo(x)
	}
}

// giveUp takes out the index of a view that was given up. The caller holds mu.
func (s *copyIndexes) giveUp(sig string, x *viewIndex) {
	if s.open[sig] == x {
		delete(s.open, sig)
	}
	if x.given = true; x.users == 0 {
		s.letGo(x)
	}
}

// letGo closes an index that is in nobody's hands any more.
func (s *copyIndexes) letGo(x *viewIndex) {
	if err := x.index.Close(); err != nil {
		s.h.log(s.id).Warn("closing an index", "error", err)
	}
}

// siblings are the views of the design document that a view is in, itself
// included.
func (s *copyIndexes) siblings(ctx context.Context, def *shardapi.ViewDef) []shardapi.ViewDef {
	if d, err := s.h.defined(ctx, s.id); err == nil {
		for i := range d.Views {
			if d.Views[i].Design == def.Design {
				return d.Views[i].Views
			}
		}
	}
	return []shardapi.ViewDef{*def} // it is known well enough by itself
}

// wait waits for the end of the pass that an index is in. The caller holds mu,
// which is let go meanwhile. A pass that nobody waits for any more is stopped.
func (s *copyIndexes) wait(ctx context.Context, x *viewIndex, client bool) error {
	p := x.pass
	p.waiters++
	if client {
		p.clients.Add(1)
		x.waiting++
	}
	s.mu.Unlock()
	var gone error
	select {
	case <-p.done:
	case <-ctx.Done():
		gone = context.Cause(ctx)
	}
	s.mu.Lock()
	p.waiters--
	if client {
		p.clients.Add(-1)
		x.waiting--
	}
	if gone != nil {
		if p.waiters == 0 {
			p.cancel(errAbandoned)
		}
		return gone
	}
	if errors.Is(p.err, errAbandoned) {
		return nil // the next one will be ours
	}
	return p.err
}

// close refuses every further use and stops the passes, which it gives.
func (s *copyIndexes) close(why error) []*pass {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = why
	out := make([]*pass, 0, len(s.passes))
	for p := range s.passes {
		p.cancel(why)
		out = append(out, p)
	}
	return out
}

// closedBy gives why the indexes are closed.
func (s *copyIndexes) closedBy() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// release lets go of the indexes when nobody uses the copy any more.
func (s *copyIndexes) release() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for sig, x := range s.open {
		errs = append(errs, x.index.Close())
		delete(s.open, sig)
	}
	return errors.Join(errs...)
}

// removeUnused removes the indexes whose signature is not among the wanted ones.
// Those whose pass was cut short, and that nobody finished since, are finished in
// the background: until then the store keeps what they showed before. again tells
// that some are still in use.
func (s *copyIndexes) removeUnused(wanted map[string]struct{}) (again bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return false, nil // they go with the copy
	}
	s.h.passes.forget(s.id, wanted)
	store := s.h.opts.Index
	sigs, err := view.Signatures(store, uint64(s.id))
	if err != nil {
		return false, err
	}
	stored := make(map[string]struct{}, len(sigs))
	for _, sig := range sigs {
		stored[sig] = struct{}{}
	}
	for sig, x := range s.open {
		if _, ok := stored[sig]; !ok {
			sigs = append(sigs, sig) // opened and never written
		}
		if _, ok := wanted[sig]; ok && x.cut && x.pass == nil {
			s.h.warm.lazily(s.id, &x.def)
		}
	}
	for _, sig := range sigs {
		if _, ok := wanted[sig]; ok {
			continue
		}
		if x := s.open[sig]; x != nil && (x.users > 0 || x.pass != nil) {
			again = true // X2
			if x.pass != nil {
				x.pass.stopUnless(wanted)
			}
			continue
		}
		if x := s.open[sig]; x != nil {
			delete(s.open, sig)
			s.letGo(x)
		}
		if _, ok := stored[sig]; !ok {
			continue
		}
		if err := view.Drop(store, uint64(s.id), sig); err != nil {
			return again, err
		}
	}
	return again, nil
}

// dropIndexes removes the indexes of a dropped copy, open or not, when its passes
// have ended.
func (h *Host) dropIndexes(id shardapi.CopyID, open *copyIndexes) {
	if h.opts.Index == nil {
		return
	}
	var err error
	if open != nil {
		for _, p := range open.close(model.ErrCopyClosed) {
			<-p.done
		}
		err = open.release()
	}
	h.passes.forget(id, nil)
	if err = errors.Join(err, view.DropCopy(h.opts.Index, uint64(id))); err != nil {
		// The next start removes them: nobody knows the copy any more.
		h.opts.Logger.Warn("indexes of a dropped copy stay for now", "copy", uint64(id), "error", err)
	}
}

// TidyIndexes removes the indexes of copies that nobody knows any more. A node
// calls it at its start.
func (h *Host) TidyIndexes(known func(shardapi.CopyID) bool) error {
	if h.opts.Index == nil {
		return nil
	}
	ids, err := view.Copies(h.opts.Index)
	if err != nil {
		return fmt.Errorf("tidy indexes: %w", err)
	}
	for _, id := range ids {
		if known(shardapi.CopyID(id)) {
			continue
		}
		if err := view.DropCopy(h.opts.Index, id); err != nil {
			return fmt.Errorf("tidy indexes: %w", err)
		}
	}
	return nil
}

// errUndefined ends a pass for views that nobody defines any more.
var errUndefined = &model.Error{Kind: model.KindUnavailable, Name: "service_unavailable", Reason: "The view is not defined any more."}

// errNoIndexes is the answer of a node that keeps none.
var errNoIndexes = &model.Error{Kind: model.KindUnavailable, Name: "service_unavailable", Reason: "This node keeps no indexes."}
