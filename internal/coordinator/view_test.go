package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// collect reads a view whole; rows are texts.
func (n *viewNode) collect(t testing.TB, req *coordinator.ViewRequest) (*coordinator.ViewHead, []string) {
	t.Helper()
	head, stream, err := n.coord.View(t.Context(), n.db, req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
	}()
	var got []string
	for {
		rows, err := stream.Next()
		if err == io.EOF {
			if _, err := stream.Next(); err != io.EOF {
				t.Fatalf("after the end: %v", err)
			}
			return head, got
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			got = append(got, fmt.Sprintf("%d %s %s %s", r.Range, r.Key, r.ID, r.Value))
		}
	}
}

// expect evaluates a request over all rows at once.
func (n *viewNode) expect(req *coordinator.ViewRequest) (rows []string, before int64) {
	for i := range req.Ranges {
		in, early := pick(n.all, &req.Ranges[i], req.Descending)
		if i == 0 {
			before = early
		}
		if !req.Reduce {
			for _, r := range in {
				rows = append(rows, fmt.Sprintf("%d %s %s %d", i, r.key(), r.id, r.value))
			}
			continue
		}
		for from := 0; from < len(in); {
			key, _ := groupKey(&in[from], req.GroupLevel)
			sum, to := 0, from
			for ; to < len(in); to++ {
				if k, _ := groupKey(&in[to], req.GroupLevel); !bytes.Equal(k, key) {
					break
				}
				sum += in[to].value
			}
			value := sum
			if req.Def.Reduce == "_count" {
				value = to - from
			}
			rows = append(rows, fmt.Sprintf("%d %s  %d", i, key, value))
			from = to
		}
	}
	rows = rows[min(req.Skip, int64(len(rows))):]
	if req.Limit >= 0 {
		rows = rows[:min(req.Limit, int64(len(rows)))]
	}
	return rows, before
}

// randomRows makes rows of which many share a key, and some a key and a document.
func randomRows(rnd *rand.Rand, count int) []emitted {
	rows := make([]emitted, count)
	for i := range rows {
		rows[i] = emitted{a: byte(rnd.IntN(12)), b: byte(rnd.IntN(1 + i%20)), id: fmt.Sprintf("doc%03d", rnd.IntN(1+count/2)), value: rnd.IntN(1000)}
	}
	return rows
}

// randomView makes up a request.
func randomView(rnd *rand.Rand) *coordinator.ViewRequest {
	req := &coordinator.ViewRequest{Skip: int64(rnd.IntN(3) * rnd.IntN(400))}
	req.Descending = rnd.IntN(2) == 0
	req.Limit = int64(rnd.IntN(4)*rnd.IntN(400) - 1)
	key := func() []byte { return fmt.Appendf(nil, "[%d,%d]", rnd.IntN(13), rnd.IntN(20)) }
	id := func() string { return fmt.Sprintf("doc%03d", rnd.IntN(500)) }
	switch rnd.IntN(3) {
	case 0: // keys
		for range rnd.IntN(6) + 1 {
			k := key()
			req.Ranges = append(req.Ranges, shardapi.KeyRange{Start: k, End: k})
		}
	default:
		var k shardapi.KeyRange
		if rnd.IntN(3) > 0 {
			k.Start, k.StartID, k.HasStartID = key(), id(), rnd.IntN(2) == 0
		}
		if rnd.IntN(3) > 0 {
			k.End, k.EndID, k.HasEndID = key(), id(), rnd.IntN(2) == 0
			k.ExclusiveEnd = rnd.IntN(2) == 0
		}
		req.Ranges = []shardapi.KeyRange{k}
	}
	if rnd.IntN(2) == 0 {
		req.Reduce = true
		req.GroupLevel = rnd.IntN(4) - 1
		req.Def.Reduce = []string{"_sum", "_count"}[rnd.IntN(2)]
		req.Skip /= 10
	} else {
		req.Offset = true
	}
	return req
}

// TestViewAgainstModel compares views with a naive evaluation.
func TestViewAgainstModel(t *testing.T) {
	t.Parallel()
	base := newNode(t)
	for _, q := range []int{1, 2, 3, 8} {
		rnd := rand.New(rand.NewPCG(uint64(q), 2))
		n := newViewNode(t, base, cluster.CreateSpec{Name: fmt.Sprintf("q%d", q), Q: q}, randomRows(rnd, 1500))
		for range 400 {
			req := randomView(rnd)
			want, before := n.expect(req)
			head, got := n.collect(t, req)
			empty := req.Reduce && req.GroupLevel == shardapi.GroupNone && len(want) == 0
			if !slices.Equal(got, want) && !empty { // the value of nothing is another test's
				t.Fatalf("q=%d %+v: %d rows %.3q, want %d %.3q", q, req, len(got), got, len(want), want)
			}
			if req.Offset && head.Offset != min(before+req.Skip, int64(len(n.all))) {
				t.Fatalf("q=%d %+v: offset %d, want %d and skipped", q, req, head.Offset, before)
			}
			if head.TotalRows != int64(len(n.all)) || len(head.Seqs) != q || head.Seqs[q-1] != uint64(10+q-1) {
				t.Fatalf("q=%d %+v: head %+v", q, req, head)
			}
		}
		for i := range n.db.Shards {
			if c := n.copies[n.db.Shards[i].Copies[0].ID]; c.asked != 400 || c.closed < 400 {
				t.Errorf("q=%d: range %d was asked %d times and closed %d times", q, i, c.asked, c.closed)
			}
		}
	}
}

