package conformance

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// changeScenes is the sequence log.
var changeScenes = []scene{
	{"ChangesOrder", changesOrder},
	{"ChangesFilters", changesFilters},
	{"ChangesDocuments", changesDocuments},
	{"ChangesManyBatches", changesManyBatches},
	{"ChangesSelectorFault", changesSelectorFault},
	{"Pending", pendingRows},
	{"UpdatedWakes", updatedWakes},
	{"UpdatedCancelled", updatedCancelled},
}

// changeRow is a row of the log as tests compare it.
type changeRow struct {
	Seq     uint64
	ID      string
	Winner  model.Rev
	Deleted bool
}

// changes reads the log whole and tells how far it came.
func (t *trial) changes(req shardapi.ChangesRequest) ([]changeRow, uint64) {
	t.Helper()
	s, err := t.shard.Changes(t.ctx, &req)
	t.no(err)
	var rows []changeRow
	drain(t, s, func(c shardapi.Change) {
		w := model.Rev{Pos: c.Leaves[0].Rev.Pos, Hash: strings.Clone(c.Leaves[0].Rev.Hash)}
		rows = append(rows, changeRow{c.Seq, strings.Clone(c.ID), w, c.Deleted()})
	})
	return rows, s.Seq()
}

// feed reads the log as "seq:id" words.
func (t *trial) feed(req shardapi.ChangesRequest) (string, uint64) {
	t.Helper()
	rows, seq := t.changes(req)
	words := make([]string, len(rows))
	for i, r := range rows {
		words[i] = fmt.Sprintf("%d:%s", r.Seq, r.ID)
	}
	return strings.Join(words, " "), seq
}

// Every document has one row, at its last change.
func changesOrder(t *trial) {
	a := t.put("a", `{}`, model.Rev{})
	b := t.put("b", `{}`, model.Rev{})
	t.put("c", `{}`, model.Rev{})
	t.put("a", `{"v":2}`, a)
	dead := t.remove("b", b)
	rows, _ := t.changes(shardapi.ChangesRequest{Limit: -1})
	if len(rows) != 3 || rows[2] != (changeRow{5, "b", dead, true}) || rows[1].Deleted {
		t.Fatalf("rows %+v", rows)
	}
	for _, c := range []struct {
		name string
		req  shardapi.ChangesRequest
		want string
		seq  uint64
	}{
		{"all", shardapi.ChangesRequest{Limit: -1}, "3:c 4:a 5:b", 5},
		{"since 3", shardapi.ChangesRequest{Limit: -1, Since: 3}, "4:a 5:b", 5},
		{"since a gap", shardapi.ChangesRequest{Limit: -1, Since: 1}, "3:c 4:a 5:b", 5},
		{"since now", shardapi.ChangesRequest{Limit: -1, Since: 5}, "", 5},
		{"since the future", shardapi.ChangesRequest{Limit: -1, Since: 99}, "", 99},
		{"since the end of time", shardapi.ChangesRequest{Limit: -1, Since: math.MaxUint64}, "", math.MaxUint64},
		{"limit", shardapi.ChangesRequest{Limit: 2}, "3:c 4:a", 4},
		{"limit 0", shardapi.ChangesRequest{Limit: 0, Since: 1}, "", 1},
	} {
		if got, seq := t.feed(c.req); got != c.want || seq != c.seq {
			t.Errorf("%s: %q up to %d, want %q up to %d", c.name, got, seq, c.want, c.seq)
		}
	}
	for req, want := range map[*shardapi.ChangesRequest]string{
		{Limit: -1, Descending: true}:           "5:b 4:a 3:c",
		{Limit: 2, Descending: true}:            "5:b 4:a",
		{Limit: -1, Descending: true, Since: 3}: "5:b 4:a",
	} {
		if got, _ := t.feed(*req); got != want {
			t.Errorf("%+v: %q, want %q", *req, got, want)
		}
	}
}

