package changes

import (
	"context"
	"errors"
	"io"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/shardapi"
)

// ErrTick is what Follower.Next gives when the caller's tick came before a row.
var ErrTick = errors.New("changes: nothing new before the tick")

// Follower is a feed that goes on: first what there is, then what comes, at once.
// It is for one goroutine.
type Follower struct {
	position
	ctx    context.Context
	s      *Service
	db     *cluster.Database
	o      FeedOptions
	left   int64
	ids    map[string]struct{} // of the filter by ids
	reader bool                // takes rows from the hub; otherwise always from the copies

	hub    *hub
	joined bool   // at stands for a place in the hub's log
	at     uint64 // the number of the next node to take
	behind []int  // ranges to be read from the copies
	stream shardapi.ChangeStream
	rows   []Row
}

// Follow starts a feed after o.Since. ctx ends it; Close must be called.
// Descending has no meaning here.
func (s *Service) Follow(ctx context.Context, db *cluster.Database, o FeedOptions) *Follower {
	o.Descending = false
	f := &Follower{ctx: ctx, s: s, db: db, o: o, left: o.Limit, reader: !o.IncludeDocs && o.Selector == nil && o.Script == nil}
	f.vec = make(Vector, len(db.Shards))
	copy(f.vec, o.Since)
	if o.DocIDs != nil {
		f.ids = make(map[string]struct{}, len(o.DocIDs))
		for _, id := range o.DocIDs {
			f.ids[id] = struct{}{}
		}
	}
	f.hub = s.join(db)
	f.enc = f.hub.enc.fork()
	if f.reader {
		f.hub.mu.Lock()
		f.hub.readers++
		f.hub.mu.Unlock()
	}
	return f
}

// Next waits until there are rows and gives them, all of one range, valid until
// the next call. While it reads what a filter lets through it may give none, so
// that the caller can show life. It gives ErrTick when tick fires while there is
// nothing to do, the context's error when ctx ends, io.EOF after the last row of
// a limit, and model.ErrDBNotFound when the database has been deleted. ctx ends
// only this call: after ErrTick or the end of ctx the feed can go on.
func (f *Follower) Next(ctx context.Context, tick <-chan time.Time) ([]Row, error) {
	own := f.ctx.Done()
	if ctx == f.ctx {
		own = nil // every channel in a select is a lock
	}
	if !f.joined {
		if err := f.wait(ctx, own, f.hub.ready, tick); err != nil {
			return nil, err
		}
	}
	for {
		switch {
		case f.left == 0:
			return nil, io.EOF
		case f.stream != nil:
			rows, over, err := f.read()
			if err != nil || !over {
				return rows, err
			}
			continue
		case len(f.behind) > 0:
			if err := f.open(); err != nil {
				return nil, err
			}
			continue
		}
		n, wake, err := f.look()
		if err != nil {
			return nil, err
		}
		if n != nil {
			if rows := f.take(n); len(rows) > 0 {
				return rows, nil
			}
			continue
		}
		if wake == nil {
			continue // there is something to be read from the copies
		}
		if err := f.wait(ctx, own, wake, tick); err != nil {
			return nil, err
		}
	}
}

// wait waits for an event of the hub, or says what came first.
func (f *Follower) wait(ctx context.Context, own, event <-chan struct{}, tick <-chan time.Time) error {
	select {
	case <-event:
		return nil
	case <-tick:
		return ErrTick
	case <-ctx.Done():
		return ctx.Err()
	case <-own:
		return f.ctx.Err()
	}
}

// Buffered tells whether Next has rows, or work, without waiting: a caller may
// put off flushing its output.
func (f *Follower) Buffered() bool {
	if f.stream != nil || len(f.behind) > 0 {
		return true
	}
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	return f.joined && f.at < f.hub.end()
}

