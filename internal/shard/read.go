package shard

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/revtree"
	"github.com/divandb/divan/internal/shardapi"
)

// getter is the store or a snapshot of it.
type getter interface {
	Get(key []byte) (kv.Value, bool, error)
}

// reader is the working memory of a read.
type reader struct {
	c    *Copy
	key  []byte
	head header
	tree revtree.Tree
}

var readers = sync.Pool{New: func() any { return new(reader) }}

// newReader takes a reader from the pool; done gives it back.
func (c *Copy) newReader() *reader {
	r := readers.Get().(*reader)
	r.c = c
	return r
}

func (r *reader) done() {
	r.c, r.head = nil, header{}
	r.tree.Reset()
	readers.Put(r)
}

// Read answers several documents, each as of a moment at which what is shown was
// durable.
func (c *Copy) Read(ctx context.Context, req *shardapi.ReadRequest) (*shardapi.ReadResponse, error) {
	if err := c.alive(); err != nil {
		return nil, err
	}
	r := c.newReader()
	defer r.done()
	resp := &shardapi.ReadResponse{Answers: make([]shardapi.DocAnswer, len(req.Queries))}
	for i := range req.Queries {
		if i&63 == 63 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err := r.answer(ctx, &req.Queries[i], &resp.Answers[i]); err != nil {
			return nil, err
		}
	}
	return resp, nil
}

// maxRereads bounds how often a read starts over because compaction took a body
// between the look at the tree and the look at the body. Each time needs another
// update and another compaction in that moment.
const maxRereads = 100

// answer reads one document.
func (r *reader) answer(ctx context.Context, q *shardapi.DocQuery, out *shardapi.DocAnswer) error {
	for range maxRereads {
		found, err := r.load(ctx, q.ID, q.AllLeaves || len(q.Revs) > 0 || q.Want&^shardapi.WantBody != 0)
		if err != nil {
			return err
		}
		if !found {
			*out = shardapi.DocAnswer{Missing: slices.Clone(q.Revs)}
			return nil
		}
		*out = shardapi.DocAnswer{Found: true}
		ok, err := r.collect(q, out)
		if err != nil || ok {
			return err
		}
	}
	return corrupt("document without its body")
}

// load reads the info row of a document and waits until it is durable (I3). The
// tree is decoded only when asked for.
func (r *reader) load(ctx context.Context, id string, tree bool) (found bool, err error) {
	r.key = r.c.appendInfoKey(r.key[:0], id)
	val, found, err := r.c.store.Get(r.key)
	if err != nil || !found {
		return false, err
	}
	err = r.parse(val.Bytes(), tree)
	val.Release()
	if err != nil {
		return false, fmt.Errorf("read %q: %w", id, err)
	}
	return true, r.c.mark.waitSeq(ctx, r.head.seq)
}

// parse takes in an info row.
func (r *reader) parse(row []byte, tree bool) error {
	stored, err := parseInfo(row, &r.head)
	if err != nil || !tree {
		return err
	}
	return r.tree.Decode(stored)
}

// collect fills the answer from the loaded document. It gives false if a body
// that the tree knows has vanished, which means that the row is outdated.
func (r *reader) collect(q *shardapi.DocQuery, out *shardapi.DocAnswer) (ok bool, err error) {
	switch {
	case q.AllLeaves:
		for _, i := range r.tree.Leaves() {
			if ok, err := r.addNode(q, out, i); !ok || err != nil {
				return ok, err
			}
		}
		return true, nil
	case len(q.Revs) == 0:
		return r.addWinner(q, out)
	}
	find := r.tree.Finder(len(q.Revs))
	for _, rev := range q.Revs {
		i := find(rev)
		if i < 0 {
			out.Missing = append(out.Missing, rev)
			continue
		}
		targets := []int{i}
		if q.Latest {
			targets = r.tree.LeavesUnder(i)
		}
		for _, i := range targets {
			if q.Latest && r.given(out, i) {
				continue // two asked revisions may have the same descendant
			}
			if ok, err := r.addNode(q, out, i); !ok || err != nil {
				return ok, err
			}
		}
	}
	return true, nil
}

// given tells whether the answer has a revision already.
func (r *reader) given(out *shardapi.DocAnswer, i int) bool {
	rev := r.tree.Node(i).Rev
	return slices.ContainsFunc(out.Docs, func(d model.Doc) bool { return d.Rev == rev })
}

