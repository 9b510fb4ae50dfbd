package conformance

import (
	"strings"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// documentScenes is writing and reading documents.
var documentScenes = []scene{
	{"DocumentLife", documentLife},
	{"DocumentConflicts", documentConflicts},
	{"DocumentBytes", documentBytes},
	{"DocumentReplicated", documentReplicated},
	{"DocumentLeaves", documentLeaves},
	{"DocumentLatest", documentLatest},
	{"DocumentHistory", documentHistory},
	{"DocumentStemming", documentStemming},
	{"DocumentRevsDiff", documentRevsDiff},
	{"DocumentReadMany", documentReadMany},
}

// A document is created, changed, deleted and comes back.
func documentLife(t *trial) {
	if a := t.ask(shardapi.DocQuery{ID: "a", Want: shardapi.WantBody}); a.Found || len(a.Docs) != 0 {
		t.Fatalf("a document nobody wrote: %+v", a)
	}
	r1 := t.put("a", `{"n":1}`, model.Rev{})
	if r1.Pos != 1 || len(r1.Hash) != 32 {
		t.Fatalf("first revision %v", r1)
	}
	r2 := t.put("a", `{"n":2}`, r1)
	d := t.winner("a")
	if d.ID != "a" || d.Rev != r2 || d.Deleted || string(d.Body) != `{"n":2}` || d.Seq != 2 {
		t.Fatalf("read %+v", d)
	}
	// The superseded body is there until compaction takes it.
	a := t.ask(shardapi.DocQuery{ID: "a", Revs: []model.Rev{r1}, Want: shardapi.WantBody})
	if len(a.Docs) != 1 || a.Docs[0].Rev != r1 || string(a.Docs[0].Body) != `{"n":1}` {
		t.Fatalf("the older revision: %+v", a)
	}
	r3 := t.write(model.Edit{ID: "a", Body: []byte(`{"why":"old"}`), Parent: r2, Deleted: true})[0]
	if d := t.winner("a"); !d.Deleted || d.Rev != r3 || string(d.Body) != `{"why":"old"}` {
		t.Fatalf("the tombstone: %+v", d)
	}
	r4 := t.put("a", `{"n":4}`, model.Rev{})
	if r4.Pos != 4 {
		t.Fatalf("recreated as %v", r4)
	}
	if d := t.winner("a"); d.Deleted || d.Rev != r4 {
		t.Fatalf("the recreated: %+v", d)
	}
	// Without WantBody nobody pays for one.
	a = t.ask(shardapi.DocQuery{ID: "a"})
	if len(a.Docs) != 1 || a.Docs[0].Rev != r4 || len(a.Docs[0].Body) != 0 {
		t.Fatalf("without a body: %+v", a)
	}
}

// An edit must build on a leaf.
func documentConflicts(t *trial) {
	r1 := t.put("a", `{"n":1}`, model.Rev{})
	r2 := t.put("a", `{"n":2}`, r1)
	for what, e := range map[string]model.Edit{
		"create of what is there": {ID: "a", Body: []byte(`{"n":1}`)},
		"inner parent":            {ID: "a", Body: []byte(`{"n":3}`), Parent: r1},
		"unknown parent":          {ID: "a", Body: []byte(`{}`), Parent: rev("2-0123")},
		"unknown document":        {ID: "b", Body: []byte(`{}`), Parent: r1},
		"delete by inner parent":  {ID: "a", Body: []byte(`{}`), Parent: r1, Deleted: true},
		"delete without parent":   {ID: "a", Body: []byte(`{}`), Deleted: true},
	} {
		if err := t.refused(e); *err != *model.ErrConflict {
			t.Errorf("%s: %v", what, err)
		}
	}
	if d := t.winner("a"); d.Rev != r2 || d.Seq != 2 {
		t.Fatalf("after the refusals: %+v", d)
	}
	if a := t.ask(shardapi.DocQuery{ID: "b"}); a.Found {
		t.Fatal("a refused edit made a document")
	}
	r3 := t.remove("a", r2)
	if err := t.refused(model.Edit{ID: "a", Body: []byte(`{}`), Parent: r3, Deleted: true}); *err != *model.ErrConflict {
		t.Fatalf("deleting a tombstone: %v", err)
	}
	if r := t.put("a", `{"back":1}`, r3); r.Pos != 4 {
		t.Fatalf("on a tombstone: %v", r)
	}
}

// Ids and bodies come back byte for byte.
func documentBytes(t *trial) {
	ids := []string{"ä/ö?#%", "a\x00b", "\xff\xfe", strings.Repeat("long", 500), "_design/x", " "}
	big := `{"big":"` + strings.Repeat("0123456789abcdef", 1<<16) + `"}`
	bodies := []string{`{}`, `{"n":1E+2,"m":1.0,"big":123456789012345678901234567890}`, `{"s":"\u00e4ä\/"}`, `{"":{"":[]}}`, big, `{"_x":1}`}
	for i, id := range ids {
		r := t.put(id, bodies[i], model.Rev{})
		if d := t.winner(id); d.ID != id || d.Rev != r || string(d.Body) != bodies[i] {
			t.Errorf("%q came back as %q with %d bytes", id, d.ID, len(d.Body))
		}
	}
}

// A replicated revision is merged as it is, once.
func documentReplicated(t *trial) {
	t.merge("a", `{"v":"3x"}`, false, "3-x", "2-b", "1-a")
	if d := t.winner("a"); d.Rev != rev("3-x") || string(d.Body) != `{"v":"3x"}` || d.Seq != 1 {
		t.Fatalf("merged %+v", d)
	}
	t.merge("a", `{"v":"other"}`, false, "3-x", "2-b", "1-a")
	if d := t.winner("a"); string(d.Body) != `{"v":"3x"}` || d.Seq != 1 {
		t.Fatalf("the known one again: %+v", d)
	}
	a := t.ask(shardapi.DocQuery{ID: "a", Revs: revs("1-a", "2-b", "9-z"), Want: shardapi.WantBody})
	if !a.Found || len(a.Docs) != 0 {
		t.Fatalf("bodies that never came: %+v", a)
	}
	same(t, "missing", a.Missing, revs("1-a", "2-b", "9-z"))
	t.merge("a", `{"v":"3y"}`, false, "3-y", "2-b")
	if d := t.winner("a"); d.Rev != rev("3-y") {
		t.Fatalf("the higher hash wins: %+v", d)
	}
	t.merge("a", `{}`, true, "4-z", "3-y")
	if d := t.winner("a"); d.Rev != rev("3-x") || d.Deleted {
		t.Fatalf("a live leaf wins over a tombstone: %+v", d)
	}
	// A history that shares nothing is a branch of its own.
	t.merge("a", `{"v":"7"}`, false, "7-q", "6-p")
	if d := t.winner("a"); d.Rev != rev("7-q") {
		t.Fatalf("the longest history wins: %+v", d)
	}
	if err := t.refused(model.Edit{ID: "a", Replicated: true, Body: []byte(`{}`)}); err.Kind != model.KindBadRequest {
		t.Fatalf("a replicated edit without history: %v", err)
	}
}

// Leaves come in the order in which they would win.
func documentLeaves(t *trial) {
	t.merge("a", `{"v":1}`, false, "2-a", "1-r")
	t.merge("a", `{"v":2}`, false, "2-c", "1-r")
	t.merge("a", `{"v":3}`, true, "9-d", "8-x")
	t.merge("a", `{"v":4}`, false, "2-b", "1-r")
	t.merge("a", `{"v":5}`, true, "3-e", "2-f", "1-r")
	want := revs("2-c", "2-b", "2-a", "9-d", "3-e")
	a := t.ask(shardapi.DocQuery{ID: "a", AllLeaves: true, Want: shardapi.WantBody | shardapi.WantLeaves})
	var got []model.Rev
	for _, d := range a.Docs {
		got = append(got, d.Rev)
		if d.Deleted != (d.Rev.Pos != 2) {
			t.Errorf("%v deleted %v", d.Rev, d.Deleted)
		}
		var leaves []model.Rev
		for _, l := range d.Leaves {
			leaves = append(leaves, l.Rev)
			if l.Deleted != (l.Rev.Pos != 2) {
				t.Errorf("leaf %v deleted %v", l.Rev, l.Deleted)
			}
		}
		same(t, "leaves", leaves, want)
	}
	same(t, "all leaves", got, want)
	if string(a.Docs[3].Body) != `{"v":3}` {
		t.Fatalf("a tombstone's body: %s", a.Docs[3].Body)
	}
	// A new edit may build on any leaf, and only the winner is what a create meets.
	t.put("a", `{"v":6}`, rev("2-a"))
	if d := t.winner("a"); d.Rev.Pos != 3 {
		t.Fatalf("the longer branch wins: %v", d.Rev)
	}
}

// Latest follows a revision to the leaves that descend from it.
func documentLatest(t *trial) {
	t.merge("a", `{}`, false, "3-x", "2-b", "1-a")
	t.merge("a", `{}`, false, "3-y", "2-b", "1-a")
	t.merge("a", `{}`, false, "2-c", "1-a")
	read := func(q ...string) (got []model.Rev, missing []model.Rev) {
		a := t.ask(shardapi.DocQuery{ID: "a", Revs: revs(q...), Latest: true, Want: shardapi.WantBody})
		for _, d := range a.Docs {
			got = append(got, d.Rev)
		}
		return got, a.Missing
	}
	got, _ := read("2-b")
	same(t, "under 2-b", got, revs("3-y", "3-x"))
	got, _ = read("2-c")
	same(t, "under a leaf", got, revs("2-c"))
	got, _ = read("1-a")
	same(t, "under the root", got, revs("3-y", "3-x", "2-c"))
	got, missing := read("5-z", "3-x")
	same(t, "beside an unknown one", got, revs("3-x"))
	same(t, "unknown", missing, revs("5-z"))
	none := t.ask(shardapi.DocQuery{ID: "none", Revs: revs("2-b", "1-a"), Want: shardapi.WantBody})
	if none.Found || len(none.Docs) != 0 {
		t.Fatalf("%+v", none)
	}
	same(t, "unknown with its document", none.Missing, revs("2-b", "1-a"))
}

// Path and RevsInfo tell the known history.
func documentHistory(t *trial) {
	t.merge("a", `{}`, false, "3-x", "2-b", "1-a")
	r4 := t.remove("a", rev("3-x"))
	a := t.ask(shardapi.DocQuery{ID: "a", Want: shardapi.WantPath | shardapi.WantRevsInfo})
	d := a.Docs[0]
	same(t, "path", d.Path, append([]model.Rev{r4}, revs("3-x", "2-b", "1-a")...))
	same(t, "revs info", d.RevsInfo, []model.RevStatus{
		{Rev: r4, Status: "deleted"}, {Rev: rev("3-x"), Status: "available"},
		{Rev: rev("2-b"), Status: "missing"}, {Rev: rev("1-a"), Status: "missing"},
	})
	a = t.ask(shardapi.DocQuery{ID: "a", Revs: revs("3-x"), Want: shardapi.WantPath})
	same(t, "path of an inner revision", a.Docs[0].Path, revs("3-x", "2-b", "1-a"))
}

// RevsLimit bounds what a branch remembers.
func documentStemming(t *trial) {
	var last model.Rev
	for range 6 {
		resp, err := t.shard.Write(t.ctx, &shardapi.WriteRequest{RevsLimit: 3, Edits: []model.Edit{{ID: "a", Body: []byte(`{}`), Parent: last}}})
		t.no(err)
		if resp.Results[0].Err != nil {
			t.Fatal(resp.Results[0].Err)
		}
		last = resp.Results[0].Rev
	}
	d := t.ask(shardapi.DocQuery{ID: "a", Want: shardapi.WantPath}).Docs[0]
	if last.Pos != 6 || len(d.Path) != 3 || d.Path[0] != last || d.Path[2].Pos != 4 {
		t.Fatalf("path %v", d.Path)
	}
}

// RevsDiff names what is unknown, and from where a sender might go on.
func documentRevsDiff(t *trial) {
	t.merge("a", `{}`, false, "3-x", "2-b", "1-a")
	t.merge("a", `{}`, false, "2-c", "1-a")
	resp, err := t.shard.RevsDiff(t.ctx, &shardapi.RevsDiffRequest{
		IDs:  []string{"a", "none", "a", "a"},
		Revs: [][]model.Rev{revs("2-b", "4-q", "3-x", "3-w"), revs("1-a"), revs("1-a", "2-b", "2-c"), revs("3-q")},
	})
	t.no(err)
	if len(resp.Diffs) != 4 {
		t.Fatalf("%d diffs", len(resp.Diffs))
	}
	same(t, "missing", resp.Diffs[0].Missing, revs("4-q", "3-w"))
	same(t, "ancestors", resp.Diffs[0].PossibleAncestors, revs("3-x", "2-c"))
	same(t, "missing of an unknown document", resp.Diffs[1].Missing, revs("1-a"))
	same(t, "its ancestors", resp.Diffs[1].PossibleAncestors, nil)
	same(t, "nothing missing", resp.Diffs[2].Missing, nil)
	same(t, "ancestors of nothing", resp.Diffs[2].PossibleAncestors, nil)
	same(t, "ancestors below 3", resp.Diffs[3].PossibleAncestors, revs("2-c"))
	_, err = t.shard.RevsDiff(t.ctx, &shardapi.RevsDiffRequest{IDs: []string{"a"}})
	if model.KindOf(err) != model.KindBadRequest {
		t.Fatalf("lists of different length: %v", err)
	}
}

// Answers follow the queries, whatever each of them is.
func documentReadMany(t *trial) {
	var queries []shardapi.DocQuery
	for i := range 300 {
		id := "d" + number(i)
		if i%3 != 0 {
			t.put(id, `{"i":`+number(i)+`}`, model.Rev{})
		}
		queries = append(queries, shardapi.DocQuery{ID: id, Want: shardapi.WantBody})
	}
	queries = append(queries, queries[1]) // twice
	resp, err := t.shard.Read(t.ctx, &shardapi.ReadRequest{Queries: queries})
	t.no(err)
	if len(resp.Answers) != len(queries) {
		t.Fatalf("%d answers to %d queries", len(resp.Answers), len(queries))
	}
	for i, a := range resp.Answers {
		if i == 300 {
			i = 1
		}
		if a.Found != (i%3 != 0) {
			t.Fatalf("answer %d: found %v", i, a.Found)
		}
		if a.Found && (a.Docs[0].ID != queries[i].ID || string(a.Docs[0].Body) != `{"i":`+number(i)+`}`) {
			t.Fatalf("answer %d: %+v", i, a.Docs[0])
		}
	}
	empty, err := t.shard.Read(t.ctx, &shardapi.ReadRequest{})
	t.no(err)
	if len(empty.Answers) != 0 {
		t.Fatalf("answers to no query: %+v", empty)
	}
}
