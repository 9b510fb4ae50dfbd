package view

import (
	"fmt"
	"testing"
)

// TestCaches fills more caches than all of them together may hold.
func TestCaches(t *testing.T) {
	t.Parallel()
	big := &node{text: make([]byte, 100<<10)}
	key := func(level, i int) []byte { return fmt.Appendf([]byte{byte(level)}, "%d", i) }
	all := make([]*nodeCache, allCacheMax/cacheMax+10)
	for i := range all {
		all[i] = &nodeCache{version: 1}
		for k := range 10 {
			all[i].put(1, key(lowestRoot, k), big)
			all[i].put(1, key(lowestRoot+1, k), big)
			all[i].put(2, key(lowestRoot+2, k), big)
		}
		if low, high, other := all[i].get(1, key(lowestRoot, 1)), all[i].get(1, key(lowestRoot+1, 1)), all[i].get(1, key(lowestRoot+2, 1)); low == nil || high == nil || other != nil {
			t.Fatal("a node was refused, or one of another version taken")
		}
		if all[i].bytes > cacheMax || all[i].low > cacheLowMax {
			t.Fatalf("%d bytes, %d low", all[i].bytes, all[i].low)
		}
	}
	if all[0].get(1, key(lowestRoot, 1)) != nil {
		t.Fatal("the oldest cache was not emptied")
	}
	last := all[len(all)-1]
	last.advance(2, []nodeRef{{lowestRoot, []byte("1")}, {lowestRoot, []byte("none")}})
	if last.get(1, key(lowestRoot, 0)) != nil || last.get(2, key(lowestRoot, 1)) != nil || last.get(2, key(lowestRoot, 0)) == nil {
		t.Fatal("a new version has other nodes than those that did not change")
	}
	caches.mu.Lock()
	sum := 0
	for e := caches.order.Front(); e != nil; e = e.Next() {
		sum += e.Value.(*nodeCache).bytes
	}
	if sum != caches.bytes || sum > allCacheMax {
		t.Errorf("%d bytes in all caches, counted %d", sum, caches.bytes)
	}
	caches.mu.Unlock()
	for _, c := range all {
		c.reset(0)
		if c.bytes != 0 || c.low != 0 || c.place != nil {
			t.Fatal("an emptied cache holds something")
		}
	}
}
