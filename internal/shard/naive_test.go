package shard

import (
	"cmp"
	"maps"
	"slices"

	"github.com/divandb/divan/internal/model"
)

// naive is a copy as a beginner would write it: maps, no disk, no thought of speed.
type naive struct {
	seq   uint64
	docs  map[string]*naiveDoc
	local map[string]naiveLocal
}

// naiveDoc is a document: what is known of each revision.
type naiveDoc struct {
	seq  uint64
	revs map[model.Rev]*naiveRev
}

// naiveRev is a revision.
type naiveRev struct {
	parent  model.Rev
	deleted bool
	stored  bool
	body    string
	atts    map[string]string // name to bytes
}

// naiveLocal is a local document.
type naiveLocal struct {
	n    int
	body string
}

func newNaive() *naive {
	return &naive{docs: make(map[string]*naiveDoc), local: make(map[string]naiveLocal)}
}

// clone copies what the revisions are, so that a change can be told.
func (d *naiveDoc) shape() map[model.Rev]model.Rev {
	out := make(map[model.Rev]model.Rev)
	for r, n := range d.revs {
		out[r] = n.parent
	}
	return out
}

// leaves gives the leaves, winner first.
func (d *naiveDoc) leaves() []model.Rev {
	inner := make(map[model.Rev]bool)
	for _, n := range d.revs {
		inner[n.parent] = true
	}
	var out []model.Rev
	for r := range d.revs {
		if !inner[r] {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b model.Rev) int {
		da, db := d.revs[a].deleted, d.revs[b].deleted
		if da != db {
			return cmp.Compare(b2i(da), b2i(db))
		}
		return b.Compare(a)
	})
	return out
}

// live tells whether the document is there and not deleted.
func (d *naiveDoc) live() bool { return d != nil && !d.revs[d.leaves()[0]].deleted }

// path gives the history of a revision.
func (d *naiveDoc) path(r model.Rev) (out []model.Rev) {
	for n := d.revs[r]; n != nil; n = d.revs[r] {
		out = append(out, r)
		r = n.parent
	}
	return out
}

// put merges a history and stems. It tells whether the document changed.
func (m *naive) put(id string, path []model.Rev, deleted bool, body string, atts map[string]string, limit int) {
	d := m.docs[id]
	if d == nil {
		d = &naiveDoc{revs: make(map[model.Rev]*naiveRev)}
		m.docs[id] = d
	}
	before := d.shape()
	known := d.revs[path[0]] != nil
	for i, r := range path {
		n := d.revs[r]
		if n == nil {
			n = new(naiveRev)
			d.revs[r] = n
		}
		if n.parent.IsZero() && i+1 < len(path) {
			n.parent = path[i+1]
		}
	}
	if !known {
		*d.revs[path[0]] = naiveRev{parent: d.revs[path[0]].parent, deleted: deleted, stored: true, body: body, atts: atts}
	}
	d.stem(limit)
	if !maps.Equal(before, d.shape()) {
		m.seq++
		d.seq = m.seq
	}
}

// stem forgets what is limit or more steps from every leaf.
func (d *naiveDoc) stem(limit int) {
	keep := make(map[model.Rev]bool)
	for _, leaf := range d.leaves() {
		for i, r := range d.path(leaf) {
			if i < limit {
				keep[r] = true
			}
		}
	}
	for r := range d.revs {
		if !keep[r] {
			delete(d.revs, r)
		}
	}
	for _, n := range d.revs {
		if d.revs[n.parent] == nil {
			n.parent = model.Rev{}
		}
	}
}

// compact forgets the bodies of inner revisions.
func (m *naive) compact() {
	for _, d := range m.docs {
		leaves := d.leaves()
		for r, n := range d.revs {
			if !slices.Contains(leaves, r) {
				n.stored, n.body, n.atts = false, "", nil
			}
		}
	}
}

// ids gives the ids of all documents, or of the live ones, in order.
func (m *naive) ids(liveOnly bool) (out []string) {
	for id, d := range m.docs {
		if !liveOnly || d.live() {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}