// What nobody wants is not sent, but it counts as seen.
func changesFilters(t *trial) {
	t.put("a", `{"kind":"x"}`, model.Rev{})
	t.put("_design/d", `{"kind":"x"}`, model.Rev{})
	b := t.put("b", `{"kind":"y"}`, model.Rev{})
	t.put("c", `{"kind":"x"}`, model.Rev{})
	t.write(model.Edit{ID: "b", Body: []byte(`{"kind":"x"}`), Parent: b, Deleted: true})
	t.put("z", `{"kind":"z"}`, model.Rev{})
	for _, c := range []struct {
		name string
		req  shardapi.ChangesRequest
		want string
		seq  uint64
	}{
		{"ids", shardapi.ChangesRequest{Limit: -1, DocIDs: []string{"c", "a", "none", "a"}}, "1:a 4:c", 6},
		{"ids since", shardapi.ChangesRequest{Limit: -1, Since: 1, DocIDs: []string{"c", "a"}}, "4:c", 6},
		{"ids with a limit", shardapi.ChangesRequest{Limit: 1, DocIDs: []string{"c", "a"}}, "1:a", 1},
		{"no ids at all", shardapi.ChangesRequest{Limit: -1, DocIDs: []string{}}, "", 6},
		{"design", shardapi.ChangesRequest{Limit: -1, Design: true}, "2:_design/d", 6},
		{"selector", shardapi.ChangesRequest{Limit: -1, Selector: []byte(`{"kind":{"$eq":"x"}}`)}, "1:a 2:_design/d 4:c 5:b", 6},
		{"selector on id", shardapi.ChangesRequest{Limit: -1, Selector: []byte(`{"_id":{"$gt":"b"}}`)}, "4:c 6:z", 6},
		{"selector with a limit", shardapi.ChangesRequest{Limit: 1, Since: 2, Selector: []byte(`{"kind":"x"}`)}, "4:c", 4},
		{"selector of nothing", shardapi.ChangesRequest{Limit: -1, Selector: []byte(`{"kind":"q"}`)}, "", 6},
	} {
		if got, seq := t.feed(c.req); got != c.want || seq != c.seq {
			t.Errorf("%s: %q up to %d, want %q up to %d", c.name, got, seq, c.want, c.seq)
		}
	}
	for want, req := range map[string]shardapi.ChangesRequest{
		"4:c 1:a":     {Limit: -1, Descending: true, DocIDs: []string{"a", "c"}},
		"2:_design/d": {Limit: -1, Descending: true, Design: true},
		"5:b":         {Limit: 1, Descending: true, Selector: []byte(`{"kind":"x"}`)},
	} {
		if got, _ := t.feed(req); got != want {
			t.Errorf("descending: %q, want %q", got, want)
		}
	}
}

// Rows have every leaf, winner first, and the winner as a document when asked for.
func changesDocuments(t *trial) {
	t.merge("a", `{"v":"x"}`, false, "2-x", "1-r")
	t.merge("a", `{"v":"y"}`, false, "2-y", "1-r")
	t.merge("a", `{"v":"z"}`, true, "3-z", "2-w", "1-r")
	t.write(model.Edit{ID: "b", Body: []byte(`{"last":"words"}`), Deleted: true, Replicated: true, Path: revs("1-b")})
	s, err := t.shard.Changes(t.ctx, &shardapi.ChangesRequest{Limit: -1, IncludeDocs: true, Want: shardapi.WantPath | shardapi.WantLeaves})
	t.no(err)
	n := 0
	drain(t, s, func(c shardapi.Change) {
		n++
		d := c.Doc
		if d == nil || d.ID != c.ID || d.Rev != c.Leaves[0].Rev || d.Deleted != c.Deleted() || d.Seq != c.Seq {
			t.Fatalf("row %+v with %+v", c, d)
		}
		switch c.ID {
		case "a":
			same(t, "leaves", c.Leaves, []model.Leaf{{Rev: rev("2-y")}, {Rev: rev("2-x")}, {Rev: rev("3-z"), Deleted: true}})
			same(t, "leaves of the document", d.Leaves, c.Leaves)
			same(t, "path", d.Path, revs("2-y", "1-r"))
			if c.Seq != 3 || string(d.Body) != `{"v":"y"}` {
				t.Errorf("row %+v with %+v", c, d)
			}
		case "b":
			if !c.Deleted() || string(d.Body) != `{"last":"words"}` {
				t.Errorf("row %+v with %+v", c, d)
			}
		}
	})
	if n != 2 {
		t.Fatalf("%d rows", n)
	}
	s, err = t.shard.Changes(t.ctx, &shardapi.ChangesRequest{Limit: -1})
	t.no(err)
	drain(t, s, func(c shardapi.Change) {
		if c.Doc != nil {
			t.Errorf("a document nobody asked for: %+v", c)
		}
	})
}

