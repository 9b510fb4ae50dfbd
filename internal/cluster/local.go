package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// MaxQ bounds the ranges of a database: each costs work in every range read, and
// the number comes from a client.
const MaxQ = 256

// Options of a Local registry.
type Options struct {
	// Node is this node's name. Default divan@127.0.0.1.
	Node string
	// Account is the account name in _db_updates. Default divan.
	Account string
	// Q is the number of ranges of a database created without one. Default 2.
	Q int
	// N is the number of copies remembered for one created without. Default 3.
	N int
	// Drop removes a copy's data for good. Default: nothing to remove.
	Drop func(ctx context.Context, id shardapi.CopyID) error
	// CopySeq gives the durable sequence of a copy, 0 for one never written; a
	// start derives lost updated events from it. Default: always 0.
	CopySeq func(id shardapi.CopyID) (uint64, error)
	// UpdateEvery is the least time between updated events of one database.
	// Default 1 s.
	UpdateEvery time.Duration
	// KeepDeleted is of how many deleted databases the events are kept; older ones
	// leave the log, which would otherwise grow for ever. Default 10,000.
	KeepDeleted int
	// Logger gets what has no caller to go to. Default: the standard one.
	Logger *slog.Logger
}

func (o Options) withDefaults() Options {
	if o.Node == "" {
		o.Node = "divan@127.0.0.1"
	}
	if o.Account == "" {
		o.Account = "divan"
	}
	if o.Q <= 0 {
		o.Q = 2
	}
	if o.N <= 0 {
		o.N = 3
	}
	if o.Drop == nil {
		o.Drop = func(context.Context, shardapi.CopyID) error { return nil }
	}
	if o.CopySeq == nil {
		o.CopySeq = func(shardapi.CopyID) (uint64, error) { return 0, nil }
	}
	if o.UpdateEvery <= 0 {
		o.UpdateEvery = time.Second
	}
	if o.KeepDeleted <= 0 {
		o.KeepDeleted = 10_000
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// Local is the registry of a service of one node, in the node's own store.
type Local struct {
	store *kv.Store
	o     Options
	uuid  string
	log   changeLog
	seen  visible

	touches touchQueue
	quit    chan struct{}
	stopped sync.WaitGroup
	closing sync.Once
}

var _ Registry = (*Local)(nil)

// entry is a database with what only the registry keeps of it. It outlives
// changes of its settings; a database created again gets a new one.
type entry struct {
	db    atomic.Pointer[Database]
	touch atomic.Uint32   // one of the touch states
	seqs  []atomic.Uint64 // newest known sequence per range
	// lastSum is the sum of seqs in the newest updated event; only the emitter
	// (and the start) uses it.
	lastSum uint64
	// gone is set once a batch that deletes the database is in the log, so that no
	// updated event follows it. Guarded by changeLog.
	gone bool
}

// copyRef places a copy: its database and its range.
type copyRef struct {
	entry *entry
	slot  int
}

func newEntry(d *Database) *entry {
	e := &entry{seqs: make([]atomic.Uint64, len(d.Shards))}
	e.db.Store(d)
	return e
}

// Open loads the registry, finishes deletions that a crash interrupted, writes
// the updated events that it lost, and creates the system databases at the
// first start.
func Open(ctx context.Context, store *kv.Store, o Options) (*Local, error) {
	l := &Local{store: store, o: o.withDefaults(), quit: make(chan struct{})}
	l.log.latest = map[string]*eventNumbers{}
	l.log.busy = map[string]chan struct{}{}
	l.seen.dbs = map[string]*entry{}
	l.seen.copies = map[shardapi.CopyID]copyRef{}
	l.seen.settings = map[string][]byte{}
	l.seen.events.wake = make(chan struct{})
	l.touches.wake = make(chan struct{}, 1)

	if err := l.load(ctx); err != nil {
		return nil, fmt.Errorf("cluster: open: %w", err)
	}
	if err := l.ensureIdentity(ctx); err != nil {
		return nil, fmt.Errorf("cluster: open: %w", err)
	}
	l.stopped.Go(l.emitUpdates)
	for _, name := range []string{model.DBReplicator, model.DBUsers} {
		if _, err := l.Get(name); err == nil {
			continue
		}
		if _, err := l.Create(ctx, CreateSpec{Name: name}); err != nil && !errors.Is(err, model.ErrStorageFull) {
			l.Close()
			return nil, fmt.Errorf("cluster: create %s: %w", name, err)
		}
	}
	return l, nil
}

// Close stops the writing of updated events; one still owed is derived again at
// the next start. The store stays open.
func (l *Local) Close() {
	l.closing.Do(func() { close(l.quit) })
	l.stopped.Wait()
}

// ensureIdentity makes the uuid of the service at its first start.
func (l *Local) ensureIdentity(ctx context.Context) error {
	if l.uuid != "" {
		return nil
	}
	var b [16]byte
	rand.Read(b[:]) // never fails, by its contract
	id := hex.EncodeToString(b[:])
	l.log.Lock()
	batch := l.store.NewBatch()
	batch.Set(metaKey(metaUUID), []byte(id))
	return l.commit(ctx, batch, nil, func() { l.uuid = id })
}

// Self gives this node's name.
func (l *Local) Self() string { return l.o.Node }

// UUID gives the service's id.
func (l *Local) UUID() string { return l.uuid }

// Account gives the account name.
func (l *Local) Account() string { return l.o.Account }

// Nodes gives the one node there is.
func (l *Local) Nodes() []Node { return []Node{{Name: l.o.Node, Live: true}} }

// Get gives a database.
func (l *Local) Get(name string) (*Database, error) {
	l.seen.RLock()
	e := l.seen.dbs[name]
	l.seen.RUnlock()
	if e == nil {
		return nil, model.ErrDBNotFound
	}
	return e.db.Load(), nil
}

// ByCopy gives the database of a copy.
func (l *Local) ByCopy(id shardapi.CopyID) (*Database, bool) {
	l.seen.RLock()
	ref, ok := l.seen.copies[id]
	l.seen.RUnlock()
	if !ok {
		return nil, false
	}
	return ref.entry.db.Load(), true
}

// changeLog orders the changes: a batch is built and applied under it, and waits
// here, in the order of the store's log, until it is durable and may be seen.
type changeLog struct {
	sync.Mutex
	next   shardapi.CopyID          // the next copy's number
	event  uint64                   // the number of the last event given out
	latest map[string]*eventNumbers // newest event of each name and type
	gone   []goneName               // deleted databases in the order of their deletion
	busy   map[string]chan struct{} // names with a change under way
	ticket uint64
	queue  []queuedChange
}

// queuedChange is an applied batch's effect on what is visible.
type queuedChange struct {
	ticket  uint64
	publish func()
}

// eventNumbers holds the number of the newest event per type, 0 for none.
type eventNumbers [EventDeleted + 1]uint64

// visible is the durable state that readers see.
type visible struct {
	sync.RWMutex
	dbs      map[string]*entry
	copies   map[shardapi.CopyID]copyRef
	names    []string // sorted
	settings map[string][]byte
	events   eventLog
}

// commit applies a batch, gives up the log's lock, which the caller holds, waits
// until the batch is durable and makes it visible. applied runs under the lock
// once the batch is in the log; publish runs under the lock of visible.
func (l *Local) commit(ctx context.Context, b *kv.Batch, applied, publish func()) error {
	defer b.Close() // only one that was not applied has anything to close
	if err := ctx.Err(); err != nil {
		l.log.Unlock()
		return err
	}
	c, err := l.store.Apply(b)
	if err != nil {
		l.log.Unlock()
		return err
	}
	if applied != nil {
		applied()
	}
	l.log.ticket++
	ticket := l.log.ticket
	l.log.queue = append(l.log.queue, queuedChange{ticket, publish})
	l.log.Unlock()

	if err := c.Wait(); err != nil {
		return err
	}
	l.publish(ticket)
	return nil
}

// publish makes everything up to the ticket visible, in order: what came before a
// durable batch in the log is durable too.
func (l *Local) publish(ticket uint64) {
	l.log.Lock()
	defer l.log.Unlock()
	l.seen.Lock()
	defer l.seen.Unlock()
	before := l.seen.events.last
	n := 0
	for n < len(l.log.queue) && l.log.queue[n].ticket <= ticket {
		l.log.queue[n].publish()
		n++
	}
	l.log.queue = slices.Delete(l.log.queue, 0, n)
	if l.seen.events.last != before {
		l.seen.events.broadcast()
	}
}

// begin takes the log's lock with name free of other changes and marks it busy;
// done must be called, without the lock, when the change is over.
func (l *Local) begin(ctx context.Context, name string) (done func(), err error) {
	for {
		l.log.Lock()
		other, busy := l.log.busy[name]
		if !busy {
			break
		}
		l.log.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	over := make(chan struct{})
	l.log.busy[name] = over
	return func() {
		l.log.Lock()
		delete(l.log.busy, name)
		l.log.Unlock()
		close(over)
	}, nil
}
