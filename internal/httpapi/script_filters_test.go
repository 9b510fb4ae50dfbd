package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// changedIDs gives the ids of a feed's rows, sorted.
func changedIDs(t *testing.T, r *testserver.Response) string {
	t.Helper()
	var ids []string
	for _, row := range r.Want(200).Object()["results"].([]any) {
		ids = append(ids, row.(map[string]any)["id"].(string))
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

func TestChangesByFunction(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	s.Do(t, "PUT", db+"/_design/f", map[string]any{
		"lib": map[string]any{"kinds": "exports.good = ['x'];"},
		"views": map[string]any{
			"some": map[string]any{"map": "function(doc) { if (doc.n > 5) emit(doc.n); if (doc.n == 3) throw new Error('no'); }"},
		},
		"filters": map[string]any{
			"kind":    "function(doc, req) { return doc.kind == req.query.kind; }",
			"lib":     "function(doc, req) { return require('lib/kinds').good.indexOf(doc.kind) >= 0; }",
			"deleted": "function(doc, req) { return !!doc._deleted; }",
			"body":    "function(doc, req) { return req.body && doc.kind == JSON.parse(req.body).kind; }",
			"user":    "function(doc, req) { return req.userCtx.name == 'admin' && req.userCtx.roles[0] == '_admin'; }",
			"truthy":  "function(doc, req) { return doc.kind; }",
			"throws":  "function(doc, req) { throw new Error('broken filter'); }",
			"denies":  "function(doc, req) { throw {forbidden: 'not you'}; }",
			"history": "function(doc, req) { return doc._revisions && doc._revisions.start == 2; }",
		},
	}).Want(201)
	for i := range 10 {
		s.Do(t, "PUT", fmt.Sprintf("%s/d%d", db, i), fmt.Sprintf(`{"n":%d,"kind":"%s"}`, i, string("xyz"[i%3]))).Want(201)
	}
	rev := s.Do(t, "GET", db+"/d9", nil).Str("_rev")
	s.Do(t, "DELETE", db+"/d9?rev="+rev, nil).Want(200)

	for query, want := range map[string]string{
		"filter=f/kind&kind=y":                 "d1 d4 d7",
		"filter=f/kind&kind=none":              "",
		"filter=f/lib":                         "d0 d3 d6",
		"filter=f/deleted":                     "d9",
		"filter=f/history":                     "d9",
		"filter=_view&view=f/some":             "d6 d7 d8",
		"filter=f/kind&kind=y&limit=2":         "2",
		"filter=f/kind&kind=y&descending=true": "d1 d4 d7",
	} {
		got := changedIDs(t, s.Do(t, "GET", db+"/_changes?"+query, nil))
		if n := strings.Count(got, " ") + 1; want == "2" {
			if n != 2 {
				t.Errorf("%s: %q", query, got)
			}
		} else if got != want {
			t.Errorf("%s: %q, want %q", query, got, want)
		}
	}
	if got := changedIDs(t, s.Do(t, "POST", db+"/_changes?filter=f/body", `{"kind":"z"}`)); got != "d2 d5 d8" {
		t.Errorf("body: %q", got)
	}
	if got := changedIDs(t, s.Do(t, "GET", db+"/_changes?filter=f/user", nil)); strings.Count(got, " ") != 10 {
		t.Errorf("user: %q", got)
	}
	r := s.Do(t, "GET", db+"/_changes?filter=f/kind&kind=y&include_docs=true", nil).Want(200)
	for _, row := range r.Object()["results"].([]any) {
		if doc := row.(map[string]any)["doc"].(map[string]any); doc["kind"] != "y" {
			t.Errorf("%v", doc)
		}
	}
	if r := s.Do(t, "GET", db+"/_changes?filter=f/throws", nil); r.Status != 500 || !strings.Contains(r.Str("reason"), "broken filter") {
		t.Errorf("%d %s", r.Status, r.Body)
	}
	if r := s.Do(t, "GET", db+"/_changes?filter=f/denies", nil); r.Status != 403 || r.Str("reason") != "not you" {
		t.Errorf("%d %s", r.Status, r.Body)
	}
}

// Paging by limit and last_seq sees every row that passes once.
func TestChangesByFunctionInPages(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	s.Do(t, "PUT", db+"/_design/f", `{"filters":{"even":"function(doc) { return doc.n % 2 == 0; }"}}`).Want(201)
	var docs []string
	for i := range 600 {
		docs = append(docs, fmt.Sprintf(`{"_id":"%04d","n":%d}`, i, i))
	}
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[`+strings.Join(docs, ",")+`]}`).Want(201)
	seen := map[string]bool{}
	since := "0"
	for range 100 {
		r := s.Do(t, "GET", db+"/_changes?filter=f/even&limit=37&since="+since, nil).Want(200).Object()
		rows := r["results"].([]any)
		for _, row := range rows {
			id := row.(map[string]any)["id"].(string)
			if seen[id] {
				t.Fatalf("%s twice", id)
			}
			seen[id] = true
		}
		since = r["last_seq"].(string)
		if len(rows) == 0 {
			break
		}
	}
	if len(seen) != 300 {
		t.Errorf("%d rows, want 300", len(seen))
	}
}

// A live feed with a function shows what comes and passes, and only that.
func TestChangesByFunctionLive(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	s.Do(t, "PUT", db+"/_design/f", `{"filters":{"yes":"function(doc, req) { return doc.show == req.query.w; }"}}`).Want(201)
	res := s.Stream(t, context.Background(), "GET", db+"/_changes?feed=continuous&filter=f/yes&w=1&since=now&heartbeat=20000", nil)
	if res.StatusCode != 200 {
		t.Fatal(res.Status)
	}
	rows := make(chan string)
	go func() {
		defer close(rows)
		for sc := bufio.NewScanner(res.Body); sc.Scan(); {
			var row struct{ ID string }
			if json.Unmarshal(sc.Bytes(), &row) == nil && row.ID != "" {
				rows <- row.ID
			}
		}
	}()
	for i := range 6 {
		s.Do(t, "PUT", fmt.Sprintf("%s/l%d", db, i), fmt.Sprintf(`{"show":"%d"}`, i%2)).Want(201)
	}
	// Documents of two ranges come in any order.
	got := []string{<-rows, <-rows, <-rows}
	if slices.Sort(got); strings.Join(got, " ") != "l1 l3 l5" {
		t.Fatalf("%v", got)
	}
}

// With style=all_docs the function is asked of every leaf.
func TestChangesByFunctionAllLeaves(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	s.Do(t, "PUT", db+"/_design/f", `{"filters":{"b":"function(doc) { return doc.branch == 'b'; }"}}`).Want(201)
	s.Do(t, "POST", db+"/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"c","_rev":"1-aaa","branch":"a"},{"_id":"c","_rev":"1-bbb","branch":"b"},{"_id":"c","_rev":"1-ccc","branch":"c"}]}`).Want(201)
	if got := changedIDs(t, s.Do(t, "GET", db+"/_changes?filter=f/b", nil)); got != "" {
		t.Errorf("the winner is branch c, but: %q", got)
	}
	r := s.Do(t, "GET", db+"/_changes?filter=f/b&style=all_docs", nil).Want(200)
	if !strings.Contains(string(r.Body), `"changes":[{"rev":"1-bbb"}]`) {
		t.Errorf("%s", r.Body)
	}
}