// TestViewWithHugeNumbers gives limit and skip values whose sum is no int64.
func TestViewWithHugeNumbers(t *testing.T) {
	t.Parallel()
	base := newNode(t)
	for _, q := range []int{1, 3} {
		n := newViewNode(t, base, cluster.CreateSpec{Name: fmt.Sprintf("q%d", q), Q: q}, []emitted{{1, 1, "a", 1}, {1, 2, "b", 2}, {1, 3, "c", 3}})
		for _, c := range []struct{ limit, skip, rows, offset int64 }{
			{math.MaxInt64, math.MaxInt64, 0, 3}, {math.MaxInt64, 1, 2, 1}, {1, math.MaxInt64, 0, 3}, {-1, math.MaxInt64, 0, 3},
			{0, 0, 0, 0}, {-1, -5, 3, 0},
		} {
			for _, reduced := range []bool{false, true} {
				req := &coordinator.ViewRequest{Skip: c.skip, ViewRequest: shardapi.ViewRequest{Limit: c.limit, Offset: true,
					Ranges: []shardapi.KeyRange{{}}, Reduce: reduced, GroupLevel: shardapi.GroupExact, Def: shardapi.ViewDef{Reduce: "_sum"}}}
				head, rows := n.collect(t, req)
				if int64(len(rows)) != c.rows || !reduced && head.Offset != c.offset || reduced && head.Offset != 0 {
					t.Errorf("q %d limit %d skip %d: %d rows at offset %d, want %d at %d", q, c.limit, c.skip, len(rows), head.Offset, c.rows, c.offset)
				}
			}
		}
	}
}

// TestViewOfNothing shows what a reduction of no rows gives: what one range gives.
func TestViewOfNothing(t *testing.T) {
	t.Parallel()
	base := newNode(t)
	one := newViewNode(t, base, cluster.CreateSpec{Name: "one", Q: 1}, nil)
	many := newViewNode(t, base, cluster.CreateSpec{Name: "many", Q: 4}, nil)
	for _, name := range []string{"_sum", "_count", "_stats"} {
		for _, skip := range []int64{0, 1} {
			for _, level := range []int{shardapi.GroupNone, shardapi.GroupExact, 1} {
				req := &coordinator.ViewRequest{Skip: skip, ViewRequest: shardapi.ViewRequest{Limit: -1, Reduce: true, GroupLevel: level,
					Ranges: []shardapi.KeyRange{{}}, Def: shardapi.ViewDef{Reduce: name}}}
				_, a := one.collect(t, req)
				_, b := many.collect(t, req)
				if !slices.Equal(a, b) || len(a) > 0 && (level != shardapi.GroupNone || skip > 0) {
					t.Errorf("%s at level %d with skip %d: one range %q, four ranges %q", name, level, skip, a, b)
				}
			}
		}
	}
}

// TestViewOfPartition asks one range only.
func TestViewOfPartition(t *testing.T) {
	t.Parallel()
	base := newNode(t)
	n := newViewNode(t, base, cluster.CreateSpec{Name: "p", Q: 4, Partitioned: true}, []emitted{{1, 2, "x:1", 5}, {1, 1, "x:2", 6}})
	req := &coordinator.ViewRequest{ViewRequest: shardapi.ViewRequest{Partition: "x", Limit: -1, Ranges: []shardapi.KeyRange{{}}}}
	head, rows := n.collect(t, req)
	if want := []string{"0 [1,1] x:2 6", "0 [1,2] x:1 5"}; !slices.Equal(rows, want) || head.TotalRows != 2 || head.Seqs != nil {
		t.Fatalf("%+v %q", head, rows)
	}
	asked := 0
	for _, c := range n.copies {
		asked += c.asked
	}
	if asked != 1 {
		t.Fatalf("%d ranges were asked", asked)
	}
}

