package kv

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"

	"github.com/divandb/divan/internal/model"
)

// batchHeader is the length of Pebble's batch header, no part of any write.
const batchHeader = 12

// Batch collects writes that happen together or not at all. Its buffers are
// pooled. A batch is used by one goroutine at a time.
type Batch struct {
	b *pebble.Batch // nil once applied or closed
	n int           // Len, once applied
	l int           // Size, once applied

	// Frees marks a batch that makes room; it is taken below the free-space mark.
	Frees bool
}

// NewBatch gives an empty batch. It must be applied or closed.
func (s *Store) NewBatch() *Batch {
	// A batch of 500 documents is about 700 KB; larger buffers are not kept.
	return &Batch{b: s.db.NewBatch(pebble.WithMaxRetainedSizeBytes(4 << 20))}
}

// Set stores value under key, copying both.
func (b *Batch) Set(key, value []byte) {
	op := b.b.SetDeferred(len(key), len(value))
	copy(op.Key, key)
	copy(op.Value, value)
}

// SetDeferred makes room for a key and a value of the given lengths, which the
// caller must fill completely before the next call on the batch: the next call
// may move the buffer.
func (b *Batch) SetDeferred(keyLen, valueLen int) (key, value []byte) {
	op := b.b.SetDeferred(keyLen, valueLen)
	return op.Key, op.Value
}

// Delete removes key.
func (b *Batch) Delete(key []byte) {
	op := b.b.DeleteDeferred(len(key))
	copy(op.Key, key)
}

// DeleteRange removes the keys from from (included) to to (excluded), in time
// that does not depend on how many there are.
func (b *Batch) DeleteRange(from, to []byte) {
	op := b.b.DeleteRangeDeferred(len(from), len(to))
	copy(op.Key, from)
	copy(op.Value, to)
}

// Len is the number of writes in the batch.
func (b *Batch) Len() int {
	if b.b == nil {
		return b.n
	}
	return int(b.b.Count())
}

// Size is the number of bytes of the batch in the log.
func (b *Batch) Size() int {
	if b.b == nil {
		return b.l
	}
	return max(b.b.Len()-batchHeader, 0)
}

// Close drops a batch that was not applied. After Apply it does nothing, so that
// it may be deferred.
func (b *Batch) Close() error {
	if b.b == nil {
		return nil
	}
	inner := b.b
	b.b = nil
	return inner.Close()
}

// Commit is an applied batch on its way to the disk.
type Commit struct {
	s *Store
	b *pebble.Batch
}

// Apply makes the batch readable at once; it is durable when the Commit says so.
// Calls one after the other keep their order in the log. The errors: ErrStorageFull
// below the mark, and then the batch is as it was; ErrClosed behind the gate and
// after Close, and then nothing may be assumed about its writes.
func (s *Store) Apply(b *Batch) (Commit, error) {
	if err := s.enter(); err != nil {
		return Commit{}, err
	}
	defer s.leave()
	if err := s.gate.failure(); err != nil {
		return Commit{}, err
	}
	size, count := b.Size(), b.Len()
	s.free.wrote(int64(size), s.o.Logger)
	if !b.Frees && s.free.full.Load() {
		return Commit{}, model.ErrStorageFull
	}
	inner := b.b
	b.b, b.n, b.l = nil, count, size
	if err := s.applyGuarded(inner); err != nil {
		return Commit{}, err // Pebble may still hold inner: it is left to the collector
	}
	// A batch that Pebble reports as applied behind the closed gate must not be
	// built upon; its Wait would fail anyway.
	if err := s.gate.failure(); err != nil {
		return Commit{}, err
	}
	s.commits.Add(1)
	s.bytesIn.Add(int64(size))
	return Commit{s: s, b: inner}, nil
}

// applyGuarded calls Pebble. A panic out of it leaves its locks held, and an HTTP
// server would recover from it and go on with writers that hang: it closes the
// gate instead, which ends the process.
func (s *Store) applyGuarded(b *pebble.Batch) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = s.gate.fail(fmt.Errorf("kv: panic in the store: %v", r))
		}
	}()
	if s.o.NoSync {
		err = s.db.Apply(b, pebble.NoSync)
	} else {
		err = s.db.ApplyNoSyncWait(b, pebble.Sync)
	}
	if err != nil {
		return s.gate.fail(fmt.Errorf("kv: apply: %w", err))
	}
	return nil
}

// Wait returns nil when the batch is durable (with NoSync: at once), and frees
// it. It must be called exactly once. With an error the batch may or may not be
// there after a restart.
func (c Commit) Wait() error {
	if c.b == nil {
		return model.ErrClosed
	}
	if c.s.o.NoSync {
		if err := c.s.gate.failure(); err != nil {
			return err
		}
		return c.b.Close()
	}
	err := c.b.SyncWait()
	// gateFS closes the gate before it reports a failed write to Pebble as done,
	// so that nothing unsynced can come past this line.
	if failed := c.s.gate.failure(); failed != nil {
		return failed
	}
	if err != nil {
		return c.s.gate.fail(fmt.Errorf("kv: sync: %w", err))
	}
	return c.b.Close()
}
