package httpapi_test

import (
	"encoding/json"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// runawayKinds are the kinds of functions beside map functions.
var runawayKinds = []struct {
	name string
	run  func(t *testing.T, s *testserver.Server, script string)
	once bool // one script is enough: they run as shows do
}{
	{name: "validation", run: runawayValidation},
	{name: "filter", run: runawayFilter},
	{name: "reduce", run: runawayReduce},
	{name: "show", run: runawayShow},
	{name: "list", run: runawayList},
	{name: "update", run: runawayUpdate, once: true},
	{name: "rewrite", run: runawayRewrite, once: true},
}

// maxRefusal is how long the body of a refusal may be, whatever a script says.
const maxRefusal = 1 << 20

// wantStopped holds an answer to be a clear refusal.
func wantStopped(t *testing.T, r *testserver.Response) {
	t.Helper()
	var e struct{ Error, Reason string }
	if len(r.Body) > maxRefusal {
		t.Errorf("status %d with %d bytes: %.200s", r.Status, len(r.Body), r.Body)
		return
	}
	if err := json.Unmarshal(r.Body, &e); err != nil || r.Status != 500 || e.Error == "" || e.Reason == "" {
		t.Errorf("status %d: %.500s", r.Status, r.Body)
	}
}

// runawayDB is a database with a document and a design document.
func runawayDB(t *testing.T, s *testserver.Server, design map[string]any) string {
	t.Helper()
	db := "/" + s.DB(t, "q=2")
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"a","n":1},{"_id":"b","n":2},{"_id":"poison","poison":true,"n":3}]}`).Want(201)
	s.Do(t, "PUT", db+"/_design/d", design).Want(201)
	return db
}

func runawayValidation(t *testing.T, s *testserver.Server, script string) {
	db := runawayDB(t, s, map[string]any{"validate_doc_update": `function(doc){ var huge; if (doc.run) { ` + script + ` throw({forbidden: huge}); } }`})
	wantStopped(t, bounded(t, s, "PUT", db+"/x", `{"run":true}`))
	s.Do(t, "GET", db+"/x", nil).Want(404)
	r := bounded(t, s, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"y"},{"_id":"x","run":true},{"_id":"z"}]}`)
	var results []struct {
		OK            bool
		Error, Reason string
	}
	if err := json.Unmarshal(r.Body, &results); err != nil || len(results) != 3 || !results[0].OK || results[1].Error == "" || results[1].Reason == "" || !results[2].OK {
		t.Errorf("%.500s", r.Body)
	}
	s.Do(t, "GET", db+"/x", nil).Want(404)
	s.Do(t, "GET", db+"/z", nil).Want(200)
}

func runawayFilter(t *testing.T, s *testserver.Server, script string) {
	db := runawayDB(t, s, map[string]any{"filters": map[string]any{
		"f": `function(doc){ var huge; if (doc.poison) { ` + script + ` throw({forbidden: huge}); } return true; }`,
	}})
	wantStopped(t, bounded(t, s, "GET", db+"/_changes?filter=d/f", nil))
}

func runawayReduce(t *testing.T, s *testserver.Server, script string) {
	db := runawayDB(t, s, map[string]any{"views": map[string]any{
		"v": map[string]any{"map": `function(doc){ emit(doc._id, doc.n); }`,
			"reduce": `function(keys, values, rereduce){ var huge; if (rereduce || values.indexOf(3) >= 0) { ` + script + ` return huge; } return sum(values); }`},
	}})
	wantStopped(t, bounded(t, s, "GET", db+"/_design/d/_view/v", nil))
	if ids, total := boundedView(t, s, db+"/_design/d/_view/v?reduce=false"); len(ids) != 3 || total != 3 {
		t.Errorf("%v of %d", ids, total)
	}
	r := bounded(t, s, "GET", db+`/_design/d/_view/v?group=true&endkey="b"`, nil)
	var v viewAnswer
	if err := json.Unmarshal(r.Body, &v); err != nil || r.Status != 200 || v.show() != `null null "a"=1 "b"=2` {
		t.Errorf("the other groups: %d %.300s", r.Status, r.Body)
	}
}

func runawayShow(t *testing.T, s *testserver.Server, script string) {
	db := runawayDB(t, s, map[string]any{"shows": map[string]any{
		"f": `function(doc){ var huge; if (doc.poison) { ` + script + ` return huge; } return "well"; }`,
	}})
	wantStopped(t, bounded(t, s, "GET", db+"/_design/d/_show/f/poison", nil))
	if r := bounded(t, s, "GET", db+"/_design/d/_show/f/a", nil); r.Status != 200 || string(r.Body) != "well" {
		t.Errorf("%d %.200s", r.Status, r.Body)
	}
}

func runawayUpdate(t *testing.T, s *testserver.Server, script string) {
	db := runawayDB(t, s, map[string]any{"updates": map[string]any{
		"f": `function(doc, req){ var huge; if (doc && doc.poison) { ` + script + ` } return [{_id: "made", huge: huge}, huge || "well"]; }`,
	}})
	wantStopped(t, bounded(t, s, "PUT", db+"/_design/d/_update/f/poison", nil))
	s.Do(t, "GET", db+"/made", nil).Want(404)
	if r := bounded(t, s, "POST", db+"/_design/d/_update/f", nil); r.Status != 201 || string(r.Body) != "well" {
		t.Errorf("%d %.200s", r.Status, r.Body)
	}
}

func runawayRewrite(t *testing.T, s *testserver.Server, script string) {
	db := runawayDB(t, s, map[string]any{"rewrites": `function(req){ var huge; ` + script + ` return {code: 200, body: huge}; }`})
	wantStopped(t, bounded(t, s, "GET", db+"/_design/d/_rewrite/x", nil))
}

// A list may have begun its answer: then it can only be cut off.
func runawayList(t *testing.T, s *testserver.Server, script string) {
	db := runawayDB(t, s, map[string]any{
		"views": map[string]any{"v": map[string]any{"map": `function(doc){ emit(doc._id, doc.poison); }`}},
		"lists": map[string]any{
			"before": `function(head, req){ var huge; ` + script + ` send(huge); }`,
			"amid":   `function(head, req){ var row, huge; send("begun"); while (row = getRow()) if (row.value) { ` + script + ` send(huge); } }`,
			"well":   `function(head, req){ var row; while (row = getRow()) send(row.id + " "); }`,
		},
	})
	wantStopped(t, bounded(t, s, "GET", db+"/_design/d/_list/before/v", nil))
	if r, err := s.Try(t.Context(), "GET", db+"/_design/d/_list/amid/v", nil); err == nil && r.Status == 200 {
		t.Errorf("a whole answer of %d bytes: %.200s", len(r.Body), r.Body)
	}
	if r := bounded(t, s, "GET", db+"/_design/d/_list/well/v", nil); r.Status != 200 || string(r.Body) != "a b poison " {
		t.Errorf("%d %.200s", r.Status, r.Body)
	}
}
