package view

import (
	"bytes"
	"slices"
	"sync"

	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// groups collects the groups of a batch. A group is made of pieces: states that
// nodes have, and runs of rows where its borders cut through a segment. The runs
// of all groups are reduced in one call, the pieces of each group in a second one.
type groups struct {
	rows   rowRuns
	calls  stateRuns
	list   []group
	pieces []piece
	text   arena // sort keys, keys and states
	cut    []byte
	bound  []byte
	parts  [][]byte // states of the pieces
	states [][]byte // of the groups
}

// spareGroups keeps the room that batches of groups have made.
var spareGroups = sync.Pool{New: func() any { return new(groups) }}

// release gives the room back, with nothing in it.
func (g *groups) release() {
	clear(g.list)
	clear(g.pieces)
	clear(g.parts)
	clear(g.states)
	g.list, g.pieces, g.parts, g.states = g.list[:0], g.pieces[:0], g.parts[:0], g.states[:0]
	g.rows.reset()
	g.text.reset()
	g.rows.reducer, g.calls.reducer = nil, nil
	if g.rows.small() {
		spareGroups.Put(g)
	}
}

// group is one group of a batch.
type group struct {
	at        int // the range
	sort, key []byte
	from      int // of its pieces, which end where the next group's begin
}

// piece is a part of a group: a state, or the number of a run of rows from 1 on.
type piece struct {
	state []byte
	run   int
}

// groupBatch makes a batch of groups.
func (st *stream) groupBatch() ([]shardapi.ViewRow, error) {
	if st.groups == nil {
		st.groups = spareGroups.Get().(*groups)
		st.groups.rows.reducer, st.groups.calls.reducer = st.x.o.Reducer, st.x.o.Reducer
	}
	g := st.groups
	g.list, g.pieces = g.list[:0], g.pieces[:0]
	g.rows.reset()
	g.text.reset()
	from := st.at
	for st.enter() {
		if len(g.list) >= batchRows || g.rows.full() || g.text.used >= batchBytes || st.at-from >= batchRanges {
			break
		}
		var err error
		switch {
		case st.req.GroupLevel == shardapi.GroupNone:
			err = st.whole()
		case st.req.Descending:
			err = st.lastGroup()
		default:
			err = st.nextGroup()
		}
		if err != nil {
			return nil, err
		}
	}
	if !st.ended && st.placed && st.sight.it.Valid() {
		st.remember()
	}
	if err := st.finishGroups(); err != nil {
		return nil, err
	}
	return st.out, nil
}

// whole makes the group of everything in the range.
func (st *stream) whole() error {
	g := st.groups
	g.add(st.at, st.x.appendSort(nil, jsonNull), jsonNull)
	if err := st.cover(st.now); err != nil {
		return err
	}
	if last := len(g.list) - 1; g.list[last].from == len(g.pieces) {
		g.list = g.list[:last] // no rows
	} else if st.left > 0 {
		st.left--
	}
	st.nextRange()
	return nil
}

// jsonNull is the key of the group of everything.
var jsonNull = []byte("null")

// add begins a group.
func (g *groups) add(at int, sort, key []byte) {
	g.list = append(g.list, group{at, g.text.copy(sort), g.text.copy(key), len(g.pieces)})
}

// closeRun makes the open run of rows a piece.
func (g *groups) closeRun() {
	if g.rows.open() > 0 {
		g.rows.close(nil)
		g.pieces = append(g.pieces, piece{run: len(g.rows.closed)})
	}
}

// begin begins the group of the row that the iterator stands on. It gives the
// bytes with which the row keys of the group begin, valid until the next call.
func (st *stream) begin() ([]byte, error) {
	g, s := st.groups, st.sight
	var r storedRow
	if err := r.read(s.it, len(s.prefix), st.x.o.Partitioned); err != nil {
		return nil, err
	}
	sort, key := r.sort, r.key
	if n := st.req.GroupLevel; n > 0 {
		var ok bool
		if g.bound, ok = collate.ArrayPrefix(g.bound[:0], r.key, n, st.x.o.RawCollation); ok {
			g.cut = appendCut(g.cut[:0], r.key, n)
			sort, key = g.bound, g.cut
		}
	}
	g.add(st.at, sort, key)
	g.bound = append(append(g.bound[:0], st.base.lo...), g.list[len(g.list)-1].sort...)
	if st.left > 0 {
		st.left--
	}
	return g.bound, nil
}

// appendCut appends an array cut to its first n elements, of which it has so many.
func appendCut(dst, array []byte, n int) []byte {
	dst = append(dst, '[')
	for e := range rawjson.Elements(array) {
		dst = append(append(dst, e...), ',')
		if n--; n == 0 {
			break
		}
	}
	dst[len(dst)-1] = ']'
	return dst
}

// nextGroup makes the next group upwards. Its rows are walked up to the first that
// begins a segment; from there on the nodes tell of them, unless the group ends in
// that same segment.
func (st *stream) nextGroup() error {
	g, s := st.groups, st.sight
	ok, err := st.seek()
	if err != nil {
		return err
	}
	if !ok {
		st.nextRange()
		return nil
	}
	begins, err := st.begin()
	if err != nil {
		return err
	}
	end, _ := appendAfter(g.bound[:0], begins) // in place; a sort key never begins with 255
	if st.now.hi != nil && bytes.Compare(st.now.hi, end) < 0 {
		end = st.now.hi
	}
	var r storedRow
	for {
		if st.x.hash.level(s.row()) > 0 {
			n, err := s.descend(lowestRoot, s.row())
			if err != nil {
				return err
			}
			_, after := n.segment(n.search(s.row()))
			if after != nil && bytes.Compare(after, end) <= 0 {
				g.closeRun()
				from := g.text.copy(s.row())
				// No row key equals end, so that end lies within a segment: the last piece
				// is a walk, and the iterator stands behind the group.
				return st.cover(span{from, end})
			}
		}
		if err := r.read(s.it, len(s.prefix), st.x.o.Partitioned); err != nil {
			return err
		}
		if err := g.rows.add(&r); err != nil {
			return err
		}
		if !s.it.Next() || bytes.Compare(s.row(), end) >= 0 {
			g.closeRun()
			return s.it.Error()
		}
	}
}

// lastGroup makes the next group downwards: nextGroup, mirrored.
func (st *stream) lastGroup() error {
	g, s := st.groups, st.sight
	ok, err := st.seek()
	if err != nil {
		return err
	}
	if !ok {
		st.nextRange()
		return nil
	}
	begin, err := st.begin()
	if err != nil {
		return err
	}
	if bytes.Compare(begin, st.now.lo) < 0 {
		begin = st.now.lo
	}
	var r storedRow
	for {
		if err := r.read(s.it, len(s.prefix), st.x.o.Partitioned); err != nil {
			return err
		}
		if err := g.rows.add(&r); err != nil {
			return err
		}
		var border []byte
		if st.x.hash.level(s.row()) > 0 {
			border = g.text.copy(s.row())
		}
		if !s.it.Prev() || bytes.Compare(s.row(), begin) < 0 {
			g.rows.reverse()
			g.closeRun()
			return s.it.Error()
		}
		if border == nil {
			continue
		}
		n, err := s.descend(lowestRoot, s.row())
		if err != nil {
			return err
		}
		if from, _ := n.segment(n.search(s.row())); bytes.Compare(from, begin) >= 0 {
			g.rows.reverse()
			g.rows.close(nil)
			run := len(g.rows.closed)
			if err := st.cover(span{begin, border}); err != nil {
				return err
			}
			g.pieces = append(g.pieces, piece{run: run})
			_, err := s.seekLT(begin)
			return err
		}
	}
}

// cover adds the pieces of which the rows of sp are made.
func (st *stream) cover(sp span) error {
	s := st.sight
	if s.m.rows == 0 || !below(sp.lo, sp.hi) {
		return nil
	}
	if len(sp.lo) == 0 && sp.hi == nil {
		st.groups.pieces = append(st.groups.pieces, piece{state: st.groups.text.copy(s.m.total)})
		return nil
	}
	return st.coverNode(s.m.height, sp)
}

// coverNode adds the pieces in the present node of a level.
func (st *stream) coverNode(level int, sp span) error {
	g, n := st.groups, &st.sight.levels[level]
	// The segments that the borders fall into, and whether all of them is asked for.
	first, last := 0, len(n.at)-1
	wholeFirst, wholeLast := true, true
	if bytes.Compare(n.lo, sp.lo) < 0 {
		first = n.search(sp.lo)
		wholeFirst = bytes.Equal(n.key(first), sp.lo)
	}
	if sp.hi != nil && (n.hi == nil || bytes.Compare(sp.hi, n.hi) < 0) {
		last = n.search(sp.hi)
		wholeLast = false
	}
	for i := first; i <= last; i++ {
		if (i > first || wholeFirst) && (i < last || wholeLast) {
			if n.at[i].count > 0 {
				state := n.state(i)
				if !n.cached {
					state = g.text.copy(state) // another node will take this one's place
				}
				g.pieces = append(g.pieces, piece{state: state})
			}
			continue
		}
		if err := st.coverPart(level, n, i, sp); err != nil {
			return err
		}
	}
	return nil
}

// coverPart adds the pieces of a segment that a border cuts through.
func (st *stream) coverPart(level int, n *seen, i int, sp span) error {
	lo, hi := n.segment(i)
	if level == lowestRoot {
		return st.coverRows(maxOf(lo, sp.lo), minOf(hi, sp.hi))
	}
	if _, err := st.sight.child(level-1, n, i); err != nil {
		return err
	}
	return st.coverNode(level-1, sp)
}

// maxOf gives the higher of two lower bounds.
func maxOf(a, b []byte) []byte {
	if bytes.Compare(a, b) < 0 {
		return b
	}
	return a
}

// minOf gives the lower of two upper bounds, of which nil is the end.
func minOf(a, b []byte) []byte {
	if a == nil || b != nil && bytes.Compare(b, a) < 0 {
		return b
	}
	return a
}

// coverRows adds a run of rows as a piece.
func (st *stream) coverRows(lo, hi []byte) error {
	g, s := st.groups, st.sight
	ok, err := s.seekGE(lo)
	var r storedRow
	for ; ok && below(s.row(), hi); ok = s.it.Next() {
		if err := r.read(s.it, len(s.prefix), st.x.o.Partitioned); err != nil {
			return err
		}
		if err := g.rows.add(&r); err != nil {
			return err
		}
	}
	if err == nil {
		err = s.it.Error()
	}
	g.closeRun()
	return err
}

// finishGroups reduces what has come together and puts it into the batch.
func (st *stream) finishGroups() error {
	g := st.groups
	runs, err := g.rows.reduce(st.ctx)
	if err != nil {
		return err
	}
	g.parts = slices.Grow(g.parts[:0], len(g.pieces))
	for _, p := range g.pieces {
		if p.run > 0 {
			p.state = runs[p.run-1]
		}
		g.parts = append(g.parts, p.state)
	}
	g.states = append(g.states[:0], make([][]byte, len(g.list))...)
	for i := range g.list {
		to := len(g.parts)
		if i+1 < len(g.list) {
			to = g.list[i+1].from
		}
		g.calls.add(g.parts[g.list[i].from:to:to], &g.states[i])
	}
	if err := g.calls.flush(st.ctx); err != nil {
		return err
	}
	at := st.at
	for i := range g.list {
		st.at = g.list[i].at
		st.put(g.list[i].sort, g.list[i].key, g.states[i])
	}
	st.at = at
	st.finish()
	return nil
}
