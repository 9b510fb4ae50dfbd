// Package revtree is the revision tree of one document: which revisions are
// known, which was built on which, which one wins, what a replicated history
// adds, and what stemming takes away. It is pure: no disk, no clock, no HTTP.
//
// A revision occurs once in a tree, whatever histories speak of it. Should two
// histories name different parents for it (no honest writer makes such), the one
// that came first stands: a second copy of the revision would be a conflict that
// nobody could resolve.
package revtree

import "github.com/divandb/divan/internal/model"

// Node is one known revision.
type Node struct {
	Rev     model.Rev
	Parent  int32 // index of the parent, -1 for a root
	Deleted bool
	HasBody bool  // the body of this revision is stored
	inner   bool  // some other node names this one as its parent
	Size    int64 // external bytes of this revision: body and attachments
	Active  int64 // bytes it takes in the store
}

// inlineNodes is how many revisions a tree holds without a slice of its own:
// most documents have few.
const inlineNodes = 4

// Tree is all known revisions of a document, every parent before its children.
// Several roots are possible: stemming cuts branches off their common trunk, and
// replication may bring histories that do not meet. The zero Tree is the one of
// a document that was never written. A Tree must not be copied by value, as its
// nodes may lie inside it, nor used by two goroutines at once.
type Tree struct {
	nodes   []Node
	covered []model.Rev // leaves that the last Merge built on
	joined  bool
	small   [inlineNodes]Node
}

// Len gives the number of revisions.
func (t *Tree) Len() int { return len(t.nodes) }

// Node gives a revision by its index. The pointer is good until the next Merge,
// Stem or Reset; the caller may set Deleted, HasBody, Size and Active.
func (t *Tree) Node(i int) *Node { return &t.nodes[i] }

// Reset empties the tree for reuse and keeps its memory.
func (t *Tree) Reset() {
	clear(t.nodes)
	if t.nodes == nil {
		t.nodes = t.small[:0]
	}
	clear(t.covered)
	t.nodes, t.covered, t.joined = t.nodes[:0], t.covered[:0], false
}

// Find gives the index of a revision, -1 if it is not known.
func (t *Tree) Find(r model.Rev) int {
	// From the end: the revisions that are asked for are mostly the newest.
	for i := len(t.nodes) - 1; i >= 0; i-- {
		if t.nodes[i].Rev.Pos == r.Pos && t.nodes[i].Rev.Hash == r.Hash {
			return i
		}
	}
	return -1
}

// Finder gives Find for about n questions, with an index when they are worth one:
// the number of revisions asked for may be a client's. It is good until the tree
// changes.
func (t *Tree) Finder(n int) func(model.Rev) int {
	if n <= indexFrom || len(t.nodes) <= indexFrom {
		return t.Find
	}
	at := make(map[model.Rev]int, len(t.nodes))
	for i := range t.nodes {
		at[t.nodes[i].Rev] = i
	}
	return func(r model.Rev) int {
		if i, ok := at[r]; ok {
			return i
		}
		return -1
	}
}

// indexFrom is how many questions, or revisions, make an index worth its while.
const indexFrom = 32

// IsLeaf tells whether nothing was built on the revision.
func (t *Tree) IsLeaf(i int) bool { return !t.nodes[i].inner }

// Path gives the history of a revision, newest first, itself included.
func (t *Tree) Path(i int) []model.Rev {
	n := 0
	for k := int32(i); k >= 0; k = t.nodes[k].Parent {
		n++
	}
	path := make([]model.Rev, 0, n)
	for k := int32(i); k >= 0; k = t.nodes[k].Parent {
		path = append(path, t.nodes[k].Rev)
	}
	return path
}
