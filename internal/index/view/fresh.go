package view

// freshIDs is a Bloom filter over the documents that a first build has met. A
// document comes a second time only when it was changed meanwhile: asking the
// filter first saves a look into the store, half of a build's work, for nearly
// every document. It never says no to an id that was added.
//
// It grows by layers, each eight times as large as the one before.
type freshIDs struct {
	hash   hasher
	layers []freshLayer
}

// freshLayer is a filter of a fixed size.
type freshLayer struct {
	bits []uint64
	mask uint64 // bit positions, a power of two less one
	room int    // ids it still takes
}

const (
	freshFirst  = 4096     // ids of the first layer
	freshFactor = 8        // from layer to layer
	freshProbes = 6        // bits per id
	freshMax    = 16 << 20 // ids of the largest layer, 20 MB
)

// add notes an id and tells whether it may have been there already. full says that
// the filter would become too large and is of no use any more.
func (f *freshIDs) add(id string) (had, full bool) {
	h := f.hash.sum(2, []byte(id))
	for i := range f.layers {
		if f.layers[i].has(h) {
			return true, false
		}
	}
	n := len(f.layers)
	if n == 0 || f.layers[n-1].room == 0 {
		size := freshFirst
		for range n {
			size *= freshFactor
		}
		if size > freshMax {
			return true, true
		}
		bits := 64
		for bits < size*10 {
			bits *= 2
		}
		f.layers = append(f.layers, freshLayer{bits: make([]uint64, bits/64), mask: uint64(bits - 1), room: size})
		n++
	}
	f.layers[n-1].add(h)
	return false, false
}

func (l *freshLayer) has(h uint64) bool {
	step := h>>32 | 1
	for range freshProbes {
		if l.bits[h&l.mask>>6]&(1<<(h&63)) == 0 {
			return false
		}
		h += step
	}
	return true
}

func (l *freshLayer) add(h uint64) {
	l.room--
	step := h>>32 | 1
	for range freshProbes {
		l.bits[h&l.mask>>6] |= 1 << (h & 63)
		h += step
	}
}
