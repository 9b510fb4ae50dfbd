package cluster

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// Create makes a database. Of several creates of one name one succeeds; the
// others wait for its outcome and learn that the name is taken.
func (l *Local) Create(ctx context.Context, spec CreateSpec) (*Database, error) {
	if !model.ValidDBName(spec.Name) {
		return nil, model.IllegalDBName(spec.Name)
	}
	if spec.Q == 0 {
		spec.Q = l.o.Q
	}
	if spec.N == 0 {
		spec.N = l.o.N
	}
	if spec.Q < 0 || spec.Q > MaxQ {
		return nil, model.BadRequest("The `q` value should be a positive integer.")
	}
	if spec.N < 0 {
		return nil, model.BadRequest("The `n` value should be a positive integer.")
	}
	done, err := l.begin(ctx, spec.Name)
	if err != nil {
		return nil, err
	}
	defer done()
	if _, err := l.Get(spec.Name); err == nil {
		l.log.Unlock()
		return nil, model.ErrDBExists
	}

	d := &Database{Name: spec.Name, Q: spec.Q, N: spec.N, Partitioned: spec.Partitioned,
		RevsLimit: DefaultRevsLimit, MapEpoch: 1, Created: time.Now().Unix()}
	rand.Read(d.Instance[:]) // never fails, by its contract
	next := l.log.next
	d.Shards = make([]Shard, spec.Q)
	copies := make([]Copy, spec.Q)
	for i, r := range model.SplitRanges(spec.Q) {
		copies[i] = Copy{ID: next, Node: l.o.Node, Epoch: 1}
		d.Shards[i] = Shard{Range: r, Copies: copies[i : i+1 : i+1]}
		next++
	}
	ev := storedEvent{Event: Event{Seq: l.log.event + 1, Type: EventCreated, Name: d.Name}}
	b := l.store.NewBatch()
	b.Set(databaseKey(d.Name), appendRow(nil, d, l.o.Node))
	b.Set(metaKey(metaNextCopy), binary.AppendUvarint(nil, uint64(next)))
	l.log.put(b, &ev)
	e := newEntry(d)
	err = l.commit(ctx, b, func() {
		l.log.next = next
		l.log.took(ev.Event)
	}, func() {
		l.seen.dbs[d.Name] = e
		l.seen.insertName(d.Name)
		for i := range copies {
			l.seen.copies[copies[i].ID] = copyRef{e, i}
		}
		l.seen.events.add(ev.Event)
	})
	if err != nil {
		return nil, err
	}
	return d, nil
}

// Delete removes a database and drops its copies. The note of the copies is in
// the same batch, so that no crash leaves bytes nobody knows of.
func (l *Local) Delete(ctx context.Context, name string) (*Database, error) {
	done, err := l.begin(ctx, name)
	if err != nil {
		return nil, err
	}
	defer done()
	l.seen.RLock()
	e := l.seen.dbs[name]
	l.seen.RUnlock()
	if e == nil {
		l.log.Unlock()
		return nil, model.ErrDBNotFound
	}
	d := e.db.Load()
	ev := storedEvent{Event: Event{Seq: l.log.event + 1, Type: EventDeleted, Name: d.Name}}
	b := l.store.NewBatch()
	b.Frees = true // a full disk must not forbid the way to free it
	b.Delete(databaseKey(name))
	l.log.put(b, &ev)
	forgotten, pruned := l.log.prune(b, l.o.KeepDeleted)
	var ids []shardapi.CopyID
	for _, s := range d.Shards {
		for _, c := range s.Copies {
			ids = append(ids, c.ID)
			b.Set(dropKey(c.ID), nil)
		}
	}
	err = l.commit(ctx, b, func() {
		e.gone = true
		l.log.forget(forgotten, pruned)
		l.log.took(ev.Event)
		l.log.gone = append(l.log.gone, goneName{name, ev.Seq})
	}, func() {
		delete(l.seen.dbs, name)
		l.seen.removeName(name)
		for _, id := range ids {
			delete(l.seen.copies, id)
		}
		for _, old := range pruned {
			l.seen.events.drop(old)
		}
		l.seen.events.add(ev.Event)
	})
	if err != nil {
		return nil, err
	}
	// The database is gone whatever the client does now.
	ctx = context.WithoutCancel(ctx)
	if err := l.finishDrop(ctx, ids); err != nil {
		return nil, fmt.Errorf("cluster: drop %s: %w", name, err)
	}
	return d, nil
}

// finishDrop removes the copies' data and then the notes of them. Dropping twice,
// after a crash between the two, is harmless.
func (l *Local) finishDrop(ctx context.Context, ids []shardapi.CopyID) error {
	if len(ids) == 0 {
		return nil
	}
	for _, id := range ids {
		if err := l.o.Drop(ctx, id); err != nil {
			return err
		}
	}
	b := l.store.NewBatch()
	defer b.Close()
	b.Frees = true
	for _, id := range ids {
		b.Delete(dropKey(id))
	}
	c, err := l.store.Apply(b)
	if err != nil {
		return err
	}
	return c.Wait()
}
