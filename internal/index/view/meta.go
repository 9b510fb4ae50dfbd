package view

import (
	"encoding/binary"
	"fmt"
)

// metaVersion opens the row of counters, so that a later form can be told.
const metaVersion = 1

// flagBuilding says that the rows are ahead of the nodes and of the root.
const flagBuilding = 1

// lowestRoot is the level of the root of a small index.
const lowestRoot = 2

// meta is what an index knows of itself, and its root. It is written with every
// batch and read with every query: one read gives the counters and the topmost
// node. A meta is never changed once others can see it.
type meta struct {
	building bool
	seed     uint64 // of the hash that sets the levels
	// The bits of level 1 and of a level above. A test that wants a high tree of few
	// rows takes few.
	first, bits int
	seq         uint64
	rows        int64
	external    int64 // bytes of JSON keys and values
	active      int64 // bytes of rows and of what documents have
	nodes       int64 // bytes of nodes

	version uint64 // grows whenever nodes change
	height  int    // level of the root
	total   []byte // state of all rows
	root    node   // stored here and not among the nodes
}

// emptyRoot is the root of an index without rows, as it is stored.
var emptyRoot = appendEntries(nil, []*entry{{}})

// emptyMeta is the state of an index without rows.
func emptyMeta(seed uint64) *meta {
	m := &meta{seed: seed, first: firstBits, bits: levelBits, height: lowestRoot}
	_ = m.root.parse(emptyRoot) // cannot fail
	return m
}

// append appends the stored form.
func (m *meta) append(dst []byte) []byte {
	flags := byte(0)
	if m.building {
		flags |= flagBuilding
	}
	dst = append(dst, metaVersion, flags, byte(m.first), byte(m.bits))
	dst = binary.BigEndian.AppendUint64(dst, m.seed)
	dst = binary.AppendUvarint(dst, m.seq)
	dst = binary.AppendUvarint(dst, m.version)
	for _, n := range [4]int64{m.rows, m.external, m.active, m.nodes} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	if m.building {
		return dst
	}
	dst = append(dst, byte(m.height))
	dst = appendBytes(dst, m.total)
	return append(dst, m.root.text...)
}

// parse reads the stored form. What it gives points into b.
func (m *meta) parse(b []byte) error {
	if len(b) < 12 {
		return corrupt("row of counters")
	}
	if b[0] != metaVersion {
		return fmt.Errorf("index/view: format %d is not known", b[0])
	}
	m.building = b[1]&flagBuilding != 0
	if m.first, m.bits = int(b[2]), int(b[3]); m.bits == 0 {
		return corrupt("row of counters")
	}
	m.seed = binary.BigEndian.Uint64(b[4:])
	b = b[12:]
	var seq, version int64
	for _, p := range [6]*int64{&seq, &version, &m.rows, &m.external, &m.active, &m.nodes} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return corrupt("row of counters")
		}
		*p, b = int64(v), b[n:]
	}
	m.seq, m.version = uint64(seq), uint64(version)
	m.height, m.total = lowestRoot, nil
	if m.building {
		return m.root.parse(emptyRoot)
	}
	if len(b) == 0 || b[0] < lowestRoot || b[0] > maxLevel+1 {
		return corrupt("row of counters")
	}
	m.height = int(b[0])
	var ok bool
	if m.total, b, ok = cutBytes(b[1:]); !ok {
		return corrupt("row of counters")
	}
	return m.root.parse(b)
}
