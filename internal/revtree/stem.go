package revtree

// Stem forgets revisions that are limit or more steps away from every leaf built
// on them, and gives them back so that the caller can free what they stored. A
// revision that a short branch still needs stays for the long one too, so a path
// may be longer than limit; a branch whose link to the trunk goes becomes a tree
// of its own. Leaves always stay: a limit below 1 counts as 1.
func (t *Tree) Stem(limit int) (dropped []Node) {
	limit = max(limit, 1)
	if len(t.nodes) <= limit {
		return nil
	}
	// Steps to the nearest leaf; children come after parents, so one pass back.
	far := int32(len(t.nodes))
	steps := make([]int32, len(t.nodes))
	for i := range steps {
		if t.nodes[i].inner {
			steps[i] = far
		}
	}
	drop := 0
	for i := len(t.nodes) - 1; i >= 0; i-- {
		if p := t.nodes[i].Parent; p >= 0 {
			steps[p] = min(steps[p], steps[i]+1)
		}
		if int(steps[i]) >= limit {
			drop++
		}
	}
	if drop == 0 {
		return nil
	}
	dropped = make([]Node, 0, drop)
	moved := steps // by now read only at i or above, so it can hold the new places
	kept := 0
	for i := range t.nodes {
		n := t.nodes[i]
		if int(steps[i]) >= limit {
			dropped = append(dropped, n)
			moved[i] = -1
			continue
		}
		if n.Parent >= 0 {
			n.Parent = moved[n.Parent]
		}
		moved[i] = int32(kept)
		t.nodes[kept] = n
		kept++
	}
	clear(t.nodes[kept:])
	t.nodes = t.nodes[:kept]
	return dropped
}
