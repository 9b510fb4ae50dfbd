package cluster

import (
	"context"
	"iter"
	"sort"

	"github.com/divandb/divan/internal/kv"
)

// eventLog is the visible log of global events, in memory: two or three small
// rows per database.
type eventLog struct {
	rows   []Event // in order; a superseded one has Type 0
	dead   int
	last   uint64
	newest map[string]*eventNumbers
	wake   chan struct{} // closed and replaced when last grows
}

// add appends an event and takes out the one it supersedes.
func (g *eventLog) add(ev Event) {
	if g.newest == nil {
		g.newest = map[string]*eventNumbers{}
	}
	n := g.newest[ev.Name]
	if n == nil {
		n = new(eventNumbers)
		g.newest[ev.Name] = n
	}
	g.kill(n[ev.Type])
	n[ev.Type] = ev.Seq
	g.rows = append(g.rows, ev)
	g.last = ev.Seq
	g.tidy()
}

// drop takes out all events of a name.
func (g *eventLog) drop(name string) {
	n := g.newest[name]
	if n == nil {
		return
	}
	for _, seq := range n {
		g.kill(seq)
	}
	delete(g.newest, name)
	g.tidy()
}

// kill marks a row as superseded; 0 is no row.
func (g *eventLog) kill(seq uint64) {
	if seq != 0 {
		g.rows[g.find(seq)].Type = 0
		g.dead++
	}
}

// tidy removes superseded rows once they are more than the others.
func (g *eventLog) tidy() {
	if g.dead > 64 && g.dead > len(g.rows)/2 {
		live := g.rows[:0]
		for _, r := range g.rows {
			if r.Type != 0 {
				live = append(live, r)
			}
		}
		clear(g.rows[len(live):])
		g.rows, g.dead = live, 0
	}
}

// find gives the place of the first row with a number of at least seq.
func (g *eventLog) find(seq uint64) int {
	return sort.Search(len(g.rows), func(i int) bool { return g.rows[i].Seq >= seq })
}

// broadcast wakes all who wait for events.
func (g *eventLog) broadcast() {
	close(g.wake)
	g.wake = make(chan struct{})
}

// eventsChunk is how many events are taken under one hold of the lock.
const eventsChunk = 256

// Events gives the events after since, in chunks, so that no reader holds up a
// change.
func (l *Local) Events(since uint64, descending bool, limit int64) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		low, high := since, ^uint64(0) // exclusive bounds of what is still to be given
		chunk := make([]Event, 0, eventsChunk)
		for limit != 0 {
			chunk = chunk[:0]
			l.seen.RLock()
			rows := l.seen.events.rows
			if descending {
				for i := l.seen.events.find(high) - 1; i >= 0 && rows[i].Seq > low && len(chunk) < eventsChunk; i-- {
					if rows[i].Type != 0 {
						chunk = append(chunk, rows[i])
					}
				}
			} else {
				for i := l.seen.events.find(low + 1); i < len(rows) && len(chunk) < eventsChunk; i++ {
					if rows[i].Type != 0 {
						chunk = append(chunk, rows[i])
					}
				}
			}
			l.seen.RUnlock()
			for _, ev := range chunk {
				if limit == 0 || !yield(ev) {
					return
				}
				if limit > 0 {
					limit--
				}
				if descending {
					high = ev.Seq
				} else {
					low = ev.Seq
				}
			}
			if len(chunk) < eventsChunk {
				return
			}
		}
	}
}

// LastEvent is the number of the newest event.
func (l *Local) LastEvent() uint64 {
	l.seen.RLock()
	defer l.seen.RUnlock()
	return l.seen.events.last
}

// WaitEvents waits for an event after the given one.
func (l *Local) WaitEvents(ctx context.Context, after uint64) (uint64, error) {
	for {
		l.seen.RLock()
		last, wake := l.seen.events.last, l.seen.events.wake
		l.seen.RUnlock()
		if last > after {
			return last, nil
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return last, ctx.Err()
		case <-l.quit:
			return last, errClosing
		}
	}
}

// put writes an event into a batch and takes out the one it supersedes. The
// number must be the next one; took makes it so.
func (g *changeLog) put(b *kv.Batch, ev *storedEvent) {
	if n := g.latest[ev.Name]; n != nil && n[ev.Type] != 0 {
		b.Delete(eventKey(n[ev.Type]))
	}
	b.Set(eventKey(ev.Seq), appendEvent(nil, ev))
}

// took notes that the event is in the log.
func (g *changeLog) took(ev Event) {
	g.event = ev.Seq
	g.note(ev)
}

// goneName is a deleted database: its name and the number of the event.
type goneName struct {
	name string
	seq  uint64
}

// still tells whether the database is gone by that very deletion, and not created
// or deleted again since.
func (g *changeLog) still(gone goneName) bool {
	n := g.latest[gone.name]
	return n != nil && n[EventDeleted] == gone.seq && n[EventCreated] < gone.seq
}

// prune removes from the store the events of the longest-deleted databases when
// there are keep of them already. It changes nothing but the batch; forget
// does the rest once the batch is in the log. It gives how many entries of gone
// are used up and which names lose their events.
func (g *changeLog) prune(b *kv.Batch, keep int) (used int, names []string) {
	for ; used <= len(g.gone)-keep && used < len(g.gone); used++ {
		old := g.gone[used]
		if !g.still(old) {
			continue
		}
		for _, seq := range g.latest[old.name] {
			if seq != 0 {
				b.Delete(eventKey(seq))
			}
		}
		names = append(names, old.name)
	}
	return used, names
}

// forget drops what prune found.
func (g *changeLog) forget(used int, names []string) {
	g.gone = append(g.gone[:0], g.gone[used:]...)
	for _, name := range names {
		delete(g.latest, name)
	}
}
