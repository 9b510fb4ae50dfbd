package shardhost

import (
	"context"
	"errors"
	"io"
	"strings"

	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// filterBatch is how many documents go to a worker at a time; filterBytes bounds
// their text.
const (
	filterBatch = 200
	filterBytes = 1 << 20
)

// scripted is a change stream that shows what a function of a design document
// wants. It reads with documents, whether the reader wants them or not.
type scripted struct {
	shardapi.ChangeStream
	ctx    context.Context
	shard  handle
	req    *shardapi.ChangesRequest
	left   int64  // rows still to give; <0: no limit
	at     uint64 // everything up to here was given or filtered out
	print  document.PrintOptions
	batch  []shardapi.Change // of the stream below, not yet asked about
	out    []shardapi.Change
	text   []byte
	ends   []int
	docs   [][]byte
	leaves []model.Leaf
	done   bool
}

// scriptedChanges streams the changes that req.Script wants.
func (s handle) scriptedChanges(ctx context.Context, req *shardapi.ChangesRequest) (shardapi.ChangeStream, error) {
	below := *req
	below.Script, below.IncludeDocs, below.Limit = nil, true, -1
	f := &scripted{ctx: ctx, shard: s, req: req, left: req.Limit, at: req.Since}
	// The history of a document may be much longer than the document. Functions that
	// never look at it need not have it parsed.
	if strings.Contains(req.Script.Func, "_revisions") {
		below.Want |= shardapi.WantPath
		f.print.Revs = true
	}
	stream, err := s.Changes(ctx, &below)
	if err != nil {
		return nil, err
	}
	f.ChangeStream = stream
	return f, nil
}

// Seq tells how far the stream has come.
func (f *scripted) Seq() uint64 { return f.at }

// Next gives what of the next documents passes, which may be nothing.
func (f *scripted) Next() ([]shardapi.Change, error) {
	if f.done || f.left == 0 {
		return nil, io.EOF
	}
	if len(f.batch) == 0 {
		batch, err := f.ChangeStream.Next()
		if err != nil {
			if errors.Is(err, io.EOF) {
				f.done, f.at = true, f.ChangeStream.Seq()
			}
			return nil, err
		}
		f.batch = batch
	}
	n, err := f.printNext()
	if err != nil || n == 0 {
		return nil, err
	}
	passed, err := f.shard.ask(f.ctx, f.req.Script, f.docs)
	if err != nil {
		return nil, err
	}
	f.out = f.out[:0]
	last := f.batch[n-1].Seq
	for i := range f.batch[:n] {
		c := f.batch[i]
		if f.req.Script.AllLeaves && len(c.Leaves) > 1 {
			if c.Leaves, err = f.passingLeaves(&c, passed[i]); err != nil {
				return nil, err
			}
			passed[i] = len(c.Leaves) > 0
		}
		if !passed[i] {
			continue
		}
		if !f.req.IncludeDocs {
			c.Doc = nil
		}
		f.out = append(f.out, c)
		if f.left > 0 {
			if f.left--; f.left == 0 {
				last = c.Seq
				break
			}
		}
	}
	f.batch = f.batch[n:]
	f.at = last
	return f.out, nil
}

// printNext prints the documents of the next changes for one call of the function and
// tells how many these are.
func (f *scripted) printNext() (int, error) {
	f.text, f.ends, f.docs = f.text[:0], f.ends[:0], f.docs[:0]
	for i := range f.batch {
		if len(f.ends) == filterBatch || len(f.text) > filterBytes {
			break
		}
		var err error
		if f.text, err = f.appendDoc(f.text, &f.batch[i]); err != nil {
			return 0, err
		}
		f.ends = append(f.ends, len(f.text))
	}
	from := 0
	for _, end := range f.ends {
		f.docs = append(f.docs, f.text[from:end:end])
		from = end
	}
	return len(f.docs), nil
}

// appendDoc prints a change's winner.
func (f *scripted) appendDoc(dst []byte, c *shardapi.Change) ([]byte, error) {
	if c.Doc != nil {
		return document.Append(dst, c.Doc, &f.print)
	}
	d := model.Doc{ID: c.ID, Rev: c.Leaves[0].Rev, Deleted: c.Leaves[0].Deleted, Body: []byte("{}")}
	return document.Append(dst, &d, &f.print)
}

// passingLeaves asks about the leaves of a change beside its winner.
func (f *scripted) passingLeaves(c *shardapi.Change, winner bool) ([]model.Leaf, error) {
	q := shardapi.DocQuery{ID: c.ID, Want: shardapi.WantBody}
	if f.print.Revs {
		q.Want |= shardapi.WantPath
	}
	for _, l := range c.Leaves[1:] {
		q.Revs = append(q.Revs, l.Rev)
	}
	resp, err := f.shard.Read(f.ctx, &shardapi.ReadRequest{Queries: []shardapi.DocQuery{q}})
	if err != nil {
		return nil, err
	}
	found := resp.Answers[0].Docs
	docs := make([][]byte, len(found))
	for i := range found {
		if docs[i], err = document.Append(nil, &found[i], &f.print); err != nil {
			return nil, err
		}
	}
	passed, err := f.shard.ask(f.ctx, f.req.Script, docs)
	if err != nil {
		return nil, err
	}
	f.leaves = nil // what was given out stays as it is
	if winner {
		f.leaves = append(f.leaves, c.Leaves[0])
	}
	for i := range found {
		if passed[i] {
			f.leaves = append(f.leaves, model.Leaf{Rev: found[i].Rev, Deleted: found[i].Deleted})
		}
	}
	return f.leaves, nil
}

// ask runs the function over documents and tells which pass.
func (s handle) ask(ctx context.Context, script *shardapi.Script, docs [][]byte) ([]bool, error) {
	passed := make([]bool, len(docs))
	if len(docs) == 0 {
		return passed, nil
	}
	if script.Map {
		emitted, err := s.h.opts.JS.Map(ctx, script.Program, []string{script.Func}, docs)
		if err != nil {
			return nil, err
		}
		for i := range emitted {
			// A map function that fails on a document emits nothing for it, as in an index.
			passed[i] = emitted[i][0].Rows != nil
			if k := (*jsvm.Killed)(nil); errors.As(emitted[i][0].Err, &k) {
				return nil, jsvm.ClientError("filter", k)
			}
		}
		return passed, nil
	}
	verdicts, err := s.h.opts.JS.Filter(ctx, script.Program, script.Func, script.Req, docs)
	if err != nil {
		return nil, err
	}
	for i := range verdicts {
		if err := verdicts[i].Err; err != nil {
			return nil, jsvm.ClientError("filter", err)
		}
		passed[i] = verdicts[i].Pass
	}
	return passed, nil
}
