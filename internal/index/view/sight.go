package view

import (
	"bytes"
	"errors"
	"sync"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
)

// sight is what one query sees: the store at one moment, the nodes it has come
// across, and one iterator over the rows that serves for everything.
type sight struct {
	x       *Index
	snap    *kv.Snapshot
	held    *held // snap is shared
	m       *meta
	own     meta // what m points to, if it had to be read
	metaVal kv.Value
	// levels holds the way from the root to the place looked at last. Each node's
	// rows are within those of the node above.
	levels [maxLevel + 2]seen
	prefix []byte // of stored row keys
	it     *kv.Iter
	key    []byte
}

// seen is a node that was read.
type seen struct {
	*node
	known  bool
	lo, hi []byte // its rows; hi nil: to the end
	cached bool   // it is shared, and stays
	own    node   // what node points to, if it is not
	val    kv.Value
}

// segment gives the bounds of entry i.
func (n *seen) segment(i int) (lo, hi []byte) {
	if i+1 < len(n.at) {
		return n.key(i), n.key(i + 1)
	}
	return n.key(i), n.hi
}

// sights keeps the room that sights have made for nodes and keys.
var sights = sync.Pool{New: func() any { return new(sight) }}

// look gives a sight of the index as it is, nil if there is nothing to see.
func (x *Index) look() (*sight, error) {
	s := sights.Get().(*sight)
	s.x = x
	if err := s.take(); err != nil || s.snap == nil {
		return nil, errors.Join(err, s.close())
	}
	ok, err := s.open()
	if err != nil || !ok {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// take chooses the snapshot. The lock keeps a build from beginning between the
// choice and the snapshot.
func (s *sight) take() error {
	x := s.x
	x.mu.RLock()
	defer x.mu.RUnlock()
	switch {
	case x.closed:
		return model.ErrClosed
	case x.build == nil:
		before := x.epoch.Load()
		s.snap = x.o.Store.NewSnapshot()
		if before%2 == 0 && x.epoch.Load() == before {
			s.m = x.now
		}
	case x.build.before != nil:
		s.held = x.build.before
		s.held.uses.Add(1)
		s.snap = s.held.snap
	}
	return nil
}

// open gets the counters and the root, which it must read only when a batch came
// between.
func (s *sight) open() (ok bool, err error) {
	if s.m == nil {
		s.key = s.x.keys.table(s.key[:0], tableMeta)
		if s.metaVal, ok, err = s.snap.Get(s.key); err != nil || !ok {
			return false, err
		}
		if err := s.own.parse(s.metaVal.Bytes()); err != nil {
			return false, err
		}
		s.m = &s.own
	}
	top := &s.levels[s.m.height]
	top.node, top.known, top.cached = &s.m.root, true, s.m != &s.own
	s.prefix = s.x.keys.table(s.prefix[:0], tableRow)
	return !s.m.building, nil
}

// close gives the store back. The sight may not be used afterwards.
func (s *sight) close() (err error) {
	if s.it != nil {
		err = s.it.Close()
		s.it = nil
	}
	for i := range s.levels {
		n := &s.levels[i]
		n.val.Release()
		*n = seen{own: node{at: n.own.at[:0]}}
	}
	s.metaVal.Release()
	s.metaVal = kv.Value{}
	if s.held != nil {
		err = errors.Join(err, s.held.release())
	} else if s.snap != nil {
		err = errors.Join(err, s.snap.Close())
	}
	s.snap, s.held, s.x = nil, nil, nil
	s.m, s.own = nil, meta{root: node{at: s.own.root.at[:0]}}
	sights.Put(s)
	return err
}

// iter gives the iterator over the rows.
func (s *sight) iter() (*kv.Iter, error) {
	if s.it != nil {
		return s.it, nil
	}
	lower, upper := s.x.keys.bounds(tableRow)
	it, err := s.snap.NewIter(lower, upper)
	if err == nil {
		s.it = it
	}
	return it, err
}

// row is the key of the row that the iterator stands on.
func (s *sight) row() []byte { return s.it.Key()[len(s.prefix):] }

// seekGE goes to the first row that is not below row.
func (s *sight) seekGE(row []byte) (bool, error) {
	it, err := s.iter()
	if err != nil {
		return false, err
	}
	s.key = append(append(s.key[:0], s.prefix...), row...)
	return it.SeekGE(s.key), it.Error()
}

// seekLT goes to the last row below row; nil is the end.
func (s *sight) seekLT(row []byte) (bool, error) {
	it, err := s.iter()
	if err != nil {
		return false, err
	}
	if row == nil {
		return it.Last(), it.Error()
	}
	s.key = append(append(s.key[:0], s.prefix...), row...)
	return it.SeekLT(s.key), it.Error()
}

// below tells whether a row key lies below a bound; nil is the end.
func below(row, bound []byte) bool { return bound == nil || bytes.Compare(row, bound) < 0 }

// descend gives the node of a level that has a row, and the nodes above it.
func (s *sight) descend(level int, row []byte) (*seen, error) {
	n := &s.levels[level]
	if n.known && bytes.Compare(n.lo, row) <= 0 && below(row, n.hi) {
		return n, nil
	}
	up, err := s.descend(level+1, row)
	if err != nil {
		return nil, err
	}
	return s.child(level, up, up.search(row))
}

// child reads the node that is entry i of the node above it.
func (s *sight) child(level int, up *seen, i int) (*seen, error) {
	n := &s.levels[level]
	lo, hi := up.segment(i)
	if n.known && bytes.Equal(n.lo, lo) {
		return n, nil
	}
	// The bounds lie in the bytes of the node above: what is below goes with it.
	for l := level; l >= lowestRoot; l-- {
		s.levels[l].known = false
	}
	n.val.Release()
	n.val, n.cached = kv.Value{}, false
	s.key = s.x.keys.appendNode(s.key[:0], level, lo)
	name := s.key[len(s.x.keys.prefix)+1:]
	if n.node = s.x.cache.get(s.m.version, name); n.node != nil {
		n.known, n.lo, n.hi, n.cached = true, lo, hi, true
		return n, nil
	}
	v, ok, err := s.snap.Get(s.key)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, corrupt("node")
	}
	n.val, n.node = v, &n.own
	if err := n.parse(v.Bytes()); err != nil {
		return nil, err
	}
	s.x.cache.put(s.m.version, name, n.node)
	n.known, n.lo, n.hi = true, lo, hi
	return n, nil
}

// rank counts the rows below row (nil: all). The iterator then stands on the first
// that is not below, if there is one, except for nil.
func (s *sight) rank(row []byte) (n int64, err error) {
	if row == nil {
		return s.m.rows, nil
	}
	low, err := s.descend(lowestRoot, row)
	if err != nil {
		return 0, err
	}
	for level := lowestRoot; level <= s.m.height; level++ {
		at := &s.levels[level]
		for _, e := range at.at[:at.search(row)] {
			n += e.count
		}
	}
	valid, err := s.seekGE(low.key(low.search(row)))
	for ; valid && bytes.Compare(s.row(), row) < 0; valid = s.it.Next() {
		n++
	}
	return n, errors.Join(err, s.it.Error())
}