// look takes the next node from the hub; if there is none it gives the channel to
// wait on; and if the follower must read from the copies, neither.
func (f *Follower) look() (*node, <-chan struct{}, error) {
	h := f.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	end := h.end()
	if h.vec == nil { // the hub could not start
		return nil, nil, h.err
	}
	if !f.joined || f.at < h.first || !f.reader && f.at < end {
		f.joined, f.at = true, end
		for i := range h.vec {
			if h.vec[i] > f.vec[i] {
				f.behind = append(f.behind, i)
			}
		}
		if len(f.behind) > 0 {
			return nil, nil, nil
		}
	}
	if f.at < end {
		n := h.nodes[f.at-h.first]
		f.at++
		if n.unread && n.to > f.vec[n.index] {
			f.behind = append(f.behind, n.index)
			return nil, nil, nil
		}
		return n, nil, nil
	}
	if h.err != nil {
		return nil, nil, h.err
	}
	return nil, h.wake, nil
}

// take gives the rows of a node that the follower has not had and wants.
func (f *Follower) take(n *node) []Row {
	if n.to <= f.vec[n.index] {
		return nil // read from the copy already
	}
	rows := n.rows
	have := f.vec[n.index]
	if len(rows) > 0 && rows[0].Change.Seq <= have {
		rows = rows[sort.Search(len(rows), func(i int) bool { return rows[i].Change.Seq > have }):]
	}
	f.shared = slices.Equal(f.vec, n.before)
	f.index = n.index
	if f.ids != nil || f.o.Design {
		f.rows = f.rows[:0]
		for i := range rows {
			if f.passes(rows[i].Change.ID) {
				f.rows = append(f.rows, rows[i])
			}
		}
		rows = f.rows
	}
	f.vec[n.index] = n.to
	if f.left >= 0 {
		if int64(len(rows)) > f.left {
			rows = rows[:f.left]
			f.vec[n.index] = rows[len(rows)-1].Change.Seq
		}
		f.left -= int64(len(rows))
	}
	return rows
}

// passes applies the filters that need no body.
func (f *Follower) passes(id string) bool {
	if f.ids != nil {
		_, ok := f.ids[id]
		return ok
	}
	return !f.o.Design || strings.HasPrefix(id, "_design/")
}

// open starts to read the next range that is behind.
func (f *Follower) open() error {
	index := f.behind[0]
	f.index, f.shared = index, false
	req, ok := f.o.request(f.db, index, f.vec[index], f.left)
	if !ok { // none of the wanted documents lies here
		f.hub.mu.Lock()
		f.vec[index] = max(f.vec[index], f.hub.vec[index])
		f.hub.mu.Unlock()
		f.behind = f.behind[1:]
		return nil
	}
	stream, err := f.s.coord.Changes(f.ctx, f.db, index, req)
	if err != nil {
		return err
	}
	f.stream = stream
	f.behind = f.behind[1:]
	return nil
}

// read gives the next rows from a copy; over when the range is read to its end.
func (f *Follower) read() (rows []Row, over bool, err error) {
	batch, err := f.stream.Next()
	if errors.Is(err, io.EOF) {
		f.vec[f.index] = max(f.vec[f.index], f.stream.Seq())
		s := f.stream
		f.stream = nil
		return nil, true, s.Close()
	}
	if err != nil {
		return nil, false, f.s.coord.Explain(f.db, err)
	}
	f.rows = f.rows[:0]
	if f.left >= 0 {
		batch = batch[:min(int64(len(batch)), f.left)]
		f.left -= int64(len(batch))
	}
	for i := range batch {
		f.rows = append(f.rows, Row{Change: &batch[i]})
	}
	if len(batch) > 0 {
		f.vec[f.index] = batch[len(batch)-1].Seq
	}
	return f.rows, false, nil
}

// Close ends the feed.
func (f *Follower) Close() error {
	if f.hub == nil {
		return nil
	}
	if f.reader {
		f.hub.mu.Lock()
		f.hub.readers--
		f.hub.mu.Unlock()
	}
	f.hub.leave()
	f.hub = nil
	if f.stream == nil {
		return nil
	}
	s := f.stream
	f.stream = nil
	return s.Close()
}
