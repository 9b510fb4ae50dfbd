package view

import (
	"bytes"
	"encoding/binary"
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

// entriesLen is the length of what appendEntries appends.
func entriesLen(entries []*entry) int {
	n := uvarintLen(uint64(len(entries)))
	for _, e := range entries {
		n += uvarintLen(uint64(len(e.key))) + len(e.key) + uvarintLen(uint64(e.count))
		n += uvarintLen(uint64(len(e.state))) + len(e.state)
	}
	return n
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

// node is a node as it is stored, with the places of its parts.
type node struct {
	text []byte
	at   []entryAt
}

// entryAt tells where in the text an entry's parts are. It holds no pointers: a
// query goes over hundreds of entries and looks at a few.
type entryAt struct {
	key, keyEnd     uint32
	state, stateEnd uint32
	count           int64
}

// parse finds the parts of a stored node.
func (n *node) parse(text []byte) error {
	n.text, n.at = text, n.at[:0]
	count, at := binary.Uvarint(text)
	if at <= 0 || count == 0 || count > uint64(len(text)) {
		return corrupt("node")
	}
	part := func() (from, to uint32, ok bool) {
		size, m := binary.Uvarint(text[at:])
		if m <= 0 || size > uint64(len(text)-at-m) {
			return 0, 0, false
		}
		at += m + int(size)
		return uint32(at) - uint32(size), uint32(at), true
	}
	for range count {
		var e entryAt
		var keyOK, stateOK bool
		e.key, e.keyEnd, keyOK = part()
		rows, m := binary.Uvarint(text[at:])
		if !keyOK || m <= 0 {
			return corrupt("node")
		}
		e.count = int64(rows)
		at += m
		if e.state, e.stateEnd, stateOK = part(); !stateOK {
			return corrupt("node")
		}
		n.at = append(n.at, e)
	}
	if at != len(text) {
		return corrupt("node")
	}
	return nil
}

// key is where the segment of entry i begins.
func (n *node) key(i int) []byte { e := &n.at[i]; return n.text[e.key:e.keyEnd:e.keyEnd] }

// state is what its rows reduce to.
func (n *node) state(i int) []byte { e := &n.at[i]; return n.text[e.state:e.stateEnd:e.stateEnd] }

// entries gives the entries one by one, to be changed.
func (n *node) entries() []*entry {
	all := make([]entry, len(n.at))
	out := make([]*entry, len(n.at))
	for i := range n.at {
		all[i] = entry{n.key(i), n.at[i].count, n.state(i)}
		out[i] = &all[i]
	}
	return out
}

// search gives the index of the entry whose segment row falls into. The first
// entry begins at or before row.
func (n *node) search(row []byte) int {
	lo, hi := 0, len(n.at)-1
	for lo < hi {
		mid := int(uint(lo+hi+1) >> 1)
		if bytes.Compare(n.key(mid), row) <= 0 {
			lo = mid
		} else {
			hi = mid - 1
		}
	}
	return lo
}
