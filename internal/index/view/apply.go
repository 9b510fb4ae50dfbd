package view

import (
	"bytes"
	"context"
	"errors"
	"slices"

	"github.com/divandb/divan/internal/kv"
)

// Apply puts in the rows of changed documents and moves the index to seq. A
// document may stand in docs once. Row order within DocRows is the order of emits.
// It is one batch: what a query sees is before all of it or after all of it.
func (x *Index) Apply(ctx context.Context, docs []DocRows, seq uint64) (err error) {
	if err := x.alive(); err != nil {
		return err
	}
	b := x.o.Store.NewBatch()
	defer b.Close()
	x.diff.reset()
	under := x.inBuild()
	if err := x.documents(ctx, docs, under, b); err != nil {
		return err
	}
	d := &x.diff
	now := x.state()
	next := *now
	var changed []nodeRef
	next.seq = seq
	next.rows += d.rows
	next.external += d.external
	next.active += d.active
	if under != nil {
		next.building = true
	} else if changed, err = x.updateNodes(ctx, now, &next, b); err != nil {
		return err
	}
	if err := x.commit(b, &next); err != nil {
		return err
	}
	if next.version != now.version {
		x.cache.advance(next.version, changed)
	}
	return nil
}

// commit writes a batch together with the counters that hold after it.
func (x *Index) commit(b *kv.Batch, next *meta) error {
	stored := next.append(make([]byte, 0, 96+len(next.total)+len(next.root.text)))
	b.Set(x.keys.meta(), stored)
	size := int64(b.Size())
	x.epoch.Add(1)
	defer x.epoch.Add(1)
	if err := commit(x.o.Store, b); err != nil {
		return err
	}
	x.memory.wrote(x.o.Store, size)
	return x.setState(stored)
}

// documents puts the rows of documents into the batch and notes what changed.
func (x *Index) documents(ctx context.Context, docs []DocRows, under *build, b *kv.Batch) error {
	var key []byte
	for i := range docs {
		if i%256 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		doc := &docs[i]
		key = x.keys.appendBack(key[:0], doc.ID)
		var v kv.Value
		var ok bool
		var err error
		if !under.isNew(doc.ID) {
			if v, ok, err = x.o.Store.Get(key); err != nil {
				return err
			}
		}
		first := len(x.diff.ops)
		back, changed, err := x.diff.document(doc, v.Bytes())
		v.Release()
		if err != nil {
			return err
		}
		switch {
		case !changed:
			continue
		case len(back) > 0:
			b.Set(key, back)
		case ok:
			b.Delete(key)
		}
		x.putRows(x.diff.ops[first:], b)
	}
	return nil
}

// putRows writes what happens to rows.
func (x *Index) putRows(ops []op, b *kv.Batch) {
	var key []byte
	for i := range ops {
		o := &ops[i]
		if o.kind == opDelete {
			key = x.keys.appendRow(key[:0], o.row)
			b.Delete(key)
			continue
		}
		k, v := b.SetDeferred(len(x.keys.prefix)+1+len(o.row), rowValueLen(len(o.sort), o.show))
		x.keys.appendRow(k[:0], o.row)
		putRowValue(v, len(o.sort), o.show)
	}
}

// updateNodes works the noted changes into the nodes, and tells which it changed.
func (x *Index) updateNodes(ctx context.Context, now, next *meta, b *kv.Batch) (changed []nodeRef, err error) {
	ops := x.diff.ops
	if x.o.Reducer == nil {
		ops = slices.DeleteFunc(ops, func(o op) bool { return o.kind == opChange })
	}
	if len(ops) == 0 {
		return nil, nil
	}
	slices.SortFunc(ops, func(a, b op) int { return bytes.Compare(a.row, b.row) })
	u := &update{x: x, ctx: ctx, m: now, runs: rowRuns{reducer: x.o.Reducer}}
	defer func() { err = errors.Join(err, u.end()) }()
	lower, upper := x.keys.bounds(tableRow)
	if u.rows, err = x.o.Store.NewIter(lower, upper); err != nil {
		return nil, err
	}
	if err := u.run(ops, next, b); err != nil {
		return nil, err
	}
	return u.changed(), nil
}
