package auth

import (
	"strconv"
	"sync"
	"testing"
)

func TestLRU(t *testing.T) {
	t.Parallel()
	l := newLRU[int, string](100)
	for i := range 10_000 {
		l.put(i, strconv.Itoa(i))
		if v, ok := l.get(i); !ok || v != strconv.Itoa(i) {
			t.Fatalf("%d: %q %v", i, v, ok)
		}
		l.get(0) // in use, so it stays
	}
	if n := l.len(); n > 100+lruShards {
		t.Errorf("%d entries", n)
	}
	if v, ok := l.get(0); !ok || v != "0" {
		t.Error("an entry in use was dropped")
	}
	if _, ok := l.get(1); ok {
		t.Error("an entry that nobody used for long is still there")
	}
	l.remove(0)
	l.remove(0)
	if _, ok := l.get(0); ok {
		t.Error("removed and still there")
	}
	have := 0
	for i := range l.shards {
		s := &l.shards[i]
		ring := 0
		for e := s.ring.next; e != &s.ring; e = e.next {
			if s.entries[e.key] != e {
				t.Fatalf("%d is linked and not in the map", e.key)
			}
			ring++
		}
		if ring != len(s.entries) {
			t.Errorf("%d linked, %d in the map", ring, len(s.entries))
		}
		have += ring
	}
	if have != l.len() {
		t.Errorf("%d entries, says %d", have, l.len())
	}
}

func TestLRUConcurrently(t *testing.T) {
	t.Parallel()
	l := newLRU[int, int](1000)
	var wait sync.WaitGroup
	for w := range 8 {
		wait.Go(func() {
			for i := range 2000 {
				l.update(i%50, func(n *int) { *n++ })
				l.put(1000+i*8+w, i)
				if i%3 == 0 {
					l.remove(1000 + i*8 + w)
				}
			}
		})
	}
	wait.Wait()
	for k := range 50 {
		if n, ok := l.get(k); !ok || n != 8*2000/50 {
			t.Errorf("%d: %d %v", k, n, ok)
		}
	}
}
