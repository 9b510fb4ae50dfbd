package shard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
)

// Options sets up a copy. The zero value is good.
type Options struct {
	// BlobDir is the directory of this node's attachment files; the copy uses
	// BlobDir/<copy> and BlobDir/tmp. Empty: every attachment is kept in the store,
	// which only tests of other things want.
	BlobDir string
	// InlineMax is the largest attachment kept in the store; default 64 KiB.
	InlineMax int
	// IterMax is how long a stream keeps one view of the store, so that a slow
	// reader does not keep files from being removed; default 10 s.
	IterMax time.Duration
	// OnUpdate is called after every durable change of documents with the copy's
	// sequence. It runs on the writer's goroutine and must not block.
	OnUpdate func(copy, seq uint64)
	// Now is the clock of compaction's grace period; default time.Now.
	Now func() time.Time
}

// withDefaults fills what was left out.
func (o Options) withDefaults() Options {
	if o.InlineMax <= 0 {
		o.InlineMax = 64 << 10
	}
	if o.IterMax <= 0 {
		o.IterMax = 10 * time.Second
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

// Copy is one copy of one range. Its methods may be called by many goroutines.
type Copy struct {
	id     uint64
	prefix [9]byte
	store  *kv.Store
	opts   *Options
	mark   mark

	// mu is the sequencer (I2). It guards everything below.
	mu      sync.Mutex
	closed  error // why everything is refused; nil while open (I7)
	count   counters
	ticket  uint64            // of the last batch applied
	locals  map[string]uint64 // local documents on their way to the disk, with their ticket
	unflush []unflushed       // bytes written that no sstable shows yet
	seqs    *seqCounts        // nil until somebody asks for Pending
	seqWait *seqDeltas        // not nil while seqs is being built
	ids     *idCounts         // nil until somebody asks for an offset
	idWait  *idDeltas         // not nil while a part of ids is being counted

	known     *knownIDs // ids of all documents; nil if not noted (see makeKnown)
	knownWait *knownIDs // not nil while known is being made
	misses    int64     // looks for documents that were new, while known is nil

	build sync.Mutex // one builder of seqs or ids at a time; taken before mu
	blobs blobs
	tidy  sync.Mutex // one compaction at a time; taken before mu
	work  progress   // of the compaction that runs
}

// unflushed is what a copy wrote in one generation of the memtable.
type unflushed struct {
	gen   uint64
	bytes int64
}

// Open opens a copy: one Get. A copy without any row is a new one. The Options
// may be shared by many copies and must have been through Prepare.
func Open(store *kv.Store, id uint64, o *Options) (*Copy, error) {
	c := &Copy{id: id, prefix: copyPrefix(id), store: store, opts: o}
	val, found, err := store.Get(c.countersKey())
	if err != nil {
		return nil, fmt.Errorf("open copy %d: %w", id, err)
	}
	if found {
		err = c.count.parse(val.Bytes())
		val.Release()
		if err != nil {
			return nil, fmt.Errorf("open copy %d: %w", id, err)
		}
	} else {
		c.known = &knownIDs{} // it has no document yet, and all to come will be noted
	}
	// What the store shows right after it was opened is durable: no batch of this
	// copy is on its way, as a copy is open once at a time and is closed only
	// when it is idle.
	c.mark.seq.Store(c.count.seq)
	return c, nil
}

// Prepare fills in the defaults of options that copies will share.
func Prepare(o Options) *Options {
	o = o.withDefaults()
	return &o
}

// countersKey is the key of the row of counters.
func (c *Copy) countersKey() []byte { return append(c.appendTable(nil, tableMeta), "counters"...) }

// ReadSeq gives the sequence of a copy that need not be open.
func ReadSeq(store *kv.Store, id uint64) (uint64, error) {
	c := Copy{prefix: copyPrefix(id)}
	val, found, err := store.Get(c.countersKey())
	if err != nil || !found {
		return 0, err
	}
	defer val.Release()
	var k counters
	err = k.parse(val.Bytes())
	return k.seq, err
}

// Close refuses everything from now on and wakes whoever waits. It does not wait
// for calls under way: a batch that was applied before stands in the log before
// whatever the caller applies next.
func (c *Copy) Close(why error) {
	c.mu.Lock()
	if c.closed == nil {
		c.closed = why
	}
	c.mu.Unlock()
	c.mark.fail(why)
	c.dropStaged()
}

// Idle tells whether the copy holds nothing in memory that a fresh Open would
// not have: no batch under way, no staged bytes, no bytes still in a memtable.
func (c *Copy) Idle() bool {
	if c.blobs.staged() || !c.tidy.TryLock() {
		return false
	}
	defer c.tidy.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pruneUnflushed()
	return len(c.unflush) == 0 && len(c.locals) == 0 &&
		c.mark.seq.Load() == c.count.seq && c.mark.ticket.Load() == c.ticket
}

// alive gives the error of a closed copy.
func (c *Copy) alive() error { return c.mark.failed() }

// present gives the sequence and ticket of the last batch applied. Whatever a
// view of the store made before this call shows is not newer.
func (c *Copy) present() (seq, ticket uint64, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.count.seq, c.ticket, c.closed
}

// settle waits until everything applied so far is durable.
func (c *Copy) settle(ctx context.Context) error {
	_, ticket, err := c.present()
	if err != nil {
		return err
	}
	return c.mark.waitTicket(ctx, ticket)
}

// Seq gives the durable sequence.
func (c *Copy) Seq() uint64 { return c.mark.seq.Load() }

// Sync returns once everything applied so far is durable.
func (c *Copy) Sync(ctx context.Context) error { return c.settle(ctx) }

// Updated waits until the durable sequence is above after, and gives it.
func (c *Copy) Updated(ctx context.Context, after uint64) (uint64, error) {
	if err := c.alive(); err != nil {
		return 0, err
	}
	want := after + 1
	if want == 0 {
		want = after // no sequence is above the largest: this waits for the context
	}
	if err := c.mark.waitSeq(ctx, want); err != nil {
		return 0, err
	}
	return c.mark.seq.Load(), nil
}

// apply adds the counters to the batch and applies it. The caller holds mu and
// hands the outcome to finish after it has let go of mu. next replaces the
// counters if the batch was taken.
func (c *Copy) apply(b *kv.Batch, next *counters) (pending, error) {
	var room [96]byte
	b.Set(c.countersKey(), next.append(room[:0]))
	size, gen := int64(b.Size()), c.store.Unflushed()
	commit, err := c.store.Apply(b)
	if err != nil {
		if !errors.Is(err, model.ErrStorageFull) {
			// The store may show the batch all the same. Nobody will ever call it durable,
			// and a local document has no sequence to wait for: refuse everything.
			if c.closed == nil {
				c.closed = err
			}
			c.mark.fail(err)
		}
		return pending{}, err
	}
	c.count = *next
	c.ticket++
	c.noteUnflushed(gen, size)
	return pending{commit: commit, seq: next.seq, ticket: c.ticket}, nil
}

// pending is a batch that was applied and is not known to be durable.
type pending struct {
	commit      kv.Commit
	seq, ticket uint64
}

// finish waits for the sync and raises the marks. After an error nobody knows
// what the disk has, so the copy refuses everything from then on.
func (c *Copy) finish(p pending) error {
	if err := p.commit.Wait(); err != nil {
		var known *model.Error
		if !errors.As(err, &known) {
			err = &model.Error{Kind: model.KindUnavailable, Name: model.ErrClosed.Name, Reason: model.ErrClosed.Reason, Err: err}
		}
		c.Close(err)
		return err
	}
	c.mark.raise(p.seq, p.ticket)
	return nil
}

// noteUnflushed adds bytes to those that only a memtable has.
func (c *Copy) noteUnflushed(gen uint64, bytes int64) {
	if n := len(c.unflush); n > 0 && c.unflush[n-1].gen == gen {
		c.unflush[n-1].bytes += bytes
		return
	}
	c.pruneUnflushed()
	c.unflush = append(c.unflush, unflushed{gen, bytes})
}

// pruneUnflushed forgets generations that are on disk as sstables by now, where
// DiskUsage counts them.
func (c *Copy) pruneUnflushed() {
	done, kept := c.store.FlushedGen(), c.unflush[:0]
	for _, u := range c.unflush {
		if u.gen >= done {
			kept = append(kept, u)
		}
	}
	c.unflush = kept
}
