package coordinator_test

import (
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

// collect reads a whole list.
func (n *oneNode) collect(t testing.TB, d *cluster.Database, req *coordinator.ListRequest) (*coordinator.ListHead, []string) {
	t.Helper()
	head, stream, err := n.coord.List(t.Context(), d, req)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var ids []string
	for {
		rows, err := stream.Next()
		if errors.Is(err, io.EOF) {
			return head, ids
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows {
			ids = append(ids, string([]byte(r.ID))) // the row's own bytes go with the batch
			if req.IncludeDocs && (r.Doc == nil || string(r.Doc.Body) != fmt.Sprintf(`{"is":%q}`, r.ID)) {
				t.Fatalf("row %q has document %+v", r.ID, r.Doc)
			}
		}
	}
}

// TestListAgainstModel compares lists with a sorted slice.
func TestListAgainstModel(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, q := range []int{1, 2, 3, 8} {
		d := n.create(t, cluster.CreateSpec{Name: fmt.Sprintf("q%d", q), Q: q})
		var all []string
		var edits []model.Edit
		for i := range 1500 {
			id := fmt.Sprintf("doc%04d", (i*7)%1500)
			all = append(all, id)
			edits = append(edits, doc(id))
		}
		all = append(all, "_design/x")
		edits = append(edits, doc("_design/x"))
		revs := n.put(t, d, edits...)
		for i := 0; i < 100; i++ { // some go again
			n.put(t, d, model.Edit{ID: edits[i].ID, Deleted: true, Parent: revs[i], Body: []byte(`{}`)})
		}
		all = all[100:]
		slices.Sort(all)
		rnd := rand.New(rand.NewPCG(uint64(q), 1))
		pick := func() *string {
			if rnd.IntN(3) == 0 {
				return nil
			}
			s := fmt.Sprintf("doc%04d", rnd.IntN(1600))
			return &s
		}
		for range 120 {
			req := &coordinator.ListRequest{Skip: int64(rnd.IntN(3) * rnd.IntN(300))}
			req.Start, req.End = pick(), pick()
			req.ExclusiveEnd = rnd.IntN(2) == 0
			req.Descending = rnd.IntN(2) == 0
			req.Limit = int64(rnd.IntN(4)*rnd.IntN(400) - 1)
			req.IncludeDocs = rnd.IntN(4) == 0
			req.Offset = true
			want, before := expect(all, req)
			head, got := n.collect(t, d, req)
			if !slices.Equal(got, want) {
				t.Fatalf("q=%d %s: %d rows %.3q, want %d %.3q", q, show(req), len(got), got, len(want), want)
			}
			if head.TotalRows != int64(len(all)) || head.Offset != min(before+req.Skip, int64(len(all))) || len(head.Seqs) != q {
				t.Fatalf("q=%d %s: head %+v, want total %d, offset %d", q, show(req), head, len(all), before+req.Skip)
			}
		}
		head, got := n.collect(t, d, &coordinator.ListRequest{ListRequest: shardapi.ListRequest{Table: shardapi.TableDesign, Limit: -1}})
		if !slices.Equal(got, []string{"_design/x"}) {
			t.Fatalf("q=%d design documents: %v, %+v", q, got, head)
		}
	}
}

// expect gives the rows a request must show and the documents before its start.
func expect(sorted []string, req *coordinator.ListRequest) (rows []string, before int64) {
	all := slices.Clone(sorted)
	if req.Descending {
		slices.Reverse(all)
	}
	past := func(id, bound string) bool { // id comes after the bound
		return id != bound && (id > bound) != req.Descending
	}
	for _, id := range all {
		if req.Start != nil && id != *req.Start && !past(id, *req.Start) {
			before++
			continue
		}
		if req.End != nil && (past(id, *req.End) || req.ExclusiveEnd && id == *req.End) {
			break
		}
		rows = append(rows, id)
	}
	rows = rows[min(int(req.Skip), len(rows)):]
	if req.Limit >= 0 {
		rows = rows[:min(int(req.Limit), len(rows))]
	}
	return rows, before
}

func show(req *coordinator.ListRequest) string {
	text := func(s *string) string {
		if s == nil {
			return "-"
		}
		return *s
	}
	return fmt.Sprintf("start %s end %s exclusive %v descending %v skip %d limit %d", text(req.Start), text(req.End),
		req.ExclusiveEnd, req.Descending, req.Skip, req.Limit)
}

// TestPartitionList asks one range for one partition.
func TestPartitionList(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	d := n.create(t, cluster.CreateSpec{Name: "p", Q: 4, Partitioned: true})
	var edits []model.Edit
	for _, p := range []string{"a", "b", "c", "d", "e"} {
		for i := range 10 {
			edits = append(edits, doc(fmt.Sprintf("%s:%d", p, i)))
		}
	}
	n.put(t, d, edits...)
	start, end := "c:", "c:\uffff"
	req := &coordinator.ListRequest{Partition: "c"}
	req.Start, req.End, req.Limit = &start, &end, -1
	_, got := n.collect(t, d, req)
	if len(got) != 10 || got[0] != "c:0" || got[9] != "c:9" {
		t.Fatalf("partition c: %v", got)
	}
	info, err := n.coord.PartitionInfo(t.Context(), d, "c")
	if err != nil || info.DocCount != 10 {
		t.Fatalf("partition info: %+v, %v", info, err)
	}
}

// TestListWithHugeNumbers gives limit and skip values whose sum is no int64.
func TestListWithHugeNumbers(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, q := range []int{1, 2} {
		d := n.create(t, cluster.CreateSpec{Name: fmt.Sprintf("q%d", q), Q: q})
		n.put(t, d, doc("a"), doc("b"), doc("c"))
		start := "b"
		for _, c := range []struct {
			limit, skip  int64
			rows, offset int64
		}{{math.MaxInt64, math.MaxInt64, 0, 3}, {math.MaxInt64, 1, 1, 2}, {1, math.MaxInt64, 0, 3}, {-1, math.MaxInt64, 0, 3}} {
			head, ids := n.collect(t, d, &coordinator.ListRequest{Skip: c.skip,
				ListRequest: shardapi.ListRequest{Limit: c.limit, Offset: true, Start: &start}})
			if int64(len(ids)) != c.rows || head.Offset != c.offset {
				t.Errorf("q %d limit %d skip %d: %d rows at offset %d, want %d at %d", q, c.limit, c.skip, len(ids), head.Offset, c.rows, c.offset)
			}
		}
	}
}

// BenchmarkList is the cost per row of a list without documents.
func BenchmarkList(b *testing.B) {
	n := newNode(b)
	for _, q := range []int{1, 2, 8} {
		d := n.create(b, cluster.CreateSpec{Name: fmt.Sprintf("q%d", q), Q: q})
		const docs = 20_000
		for i := 0; i < docs; i += 500 {
			var edits []model.Edit
			for j := range 500 {
				edits = append(edits, doc(fmt.Sprintf("document-%08d", i+j)))
			}
			n.put(b, d, edits...)
		}
		b.Run(fmt.Sprintf("q%d", q), func(b *testing.B) {
			for b.Loop() {
				_, stream, err := n.coord.List(b.Context(), d, &coordinator.ListRequest{ListRequest: shardapi.ListRequest{Limit: -1}})
				if err != nil {
					b.Fatal(err)
				}
				for err == nil {
					_, err = stream.Next()
				}
				if !errors.Is(err, io.EOF) {
					b.Fatal(err)
				}
				if err := stream.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*docs), "ns/row")
		})
	}
}
