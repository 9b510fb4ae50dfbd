package rawjson

import "encoding/binary"

// Eight bytes are examined at a time by arithmetic on a 64-bit word. Each test
// below leaves the top bit set in the lanes that match. A borrow can set a bit in
// a lane above a true match, never below one, so only the lowest set bit may be
// used; every caller does just that.
const (
	laneOnes = 0x0101010101010101
	laneTops = 0x8080808080808080
)

// load64 reads eight bytes with the first one in the lowest lane.
func load64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// zeroLanes marks the lanes of w that are zero.
func zeroLanes(w uint64) uint64 { return (w - laneOnes) &^ w & laneTops }

// stringStops marks the bytes that end a plain run inside a string: the quote,
// the backslash and control characters.
func stringStops(w uint64) uint64 {
	return zeroLanes(w^laneOnes*'"') | zeroLanes(w^laneOnes*'\\') | (w-laneOnes*0x20)&^w&laneTops
}

// quotesOrEscapes marks quotes and backslashes.
func quotesOrEscapes(w uint64) uint64 {
	return zeroLanes(w^laneOnes*'"') | zeroLanes(w^laneOnes*'\\')
}

// bracketsOrQuotes marks quotes, and brackets and braces of both directions:
// these four are the only bytes of JSON outside strings that become 0x7F when
// the bits 0x26 are set.
func bracketsOrQuotes(w uint64) uint64 {
	return zeroLanes(w^laneOnes*'"') | zeroLanes((w|laneOnes*0x26)^laneOnes*0x7F)
}

// load64String is load64 for a string; the compiler makes it one load.
func load64String(s string) uint64 {
	_ = s[7]
	return uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
}