// addWinner adds the winner, without the tree if nobody asked for it.
func (r *reader) addWinner(q *shardapi.DocQuery, out *shardapi.DocAnswer) (bool, error) {
	out.Docs = []model.Doc{{ID: q.ID, Rev: r.head.winner, Deleted: r.head.deleted, Seq: r.head.seq}}
	return r.fill(&out.Docs[0], q.Want, r.c.store)
}

// addNode adds a revision of the tree.
func (r *reader) addNode(q *shardapi.DocQuery, out *shardapi.DocAnswer, i int) (bool, error) {
	n := r.tree.Node(i)
	if !n.HasBody {
		out.Missing = append(out.Missing, n.Rev)
		return true, nil
	}
	out.Docs = append(out.Docs, model.Doc{ID: q.ID, Rev: n.Rev, Deleted: n.Deleted, Seq: r.head.seq})
	return r.fill(&out.Docs[len(out.Docs)-1], q.Want, r.c.store)
}

// fill adds what is wanted of a revision. It gives false if its body is not there.
func (r *reader) fill(d *model.Doc, want shardapi.Want, from getter) (ok bool, err error) {
	if want&^shardapi.WantBody != 0 {
		r.fillHistory(d, want)
	}
	if want&shardapi.WantBody == 0 {
		return true, nil
	}
	r.key = r.c.appendBodyKey(r.key[:0], d.ID, d.Rev)
	val, found, err := from.Get(r.key)
	if err != nil || !found {
		return false, err
	}
	defer val.Release()
	var text []byte
	if d.Atts, text, err = parseBody(val.Bytes()); err != nil {
		return false, fmt.Errorf("read %q: %w", d.ID, err)
	}
	d.Body = append(make([]byte, 0, len(text)), text...)
	return true, nil
}

// fillHistory adds what the tree knows.
func (r *reader) fillHistory(d *model.Doc, want shardapi.Want) {
	i := r.tree.Find(d.Rev)
	if want&shardapi.WantPath != 0 {
		d.Path = r.tree.Path(i)
	}
	if want&shardapi.WantRevsInfo != 0 {
		for k := int32(i); k >= 0; k = r.tree.Node(int(k)).Parent {
			n := r.tree.Node(int(k))
			status := "available"
			switch {
			case !n.HasBody:
				status = "missing"
			case n.Deleted:
				status = "deleted"
			}
			d.RevsInfo = append(d.RevsInfo, model.RevStatus{Rev: n.Rev, Status: status})
		}
	}
	if want&shardapi.WantLeaves != 0 {
		for _, k := range r.tree.Leaves() {
			n := r.tree.Node(k)
			d.Leaves = append(d.Leaves, model.Leaf{Rev: n.Rev, Deleted: n.Deleted})
		}
	}
}

// RevsDiff tells which of the given revisions the copy does not know.
func (c *Copy) RevsDiff(ctx context.Context, req *shardapi.RevsDiffRequest) (*shardapi.RevsDiffResponse, error) {
	if err := c.alive(); err != nil {
		return nil, err
	}
	if len(req.Revs) != len(req.IDs) {
		return nil, model.BadRequest("Every document needs its list of revisions.")
	}
	r := c.newReader()
	defer r.done()
	resp := &shardapi.RevsDiffResponse{Diffs: make([]shardapi.RevsDiff, len(req.IDs))}
	for i, id := range req.IDs {
		if i&63 == 63 && ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		found, err := r.load(ctx, id, true)
		if err != nil {
			return nil, err
		}
		diff := &resp.Diffs[i]
		if !found {
			diff.Missing = append(diff.Missing, req.Revs[i]...)
			continue
		}
		top := uint64(0)
		find := r.tree.Finder(len(req.Revs[i]))
		for _, rev := range req.Revs[i] {
			if find(rev) < 0 {
				diff.Missing = append(diff.Missing, rev)
				top = max(top, rev.Pos)
			}
		}
		if len(diff.Missing) == 0 {
			continue
		}
		for _, k := range r.tree.Leaves() {
			if n := r.tree.Node(k); n.Rev.Pos < top {
				diff.PossibleAncestors = append(diff.PossibleAncestors, n.Rev)
			}
		}
	}
	return resp, nil
}
