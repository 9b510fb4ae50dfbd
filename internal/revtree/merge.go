package revtree

import (
	"cmp"
	"slices"

	"github.com/divandb/divan/internal/model"
)

// Merge adds a history, newest first. It gives the index of path[0] and whether
// the tree did not have that revision before; a revision that is known, as a leaf
// or further down, stays as it is. New revisions other than path[0] are ones of
// which only the name is known; the caller sets what the new leaf stores.
//
// The history is grafted on the newest ancestor the tree knows, and becomes a
// root of its own if it knows none. Where a known root turns up in the middle of
// the history, the root gets the older part as its ancestors (see Joined), so
// the outcome does not depend on the order in which histories arrive.
//
// Positions must descend by one; what follows a gap is not history of what
// precedes it and is left out. An empty path adds nothing and gives -1.
func (t *Tree) Merge(path []model.Rev, deleted bool) (leaf int, added bool) {
	t.covered = t.covered[:0]
	if len(path) == 0 {
		return -1, false
	}
	for i := 1; i < len(path); i++ {
		if path[i].Pos == 0 || path[i].Pos+1 != path[i-1].Pos {
			path = path[:i]
			break
		}
	}
	if t.nodes == nil {
		t.nodes = t.small[:0]
	}
	known, at := t.newestKnown(path)
	leaf = at
	if known > 0 {
		leaf, added = t.graft(path[:known], at), true
		t.nodes[leaf].Deleted = deleted
	}
	if at >= 0 && t.extendRoots(path[known:], at) {
		t.reorder()
		t.joined = true
		leaf = t.Find(path[0])
	}
	return leaf, added
}

// Joined tells whether a Merge since Decode or Reset gave a root its ancestors.
// Then the tree has changed even if every Merge said added=false, and revisions
// that were leaves may be so no longer.
func (t *Tree) Joined() bool { return t.joined }

// Covered gives the revisions that were leaves before the last Merge and are none
// any more, until the next one. A document may have thousands of leaves, so the
// caller must not have to look for them.
func (t *Tree) Covered() []model.Rev { return t.covered }

// cover notes that a node is built on.
func (t *Tree) cover(i int) {
	if n := &t.nodes[i]; !n.inner {
		n.inner = true
		t.covered = append(t.covered, n.Rev)
	}
}

// newestKnown finds the first revision of a history that the tree has: its place
// in the path and its index. Unknown altogether gives len(path) and -1. It is one
// pass over the nodes: a history and a tree of thousands must not multiply.
func (t *Tree) newestKnown(path []model.Rev) (known, at int) {
	known, at = len(path), -1
	for i := len(t.nodes) - 1; i >= 0; i-- {
		n := &t.nodes[i]
		if n.Rev.Pos > path[0].Pos {
			continue
		}
		back := path[0].Pos - n.Rev.Pos
		if back < uint64(known) && path[back].Hash == n.Rev.Hash {
			known, at = int(back), i
		}
	}
	return known, at
}

// graft appends a piece of history on top of node parent (-1: as a root) and
// gives the index of its newest revision.
func (t *Tree) graft(path []model.Rev, parent int) int {
	if parent >= 0 {
		t.cover(parent)
	}
	t.nodes = slices.Grow(t.nodes, len(path))
	for i := len(path) - 1; i >= 0; i-- {
		t.nodes = append(t.nodes, Node{Rev: path[i], Parent: int32(parent), inner: i > 0})
		parent = len(t.nodes) - 1
	}
	return parent
}

// extendRoots follows a history down from path[0], which is node at, and gives
// each root that it meets the ancestors that the history names. It tells whether
// there was one; the nodes are then out of order.
func (t *Tree) extendRoots(path []model.Rev, at int) (extended bool) {
	for len(path) > 1 {
		if parent := int(t.nodes[at].Parent); parent >= 0 {
			if t.nodes[parent].Rev != path[1] {
				return extended // another ancestry is known, and it stands
			}
			at, path = parent, path[1:]
			continue
		}
		older := path[1:]
		known, next := t.newestKnown(older)
		top := next
		if known > 0 {
			top = t.graft(older[:known], next)
			t.nodes[top].inner = true
		} else {
			t.cover(top)
		}
		t.nodes[at].Parent = int32(top)
		extended = true
		if next < 0 {
			return extended
		}
		at, path = next, older[known:]
	}
	return extended
}

// reorder puts every parent before its children again. A child's position is its
// parent's plus one, so ordering by position does it.
func (t *Tree) reorder() {
	order := make([]int32, len(t.nodes))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		return cmp.Compare(t.nodes[a].Rev.Pos, t.nodes[b].Rev.Pos)
	})
	moved := make([]int32, len(t.nodes))
	for to, from := range order {
		moved[from] = int32(to)
	}
	nodes := make([]Node, len(t.nodes))
	for to, from := range order {
		nodes[to] = t.nodes[from]
		if p := nodes[to].Parent; p >= 0 {
			nodes[to].Parent = moved[p]
		}
	}
	t.nodes = nodes
}
