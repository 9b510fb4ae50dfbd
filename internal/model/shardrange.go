package model

import (
	"fmt"
	"hash/crc32"
	"strings"
	"unsafe"
)

// Range is a part of the 32-bit hash space, both ends included.
type Range struct {
	Begin, End uint32
}

// String gives the wire form "00000000-7fffffff".
func (r Range) String() string { return fmt.Sprintf("%08x-%08x", r.Begin, r.End) }

// Contains tells whether the hash lies in the range.
func (r Range) Contains(h uint32) bool { return r.Begin <= h && h <= r.End }

// SplitRanges cuts the hash space into q ranges that cover it without a gap.
func SplitRanges(q int) []Range {
	out := make([]Range, q)
	step := (uint64(1) << 32) / uint64(q)
	for i := range out {
		out[i].Begin = uint32(uint64(i) * step)
		out[i].End = uint32(uint64(i+1)*step - 1)
	}
	out[q-1].End = 1<<32 - 1
	return out
}

// HashID places a document: CRC-32 of its id, or of its partition in a
// partitioned database (design documents have none and go by their id).
func HashID(id string, partitioned bool) uint32 {
	if partitioned && !strings.HasPrefix(id, "_design/") {
		if p, _, ok := strings.Cut(id, ":"); ok {
			return checksum(p)
		}
	}
	return checksum(id)
}

// checksum is CRC-32 of a text without a copy of it: this runs for every document
// that is read or written. The bytes are only read.
func checksum(s string) uint32 {
	return crc32.ChecksumIEEE(unsafe.Slice(unsafe.StringData(s), len(s)))
}
