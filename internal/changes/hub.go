package changes

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// hubKey names a database's hub: another instance or another shard map is
// another hub.
type hubKey struct {
	instance [8]byte
	epoch    uint32
}

// hub reads the new changes of one database once for all its followers. Its
// nodes are a log: a follower that has taken all nodes up to a place has the
// hub's vector of that place.
type hub struct {
	s      *Service
	db     *cluster.Database
	key    hubKey
	enc    *Encoder // guarded by mu
	ctx    context.Context
	cancel context.CancelFunc
	ready  chan struct{} // closed once vec is known, or err
	users  int           // guarded by Service.mu

	mu      sync.Mutex
	readers int           // followers that take rows from the nodes
	vec     Vector        // everything up to here has been announced
	nodes   []*node       // the newest
	first   uint64        // the number of nodes[0]
	rows    int           // in all nodes
	bytes   int           // of all rows, about
	wake    chan struct{} // closed and replaced with every node
	err     error         // why there will be no more
}

// node is a run of new changes of one range. It never changes.
type node struct {
	before Vector // the hub's vector before it
	index  int    // the range
	to     uint64 // the range's sequence after it
	rows   []Row
	bytes  int // of the rows, about
	// unread means that nobody wanted rows when it was made: whoever meets it all
	// the same reads them from the copy.
	unread bool
}

// join gives the database's hub and counts the caller as a user.
func (s *Service) join(db *cluster.Database) *hub {
	key := hubKey{db.Instance, db.MapEpoch}
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.hubs[key]
	if h == nil {
		h = &hub{s: s, db: db, key: key, enc: NewEncoder(db), ready: make(chan struct{}), wake: make(chan struct{})}
		h.ctx, h.cancel = context.WithCancel(context.Background())
		s.hubs[key] = h
		s.work.Go(h.start)
	}
	h.users++
	return h
}

// leave gives the hub up; the last one out ends it.
func (h *hub) leave() {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.users--
	if h.users == 0 {
		h.forget()
		h.cancel()
	}
}

// forget takes the hub off the service's list, under its lock.
func (h *hub) forget() {
	if h.s.hubs[h.key] == h {
		delete(h.s.hubs, h.key)
	}
}

// fail ends the hub for all its followers; a later one gets a fresh hub.
func (h *hub) fail(err error) {
	h.s.mu.Lock()
	h.forget()
	h.s.mu.Unlock()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err == nil {
		h.err = err
		close(h.wake)
	}
}

// start learns the present and then follows every range.
func (h *hub) start() {
	var vec Vector
	err := coordinator.Guard(func() (err error) {
		vec, err = h.s.Now(h.ctx, h.db)
		return err
	})
	if err != nil {
		h.fail(err)
		close(h.ready)
		return
	}
	h.vec = append(Vector(nil), vec...)
	close(h.ready)
	for i, seq := range vec {
		h.s.work.Go(func() { h.follow(i, seq) })
	}
}

// follow announces the changes of one range after seq, until the hub ends.
func (h *hub) follow(index int, seq uint64) {
	for {
		var next uint64
		err := coordinator.Guard(func() (err error) {
			if next, err = h.s.coord.Updated(h.ctx, h.db, index, seq); err == nil {
				next, err = h.read(index, seq, next)
			}
			return err
		})
		if h.ctx.Err() != nil {
			return
		}
		if err != nil {
			h.fail(err)
			return
		}
		seq = next
	}
}

// read reads what is new in a range and announces it. The last batch is held
// back until the end is known, so that its node's vector is the one after the
// whole run.
func (h *hub) read(index int, since, known uint64) (uint64, error) {
	if !h.wanted() {
		h.announce(&node{index: index, to: known, unread: true})
		return known, nil
	}
	stream, err := h.s.coord.Changes(h.ctx, h.db, index, &shardapi.ChangesRequest{Since: since, Limit: -1})
	if err != nil {
		return since, err
	}
	defer stream.Close()
	var held []shardapi.Change
	for {
		batch, err := stream.Next()
		if errors.Is(err, io.EOF) {
			to := max(known, stream.Seq())
			h.announce(&node{index: index, to: to, rows: rowsOf(held)})
			return to, nil
		}
		if err != nil {
			return since, h.s.coord.Explain(h.db, err)
		}
		if len(batch) == 0 {
			continue
		}
		if held != nil {
			h.announce(&node{index: index, to: held[len(held)-1].Seq, rows: rowsOf(held)})
		}
		held = cloneChanges(batch)
	}
}

