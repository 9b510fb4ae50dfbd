package view

import (
	"bytes"
	"encoding/binary"
	"sort"
)

// entry tells of one segment: where it begins, how many rows it has, and to what
// they reduce. The first segment of every level begins before all rows, at the
// empty boundary; it alone may have no rows, and then has no state.
type entry struct {
	key   []byte
	count int64
	state []byte
}

// appendEntries appends the stored form of a node: its entries.
func appendEntries(dst []byte, entries []*entry) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(entries)))
	for _, e := range entries {
		dst = appendBytes(dst, e.key)
		dst = binary.AppendUvarint(dst, uint64(e.count))
		dst = appendBytes(dst, e.state)
	}
	return dst
}

// appendBytes appends bytes with their length.
func appendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// cutBytes takes such bytes off the front of b.
func cutBytes(b []byte) (p, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || uint64(len(b)-n) < size {
		return nil, nil, false
	}
	b = b[n:]
	return b[:size:size], b[size:], true
}

// parseEntries reads a node into dst. The entries point into b.
func parseEntries(dst []entry, b []byte) ([]entry, error) {
	count, n := binary.Uvarint(b)
	if n <= 0 || count == 0 || count > uint64(len(b)) {
		return dst, corrupt("node")
	}
	b = b[n:]
	for range count {
		var e entry
		var ok bool
		if e.key, b, ok = cutBytes(b); !ok {
			return dst, corrupt("node")
		}
		rows, n := binary.Uvarint(b)
		if n <= 0 {
			return dst, corrupt("node")
		}
		e.count, b = int64(rows), b[n:]
		if e.state, b, ok = cutBytes(b); !ok {
			return dst, corrupt("node")
		}
		dst = append(dst, e)
	}
	if len(b) != 0 {
		return dst, corrupt("node")
	}
	return dst, nil
}

// pointers gives the addresses of entries.
func pointers(entries []entry) []*entry {
	out := make([]*entry, len(entries))
	for i := range entries {
		out[i] = &entries[i]
	}
	return out
}

// search gives the index of the entry whose segment row falls into. The first
// entry begins at or before row.
func search(entries []entry, row []byte) int {
	return sort.Search(len(entries)-1, func(i int) bool { return bytes.Compare(entries[i+1].key, row) > 0 })
}
