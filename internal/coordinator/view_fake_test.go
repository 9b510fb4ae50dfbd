package coordinator_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/reduce"
	"github.com/divandb/divan/internal/shardapi"
)

// emitted is a row of the test's view: the key is [a,b], the value a number.
type emitted struct {
	a, b  byte
	id    string
	value int
}

func (e *emitted) sort() []byte { return []byte{e.a, e.b} }
func (e *emitted) key() []byte  { return fmt.Appendf(nil, "[%d,%d]", e.a, e.b) }

// compare is the order of a view: by key, then by id; one document's rows of a key
// stay as they were emitted.
func (e *emitted) compare(o *emitted) int {
	if c := bytes.Compare(e.sort(), o.sort()); c != 0 {
		return c
	}
	return strings.Compare(e.id, o.id)
}

// viewNode is a node whose copies hold rows of a view in memory.
type viewNode struct {
	db     *cluster.Database
	coord  *coordinator.Coordinator
	copies map[shardapi.CopyID]*viewCopy
	all    []emitted // sorted
}

// Host gives the same copies whatever the name.
func (n *viewNode) Host(string) shardapi.Host { return viewHost{copies: n.copies} }

type viewHost struct {
	shardapi.Host // the rest is not asked for
	copies        map[shardapi.CopyID]*viewCopy
}

// Shard implements shardapi.Host.
func (h viewHost) Shard(id shardapi.CopyID) shardapi.Shard { return h.copies[id] }

// newViewNode spreads rows over the ranges of a database.
func newViewNode(t testing.TB, base *oneNode, spec cluster.CreateSpec, rows []emitted) *viewNode {
	t.Helper()
	n := &viewNode{db: base.create(t, spec), copies: make(map[shardapi.CopyID]*viewCopy), all: slices.Clone(rows)}
	n.coord = coordinator.New(base.registry, n, coordinator.Options{JS: base.js})
	for i, s := range n.db.Shards {
		n.copies[s.Copies[0].ID] = &viewCopy{seq: uint64(10 + i), js: base.js, rnd: rand.New(rand.NewPCG(uint64(i), 5))}
	}
	for _, r := range rows {
		c := n.copies[n.db.Shards[n.db.ShardOf(r.id)].Copies[0].ID]
		c.rows = append(c.rows, r)
	}
	order := func(a, b emitted) int { return a.compare(&b) }
	slices.SortStableFunc(n.all, order)
	for _, c := range n.copies {
		slices.SortStableFunc(c.rows, order)
	}
	return n
}

// viewCopy is one range's part of the view.
type viewCopy struct {
	shardapi.Shard // the rest is not asked for
	rows           []emitted
	seq            uint64
	rnd            *rand.Rand
	js             *jsvm.Pool // for reductions by functions

	fail       error         // of View
	failInRows error         // of the stream, after the first rows
	waits      chan struct{} // View tells here that it waits, and waits until its context ends
	asked      int
	closed     int
}

// ViewInfo implements shardapi.Shard.
func (c *viewCopy) ViewInfo(_ context.Context, sigs []string) (*shardapi.ViewInfo, error) {
	return &shardapi.ViewInfo{Seq: c.seq, Waiting: int64(len(sigs))}, c.fail
}

// bound is an end of a range of keys.
type bound struct {
	emitted
	open, hasID bool
}

func readBound(key []byte, id string, hasID bool) bound {
	b := bound{open: key == nil, hasID: hasID, emitted: emitted{id: id}}
	if _, err := fmt.Sscanf(string(key), "[%d,%d]", &b.a, &b.b); err != nil && !b.open {
		panic(err)
	}
	return b
}

// compare tells where a row lies beside a bound, in the direction of travel.
func (b *bound) compare(r *emitted, descending bool) int {
	c := bytes.Compare(r.sort(), b.sort())
	if c == 0 && b.hasID {
		c = strings.Compare(r.id, b.id)
	}
	if descending {
		return -c
	}
	return c
}

// pick gives the rows of a range in the direction of travel, and how many lie
// before it.
func pick(rows []emitted, k *shardapi.KeyRange, descending bool) (in []emitted, before int64) {
	start, end := readBound(k.Start, k.StartID, k.HasStartID), readBound(k.End, k.EndID, k.HasEndID)
	for i := range rows {
		r := &rows[i]
		if !start.open && start.compare(r, descending) < 0 {
			before++
			continue
		}
		if c := end.compare(r, descending); !end.open && (c > 0 || c == 0 && k.ExclusiveEnd) {
			continue
		}
		in = append(in, *r)
	}
	if descending {
		slices.Reverse(in)
	}
	return in, before
}

