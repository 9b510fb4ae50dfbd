package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// Documents of rows: those that emitted them, and those that they link to.
func TestViewDocuments(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t, "q=3")
	s.Do(t, "PUT", db+"/_design/d", `{"views":{
		"own":{"map":"function(doc){ if (doc.own) emit(doc._id, null); }"},
		"link":{"map":"function(doc){ if (doc.links) doc.links.forEach(function(l, i){ emit(i, l); }); }"}}}`).Want(201)
	conflicted(t, s, db, "c")
	s.Do(t, "PUT", db+"/c?rev=2-dd", `{"own":true}`).Want(201)
	s.Do(t, "PUT", db+"/att", `{"own":true,"_attachments":{"f":{"content_type":"text/plain","data":"aGVsbG8gaGVsbG8gaGVsbG8="}}}`).Want(201)
	first := s.Do(t, "PUT", db+"/target", `{"v":1}`).Want(201).Str("rev")
	second := s.Do(t, "PUT", db+"/target?rev="+first, `{"v":2}`).Want(201).Str("rev")
	dead := s.Do(t, "PUT", db+"/dead", `{"v":3}`).Want(201).Str("rev")
	s.Do(t, "DELETE", db+"/dead?rev="+dead, nil).Want(200)
	s.Do(t, "PUT", db+"/linker", `{"me":1,"links":[{"_id":"target"},{"_id":"none"},{"_id":"dead"},
		{"_id":"target","_rev":"`+first+`"},{"_id":"target","_rev":"7-abc"},{"_id":7},{"x":"target"},"target",null]}`).Want(201)

	docs := func(view, query string) map[string]map[string]any {
		t.Helper()
		out := map[string]map[string]any{}
		v := queryView(t, s, "GET", db+"/_design/d/_view/"+view+"?include_docs=true&"+query, nil)
		for _, r := range v.Rows {
			out[string(r.Key)] = r.Doc
		}
		return out
	}
	links := docs("link", "")
	show := func(d map[string]any) string {
		if d == nil {
			return "null"
		}
		return fmt.Sprint(d["_id"], " ", d["_rev"], " ", d["v"], "/", d["me"])
	}
	linker := s.Do(t, "GET", db+"/linker", nil).Str("_rev")
	for key, want := range map[string]string{
		"0": "target " + second + " 2/<nil>",
		"1": "null",
		"2": "null",
		"3": "target " + first + " 1/<nil>",
		"4": "null",
		"5": "null",
		"6": "linker " + linker + " <nil>/1",
		"7": "linker " + linker + " <nil>/1",
		"8": "linker " + linker + " <nil>/1",
	} {
		if got := show(links[key]); got != want {
			t.Errorf("link %s: %s, want %s", key, got, want)
		}
	}
	raw := s.Do(t, "GET", db+"/_design/d/_view/link?include_docs=true&key=1", nil).Want(200)
	if !strings.Contains(string(raw.Body), `{"id":"linker","key":1,"value":{"_id":"none"},"doc":null}`) {
		t.Errorf("a missing document: %s", raw.Body)
	}

	if d := docs("own", "")[`"c"`]; d["_conflicts"] != nil || d["_id"] != "c" {
		t.Errorf("plain: %v", d)
	}
	if d := docs("own", "conflicts=true")[`"c"`]; d["_conflicts"] == nil {
		t.Errorf("conflicts: %v", d)
	}
	att := func(query string) map[string]any {
		return docs("own", query)[`"att"`]["_attachments"].(map[string]any)["f"].(map[string]any)
	}
	if f := att(""); f["stub"] != true || f["data"] != nil || f["encoding"] != nil {
		t.Errorf("stub: %v", f)
	}
	if f := att("attachments=true"); f["data"] != "aGVsbG8gaGVsbG8gaGVsbG8=" {
		t.Errorf("attachment: %v", f)
	}
	if f := att("att_encoding_info=true"); f["encoding"] != "gzip" {
		t.Errorf("encoding: %v", f)
	}
	// The document is the one of now, the row may be of an older state.
	later := s.Do(t, "PUT", db+"/target?rev="+second, `{"v":4}`).Want(201).Str("rev")
	if got := show(docs("link", "update=false")["0"]); got != "target "+later+" 4/<nil>" {
		t.Errorf("after an edit: %s", got)
	}
}

