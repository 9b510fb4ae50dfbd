package conformance

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// listScenes is documents in the order of their ids.
var listScenes = []scene{
	{"ListBounds", listBounds},
	{"ListTables", listTables},
	{"ListDocuments", listDocuments},
	{"ListManyBatches", listManyBatches},
	{"ListClosedAndCancelled", listClosedAndCancelled},
}

// list reads a list whole; rows are ids.
func (t *trial) list(req shardapi.ListRequest) (*shardapi.ListHead, []string) {
	t.Helper()
	head, s, err := t.shard.List(t.ctx, &req)
	t.no(err)
	var ids []string
	drain(t, s, func(r shardapi.Row) { ids = append(ids, strings.Clone(r.ID)) })
	return head, ids
}

// Bounds, directions, limits and offsets, against a plain list.
func listBounds(t *trial) {
	for _, id := range []string{"a", "b", "b\x00", "c", "d", "gone", "é", "\xff"} {
		r := t.put(id, `{}`, model.Rev{})
		if id == "gone" {
			t.remove(id, r)
		}
	}
	at := func(s string) *string { return &s }
	for _, c := range []struct {
		name   string
		req    shardapi.ListRequest
		want   string
		offset int64
	}{
		{"all", shardapi.ListRequest{Limit: -1}, "a|b|b\x00|c|d|é|\xff", 0},
		{"backwards", shardapi.ListRequest{Limit: -1, Descending: true}, "\xff|é|d|c|b\x00|b|a", 0},
		{"from b", shardapi.ListRequest{Limit: -1, Start: at("b")}, "b|b\x00|c|d|é|\xff", 1},
		{"from between", shardapi.ListRequest{Limit: -1, Start: at("bb")}, "c|d|é|\xff", 3},
		{"from the empty id", shardapi.ListRequest{Limit: -1, Start: at("")}, "a|b|b\x00|c|d|é|\xff", 0},
		{"b to d", shardapi.ListRequest{Limit: -1, Start: at("b"), End: at("d")}, "b|b\x00|c|d", 1},
		{"b to before d", shardapi.ListRequest{Limit: -1, Start: at("b"), End: at("d"), ExclusiveEnd: true}, "b|b\x00|c", 1},
		{"d back to b", shardapi.ListRequest{Limit: -1, Start: at("d"), End: at("b"), Descending: true}, "d|c|b\x00|b", 2},
		{"d back to after b", shardapi.ListRequest{Limit: -1, Start: at("d"), End: at("b"), Descending: true, ExclusiveEnd: true}, "d|c|b\x00", 2},
		{"one id", shardapi.ListRequest{Limit: -1, Start: at("c"), End: at("c")}, "c", 3},
		{"one id, exclusive", shardapi.ListRequest{Limit: -1, Start: at("c"), End: at("c"), ExclusiveEnd: true}, "", 3},
		{"the wrong way round", shardapi.ListRequest{Limit: -1, Start: at("d"), End: at("b")}, "", 4},
		{"a deleted one", shardapi.ListRequest{Limit: -1, Start: at("gone"), End: at("gone")}, "", 5},
		{"up to the empty id", shardapi.ListRequest{Limit: -1, End: at("")}, "", 0},
		{"beyond the end", shardapi.ListRequest{Limit: -1, Start: at("\xff\xff")}, "", 7},
		{"limit", shardapi.ListRequest{Limit: 2, Start: at("b")}, "b|b\x00", 1},
		{"limit backwards", shardapi.ListRequest{Limit: 2, Descending: true}, "\xff|é", 0},
		{"limit over a deleted one", shardapi.ListRequest{Limit: 2, Start: at("d")}, "d|é", 4},
		{"limit 0", shardapi.ListRequest{Limit: 0}, "", 0},
	} {
		c.req.Offset = true
		head, ids := t.list(c.req)
		if got := strings.Join(ids, "|"); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if head.TotalRows != 7 || head.Offset != c.offset {
			t.Errorf("%s: total %d, offset %d, want 7 and %d", c.name, head.TotalRows, head.Offset, c.offset)
		}
		if head.Seq != 9 {
			t.Errorf("%s: sequence %d", c.name, head.Seq)
		}
	}
}

// Design documents are among the documents and have a list; local ones have theirs.
func listTables(t *trial) {
	for _, id := range []string{"_design/b", "_design/a", "_design0", "x", "A"} {
		t.put(id, `{}`, model.Rev{})
	}
	for _, id := range []string{"_local/2", "_local/1"} {
		_, err := t.shard.WriteLocal(t.ctx, &shardapi.LocalEdit{ID: id, Body: []byte(`{"of":"` + id + `"}`)})
		t.no(err)
	}
	head, ids := t.list(shardapi.ListRequest{Limit: -1})
	same(t, "documents", ids, []string{"A", "_design/a", "_design/b", "_design0", "x"})
	if head.TotalRows != 5 {
		t.Errorf("total %d", head.TotalRows)
	}
	_, ids = t.list(shardapi.ListRequest{Table: shardapi.TableDesign, Limit: -1})
	same(t, "design documents", ids, []string{"_design/a", "_design/b"})
	_, ids = t.list(shardapi.ListRequest{Table: shardapi.TableDesign, Limit: -1, Descending: true})
	same(t, "design documents backwards", ids, []string{"_design/b", "_design/a"})
	_, s, err := t.shard.List(t.ctx, &shardapi.ListRequest{Table: shardapi.TableLocal, Limit: -1, IncludeDocs: true})
	t.no(err)
	var rows []string
	drain(t, s, func(r shardapi.Row) { rows = append(rows, r.ID+" "+r.Rev.String()+" "+string(r.Doc.Body)) })
	same(t, "local documents", rows, []string{`_local/1 0-1 {"of":"_local/1"}`, `_local/2 0-1 {"of":"_local/2"}`})
	start := "_local/2"
	_, ids = t.list(shardapi.ListRequest{Table: shardapi.TableLocal, Limit: -1, Start: &start})
	same(t, "local documents from 2", ids, []string{"_local/2"})
}

