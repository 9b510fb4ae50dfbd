package revtree

import (
	"cmp"
	"slices"
)

// beats tells whether leaf a goes before leaf b: live before deleted, then the
// higher position, then the higher hash. Every copy must order the same way, as
// this is how copies agree on the winner without talking to each other.
func (a *Node) beats(b *Node) bool {
	if a.Deleted != b.Deleted {
		return b.Deleted
	}
	return a.Rev.Compare(b.Rev) > 0
}

// Winner gives the index of the winning leaf, -1 for an empty tree.
func (t *Tree) Winner() int {
	win := -1
	for i := len(t.nodes) - 1; i >= 0; i-- {
		if n := &t.nodes[i]; !n.inner && (win < 0 || n.beats(&t.nodes[win])) {
			win = i
		}
	}
	return win
}

// Leaves gives the indexes of all leaves, the winner first, the rest in the
// order in which they would win.
func (t *Tree) Leaves() []int { return t.AppendLeaves(nil) }

// AppendLeaves appends what Leaves gives to dst.
func (t *Tree) AppendLeaves(dst []int) []int {
	from := len(dst)
	for i := range t.nodes {
		if !t.nodes[i].inner {
			dst = append(dst, i)
		}
	}
	t.sortLeaves(dst[from:])
	return dst
}

// LeavesUnder gives the leaves that descend from revision i in the order of
// Leaves; a leaf gives itself.
func (t *Tree) LeavesUnder(i int) []int {
	if !t.nodes[i].inner {
		return []int{i}
	}
	under := make([]bool, len(t.nodes)-i)
	under[0] = true
	var leaves []int
	for k := i + 1; k < len(t.nodes); k++ {
		n := &t.nodes[k]
		if int(n.Parent) < i || !under[int(n.Parent)-i] {
			continue
		}
		under[k-i] = true
		if !n.inner {
			leaves = append(leaves, k)
		}
	}
	t.sortLeaves(leaves)
	return leaves
}

// sortLeaves puts the winner first.
func (t *Tree) sortLeaves(leaves []int) {
	if len(leaves) < 2 {
		return
	}
	slices.SortFunc(leaves, func(a, b int) int {
		switch {
		case t.nodes[a].beats(&t.nodes[b]):
			return -1
		case t.nodes[b].beats(&t.nodes[a]):
			return 1
		}
		return cmp.Compare(a, b)
	})
}
