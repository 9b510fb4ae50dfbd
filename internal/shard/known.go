package shard

import (
	"fmt"
	"hash/maphash"
)

// knownIDs is a Bloom filter over the ids of a copy's documents, deleted ones too.
// Most documents are written once: asking it first saves a look into the store, a
// fifth of a bulk insert's work, for every document that is new. It never says no
// to an id that is there; about one new id in a hundred costs the look after all.
//
// It grows by layers, each eight times as large as the one before, so that a small
// database costs a hundred bytes and a large one ten bits per document.
type knownIDs struct {
	layers []knownLayer
}

// knownLayer is a filter of a fixed size.
type knownLayer struct {
	bits []uint64
	mask uint64 // bit positions, a power of two less one
	room int    // ids it still takes
}

// knownSeed makes the positions unforeseeable: ids come from clients.
var knownSeed = maphash.MakeSeed()

const (
	knownFirst  = 64       // ids of the first layer
	knownFactor = 8        // from layer to layer
	knownProbes = 6        // bits per id
	knownMax    = 16 << 20 // ids from which the filter is given up: 20 MB per copy are enough
)

// add notes an id. It gives false when the filter would become too large.
func (k *knownIDs) add(id string) bool {
	n := len(k.layers)
	if n == 0 || k.layers[n-1].room == 0 {
		size := knownFirst
		for range n {
			size *= knownFactor
		}
		if size > knownMax {
			return false
		}
		bits := 64
		for bits < size*10 {
			bits *= 2
		}
		k.layers = append(k.layers, knownLayer{bits: make([]uint64, bits/64), mask: uint64(bits - 1), room: size})
		n++
	}
	l := &k.layers[n-1]
	l.room--
	h := maphash.String(knownSeed, id)
	step := h>>32 | 1
	for range knownProbes {
		l.bits[h&l.mask>>6] |= 1 << (h & 63)
		h += step
	}
	return true
}

// has tells whether the id may be there; no is certain.
func (k *knownIDs) has(id string) bool {
	h0 := maphash.String(knownSeed, id)
	step := h0>>32 | 1
layer:
	for i := range k.layers {
		l := &k.layers[i]
		h := h0
		for range knownProbes {
			if l.bits[h&l.mask>>6]&(1<<(h&63)) == 0 {
				continue layer
			}
			h += step
		}
		return true
	}
	return false
}

// mayExist tells whether a document of this id may be in the store. The caller
// holds mu.
func (c *Copy) mayExist(id string) bool { return c.known == nil || c.known.has(id) }

// noteKnown notes the id of a new document. The caller holds mu.
func (c *Copy) noteKnown(id string) {
	if c.known != nil && !c.known.add(id) {
		c.known = nil
	}
	if c.knownWait != nil && !c.knownWait.add(id) {
		c.knownWait = nil
	}
}

// knownAfter is how many looks for new documents a copy without a filter makes
// before it is worth the scan that makes one; a larger copy makes more.
const knownAfter = 4096

// missed counts a look into the store that found nothing. The caller holds mu.
func (c *Copy) missed() {
	if c.known == nil {
		c.misses++
	}
}

// makeKnown makes the filter of a copy that was not empty when it was opened, once
// enough looks were in vain. It runs in the write that finds it due, after that
// write is done, and holds up nobody else.
func (c *Copy) makeKnown() error {
	c.mu.Lock()
	total := c.count.docs + c.count.dels
	due := c.known == nil && c.knownWait == nil && c.closed == nil &&
		c.misses >= knownAfter && c.misses >= total/16 && total < knownMax
	if !due {
		c.mu.Unlock()
		return nil
	}
	wait := &knownIDs{}
	c.knownWait = wait // gets what is written from here on
	c.misses = 0
	c.mu.Unlock()

	built, err := c.scanKnown()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil && built != nil && c.knownWait == wait {
		built.layers = append(built.layers, wait.layers...)
		c.known = built
	}
	c.knownWait = nil
	return err
}

// scanKnown reads the ids that the store has now.
func (c *Copy) scanKnown() (*knownIDs, error) {
	lower, upper := c.tableRange(tableInfo)
	it, err := c.store.NewIter(lower, upper)
	if err != nil {
		return nil, fmt.Errorf("note known documents: %w", err)
	}
	defer it.Close() // it was only read: Error says what went wrong
	k := &knownIDs{}
	for ok := it.First(); ok; ok = it.Next() {
		if !k.add(string(it.Key()[len(lower):])) {
			return nil, nil
		}
	}
	if err := it.Error(); err != nil {
		return nil, fmt.Errorf("note known documents: %w", err)
	}
	return k, nil
}
