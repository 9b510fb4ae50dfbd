package view

import (
	"bytes"
	"context"
	"fmt"

	"github.com/divandb/divan/internal/kv"
)

// checkIndex holds what is stored against the model: the rows, what documents
// have, the counters, and every node against what a walk over the rows gives.
func checkIndex(x *Index, m *naive) error {
	snap := x.o.Store.NewSnapshot()
	defer snap.Close()
	v, ok, err := snap.Get(x.keys.meta())
	if err != nil || !ok {
		return fmt.Errorf("meta: %t %w", ok, err)
	}
	var stored meta
	if err := stored.parse(bytes.Clone(v.Bytes())); err != nil {
		return err
	}
	v.Release()
	if stored.building {
		return fmt.Errorf("still building")
	}
	rows, err := table(snap, x, tableRow)
	if err != nil {
		return err
	}
	want := map[string][]byte{}
	var external int64
	for id, emits := range m.docs {
		numbers := map[string]uint64{}
		for _, r := range emits {
			sort := m.sort(r.Key)
			var key []byte
			if m.o.Partitioned {
				key = appendEscaped(key, partitionOf(id))
			}
			key = appendEscaped(append(key, sort...), id)
			key = appendNumber(key, numbers[string(sort)])
			numbers[string(sort)]++
			val := make([]byte, rowValueLen(len(sort), r))
			putRowValue(val, len(sort), r)
			want[string(key)] = val
			external += int64(len(r.Key) + len(r.Value))
		}
	}
	if len(want) != len(rows) || int64(len(rows)) != stored.rows || external != stored.external {
		return fmt.Errorf("%d rows stored, %d counted, %d wanted; external %d, want %d", len(rows), stored.rows, len(want), stored.external, external)
	}
	active := int64(0)
	for _, r := range rows {
		if !bytes.Equal(want[string(r[0])], r[1]) {
			return fmt.Errorf("row %q is %q, want %q", r[0], r[1], want[string(r[0])])
		}
		var s storedRow
		if err := s.parse(r[0], r[1], x.o.Partitioned); err != nil {
			return err
		}
		active += int64(len(r[0]) + len(s.key) + len(s.value))
	}
	backs, err := table(snap, x, tableBack)
	if err != nil {
		return err
	}
	if len(backs) != len(m.docs) {
		return fmt.Errorf("%d documents have rows, want %d", len(backs), len(m.docs))
	}
	for _, b := range backs {
		active += int64(len(b[0]) + len(b[1]))
		list, err := parseBack(nil, b[1])
		if err != nil || len(list) != len(m.docs[string(b[0])]) {
			return fmt.Errorf("%q has %d rows, want %d: %w", b[0], len(list), len(m.docs[string(b[0])]), err)
		}
	}
	if active != stored.active {
		return fmt.Errorf("active %d, want %d", stored.active, active)
	}
	return checkNodes(snap, x, &stored, rows)
}

// checkNodes computes the tree from the rows and compares all of it.
func checkNodes(snap *kv.Snapshot, x *Index, stored *meta, rows [][2][]byte) error {
	top := 0
	segments := []*entry{{}}
	runs := rowRuns{reducer: x.o.Reducer}
	for _, r := range rows {
		level := x.hash.level(r[0])
		top = max(top, level)
		if level > 0 {
			runs.close(&segments[len(segments)-1].state)
			segments = append(segments, &entry{key: r[0]})
		}
		segments[len(segments)-1].count++
		var s storedRow
		if err := s.parse(r[0], r[1], x.o.Partitioned); err != nil {
			return err
		}
		if err := runs.add(&s); err != nil {
			return err
		}
	}
	runs.close(&segments[len(segments)-1].state)
	if x.o.Reducer != nil {
		if err := runs.flush(context.Background()); err != nil {
			return err
		}
	}
	want := map[string][]byte{}
	height := max(top+1, lowestRoot)
	size := int64(0)
	for level := lowestRoot; level < height; level++ {
		var above []*entry
		for len(segments) > 0 {
			n := 1
			for n < len(segments) && x.hash.level(segments[n].key) < level {
				n++
			}
			key := append([]byte{byte(level)}, segments[0].key...)
			want[string(key)] = appendEntries(nil, segments[:n])
			size += int64(len(key) + len(want[string(key)]))
			e, err := sumOf(x, segments[:n])
			if err != nil {
				return err
			}
			above = append(above, e)
			segments = segments[n:]
		}
		segments = above
	}
	nodes, err := table(snap, x, tableNode)
	if err != nil {
		return err
	}
	for _, n := range nodes {
		if !bytes.Equal(want[string(n[0])], n[1]) {
			return fmt.Errorf("node %q is\n%q, want\n%q", n[0], n[1], want[string(n[0])])
		}
	}
	total, err := sumOf(x, segments)
	if err != nil {
		return err
	}
	switch root := stored.root.text; {
	case len(nodes) != len(want):
		return fmt.Errorf("%d nodes, want %d", len(nodes), len(want))
	case stored.height != height || !bytes.Equal(root, appendEntries(nil, segments)):
		return fmt.Errorf("root of level %d, want %d:\n%q\n%q", stored.height, height, root, appendEntries(nil, segments))
	case total.count != stored.rows || !bytes.Equal(total.state, stored.total):
		return fmt.Errorf("all rows: %d %x, want %d %x", stored.rows, stored.total, total.count, total.state)
	case size != stored.nodes:
		return fmt.Errorf("nodes of %d bytes, counted %d", size, stored.nodes)
	}
	return nil
}

// sumOf adds up neighbouring segments.
func sumOf(x *Index, segments []*entry) (*entry, error) {
	e := &entry{key: segments[0].key, count: countOf(segments)}
	if x.o.Reducer == nil {
		return e, nil
	}
	calls := stateRuns{reducer: x.o.Reducer}
	calls.add(statesOf(segments), &e.state)
	return e, calls.flush(context.Background())
}

// table reads a table.
func table(snap *kv.Snapshot, x *Index, t byte) (out [][2][]byte, err error) {
	lower, upper := x.keys.bounds(t)
	it, err := snap.NewIter(lower, upper)
	if err != nil {
		return nil, err
	}
	for ok := it.First(); ok; ok = it.Next() {
		out = append(out, [2][]byte{bytes.Clone(it.Key()[len(lower):]), bytes.Clone(it.Value())})
	}
	return out, it.Close()
}
