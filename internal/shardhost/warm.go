package shardhost

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

const (
	// warmCopies is how many copies are brought up to date in the background at a
	// time.
	warmCopies = 2
	// fullDelays is how many times IndexDelay the indexes of a copy wait when there
	// was no room on the disk for them.
	fullDelays = 5
)

// warmer keeps indexes up to date in the background, and removes those that nobody
// defines any more. It is one goroutine with one timer for all copies, and knows
// only of those that changed: a copy costs it one entry in a map for each delay in
// which it is written.
type warmer struct {
	h    *Host
	wake chan struct{}

	mu sync.Mutex
	// Copies to be brought up to date: those with a new design document, those that
	// changed, and those for which there was no room.
	atOnce, soon, full delayed
	// Copies to be looked at for indexes that nobody defines.
	look delayed
	lazy map[shardapi.CopyID]map[string]shardapi.ViewDef // asked for with update=lazy
	busy map[shardapi.CopyID]struct{}                    // being brought up to date
}

func newWarmer(h *Host) *warmer {
	return &warmer{
		h: h, wake: make(chan struct{}, 1),
		atOnce: newDelayed(0), soon: newDelayed(h.opts.IndexDelay), full: newDelayed(fullDelays * h.opts.IndexDelay),
		look: newDelayed(h.opts.IndexGrace),
		lazy: make(map[shardapi.CopyID]map[string]shardapi.ViewDef), busy: make(map[shardapi.CopyID]struct{}),
	}
}

// delayed are copies that are due a fixed time after they were added. Adding one
// again while it waits changes nothing.
type delayed struct {
	delay time.Duration
	in    map[shardapi.CopyID]struct{}
	order []dueCopy
}

// dueCopy is a copy and when it is due.
type dueCopy struct {
	id shardapi.CopyID
	at time.Time
}

func newDelayed(delay time.Duration) delayed {
	return delayed{delay: delay, in: make(map[shardapi.CopyID]struct{})}
}

// add adds a copy and tells whether it is the first in line.
func (d *delayed) add(id shardapi.CopyID) bool {
	if _, ok := d.in[id]; ok {
		return false
	}
	d.in[id] = struct{}{}
	d.order = append(d.order, dueCopy{id, time.Now().Add(d.delay)})
	return len(d.order) == 1
}

// due takes out a copy that is due.
func (d *delayed) due(now time.Time) (shardapi.CopyID, bool) {
	if len(d.order) == 0 || d.order[0].at.After(now) {
		return 0, false
	}
	id := d.order[0].id
	if d.order = d.order[1:]; len(d.order) == 0 {
		d.order = nil // the room in front is not used again
	}
	delete(d.in, id)
	return id, true
}

// DesignsChanged tells that the design documents of a copy's database are others
// now: new indexes are built at once, and those that are gone removed in a while.
// It is called for every copy of the database.
func (h *Host) DesignsChanged(id shardapi.CopyID) {
	if h.warm == nil {
		return
	}
	h.warm.mu.Lock()
	h.warm.look.add(id)
	h.warm.atOnce.add(id)
	h.warm.mu.Unlock()
	h.warm.kick()
}

// changed hears that documents of a copy changed. Every write calls it.
func (w *warmer) changed(id shardapi.CopyID) {
	w.mu.Lock()
	first := w.soon.add(id)
	w.mu.Unlock()
	if first {
		w.kick()
	}
}

// lazily has an index brought up to date, whatever its design document says.
func (w *warmer) lazily(id shardapi.CopyID, def *shardapi.ViewDef) {
	w.mu.Lock()
	if w.lazy[id] == nil {
		w.lazy[id] = make(map[string]shardapi.ViewDef)
	}
	w.lazy[id][def.Sig] = *def
	w.atOnce.add(id)
	w.mu.Unlock()
	w.kick()
}

// lookLater has a copy looked at for indexes that nobody defines.
func (w *warmer) lookLater(id shardapi.CopyID) {
	w.mu.Lock()
	first := w.look.add(id)
	w.mu.Unlock()
	if first {
		w.kick()
	}
}

// kick wakes the goroutine.
func (w *warmer) kick() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run is the goroutine.
func (w *warmer) run() {
	ctx := w.h.ctx
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var work sync.WaitGroup
	defer work.Wait()
	for ctx.Err() == nil {
		next := w.turn(ctx, &work)
		wait := time.Hour
		if !next.IsZero() {
			wait = max(0, time.Until(next))
		}
		timer.Reset(wait)
		select {
		case <-ctx.Done():
		case <-w.wake:
		case <-timer.C:
		}
	}
}

