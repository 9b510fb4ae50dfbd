package httpapi_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

func results(t *testing.T, r *testserver.Response) []map[string]any {
	t.Helper()
	var out []map[string]any
	if err := json.Unmarshal(r.Body, &out); err != nil {
		t.Fatalf("%v: %s", err, r.Body)
	}
	return out
}

func TestBulkDocs(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t, "q=4")
	r := results(t, s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"a","n":1},{"_id":"b"},{"n":3},{"_id":"a"},{"_id":"c","_deleted":true}]}`).Want(201))
	if len(r) != 5 || r[0]["id"] != "a" || r[0]["ok"] != true || r[1]["id"] != "b" || len(r[2]["id"].(string)) != 32 {
		t.Errorf("%v", r)
	}
	if r[3]["error"] != "conflict" || r[3]["reason"] != "Document update conflict." || r[3]["id"] != "a" {
		t.Errorf("second edit of one document: %v", r[3])
	}
	upd := results(t, s.Do(t, "POST", db+"/_bulk_docs", map[string]any{"docs": []any{
		map[string]any{"_id": "a", "_rev": r[0]["rev"], "n": 2},
		map[string]any{"_id": "b", "_rev": r[1]["rev"], "_deleted": true},
		map[string]any{"_id": "a", "_rev": "1-stale"},
	}}).Want(201))
	if upd[0]["ok"] != true || upd[1]["ok"] != true || upd[2]["error"] != "conflict" {
		t.Errorf("%v", upd)
	}
	for _, bad := range []string{`{}`, `{"docs":3}`, `{"docs":[3]}`, `{"docs":[{"_id":"ok1"},{"_id":"x","_zip":1}]}`,
		`{"docs":[{"_id":"ok1"},{"_id":"_bad"}]}`, `{"docs":[{"_id":5}]}`, `{"docs":[],"new_edits":7}`, `[]`,
		`{"new_edits":false,"docs":[{"_id":"ok1","_rev":"1-a"},{"_id":"x"}]}`} {
		s.Do(t, "POST", db+"/_bulk_docs", bad).Want(400)
	}
	s.Do(t, "GET", db+"/ok1", nil).Want(404) // nothing of a refused call is written
	if b := s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[]}`).Want(201).Body; string(b) != "[]\n" {
		t.Errorf("%q", b)
	}
	acc := results(t, s.Do(t, "POST", db+"/_bulk_docs", `{"w":3,"docs":[{"_id":"w"}]}`).Want(202))
	if acc[0]["accepted"] != true {
		t.Errorf("%v", acc)
	}
	rep := s.Do(t, "POST", db+"/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"r","_rev":"3-c","_revisions":{"start":3,"ids":["c","b","a"]}},{"_id":"r","_rev":"3-c"}]}`).Want(201)
	if string(rep.Body) != "[]\n" {
		t.Errorf("%s", rep.Body)
	}
	if ids := s.Do(t, "GET", db+"/r?revs=true", nil).Want(200).Object()["_revisions"]; fmt.Sprint(ids) != "map[ids:[c b a] start:3]" {
		t.Errorf("%v", ids)
	}
	loc := results(t, s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"_local/l","x":1},{"_id":"n"}]}`).Want(201))
	if loc[0]["rev"] != "0-1" || loc[1]["ok"] != true {
		t.Errorf("%v", loc)
	}
}

func TestBulkGet(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	conflicted(t, s, db, "d")
	s.Do(t, "PUT", db+"/a", `{"n":1,"_attachments":{"t":{"content_type":"text/plain","data":"aGVsbG8="}}}`).Want(201)
	r := s.Do(t, "POST", db+"/_bulk_get?revs=true", `{"docs":[{"id":"a"},{"id":"nope"},{"id":"d","rev":"9-zz"},{"id":"d","rev":"2-cc"},{"id":"d","rev":"zz"},{},5,{"id":"d","rev":42},{"id":"d","atts_since":7},{"id":"_x"}]}`).Want(200)
	if len(r.Object()) != 1 {
		t.Errorf("only results: %s", r.Body)
	}
	list := r.Object()["results"].([]any)
	if len(list) != 10 {
		t.Fatalf("%s", r.Body)
	}
	docs := func(i int) map[string]any { return list[i].(map[string]any)["docs"].([]any)[0].(map[string]any) }
	if ok := docs(0)["ok"].(map[string]any); ok["n"] != 1.0 || ok["_revisions"] == nil {
		t.Errorf("%v", ok)
	}
	if e := docs(1)["error"].(map[string]any); e["rev"] != "undefined" || e["reason"] != "missing" || e["error"] != "not_found" || e["id"] != "nope" {
		t.Errorf("%v", e)
	}
	if e := docs(2)["error"].(map[string]any); e["rev"] != "9-zz" {
		t.Errorf("%v", e)
	}
	if ok := docs(3)["ok"].(map[string]any); ok["v"] != 3.0 {
		t.Errorf("%v", ok)
	}
	// What is wrong with one entry is said in its place.
	for i, want := range map[int]string{4: "d zz bad_request", 5: "<nil> <nil> bad_request", 6: "<nil> <nil> bad_request", 7: "d 42 bad_request", 8: "d <nil> bad_request"} {
		e, _ := docs(i)["error"].(map[string]any)
		if got := fmt.Sprintf("%v %v %v", e["id"], e["rev"], e["error"]); got != want {
			t.Errorf("%d: %v, want %s", i, e, want)
		}
		if id := list[i].(map[string]any)["id"]; id != e["id"] {
			t.Errorf("%d: id %v", i, id)
		}
	}
	if order := s.Do(t, "POST", db+"/_bulk_get", `{"docs":[{"id":"d"}]}`).Want(200); !regexp.MustCompile(`2-cc.*2-dd.*3-dd`).Match(order.Body) {
		t.Errorf("%s", order.Body)
	}
	latest := s.Do(t, "POST", db+"/_bulk_get?latest=true&attachments=true", `{"docs":[{"id":"d","rev":"1-aa"},{"id":"a"}]}`).Want(200)
	if !strings.Contains(string(latest.Body), `"_rev":"2-dd"`) || !strings.Contains(string(latest.Body), `"_rev":"3-dd"`) || !strings.Contains(string(latest.Body), `"data":"aGVsbG8="`) {
		t.Errorf("%s", latest.Body)
	}
	s.Do(t, "GET", db+"/_bulk_get", nil).Want(405)
	s.Do(t, "HEAD", db+"/_bulk_get", nil).Want(405)
	s.Do(t, "POST", db+"/_bulk_get?rev=1-a", `{"docs":[]}`).Want(400)
	s.Do(t, "POST", db+"/_bulk_get", `{}`).Want(400)
}

func TestRevsDiff(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t, "q=3")
	conflicted(t, s, db, "d")
	s.Do(t, "PUT", db+"/e", `{}`).Want(201)
	r := s.Do(t, "POST", db+"/_revs_diff", `{"d":["2-cc","3-ee","1-aa"],"new":["1-x"],"d2":[]}`).Want(200)
	want := `{"d":{"missing":["3-ee"],"possible_ancestors":["2-dd","2-cc"]},"new":{"missing":["1-x"]}}`
	var a, b any
	_ = json.Unmarshal(r.Body, &a)
	_ = json.Unmarshal([]byte(want), &b)
	if fmt.Sprint(a) != fmt.Sprint(b) {
		t.Errorf("%s", r.Body)
	}
	m := s.Do(t, "POST", db+"/_missing_revs", `{"d":["2-cc","3-ee"]}`).Want(200).Object()
	if fmt.Sprint(m["missing_revs"]) != "map[d:[3-ee]]" || fmt.Sprint(m["missed_revs"]) != "map[d:[3-ee]]" {
		t.Errorf("%v", m)
	}
	for _, bad := range []string{`[]`, `{"d":5}`, `{"d":["x"]}`, `{"d":[5]}`, `{`} {
		s.Do(t, "POST", db+"/_revs_diff", bad).Want(400)
	}
}

// TestBulkNamesTooMany sends small bodies that name more documents than a server
// has memory for.
func TestBulkNamesTooMany(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t, "")
	many := `{"docs":[` + strings.Repeat("{},", 500_000) + `{}]}`
	for _, path := range []string{"/_bulk_docs", "/_bulk_get"} {
		if e := s.Do(t, "POST", db+path, many).Want(413).Object()["error"]; e != "too_many_documents" {
			t.Errorf("%s: %v", path, e)
		}
	}
	list := `[` + strings.Repeat(`"",`, 500_000) + `""]`
	for path, body := range map[string]string{"/_all_docs": `{"keys":` + list + `}`,
		"/_changes?filter=_doc_ids": `{"doc_ids":` + list + `}`, "/_revs_diff": `{"d":` + list + `}`} {
		if e := s.Do(t, "POST", db+path, body).Want(413).Object()["error"]; e != "too_many_documents" {
			t.Errorf("%s: %v", path, e)
		}
	}
	if n := s.Do(t, "GET", db, nil).Want(200).Object()["doc_count"]; n != 0.0 {
		t.Errorf("%v documents were written", n)
	}
}
