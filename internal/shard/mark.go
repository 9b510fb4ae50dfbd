package shard

import (
	"context"
	"sync"
	"sync/atomic"
)

// mark says how far a copy is durable, and wakes those who wait for more (I3).
// There are two scales: the sequence, which documents carry, and the ticket, a
// plain number of every batch, for what has no sequence (local documents,
// compaction).
type mark struct {
	seq    atomic.Uint64
	ticket atomic.Uint64

	mu   sync.Mutex
	wake chan struct{} // closed and forgotten when a mark rises; nil while nobody waits
	err  error         // set once: the copy is closed or its store has failed
}

// raise moves the marks up, never down: commits may report out of order.
func (m *mark) raise(seq, ticket uint64) {
	m.mu.Lock()
	if seq > m.seq.Load() {
		m.seq.Store(seq)
	}
	if ticket > m.ticket.Load() {
		m.ticket.Store(ticket)
	}
	m.wakeLocked()
	m.mu.Unlock()
}

// fail wakes everybody with an error, for good. The first error stays.
func (m *mark) fail(err error) {
	m.mu.Lock()
	if m.err == nil {
		m.err = err
	}
	m.wakeLocked()
	m.mu.Unlock()
}

func (m *mark) wakeLocked() {
	if m.wake != nil {
		close(m.wake)
		m.wake = nil
	}
}

// failed gives the error that closed the copy.
func (m *mark) failed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// wait returns once value is at least want.
func (m *mark) wait(ctx context.Context, value *atomic.Uint64, want uint64) error {
	for value.Load() < want {
		m.mu.Lock()
		if m.err != nil {
			m.mu.Unlock()
			return m.err
		}
		if value.Load() >= want {
			m.mu.Unlock()
			return nil
		}
		if m.wake == nil {
			m.wake = make(chan struct{})
		}
		wake := m.wake
		m.mu.Unlock()
		select {
		case <-wake:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

// waitSeq returns once everything up to the sequence is durable.
func (m *mark) waitSeq(ctx context.Context, seq uint64) error { return m.wait(ctx, &m.seq, seq) }

// waitTicket returns once the batch with the ticket is durable.
func (m *mark) waitTicket(ctx context.Context, ticket uint64) error {
	return m.wait(ctx, &m.ticket, ticket)
}
