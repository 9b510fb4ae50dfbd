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
	bits     int    // of a level; a test that wants a high tree of few rows takes few
	seq      uint64
	rows     int64
	external int64 // bytes of JSON keys and values
	active   int64 // bytes of rows and of what documents have
	nodes    int64 // bytes of nodes

	height int     // level of the root
	total  entry   // of all rows
	root   []entry // the segments of the level below
}

// emptyMeta is the state of an index without rows.
func emptyMeta(seed uint64, bits int) *meta {
	return &meta{seed: seed, bits: bits, height: lowestRoot, root: []entry{{}}}
}

// append appends the stored form.
func (m *meta) append(dst []byte) []byte {
	flags := byte(0)
	if m.building {
		flags |= flagBuilding
	}
	dst = append(dst, metaVersion, flags, byte(m.bits))
	dst = binary.BigEndian.AppendUint64(dst, m.seed)
	dst = binary.AppendUvarint(dst, m.seq)
	for _, n := range [4]int64{m.rows, m.external, m.active, m.nodes} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	if m.building {
		return dst
	}
	dst = append(dst, byte(m.height))
	dst = appendBytes(dst, m.total.state)
	return appendEntries(dst, pointers(m.root))
}

// parse reads the stored form, into entries whose room m brings. They point into b.
func (m *meta) parse(b []byte) error {
	if len(b) < 11 {
		return corrupt("row of counters")
	}
	if b[0] != metaVersion {
		return fmt.Errorf("index/view: format %d is not known", b[0])
	}
	m.building = b[1]&flagBuilding != 0
	if m.bits = int(b[2]); m.bits == 0 {
		return corrupt("row of counters")
	}
	m.seed = binary.BigEndian.Uint64(b[3:])
	b = b[11:]
	var seq int64
	for _, p := range [5]*int64{&seq, &m.rows, &m.external, &m.active, &m.nodes} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return corrupt("row of counters")
		}
		*p, b = int64(v), b[n:]
	}
	m.seq = uint64(seq)
	m.height, m.root, m.total = lowestRoot, m.root[:0], entry{}
	if m.building {
		m.root = append(m.root, entry{})
		return nil
	}
	if len(b) == 0 || b[0] < lowestRoot || b[0] > maxLevel+1 {
		return corrupt("row of counters")
	}
	m.height = int(b[0])
	var ok bool
	if m.total.state, b, ok = cutBytes(b[1:]); !ok {
		return corrupt("row of counters")
	}
	m.total.count = m.rows
	var err error
	m.root, err = parseEntries(m.root, b)
	return err
}