// TestViewRangeFails finds one range's failure to be the answer, at once, also
// while others still build, and every stream closed.
func TestViewRangeFails(t *testing.T) {
	t.Parallel()
	base := newNode(t)
	n := newViewNode(t, base, cluster.CreateSpec{Name: "a", Q: 3}, randomRows(rand.New(rand.NewPCG(1, 1)), 900))
	req := &coordinator.ViewRequest{ViewRequest: shardapi.ViewRequest{Limit: -1, Ranges: []shardapi.KeyRange{{}}}}
	at := func(i int) *viewCopy { return n.copies[n.db.Shards[i].Copies[0].ID] }
	fault := &model.Error{Kind: model.KindInternal, Name: "broken", Reason: "a test"}

	at(1).fail = fault
	at(0).waits = make(chan struct{}, 1) // until the failure ends it
	if _, _, err := n.coord.View(t.Context(), n.db, req); !errors.Is(err, fault) {
		t.Fatal(err)
	}
	if at(2).closed != at(2).asked {
		t.Fatalf("range 2 was asked %d times and closed %d times", at(2).asked, at(2).closed)
	}
	at(1).fail, at(0).waits = nil, nil

	at(2).failInRows = fault
	_, rows, err := n.coord.View(t.Context(), n.db, req)
	if err != nil {
		t.Fatal(err)
	}
	before := at(0).closed
	for err == nil {
		_, err = rows.Next()
	}
	if !errors.Is(err, fault) {
		t.Fatal(err)
	}
	if _, err := rows.Next(); !errors.Is(err, fault) {
		t.Fatalf("asked again: %v", err)
	}
	if err := rows.Close(); err != nil || at(0).closed != before+1 {
		t.Fatalf("closed %d times, %v", at(0).closed-before, err)
	}
	at(2).failInRows = nil

	if _, err := base.registry.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	at(1).fail = model.ErrCopyClosed
	if _, _, err := n.coord.View(t.Context(), n.db, req); !errors.Is(err, model.ErrDBNotFound) {
		t.Fatalf("of a database that is gone: %v", err)
	}
	if _, err := n.coord.ViewInfo(t.Context(), n.db, nil); !errors.Is(err, model.ErrDBNotFound) {
		t.Fatalf("of a database that is gone: %v", err)
	}
}

// TestViewLeft ends waiting and reading with the caller's own reason.
func TestViewLeft(t *testing.T) {
	t.Parallel()
	base := newNode(t)
	n := newViewNode(t, base, cluster.CreateSpec{Name: "a", Q: 3}, randomRows(rand.New(rand.NewPCG(1, 1)), 900))
	req := &coordinator.ViewRequest{ViewRequest: shardapi.ViewRequest{Limit: -1, Ranges: []shardapi.KeyRange{{}}}}
	why := errors.New("nobody is waiting")

	ctx, cancel := context.WithCancelCause(t.Context())
	_, rows, err := n.coord.View(ctx, n.db, req)
	if err != nil {
		t.Fatal(err)
	}
	cancel(why)
	for err == nil {
		_, err = rows.Next()
	}
	if !errors.Is(err, why) {
		t.Fatal(err)
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}

	_, rows, err = n.coord.View(t.Context(), n.db, req)
	if err != nil {
		t.Fatal(err)
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := rows.Next(); err == nil || err == io.EOF {
		t.Fatalf("after Close: %v", err)
	}

	ctx, cancel = context.WithCancelCause(t.Context())
	waits := n.copies[n.db.Shards[2].Copies[0].ID]
	waits.waits = make(chan struct{}, 1)
	go func() {
		<-waits.waits
		cancel(why)
	}()
	if _, _, err := n.coord.View(ctx, n.db, req); !errors.Is(err, why) {
		t.Fatal(err)
	}
}

// TestViewWithoutReduce refuses to reduce what has no reduction.
func TestViewWithoutReduce(t *testing.T) {
	t.Parallel()
	n := newViewNode(t, newNode(t), cluster.CreateSpec{Name: "a", Q: 2}, nil)
	_, _, err := n.coord.View(t.Context(), n.db, &coordinator.ViewRequest{ViewRequest: shardapi.ViewRequest{Reduce: true, Ranges: []shardapi.KeyRange{{}}}})
	if model.KindOf(err) != model.KindBadRequest {
		t.Fatal(err)
	}
}

// TestViewInfo has one entry per range, in their order.
func TestViewInfo(t *testing.T) {
	t.Parallel()
	n := newViewNode(t, newNode(t), cluster.CreateSpec{Name: "a", Q: 3}, nil)
	info, err := n.coord.ViewInfo(t.Context(), n.db, []string{"x", "y"})
	if err != nil || len(info) != 3 {
		t.Fatal(info, err)
	}
	for i, p := range info {
		if p.Seq != uint64(10+i) || p.Waiting != 2 {
			t.Errorf("range %d: %+v", i, p)
		}
	}
}
