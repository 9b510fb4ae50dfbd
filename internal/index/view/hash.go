package view

import (
	"encoding/binary"
	"math/bits"
)

// Levels of rows. A row of level l or more begins a segment of level l. One row
// in 2^firstBits has level 1 or more, one of those in 2^levelBits level 2 or more.
// Segments of level 1 are shorter, as queries walk through them.
const (
	firstBits = 4
	levelBits = 5
	maxLevel  = 12 // 64 bits have no more
)

// hasher is a keyed hash. The key is random and stays in the index: whoever knew
// it could choose ids that all begin segments, or none, and make an index slow. It
// is on disk by its results, so it never changes.
type hasher struct {
	a, b        uint64
	first, bits int // of level 1, of a level above
}

// newHasher makes the hash with a key.
func newHasher(seed uint64, first, bits int) hasher {
	a := mix(seed^0x9e3779b97f4a7c15, 0xbf58476d1ce4e5b9)
	return hasher{a: a, b: mix(a^0x94d049bb133111eb, seed^0xd6e8feb86659fd93), first: first, bits: bits}
}

// mix folds the product of two words.
func mix(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x, y)
	return hi ^ lo
}

// sum hashes p, going on from h.
func (k hasher) sum(h uint64, p []byte) uint64 {
	n := uint64(len(p))
	h ^= k.a
	for len(p) > 16 {
		h = mix(binary.LittleEndian.Uint64(p)^k.b, binary.LittleEndian.Uint64(p[8:])^h) + h>>32
		p = p[16:]
	}
	var x, y uint64
	switch {
	case len(p) >= 8:
		x, y = binary.LittleEndian.Uint64(p), binary.LittleEndian.Uint64(p[len(p)-8:])
	case len(p) >= 4:
		x, y = uint64(binary.LittleEndian.Uint32(p)), uint64(binary.LittleEndian.Uint32(p[len(p)-4:]))
	default:
		for i, c := range p {
			x |= uint64(c) << (8 * i)
		}
	}
	h = mix(x^k.b, y^h) + h>>32
	return mix(h^k.a, n^k.b^0x2545f4914f6cdd1d)
}

// level gives the level of a row.
func (k hasher) level(row []byte) int {
	zeros := bits.TrailingZeros64(k.sum(0, row))
	if zeros < k.first {
		return 0
	}
	return min(1+(zeros-k.first)/k.bits, maxLevel)
}

// ofRow hashes what a row shows.
func (k hasher) ofRow(r Row) uint64 { return k.sum(k.sum(1, r.Key), r.Value) }
