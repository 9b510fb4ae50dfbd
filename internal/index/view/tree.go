package view

import (
	"bytes"
	"context"
	"sort"

	"github.com/divandb/divan/internal/kv"
)

// update works changed rows into the nodes of an index. It goes down from the
// root to the segments that have changes, scans those, and comes back up with what
// takes their place. States are not known on the way: a level of them is asked for
// at once, at the end.
type update struct {
	x     *Index
	ctx   context.Context
	m     *meta // before
	rows  *kv.Iter
	runs  rowRuns
	fresh []*freshNode
	gone  []nodeRef
	size  int64 // by how much the bytes of nodes change
	key   []byte
	node  node       // room to parse in
	held  []kv.Value // of the nodes that entries point into
}

// nodeRef names a node.
type nodeRef struct {
	level    int
	boundary []byte
}

// freshNode is a node to be written. sum is what the level above says of it.
type freshNode struct {
	nodeRef
	entries []*entry
	sum     *entry
	dropped bool
}

// splice gives the segments of a level that take the place of entries, which
// cover all rows up to end (nil: all), when ops are done.
func (u *update) splice(level int, entries []*entry, end []byte, ops []op) ([]*entry, error) {
	out := make([]*entry, 0, len(entries)+1)
	for i := 0; i < len(entries); {
		// A segment whose first row goes becomes part of the one before it.
		j := i + 1
		for j < len(entries) && deletes(ops, entries[j].key) {
			j++
		}
		after := end
		if j < len(entries) {
			after = entries[j].key
		}
		n := len(ops)
		if after != nil {
			n = sort.Search(len(ops), func(k int) bool { return bytes.Compare(ops[k].row, after) >= 0 })
		}
		if n == 0 {
			out = append(out, entries[i])
		} else {
			made, err := u.rebuild(level, entries[i:j], after, ops[:n])
			if err != nil {
				return nil, err
			}
			out = append(out, made...)
			ops = ops[n:]
		}
		i = j
	}
	return out, nil
}

// deletes tells whether ops delete a row.
func deletes(ops []op, row []byte) bool {
	i, ok := sort.Find(len(ops), func(i int) int { return bytes.Compare(row, ops[i].row) })
	return ok && ops[i].kind == opDelete
}

// rebuild gives what takes the place of neighbouring segments of a level, of which
// all but the first lose their first row.
func (u *update) rebuild(level int, old []*entry, end []byte, ops []op) ([]*entry, error) {
	if level == 1 {
		return u.rebuildRows(old, end, ops)
	}
	var below []*entry
	for i, e := range old {
		entries, err := u.load(level, e.key)
		if err != nil {
			return nil, err
		}
		below = append(below, entries...)
		if i > 0 {
			u.gone = append(u.gone, nodeRef{level, e.key})
		}
	}
	below, err := u.splice(level-1, below, end, ops)
	if err != nil {
		return nil, err
	}
	return u.cut(level, below), nil
}

// load reads a node that is going to be replaced.
func (u *update) load(level int, boundary []byte) ([]*entry, error) {
	u.key = u.x.keys.appendNode(u.key[:0], level, boundary)
	v, ok, err := u.x.o.Store.Get(u.key)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, corrupt("node")
	}
	u.held = append(u.held, v)
	u.size -= nodeBytes(boundary, len(v.Bytes()))
	if err := u.node.parse(v.Bytes()); err != nil {
		return nil, err
	}
	return u.node.entries(), nil
}

// nodeBytes is what a node takes.
func nodeBytes(boundary []byte, text int) int64 { return int64(len(boundary) + text + 1) }

// cut makes the nodes of a level out of the segments of the level below, and
// gives the segments that they are.
func (u *update) cut(level int, below []*entry) []*entry {
	var out []*entry
	for len(below) > 0 {
		n := 1
		for n < len(below) && u.x.hash.level(below[n].key) < level {
			n++
		}
		sum := &entry{key: below[0].key, count: countOf(below[:n])}
		u.fresh = append(u.fresh, &freshNode{nodeRef: nodeRef{level, sum.key}, entries: below[:n:n], sum: sum})
		out = append(out, sum)
		below = below[n:]
	}
	return out
}

// countOf adds the rows of segments.
func countOf(entries []*entry) (n int64) {
	for _, e := range entries {
		n += e.count
	}
	return n
}

// statesOf lists the states of segments that have rows.
func statesOf(entries []*entry) [][]byte {
	states := make([][]byte, 0, len(entries))
	for _, e := range entries {
		if e.count > 0 {
			states = append(states, e.state)
		}
	}
	return states
}

