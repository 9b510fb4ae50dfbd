package auth

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// lruShards is how many locks a table has: callers on many cores rarely meet.
const lruShards = 16

// lru is a table of a bounded number of entries: a new one takes the place of the
// one that was not used for the longest time. What clients fill cannot grow
// without end. Its methods may be called concurrently.
type lru[K comparable, V any] struct {
	seed   maphash.Seed // unknown to clients, so they cannot aim at one shard
	size   atomic.Int64
	shards [lruShards]lruShard[K, V]
}

type lruShard[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]*lruEntry[K, V]
	ring    lruEntry[K, V] // ring.next was used last, ring.prev is the next to go
	max     int
}

type lruEntry[K comparable, V any] struct {
	next, prev *lruEntry[K, V]
	key        K
	value      V
}

func (e *lruEntry[K, V]) unlink() { e.prev.next, e.next.prev = e.next, e.prev }

func (e *lruEntry[K, V]) linkAfter(at *lruEntry[K, V]) {
	e.prev, e.next = at, at.next
	at.next.prev = e
	at.next = e
}

// newLRU makes a table of about max entries.
func newLRU[K comparable, V any](max int) *lru[K, V] {
	t := &lru[K, V]{seed: maphash.MakeSeed()}
	for i := range t.shards {
		s := &t.shards[i]
		s.entries = map[K]*lruEntry[K, V]{}
		s.ring.next, s.ring.prev = &s.ring, &s.ring
		s.max = (max + lruShards - 1) / lruShards
	}
	return t
}

func (t *lru[K, V]) shard(k K) *lruShard[K, V] {
	return &t.shards[maphash.Comparable(t.seed, k)%lruShards]
}

// len tells how many entries there are.
func (t *lru[K, V]) len() int { return int(t.size.Load()) }

// get gives an entry and marks it as used.
func (t *lru[K, V]) get(k K) (v V, ok bool) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[k]
	if e == nil {
		return v, false
	}
	e.unlink()
	e.linkAfter(&s.ring)
	return e.value, true
}

// put sets an entry.
func (t *lru[K, V]) put(k K, v V) { t.update(k, func(p *V) { *p = v }) }

// update changes an entry in place; one that is new begins as zero. f runs under
// the lock and must be short.
func (t *lru[K, V]) update(k K, f func(*V)) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.entries[k]
	switch {
	case e != nil:
		e.unlink()
	case len(s.entries) >= s.max:
		e = s.ring.prev
		e.unlink()
		delete(s.entries, e.key)
		var zero V
		e.key, e.value = k, zero
		s.entries[k] = e
	default:
		e = &lruEntry[K, V]{key: k}
		s.entries[k] = e
		t.size.Add(1)
	}
	e.linkAfter(&s.ring)
	f(&e.value)
}

// remove takes an entry out.
func (t *lru[K, V]) remove(k K) {
	s := t.shard(k)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.entries[k]; e != nil {
		e.unlink()
		delete(s.entries, k)
		t.size.Add(-1)
	}
}