// wanted tells whether any follower takes rows from the hub.
func (h *hub) wanted() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.readers > 0
}

// rowsOf makes rows. Their lines are made in announce, which knows the vector.
func rowsOf(changes []shardapi.Change) []Row {
	rows := make([]Row, len(changes))
	for i := range changes {
		rows[i].Change = &changes[i]
	}
	return rows
}

// announce appends a node and wakes everyone.
func (h *hub) announce(n *node) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.err != nil {
		return
	}
	n.before = append(Vector(nil), h.vec...)
	for i := range n.rows {
		n.rows[i].renderLines(h.enc, n.before, n.index)
		n.bytes += n.rows[i].size()
	}
	h.vec[n.index] = n.to
	h.nodes = append(h.nodes, n)
	h.rows += len(n.rows)
	h.bytes += n.bytes
	drop := 0
	for drop < len(h.nodes) && (h.readers == 0 ||
		drop < len(h.nodes)-1 && (h.rows > h.s.o.Ring || h.bytes > h.s.o.RingBytes || len(h.nodes)-drop > h.s.o.Ring)) {
		h.rows -= len(h.nodes[drop].rows)
		h.bytes -= h.nodes[drop].bytes
		drop++
	}
	if drop > 0 {
		h.first += uint64(drop)
		rest := copy(h.nodes, h.nodes[drop:])
		clear(h.nodes[rest:])
		h.nodes = h.nodes[:rest]
	}
	close(h.wake)
	h.wake = make(chan struct{})
}

// end is the number of the next node.
func (h *hub) end() uint64 { return h.first + uint64(len(h.nodes)) }

// renderLines writes the row for every follower whose vector is before.
func (r *Row) renderLines(enc *Encoder, before Vector, index int) {
	line := make([]byte, 0, 192)
	line = append(line, `{"seq":"`...)
	line = enc.appendAt(line, before, index, r.Change.Seq)
	line = append(line, `",`...)
	r.frag = len(line)
	r.lines[MainOnly] = appendFragment(line, r.Change, MainOnly)
	r.lines[AllDocs] = r.lines[MainOnly]
	if len(r.Change.Leaves) > 1 {
		r.lines[AllDocs] = appendFragment(append([]byte(nil), r.lines[MainOnly][:r.frag]...), r.Change, AllDocs)
	}
}

// size is about the memory that a rendered row takes.
func (r *Row) size() int {
	n := len(r.lines[MainOnly]) + len(r.Change.ID)
	if leaves := len(r.Change.Leaves); leaves > 1 {
		n += len(r.lines[AllDocs]) + 64*leaves
	}
	return n
}

// cloneChanges copies a batch, which is valid only until the next one, into three
// arrays of its own.
func cloneChanges(batch []shardapi.Change) []shardapi.Change {
	size, leaves := 0, 0
	for i := range batch {
		size += len(batch[i].ID)
		leaves += len(batch[i].Leaves)
		for j := range batch[i].Leaves {
			size += len(batch[i].Leaves[j].Rev.Hash)
		}
	}
	text := make([]byte, 0, size)
	for i := range batch {
		text = append(text, batch[i].ID...)
		for j := range batch[i].Leaves {
			text = append(text, batch[i].Leaves[j].Rev.Hash...)
		}
	}
	all := string(text)
	cut := func(n int) (s string) { s, all = all[:n], all[n:]; return s }
	out := make([]shardapi.Change, len(batch))
	own := make([]model.Leaf, 0, leaves)
	for i := range batch {
		from := len(own)
		id := cut(len(batch[i].ID))
		for _, leaf := range batch[i].Leaves {
			leaf.Rev.Hash = cut(len(leaf.Rev.Hash))
			own = append(own, leaf)
		}
		out[i] = shardapi.Change{Seq: batch[i].Seq, ID: id, Leaves: own[from:len(own):len(own)]}
	}
	return out
}