// Rows carry the winner, with documents when asked for.
func listDocuments(t *trial) {
	r := t.put("a", `{"v":1}`, model.Rev{})
	r = t.put("a", `{"v":2}`, r)
	t.merge("b", `{"v":"x"}`, false, "2-x", "1-r")
	t.merge("b", `{"v":"y"}`, false, "2-y", "1-r")
	_, s, err := t.shard.List(t.ctx, &shardapi.ListRequest{Limit: -1})
	t.no(err)
	drain(t, s, func(row shardapi.Row) {
		if row.Doc != nil {
			t.Errorf("a document nobody asked for: %+v", row.Doc)
		}
	})
	_, s, err = t.shard.List(t.ctx, &shardapi.ListRequest{Limit: -1, IncludeDocs: true, Want: shardapi.WantLeaves | shardapi.WantPath})
	t.no(err)
	n := 0
	drain(t, s, func(row shardapi.Row) {
		n++
		d := row.Doc
		if d == nil || d.ID != row.ID || d.Rev != row.Rev || d.Deleted {
			t.Fatalf("row %+v with %+v", row, d)
		}
		switch row.ID {
		case "a":
			if row.Rev != r || string(d.Body) != `{"v":2}` || len(d.Path) != 2 || len(d.Leaves) != 1 || d.Seq != 2 {
				t.Errorf("row %+v with %+v", row, d)
			}
		case "b":
			if row.Rev != rev("2-y") || string(d.Body) != `{"v":"y"}` || len(d.Leaves) != 2 || d.Leaves[1].Rev != rev("2-x") || d.Seq != 4 {
				t.Errorf("row %+v with %+v", row, d)
			}
		}
	})
	if n != 2 {
		t.Fatalf("%d rows", n)
	}
}

// fillMany writes documents d00000 to d(n-1) in a few bulk writes.
func (t *trial) fillMany(n, pad int) {
	t.Helper()
	edits := make([]model.Edit, 0, 500)
	for i := range n {
		edits = append(edits, model.Edit{ID: fmt.Sprintf("d%05d", i), Body: fmt.Appendf(nil, `{"i":%d,"pad":"%0*d"}`, i, pad, i)})
		if len(edits) == cap(edits) || i == n-1 {
			t.write(edits...)
			edits = edits[:0]
		}
	}
}

// A long list comes in several batches, none of it lost, and a batch may be used
// until the next is asked for.
func listManyBatches(t *trial) {
	const n = 3000
	t.fillMany(n, 1000)
	_, s, err := t.shard.List(t.ctx, &shardapi.ListRequest{Limit: -1, IncludeDocs: true})
	t.no(err)
	defer s.Close()
	i, batches := 0, 0
	for {
		batch, err := s.Next()
		if err == io.EOF {
			break
		}
		t.no(err)
		batches++
		for k := range batch { // checked as a whole: rows must not share memory
			row := &batch[k]
			if row.ID != fmt.Sprintf("d%05d", i) || string(row.Doc.Body) != fmt.Sprintf(`{"i":%d,"pad":"%01000d"}`, i, i) {
				t.Fatalf("row %d is %q with %.40s", i, row.ID, row.Doc.Body)
			}
			i++
		}
	}
	if i != n || batches < 2 {
		t.Fatalf("%d rows in %d batches", i, batches)
	}
	start := "d02000"
	head, ids := t.list(shardapi.ListRequest{Limit: 900, Start: &start, Offset: true})
	if head.TotalRows != n || head.Offset != 2000 || len(ids) != 900 || ids[899] != "d02899" {
		t.Fatalf("head %+v, %d rows", head, len(ids))
	}
}

// A stream may be closed at any time, more than once, and gives nothing after it;
// one whose context ends does not pretend to be at its end.
func listClosedAndCancelled(t *trial) {
	t.fillMany(1000, 6000)
	open := func(ctx context.Context) shardapi.Stream[shardapi.Row] {
		_, s, err := t.shard.List(ctx, &shardapi.ListRequest{Limit: -1, IncludeDocs: true})
		t.no(err)
		return s
	}
	s := open(t.ctx)
	_, err := s.Next()
	t.no(err)
	t.no(s.Close())
	t.no(s.Close())
	if _, err := s.Next(); err == nil || err == io.EOF {
		t.Fatalf("after Close: %v", err)
	}
	t.no(open(t.ctx).Close()) // before the first batch

	gone, cancel := context.WithCancel(t.ctx)
	cancel()
	if _, s, err := t.shard.List(gone, &shardapi.ListRequest{Limit: -1}); err == nil {
		_, err = s.Next()
		t.is(err, context.Canceled)
		t.no(s.Close())
	} else {
		t.is(err, context.Canceled)
	}
}
