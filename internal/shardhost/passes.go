package shardhost

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divandb/divan/internal/index"
	"github.com/divandb/divan/internal/index/view"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shard"
	"github.com/divandb/divan/internal/shardapi"
)

// errAbandoned ends a pass that nobody waits for.
var errAbandoned = errors.New("nobody waits for the pass any more")

// passes are the passes of a host, and the views that were given up.
type passes struct {
	room    *index.Room
	workers int

	mu      sync.Mutex
	running map[*pass]struct{}
	ended   bool

	// failed are views that were given up: their functions run away at document
	// after document. It is kept in memory only: a restart tries again, as it may
	// have brought other limits, and an operator has a way to ask for a new try.
	failed map[failedView]error
}

// failedView names the index of a view.
type failedView struct {
	id  shardapi.CopyID
	sig string
}

func (p *passes) init() {
	p.workers = runtime.GOMAXPROCS(0)
	p.room = index.NewRoom(max(4, p.workers))
	p.running, p.failed = make(map[*pass]struct{}), make(map[failedView]error)
}

// end lets no pass begin any more.
func (p *passes) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
}

// begin enters a pass, of which the host's Close waits for the end.
func (h *Host) beginPass(p *pass) bool {
	h.passes.mu.Lock()
	defer h.passes.mu.Unlock()
	if h.passes.ended {
		return false
	}
	h.work.Add(1)
	h.passes.running[p] = struct{}{}
	return true
}

// endPass ends what beginPass began.
func (h *Host) endPass(p *pass) {
	h.passes.mu.Lock()
	delete(h.passes.running, p)
	h.passes.mu.Unlock()
	h.work.Done()
}

// tasks lists the passes.
func (p *passes) tasks() []shardapi.Task {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]shardapi.Task, 0, len(p.running))
	for r := range p.running {
		t := shardapi.Task{Type: "indexer", Copy: r.of.id, Design: r.design, StartedOn: r.started.Unix()}
		r.progress.Task(&t)
		t.UpdatedOn = max(t.UpdatedOn, t.StartedOn)
		out = append(out, t)
	}
	return out
}

// failure tells why a view was given up, nil if it was not.
func (p *passes) failure(id shardapi.CopyID, sig string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed[failedView{id, sig}]
}

// fail gives a view up.
func (p *passes) fail(id shardapi.CopyID, sig string, err error) {
	p.mu.Lock()
	p.failed[failedView{id, sig}] = err
	p.mu.Unlock()
}

// forget forgets the failures of a copy's views but for those with these
// signatures.
func (p *passes) forget(id shardapi.CopyID, but map[string]struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for f := range p.failed {
		if _, keep := but[f.sig]; f.id == id && !keep {
			delete(p.failed, f)
		}
	}
}

// pass brings indexes of a copy that have the same checkpoint up to date.
type pass struct {
	of       *copyIndexes
	design   string
	members  []member
	upTo     uint64 // where it ends; 0: at the end of the log
	started  time.Time
	progress index.Progress
	cancel   context.CancelCauseFunc
	waiters  int          // guarded by the mu of the copy's indexes
	clients  atomic.Int64 // those of them that a client waits behind
	done     chan struct{}
	err      error // valid when done is closed
}

// member is an index in a pass.
type member struct {
	x   *viewIndex
	def shardapi.ViewDef
}

func (p *pass) add(x *viewIndex, def *shardapi.ViewDef) {
	x.pass = p
	p.members = append(p.members, member{x, *def})
}

// stopUnless stops a pass that no client waits for and that makes nothing anybody
// wants. The caller holds the mu of the copy's indexes.
func (p *pass) stopUnless(wanted map[string]struct{}) {
	if p.clients.Load() > 0 {
		return
	}
	for i := range p.members {
		if _, ok := wanted[p.members[i].def.Sig]; ok {
			return
		}
	}
	p.cancel(errUndefined)
}

// start begins a pass for an index. Views of the same design document that are at
// the same checkpoint go with it. One that is further ahead is met on the way: the
// pass ends there, and the next one takes it along. The caller holds mu.
func (s *copyIndexes) start(x *viewIndex, def *shardapi.ViewDef, siblings []shardapi.ViewDef) error {
	p := &pass{of: s, design: def.Design, started: time.Now(), done: make(chan struct{})}
	if !s.h.beginPass(p) {
		return model.ErrClosed
	}
	var ctx context.Context
	ctx, p.cancel = context.WithCancelCause(s.h.ctx)
	since := x.index.Seq()
	p.add(x, def)
	for i := range siblings {
		d := &siblings[i]
		if d.Program.Key != def.Program.Key || d.IncludeDesign != def.IncludeDesign || d.LocalSeq != def.LocalSeq ||
			s.h.passes.failure(s.id, d.Sig) != nil {
			continue
		}
		y, err := s.get(d)
		if err != nil || y.pass != nil {
			continue // an error is for those who ask for this view
		}
		if seq := y.index.Seq(); seq == since {
			p.add(y, d)
		} else if seq > since && (p.upTo == 0 || seq < p.upTo) {
			p.upTo = seq
		}
	}
	if p.upTo >= s.copy.Seq() {
		p.upTo = 0
	}
	s.passes[p] = struct{}{}
	s.entry.refs.Add(1) // whoever starts it may leave before it has ended
	go s.run(ctx, p)
	return nil
}

