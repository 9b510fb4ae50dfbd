package conformance

import (
	"errors"
	"fmt"
	"strings"

	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// scriptScenes is the sequence log, filtered by functions.
var scriptScenes = []scene{
	{"ScriptFilters", scriptFilters},
	{"ScriptFilterLeaves", scriptFilterLeaves},
	{"ScriptFilterDocuments", scriptFilterDocuments},
	{"ScriptFilterManyBatches", scriptFilterManyBatches},
	{"ScriptFilterFails", scriptFilterFails},
}

// script makes a filter.
func (t *trial) script(fn, req string) *shardapi.Script {
	return &shardapi.Script{Func: fn, Req: []byte(req),
		Program: jsvm.Program{Key: fmt.Sprintf("conformance %d", t.id), Design: []byte(`{"_id":"_design/d","lib":{"m":"exports.kind = 'x';"}}`)}}
}

// What a function does not want is not sent, but it counts as seen.
func scriptFilters(t *trial) {
	t.put("a", `{"kind":"x"}`, model.Rev{})
	b := t.put("b", `{"kind":"y"}`, model.Rev{})
	t.put("c", `{"kind":"x"}`, model.Rev{})
	t.write(model.Edit{ID: "b", Body: []byte(`{"kind":"x"}`), Parent: b, Deleted: true})
	t.put("_design/d", `{"kind":"x"}`, model.Rev{})
	t.put("z", `{"kind":"z"}`, model.Rev{})
	const byKind = `function(doc, req) { return doc.kind == req.query.kind; }`
	x := t.script(byKind, `{"query":{"kind":"x"}}`)
	byMap := t.script(`function(doc) { if (doc.kind == "x") emit(null, null); }`, "")
	byMap.Map = true
	for _, c := range []struct {
		name string
		req  shardapi.ChangesRequest
		want string
		seq  uint64
	}{
		{"kind x", shardapi.ChangesRequest{Limit: -1, Script: x}, "1:a 3:c 4:b 5:_design/d", 6},
		{"kind z", shardapi.ChangesRequest{Limit: -1, Script: t.script(byKind, `{"query":{"kind":"z"}}`)}, "6:z", 6},
		{"nothing", shardapi.ChangesRequest{Limit: -1, Script: t.script(byKind, `{"query":{}}`)}, "", 6},
		{"since", shardapi.ChangesRequest{Limit: -1, Since: 1, Script: x}, "3:c 4:b 5:_design/d", 6},
		{"limit", shardapi.ChangesRequest{Limit: 2, Script: x}, "1:a 3:c", 3},
		{"limit of all", shardapi.ChangesRequest{Limit: 4, Script: x}, "1:a 3:c 4:b 5:_design/d", 5},
		{"limit 0", shardapi.ChangesRequest{Limit: 0, Since: 2, Script: x}, "", 2},
		{"a map function", shardapi.ChangesRequest{Limit: -1, Script: byMap}, "1:a 3:c 4:b 5:_design/d", 6},
		{"a module", shardapi.ChangesRequest{Limit: -1, Script: t.script(`function(doc) { return doc.kind == require('lib/m').kind; }`, `{}`)}, "1:a 3:c 4:b 5:_design/d", 6},
		{"deleted", shardapi.ChangesRequest{Limit: -1, Script: t.script(`function(doc) { return doc._deleted; }`, `{}`)}, "4:b", 6},
		{"truth", shardapi.ChangesRequest{Limit: -1, Script: t.script(`function(doc) { return doc._id == "a" ? "yes" : doc._id == "z" ? 0 : undefined; }`, `{}`)}, "1:a", 6},
	} {
		if got, seq := t.feed(c.req); got != c.want || seq != c.seq {
			t.Errorf("%s: %q up to %d, want %q up to %d", c.name, got, seq, c.want, c.seq)
		}
	}
	if got, _ := t.feed(shardapi.ChangesRequest{Limit: 2, Descending: true, Script: x}); got != "5:_design/d 4:b" {
		t.Errorf("descending: %q", got)
	}
}

// Every leaf may be asked about.
func scriptFilterLeaves(t *trial) {
	t.merge("a", `{"kind":"y"}`, false, "1-x")
	t.merge("a", `{"kind":"x"}`, false, "1-y") // the winner
	t.merge("a", `{"kind":"x"}`, false, "1-a")
	t.merge("b", `{"kind":"x"}`, false, "1-x")
	t.merge("b", `{"kind":"y"}`, false, "1-y") // the winner
	for _, c := range []struct {
		all  bool
		want string
	}{{false, "a: 1-y 1-x 1-a"}, {true, "a: 1-y 1-a, b: 1-x"}} {
		script := t.script(`function(doc) { return doc.kind == "x"; }`, `{}`)
		script.AllLeaves = c.all
		s, err := t.shard.Changes(t.ctx, &shardapi.ChangesRequest{Limit: -1, Script: script})
		t.no(err)
		var rows []string
		drain(t, s, func(c shardapi.Change) {
			row := c.ID + ":"
			for _, l := range c.Leaves {
				row += " " + l.Rev.String()
			}
			rows = append(rows, row)
		})
		if got := strings.Join(rows, ", "); got != c.want {
			t.Errorf("all leaves %v: %q, want %q", c.all, got, c.want)
		}
	}
}

// Documents come when they are asked for, and not because the function read them.
func scriptFilterDocuments(t *trial) {
	t.put("a", `{"v":1}`, model.Rev{})
	t.put("b", `{"v":2}`, model.Rev{})
	script := t.script(`function(doc) { return doc.v == 2; }`, `{}`)
	for _, include := range []bool{false, true} {
		s, err := t.shard.Changes(t.ctx, &shardapi.ChangesRequest{Limit: -1, Script: script, IncludeDocs: include})
		t.no(err)
		n := 0
		drain(t, s, func(c shardapi.Change) {
			n++
			if c.ID != "b" || include != (c.Doc != nil) || include && string(c.Doc.Body) != `{"v":2}` {
				t.Errorf("with documents %v: %+v", include, c)
			}
		})
		if n != 1 {
			t.Errorf("with documents %v: %d rows", include, n)
		}
	}
}

// A long log is filtered batch by batch.
func scriptFilterManyBatches(t *trial) {
	const n = 3000
	t.fillMany(n, 100)
	rows, seq := t.changes(shardapi.ChangesRequest{Limit: -1, Script: t.script(`function(doc) { return doc.i % 7 == 0; }`, `{}`)})
	if seq != n || len(rows) != (n+6)/7 {
		t.Fatalf("%d rows up to %d", len(rows), seq)
	}
	for i, r := range rows {
		if r.ID != fmt.Sprintf("d%05d", i*7) || r.Seq != uint64(i*7+1) {
			t.Fatalf("row %d: %+v", i, r)
		}
	}
}

// A function that fails fails the feed, in words for a client.
func scriptFilterFails(t *trial) {
	t.put("a", `{}`, model.Rev{})
	for fn, kind := range map[string]model.Kind{
		`function(doc) { return doc.none.none; }`:       model.KindInternal,
		`function(doc) { throw({forbidden: "no"}); }`:   model.KindForbidden,
		`function(doc) { throw({unauthorized: "no"}) }`: model.KindUnauthorized,
	} {
		s, err := t.shard.Changes(t.ctx, &shardapi.ChangesRequest{Limit: -1, Script: t.script(fn, `{}`)})
		for err == nil {
			_, err = s.Next()
		}
		if s != nil {
			t.no(s.Close())
		}
		var e *model.Error
		if !errors.As(err, &e) || e.Kind != kind {
			t.Errorf("%s: %v", fn, err)
		}
	}
	// It says nothing about a log without documents for it.
	if got, seq := t.feed(shardapi.ChangesRequest{Limit: -1, Since: 1, Script: t.script(`function(doc) { return doc.none.none; }`, `{}`)}); got != "" || seq != 1 {
		t.Errorf("%q up to %d", got, seq)
	}
}