// rebuildRows is rebuild for the lowest level, whose segments are rows.
func (u *update) rebuildRows(old []*entry, end []byte, ops []op) ([]*entry, error) {
	if u.x.o.Reducer == nil && !u.begins(ops) {
		// Without a reduction and a new boundary it is arithmetic.
		e := &entry{key: old[0].key, count: countOf(old)}
		for i := range ops {
			switch ops[i].kind {
			case opInsert:
				e.count++
			case opDelete:
				e.count--
			}
		}
		return []*entry{e}, nil
	}
	prefix := len(u.x.keys.prefix) + 1
	e := &entry{key: old[0].key}
	out := []*entry{e}
	// begin starts a new segment where one begins.
	begin := func(row []byte) {
		if len(row) > 0 && !bytes.Equal(row, e.key) && u.x.hash.level(row) > 0 {
			u.runs.close(&e.state)
			e = &entry{key: bytes.Clone(row)}
			out = append(out, e)
		}
		e.count++
	}
	u.key = u.x.keys.appendRow(u.key[:0], e.key)
	var stored storedRow
	valid := u.rows.SeekGE(u.key)
	for {
		var row []byte
		if valid {
			row = u.rows.Key()[prefix:]
			if end != nil && bytes.Compare(row, end) >= 0 {
				valid = false
			}
		}
		c := 0
		switch {
		case !valid && len(ops) == 0:
			u.runs.close(&e.state)
			if err := u.rows.Error(); err != nil {
				return nil, err
			}
			if u.runs.full() {
				return out, u.runs.flush(u.ctx)
			}
			return out, nil
		case !valid:
			c = 1
		case len(ops) == 0:
			c = -1
		default:
			c = bytes.Compare(row, ops[0].row)
		}
		if c < 0 { // a row that stays
			begin(row)
			if u.x.o.Reducer != nil {
				if err := stored.read(u.rows, prefix, u.x.o.Partitioned); err != nil {
					return nil, err
				}
				if err := u.runs.add(&stored); err != nil {
					return nil, err
				}
			}
		} else {
			if ops[0].kind != opDelete {
				begin(ops[0].row)
				if u.x.o.Reducer != nil {
					u.runs.addOp(&ops[0])
				}
			}
			ops = ops[1:]
		}
		if c <= 0 {
			valid = u.rows.Next()
		}
	}
}

// begins tells whether a new row begins a segment.
func (u *update) begins(ops []op) bool {
	for i := range ops {
		if ops[i].kind == opInsert && u.x.hash.level(ops[i].row) > 0 {
			return true
		}
	}
	return false
}

// run works in the changes, which are in the order of their rows, and puts the
// changed nodes into the batch and the new root into next.
func (u *update) run(ops []op, next *meta, b *kv.Batch) error {
	top, err := u.splice(u.m.height-1, u.m.root.entries(), nil, ops)
	if err != nil {
		return err
	}
	level := u.m.height
	for len(top) > 1 && u.highest(top[1:]) >= level {
		top = u.cut(level, top)
		level++
	}
	for level > lowestRoot && len(top) == 1 {
		level--
		if top, err = u.lift(level); err != nil {
			return err
		}
	}
	root := &freshNode{entries: top, sum: &entry{}}
	if err := u.states(root); err != nil {
		return err
	}
	u.write(b)
	next.version++
	next.height = level
	next.total = bytes.Clone(root.sum.state) // one state alone is a node's, whose bytes are given back
	next.root = node{text: appendEntries(make([]byte, 0, entriesLen(top)), top)}
	next.nodes += u.size
	return nil
}

// highest is the highest level of segments' first rows.
func (u *update) highest(entries []*entry) (level int) {
	for _, e := range entries {
		level = max(level, u.x.hash.level(e.key))
	}
	return level
}

// lift takes the only node of a level, which is to be the root, out of the table.
func (u *update) lift(level int) ([]*entry, error) {
	u.gone = append(u.gone, nodeRef{level, nil})
	for _, f := range u.fresh {
		if f.level == level && len(f.boundary) == 0 && !f.dropped {
			f.dropped = true
			return f.entries, nil
		}
	}
	return u.load(level, nil)
}

// states computes the states of what is new, level by level from below.
func (u *update) states(root *freshNode) error {
	reducer := u.x.o.Reducer
	if reducer == nil {
		return nil
	}
	if err := u.runs.flush(u.ctx); err != nil {
		return err
	}
	calls := stateRuns{reducer: reducer}
	for level := lowestRoot; level <= maxLevel; level++ {
		for _, f := range u.fresh {
			if f.level == level && !f.dropped {
				calls.add(statesOf(f.entries), &f.sum.state)
			}
		}
		if err := calls.flush(u.ctx); err != nil {
			return err
		}
	}
	calls.add(statesOf(root.entries), &root.sum.state)
	return calls.flush(u.ctx)
}

// write puts the changed nodes into the batch.
func (u *update) write(b *kv.Batch) {
	for _, g := range u.gone {
		u.key = u.x.keys.appendNode(u.key[:0], g.level, g.boundary)
		b.Delete(u.key)
	}
	for _, f := range u.fresh {
		if !f.dropped {
			u.size += f.put(u.x.keys, b)
		}
	}
}

// changed lists the nodes that are not what they were.
func (u *update) changed() []nodeRef {
	out := u.gone
	for _, f := range u.fresh {
		out = append(out, f.nodeRef)
	}
	return out
}

// put writes a node and tells how many bytes it takes.
func (f *freshNode) put(keys keys, b *kv.Batch) int64 {
	size := entriesLen(f.entries)
	k, v := b.SetDeferred(len(keys.prefix)+2+len(f.boundary), size)
	keys.appendNode(k[:0], f.level, f.boundary)
	appendEntries(v[:0], f.entries)
	return nodeBytes(f.boundary, size)
}

// end gives back what the update has read.
func (u *update) end() error {
	for _, v := range u.held {
		v.Release()
	}
	if u.rows != nil {
		return u.rows.Close()
	}
	return nil
}
