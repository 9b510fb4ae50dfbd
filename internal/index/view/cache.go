package view

import (
	"bytes"
	"container/list"
	"slices"
	"sync"
)

// nodeCache holds nodes of an index that queries have read, parsed. It spares a
// query most of its reads: the way to any row goes through the same few high
// nodes. It speaks of one version of the nodes at a time; who sees another one
// reads from the store.
type nodeCache struct {
	mu      sync.RWMutex
	version uint64
	nodes   map[string]*node // by level and boundary
	bytes   int
	low     int // those of the lowest level, which are many

	place *list.Element // in caches; nil: holds nothing
}

// What caches hold. When all of them together hold too much, the one that began
// first is emptied.
const (
	cacheMax    = 512 << 10 // of an index
	cacheLowMax = 256 << 10 // of the lowest level of an index
	allCacheMax = 32 << 20
)

// caches lists the caches that hold something. Who changes what a cache holds has
// this lock, and then the cache's.
var caches struct {
	mu    sync.Mutex
	order list.List
	bytes int
}

// cost is about what a node takes in a cache.
func (n *node) cost(key string) int { return 2*len(key) + len(n.text) + 24*len(n.at) + 200 }

// get finds a node of a version.
func (c *nodeCache) get(version uint64, key []byte) *node {
	c.mu.RLock()
	defer c.mu.RUnlock()
	if c.version != version {
		return nil
	}
	return c.nodes[string(key)]
}

// put adds a copy of a node of a version, where there is room for it.
func (c *nodeCache) put(version uint64, key []byte, n *node) {
	if !c.room(version, string(key), n) {
		return
	}
	caches.mu.Lock()
	defer caches.mu.Unlock()
	if !c.take(version, string(key), n) {
		return
	}
	for caches.bytes > allCacheMax {
		oldest := caches.order.Front().Value.(*nodeCache)
		oldest.mu.Lock()
		oldest.clear()
		oldest.mu.Unlock()
	}
}

// room tells whether a node may be put in; it is asked before the lock that all
// caches share.
func (c *nodeCache) room(version uint64, key string, n *node) bool {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return c.takes(version, key, n.cost(key))
}

// takes is room, with the cache's lock held.
func (c *nodeCache) takes(version uint64, key string, size int) bool {
	return c.version == version && c.bytes+size <= cacheMax && (!isLow(key) || c.low+size <= cacheLowMax) && c.nodes[key] == nil
}

// take is put, with caches.mu held.
func (c *nodeCache) take(version uint64, key string, n *node) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	size := n.cost(key)
	if !c.takes(version, key, size) {
		return false
	}
	if c.place == nil {
		c.nodes, c.place = map[string]*node{}, caches.order.PushBack(c)
	}
	c.nodes[key] = &node{text: bytes.Clone(n.text), at: slices.Clone(n.at)}
	c.grow(key, size)
	return true
}

// isLow tells whether a key is that of a node of the lowest level.
func isLow(key string) bool { return key[0] == lowestRoot }

// grow counts what came or went. The caller holds both locks.
func (c *nodeCache) grow(key string, size int) {
	c.bytes += size
	caches.bytes += size
	if isLow(key) {
		c.low += size
	}
}

// clear forgets all nodes. The caller holds both locks.
func (c *nodeCache) clear() {
	caches.bytes -= c.bytes
	if c.place != nil {
		caches.order.Remove(c.place)
		c.place = nil
	}
	c.nodes, c.bytes, c.low = nil, 0, 0
}

// reset forgets all nodes and goes on with a version.
func (c *nodeCache) reset(version uint64) {
	caches.mu.Lock()
	defer caches.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clear()
	c.version = version
}

// advance goes on to a version in which some nodes are others.
func (c *nodeCache) advance(version uint64, changed []nodeRef) {
	caches.mu.Lock()
	defer caches.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.version = version
	for _, r := range changed {
		key := string(append([]byte{byte(r.level)}, r.boundary...))
		if n := c.nodes[key]; n != nil {
			delete(c.nodes, key)
			c.grow(key, -n.cost(key))
		}
	}
}