// run runs a pass to its end.
func (s *copyIndexes) run(ctx context.Context, p *pass) {
	work := &index.Views[view.DocRows]{Mapper: s.h.opts.JS, Program: p.members[0].def.Program, Rows: docRows,
		Log: s.h.log(s.id).With("design", p.design)}
	for i := range p.members {
		m := &p.members[i]
		work.Views = append(work.Views, &index.View[view.DocRows]{Name: m.def.Name, Map: m.def.Map, Target: m.x.index, Kills: m.x.kills})
	}
	seq, err := s.catchUp(ctx, p, work)
	s.mu.Lock()
	for i, v := range work.Views {
		x := p.members[i].x
		x.pass, x.kills = nil, v.Killed()
		sig, failed := p.members[i].def.Sig, v.Failed()
		switch {
		case failed != nil:
			s.h.passes.fail(s.id, sig, failed)
			s.giveUp(sig, x)
		case err != nil:
			x.cut, x.def = true, p.members[i].def
		case p.upTo == 0:
			x.whole, x.known, x.kills = seq, true, 0
			fallthrough
		default:
			x.cut = false
		}
	}
	if err != nil {
		s.h.warm.lookLater(s.id)
	}
	delete(s.passes, p)
	p.err = err
	close(p.done)
	s.mu.Unlock()
	p.cancel(nil)
	s.entry.release()
	s.h.endPass(p)
}

// catchUp does the work of a pass, without its panics: in this goroutine one would
// end the process.
func (s *copyIndexes) catchUp(ctx context.Context, p *pass, work *index.Views[view.DocRows]) (seq uint64, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
		if errors.Is(err, jsvm.ErrClosed) {
			err = errors.Join(model.ErrClosed, err)
		}
	}()
	changes, err := s.ahead(ctx, work.Views[0].Target.Seq(), p.upTo)
	if err != nil {
		return 0, err
	}
	def := &p.members[0].def
	return work.CatchUp(ctx, &index.Pass[index.Mapped[view.DocRows]]{
		Source: steady{s.copy}, UpTo: p.upTo, IncludeDesign: def.IncludeDesign, LocalSeq: def.LocalSeq,
		Workers: s.h.passes.workers, Room: s.h.passes.room, Progress: &p.progress,
		Urgent: func() bool { return p.clients.Load() > 0 },
	}, changes)
}

// countAhead is how far ahead changes are counted. What is further is estimated: a
// copy that counts once has to keep counting, which its writers would pay for.
const countAhead = 4096

// ahead tells how many changes there are from a sequence to another (0: the end). A
// document that was changed again left a gap, so what is estimated may be too much.
func (s *copyIndexes) ahead(ctx context.Context, since, upTo uint64) (int64, error) {
	end := s.copy.Seq()
	if upTo != 0 {
		end = min(end, upTo)
	}
	if end <= since {
		return 0, nil
	}
	near := s.copy.Seq()-since <= countAhead
	from := uint64(0)
	if near {
		from = since
	}
	rows, err := s.copy.Pending(ctx, from) // cheap in both cases
	return min(rows, int64(end-since)), err
}

// steady is a copy as passes read it.
type steady struct{ copy *shard.Copy }

// Changes implements index.Source.
func (s steady) Changes(ctx context.Context, req *shardapi.ChangesRequest) (shardapi.ChangeStream, error) {
	return s.copy.SteadyChanges(ctx, req)
}

// docRows takes apart what a map function emitted: [[key,value],…].
func docRows(id string, emitted []byte) (view.DocRows, error) {
	d := view.DocRows{ID: id}
	for pair := range rawjson.Elements(emitted) {
		var row view.Row
		n := 0
		for v := range rawjson.Elements(pair) {
			switch n++; n {
			case 1:
				row.Key = v
			case 2:
				row.Value = v
			}
		}
		if n != 2 {
			return view.DocRows{}, errors.New("the rows of the document cannot be read")
		}
		d.Rows = append(d.Rows, row)
	}
	return d, nil
}

// log gives the logger of what happens to a copy.
func (h *Host) log(id shardapi.CopyID) *slog.Logger {
	if h.opts.Database != nil {
		if name := h.opts.Database(id); name != "" {
			return h.opts.Logger.With("database", name, "copy", uint64(id))
		}
	}
	return h.opts.Logger.With("copy", uint64(id))
}