// turn does what is due and gives when something will be; zero: nothing is known.
func (w *warmer) turn(ctx context.Context, work *sync.WaitGroup) (next time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for id, ok := w.look.due(now); ok; id, ok = w.look.due(now) {
		w.mu.Unlock()
		again := w.tidy(ctx, id)
		w.mu.Lock()
		if again {
			w.look.add(id)
		}
	}
	lists := []*delayed{&w.atOnce, &w.soon, &w.full}
	for _, list := range lists {
		for len(w.busy) < warmCopies {
			id, ok := list.due(now)
			if !ok {
				break
			}
			if _, again := w.busy[id]; again {
				w.soon.add(id)
				continue
			}
			w.busy[id] = struct{}{}
			lazy := w.lazy[id]
			delete(w.lazy, id)
			work.Go(func() { w.update(ctx, id, lazy) })
		}
	}
	if len(w.busy) >= warmCopies {
		lists = nil // the end of one of them wakes us
	}
	for _, list := range append(lists, &w.look) {
		if len(list.order) > 0 && (next.IsZero() || list.order[0].at.Before(next)) {
			next = list.order[0].at
		}
	}
	return next
}

// update brings the indexes of a copy up to date.
func (w *warmer) update(ctx context.Context, id shardapi.CopyID, lazy map[string]shardapi.ViewDef) {
	err := w.updateGuarded(ctx, id, lazy)
	kind := model.KindOf(err)
	w.mu.Lock()
	delete(w.busy, id)
	if kind == model.KindStorageFull {
		w.full.add(id)
		if w.lazy[id] == nil {
			w.lazy[id] = lazy
		}
	}
	w.mu.Unlock()
	w.kick()
	if err != nil && ctx.Err() == nil && kind != model.KindUnavailable && kind != model.KindNotFound && kind != model.KindStorageFull {
		w.h.log(id).Error("indexes could not be brought up to date", "error", err)
	}
}

// updateGuarded is bringUp without its panics: in this goroutine one would end the
// process.
func (w *warmer) updateGuarded(ctx context.Context, id shardapi.CopyID, lazy map[string]shardapi.ViewDef) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return w.bringUp(ctx, id, lazy)
}

// bringUp waits, as a request would, for the indexes that are to be kept warm. It
// opens nothing for a database without views.
func (w *warmer) bringUp(ctx context.Context, id shardapi.CopyID, lazy map[string]shardapi.ViewDef) error {
	d, err := w.h.defined(ctx, id)
	if err != nil {
		return err
	}
	var groups [][]shardapi.ViewDef
	for i := range d.Views {
		if d.Views[i].AutoUpdate && len(d.Views[i].Views) > 0 {
			groups = append(groups, d.Views[i].Views)
		}
	}
	for _, def := range lazy {
		groups = append(groups, []shardapi.ViewDef{def})
	}
	if len(groups) == 0 {
		return nil
	}
	e, err := w.h.acquire(id)
	if err != nil {
		return err
	}
	defer e.release()
	want := e.copy.Seq()
	if want == 0 {
		return nil // there is nothing to index
	}
	s := w.h.indexesOf(e, id)
	var errs []error
	for _, group := range groups {
		for _, def := range s.slowestFirst(group) {
			x, err := s.useUpdated(ctx, def, want, false)
			switch {
			case err == nil:
				s.done(x)
			case w.h.passes.failure(id, def.Sig) != nil: // was logged when it happened
			case ctx.Err() != nil, model.KindOf(err) == model.KindStorageFull:
				return err
			default:
				errs = append(errs, err)
			}
		}
	}
	return errors.Join(errs...)
}

// slowestFirst gives views in the order of their checkpoints: each catches up with
// the next one and goes on with it.
func (s *copyIndexes) slowestFirst(defs []shardapi.ViewDef) []*shardapi.ViewDef {
	type at struct {
		def *shardapi.ViewDef
		seq uint64
	}
	s.mu.Lock()
	list := make([]at, len(defs))
	for i := range defs {
		list[i].def = &defs[i]
		if x, err := s.get(&defs[i]); err == nil {
			list[i].seq = x.index.Seq()
		}
	}
	s.mu.Unlock()
	slices.SortStableFunc(list, func(a, b at) int { return cmp.Compare(a.seq, b.seq) })
	out := make([]*shardapi.ViewDef, len(list))
	for i := range list {
		out[i] = list[i].def
	}
	return out
}

// tidy removes the indexes of a copy that nobody defines any more. again tells that
// some are still in use.
func (w *warmer) tidy(ctx context.Context, id shardapi.CopyID) (again bool) {
	d, err := w.h.defined(ctx, id)
	if err == nil {
		again, err = w.removeUnused(id, d)
	}
	if err != nil && ctx.Err() == nil && model.KindOf(err) != model.KindUnavailable && model.KindOf(err) != model.KindNotFound {
		w.h.log(id).Warn("indexes that nobody defines stay for now", "error", err)
		again = true
	}
	return again
}

func (w *warmer) removeUnused(id shardapi.CopyID, d *Defined) (again bool, err error) {
	wanted := make(map[string]struct{})
	for i := range d.Views {
		for k := range d.Views[i].Views {
			wanted[d.Views[i].Views[k].Sig] = struct{}{}
		}
	}
	e, err := w.h.acquire(id)
	if err != nil {
		return false, err
	}
	defer e.release()
	return w.h.indexesOf(e, id).removeUnused(wanted)
}