// groupKey cuts a key to its group's.
func groupKey(r *emitted, level int) (key, sort []byte) {
	switch level {
	case shardapi.GroupNone:
		return []byte("null"), nil
	case 1:
		return fmt.Appendf(nil, "[%d]", r.a), []byte{r.a}
	}
	return r.key(), r.sort()
}

// View implements shardapi.Shard.
func (c *viewCopy) View(ctx context.Context, req *shardapi.ViewRequest) (*shardapi.ViewHead, shardapi.Stream[shardapi.ViewRow], error) {
	c.asked++
	if c.fail != nil {
		return nil, nil, c.fail
	}
	if c.waits != nil {
		c.waits <- struct{}{}
		<-ctx.Done()
		return nil, nil, context.Cause(ctx)
	}
	head := &shardapi.ViewHead{TotalRows: int64(len(c.rows)), Seq: c.seq}
	var out []shardapi.ViewRow
	for i := range req.Ranges {
		in, before := pick(c.rows, &req.Ranges[i], req.Descending)
		if i == 0 && req.Offset {
			head.Offset = before
		}
		if !req.Reduce {
			for _, r := range in {
				out = append(out, shardapi.ViewRow{Range: i, Sort: r.sort(), Key: r.key(), ID: r.id, Value: fmt.Append(nil, r.value)})
			}
			continue
		}
		groups, err := c.reduceGroups(ctx, req, i, in)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, groups...)
	}
	if req.Limit >= 0 {
		out = out[:min(req.Limit, int64(len(out)))]
	}
	return head, &viewCopyStream{c: c, ctx: ctx, rest: out}, nil
}

// reduceGroups reduces a copy's rows of one range to states.
func (c *viewCopy) reduceGroups(ctx context.Context, req *shardapi.ViewRequest, at int, in []emitted) ([]shardapi.ViewRow, error) {
	reducer := reduce.Script(c.js, req.Def.Program, req.Def.Reduce)
	if reduce.IsBuiltin(req.Def.Reduce) {
		var err error
		if reducer, err = reduce.Builtin(req.Def.Reduce); err != nil {
			return nil, err
		}
	}
	var groups []shardapi.ViewRow
	var runs []reduce.Run
	for k := range in {
		key, sort := groupKey(&in[k], req.GroupLevel)
		if n := len(groups); n == 0 || !bytes.Equal(groups[n-1].Key, key) {
			groups = append(groups, shardapi.ViewRow{Range: at, Sort: sort, Key: key})
			runs = append(runs, reduce.Run{})
		}
		run := &runs[len(runs)-1]
		run.Rows = append(run.Rows, reduce.Row{Sort: in[k].sort(), Key: in[k].key(), Value: fmt.Append(nil, in[k].value), ID: in[k].id})
	}
	states, err := reducer.Reduce(ctx, runs)
	for k := range states {
		groups[k].Value = states[k]
	}
	return groups, err
}

// viewCopyStream gives rows in batches of any size, in memory that the next batch
// overwrites.
type viewCopyStream struct {
	c    *viewCopy
	ctx  context.Context
	rest []shardapi.ViewRow
	used [][]byte
}

// Next implements shardapi.Stream.
func (s *viewCopyStream) Next() ([]shardapi.ViewRow, error) {
	if err := s.ctx.Err(); err != nil {
		return nil, context.Cause(s.ctx)
	}
	for _, b := range s.used {
		for i := range b {
			b[i] = '#'
		}
	}
	s.used = nil
	if len(s.rest) == 0 {
		if s.c.failInRows != nil {
			return nil, s.c.failInRows
		}
		return nil, io.EOF
	}
	n := min(s.c.rnd.IntN(40), len(s.rest)) // none, sometimes
	batch := s.rest[:n]
	s.rest = s.rest[n:]
	for i := range batch {
		r := &batch[i]
		r.Sort, r.Key, r.Value = bytes.Clone(r.Sort), bytes.Clone(r.Key), bytes.Clone(r.Value)
		s.used = append(s.used, r.Sort, r.Key, r.Value)
	}
	return batch, nil
}

// Close implements shardapi.Stream.
func (s *viewCopyStream) Close() error {
	s.c.closed++
	return nil
}
