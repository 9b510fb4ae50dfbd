package cluster

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// errClosing ends those who wait for events when the registry closes.
var errClosing = model.ErrClosed

// The touch states of a database.
const (
	touchIdle  uint32 = iota // the next write makes an updated event at once
	touchClean               // an event was made (or is on its way) within the interval
	touchDirty               // and there has been a write since: another is owed
)

// touchQueue takes databases whose first write after a pause wants an event.
type touchQueue struct {
	sync.Mutex
	entries []*entry
	wake    chan struct{} // holds one token when entries is not empty
}

// sum is the sum of the copies' sequences as far as they are known.
func (e *entry) sum() uint64 {
	var s uint64
	for i := range e.seqs {
		s += e.seqs[i].Load()
	}
	return s
}

// Touched notes a copy's new durable sequence: an updated event at once if the
// database was idle, otherwise one owed for the end of the interval. It is
// called for every write, hence no lock on the usual way.
func (l *Local) Touched(id shardapi.CopyID, seq uint64) {
	l.seen.RLock()
	ref, ok := l.seen.copies[id]
	l.seen.RUnlock()
	if !ok {
		return // the copy of a database deleted meanwhile
	}
	e := ref.entry
	known := &e.seqs[ref.slot]
	for {
		old := known.Load()
		if seq <= old || known.CompareAndSwap(old, seq) {
			break
		}
	}
	for {
		switch e.touch.Load() {
		case touchDirty:
			return
		case touchClean:
			if e.touch.CompareAndSwap(touchClean, touchDirty) {
				return
			}
		default:
			if e.touch.CompareAndSwap(touchIdle, touchClean) {
				l.touches.add(e)
				return
			}
		}
	}
}

func (q *touchQueue) add(e *entry) {
	q.Lock()
	q.entries = append(q.entries, e)
	q.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *touchQueue) take() []*entry {
	q.Lock()
	defer q.Unlock()
	out := q.entries
	q.entries = nil
	return out
}

// cooling is a database that had its event and gets no other before due.
type cooling struct {
	entry *entry
	due   time.Time
}

// emitUpdates writes updated events until the registry closes. Writers never
// wait for it; what is touched while it waits for the disk shares the next batch.
func (l *Local) emitUpdates() {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	var rest []cooling // in order of due: the interval is the same for all
	var lastErr string
	for {
		select {
		case <-l.quit:
			return
		case <-l.touches.wake:
		case <-timer.C:
		}
		emit := l.touches.take()
		now := time.Now()
		n := 0
		for ; n < len(rest) && !rest[n].due.After(now); n++ {
			e := rest[n].entry
			if e.touch.CompareAndSwap(touchClean, touchIdle) {
				continue
			}
			e.touch.Store(touchClean) // before the sum is taken: a later write owes anew
			emit = append(emit, e)
		}
		rest = append(rest[:0], rest[n:]...)
		if len(emit) > 0 {
			err := l.writeUpdates(emit)
			if errors.Is(err, model.ErrClosed) {
				return
			}
			if err != nil {
				// The disk is full, say: still owed. Once per cause into the log.
				for _, e := range emit {
					e.touch.Store(touchDirty)
				}
				if err.Error() != lastErr {
					lastErr = err.Error()
					l.o.Logger.Warn("updated events wait", "error", err)
				}
			} else {
				lastErr = ""
			}
			due := time.Now().Add(l.o.UpdateEvery)
			for _, e := range emit {
				rest = append(rest, cooling{e, due})
			}
		}
		if len(rest) > 0 {
			timer.Reset(time.Until(rest[0].due))
		}
	}
}

// writeUpdates writes one updated event for each of the databases, in one batch,
// and waits until they are visible.
func (l *Local) writeUpdates(entries []*entry) error {
	type written struct {
		entry *entry
		event storedEvent
	}
	out := make([]written, 0, len(entries))
	l.log.Lock()
	b := l.store.NewBatch()
	next := l.log.event
	for _, e := range entries {
		sum := e.sum()
		if e.gone || sum == e.lastSum {
			continue
		}
		next++
		d := e.db.Load()
		ev := storedEvent{Event: Event{Seq: next, Type: EventUpdated, Name: d.Name}, instance: d.Instance, sum: sum}
		l.log.put(b, &ev)
		out = append(out, written{e, ev})
	}
	if len(out) == 0 {
		b.Close()
		l.log.Unlock()
		return nil
	}
	return l.commit(context.Background(), b, func() {
		for i := range out {
			out[i].entry.lastSum = out[i].event.sum
			l.log.took(out[i].event.Event)
		}
	}, func() {
		for i := range out {
			l.seen.events.add(out[i].event.Event)
		}
	})
}