// A long log comes in several batches, Seq keeps step, and a filter that finds
// nothing still ends at the present.
func changesManyBatches(t *trial) {
	const n = 5000
	t.fillMany(n, 100)
	s, err := t.shard.Changes(t.ctx, &shardapi.ChangesRequest{Limit: -1, IncludeDocs: true})
	t.no(err)
	defer s.Close()
	if s.Seq() != 0 {
		t.Fatalf("begins at %d", s.Seq())
	}
	i, batches := 0, 0
	for {
		batch, err := s.Next()
		if err == io.EOF {
			break
		}
		t.no(err)
		batches++
		for k := range batch {
			c := &batch[k]
			if c.Seq != uint64(i+1) || c.ID != fmt.Sprintf("d%05d", i) || string(c.Doc.Body) != fmt.Sprintf(`{"i":%d,"pad":"%0100d"}`, i, i) {
				t.Fatalf("row %d is %d %q", i, c.Seq, c.ID)
			}
			i++
		}
		if len(batch) > 0 && s.Seq() < batch[len(batch)-1].Seq || s.Seq() > n {
			t.Fatalf("at %d after row %d", s.Seq(), i)
		}
	}
	if i != n || batches < 3 || s.Seq() != n {
		t.Fatalf("%d rows in %d batches up to %d", i, batches, s.Seq())
	}
	ids := make([]string, 0, 2500)
	for i := 0; i < n; i += 2 {
		ids = append(ids, fmt.Sprintf("d%05d", i))
	}
	rows, seq := t.changes(shardapi.ChangesRequest{Limit: -1, DocIDs: ids})
	if len(rows) != len(ids) || seq != n || rows[2499].ID != "d04998" {
		t.Fatalf("%d rows of %d ids up to %d", len(rows), len(ids), seq)
	}
	// A reader resumes from Seq after any batch without loss or repetition.
	got, since := 0, uint64(0)
	for since < n {
		s, err := t.shard.Changes(t.ctx, &shardapi.ChangesRequest{Limit: 700, Since: since, Selector: []byte(`{"i":{"$mod":[2,0]}}`)})
		t.no(err)
		batch, err := s.Next()
		if err != io.EOF { // the rest was filtered out
			t.no(err)
		}
		for _, c := range batch {
			if c.ID != ids[got] {
				t.Fatalf("resumed at %d: %q, want %q", since, c.ID, ids[got])
			}
			got++
		}
		since = s.Seq()
		t.no(s.Close())
	}
	if got != len(ids) {
		t.Fatalf("%d rows when resuming", got)
	}
}

// A selector that cannot be read is the client's fault, wherever the copy is.
func changesSelectorFault(t *trial) {
	_, err := t.shard.Changes(t.ctx, &shardapi.ChangesRequest{Limit: -1, Selector: []byte(`{"a":{"$nope":1}}`)})
	if model.KindOf(err) != model.KindBadRequest {
		t.Fatalf("error %v", err)
	}
}

// Pending counts rows, not changes.
func pendingRows(t *trial) {
	check := func(since uint64, want int64) {
		t.Helper()
		got, err := t.shard.Pending(t.ctx, since)
		t.no(err)
		if got != want {
			t.Fatalf("after %d: %d pending, want %d", since, got, want)
		}
	}
	check(0, 0)
	t.fillMany(6000, 1)
	check(0, 6000)
	check(1, 5999)
	check(5999, 1)
	check(6000, 0)
	check(math.MaxUint64, 0)
	d := t.winner("d00010") // sequence 11 moves to 6001
	t.put(d.ID, `{}`, d.Rev)
	check(0, 6000)
	check(10, 5990)
	check(11, 5990)
	check(6000, 1)
	check(6001, 0)
}

// Updated waits for what is durable, and many may wait.
func updatedWakes(t *trial) {
	t.put("a", `{}`, model.Rev{})
	if seq, err := t.shard.Updated(t.ctx, 0); err != nil || seq != 1 {
		t.Fatalf("at once: %d %v", seq, err)
	}
	const waiters = 300 // more than HTTP/2 would carry on one connection by default
	type woken struct {
		seq uint64
		err error
	}
	out := make(chan woken, waiters)
	for range waiters {
		go func() {
			seq, err := t.shard.Updated(t.ctx, 1)
			out <- woken{seq, err}
		}()
	}
	// Whether or not they wait by now, the write wakes them.
	t.put("b", `{}`, model.Rev{})
	for range waiters {
		if w := <-out; w.err != nil || w.seq != 2 {
			t.Fatalf("woken at %d: %v", w.seq, w.err)
		}
	}
}

// A waiter whose context ends goes, and the copy goes on.
func updatedCancelled(t *trial) {
	ctx, cancel := context.WithCancel(t.ctx)
	out := make(chan error, 1)
	go func() {
		_, err := t.shard.Updated(ctx, 0)
		out <- err
	}()
	cancel()
	t.is(<-out, context.Canceled)
	t.put("a", `{}`, model.Rev{})
	if seq, err := t.shard.Updated(t.ctx, 0); err != nil || seq != 1 {
		t.Fatalf("after it: %d %v", seq, err)
	}
}