// Many rows with documents come whole and in order, through batches of any size.
func TestViewManyDocuments(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	const count = 1500
	db := numbered(t, s, count, "q=2")
	v := queryView(t, s, "GET", db+"/_design/d/_view/n?include_docs=true", nil)
	if len(v.Rows) != count || number(v.TotalRows) != fmt.Sprint(count) {
		t.Fatalf("%d rows of %s", len(v.Rows), number(v.TotalRows))
	}
	for i, r := range v.Rows {
		if want := fmt.Sprintf("d%d", i); r.ID != want || r.Doc["_id"] != want || string(r.Key) != fmt.Sprint(i) {
			t.Fatalf("row %d: %s %s %v", i, r.ID, r.Key, r.Doc)
		}
	}
	v = queryView(t, s, "POST", db+"/_design/d/_view/both?group=true", `{}`)
	if len(v.Rows) != count {
		t.Errorf("%d groups", len(v.Rows))
	}
	keys := make([]int, count)
	for i := range keys {
		keys[i] = count - 1 - i
	}
	body, err := json.Marshal(map[string]any{"keys": keys, "include_docs": true})
	if err != nil {
		t.Fatal(err)
	}
	v = queryView(t, s, "POST", db+"/_design/d/_view/n", body)
	if len(v.Rows) != count || v.Rows[0].ID != fmt.Sprintf("d%d", count-1) || v.Rows[count-1].Doc["_id"] != "d0" {
		t.Errorf("%d rows by keys", len(v.Rows))
	}
}

// A view of a partition, and views of the whole of a partitioned database.
func TestPartitionedViews(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t, "partitioned=true", "q=3")
	views := `"views":{"n":{"map":"function(doc){ emit(doc.n, 1); }"},"sum":{"map":"function(doc){ emit([doc.n % 2, doc.n], doc.n); }","reduce":"_sum"}}`
	s.Do(t, "PUT", db+"/_design/own", `{`+views+`}`).Want(201)
	s.Do(t, "PUT", db+"/_design/said", `{"options":{"partitioned":true},`+views+`}`).Want(201)
	s.Do(t, "PUT", db+"/_design/global", `{"options":{"partitioned":false},`+views+`}`).Want(201)
	var docs []string
	for i := range 12 {
		docs = append(docs, fmt.Sprintf(`{"_id":"%s:%02d","n":%d}`, []string{"a", "b", "aa"}[i%3], i, i))
	}
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[`+strings.Join(docs, ",")+`]}`).Want(201)
	for _, x := range []struct{ path, want string }{
		{`/_partition/a/_design/own/_view/n`, `4 0 a:00:0=1 a:03:3=1 a:06:6=1 a:09:9=1`},
		{`/_partition/a/_design/said/_view/n?descending=true&limit=2`, `4 0 a:09:9=1 a:06:6=1`},
		{`/_partition/aa/_design/own/_view/n?startkey=3&endkey=10`, `4 1 aa:05:5=1 aa:08:8=1`},
		{`/_partition/b/_design/own/_view/n?skip=1&limit=1`, `4 1 b:04:4=1`},
		{`/_partition/b/_design/own/_view/n?key=4`, `4 1 b:04:4=1`},
		{`/_partition/b/_design/own/_view/n?keys=[7,4,3]`, `4 0 b:07:7=1 b:04:4=1`},
		{`/_partition/a/_design/own/_view/n?startkey=9&endkey=0`, `4 3`},
		{`/_partition/none/_design/own/_view/n`, `0 0`},
		{`/_partition/a/_design/own/_view/sum`, `null null null=18`},
		{`/_partition/a/_design/own/_view/sum?group_level=1`, `null null [0]=6 [1]=12`},
		{`/_partition/a/_design/own/_view/n?partition=a&limit=1`, `4 0 a:00:0=1`},
		{`/_design/own/_view/n?partition=b&limit=1`, `4 0 b:01:1=1`},
		{`/_design/global/_view/n?limit=3`, `12 0 a:00:0=1 b:01:1=1 aa:02:2=1`},
		{`/_design/global/_view/sum`, `null null null=66`},
	} {
		if v := queryView(t, s, "GET", db+x.path, nil); v.show() != x.want {
			t.Errorf("%s:\ngot  %s\nwant %s", x.path, v.show(), x.want)
		}
	}
	if v := queryView(t, s, "POST", db+"/_partition/b/_design/own/_view/n", `{"keys":[10,1],"include_docs":true}`); v.show() != `4 0 b:10:10=1 b:01:1=1` || v.Rows[0].Doc["n"] != 10.0 {
		t.Errorf("%s", v.show())
	}
	for _, x := range []struct{ path, reason string }{
		{"/_design/own/_view/n", "`partition` parameter is mandatory for queries to this view."},
		{"/_design/said/_view/sum", "`partition` parameter is mandatory for queries to this view."},
		{"/_partition/a/_design/global/_view/n", "`partition` parameter is not supported in this design doc"},
		{"/_partition/a/_design/own/_view/n?partition=b", "Conflicting value for `partition` in query string"},
		{"/_partition/_a/_design/own/_view/n", "Partition must not start with an underscore"},
	} {
		if r := s.Do(t, "GET", db+x.path, nil).Want(400); r.Str("reason") != x.reason {
			t.Errorf("%s: %s", x.path, r.Body)
		}
	}
	plain := numbered(t, s, 1)
	if r := s.Do(t, "GET", plain+"/_partition/p/_design/d/_view/n", nil).Want(400); r.Str("reason") != "database is not partitioned" {
		t.Errorf("%s", r.Body)
	}
}
