package httpapi_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// viewAnswer is an answer of a view.
type viewAnswer struct {
	TotalRows *int64 `json:"total_rows"`
	Offset    *int64 `json:"offset"`
	UpdateSeq string `json:"update_seq"`
	Rows      []struct {
		ID    string          `json:"id"`
		Key   json.RawMessage `json:"key"`
		Value json.RawMessage `json:"value"`
		Doc   map[string]any  `json:"doc"`
	} `json:"rows"`
}

// show gives total, offset and rows in one line: id:key=value, or key=value of a
// group.
func (v *viewAnswer) show() string {
	out := []string{number(v.TotalRows), number(v.Offset)}
	for _, r := range v.Rows {
		row := string(r.Key) + "=" + string(r.Value)
		if r.ID != "" {
			row = r.ID + ":" + row
		}
		out = append(out, row)
	}
	return strings.Join(out, " ")
}

// queryView asks a view.
func queryView(t *testing.T, s *testserver.Server, method, path string, body any) *viewAnswer {
	t.Helper()
	r := s.Do(t, method, path, body)
	if r.Status != 200 {
		t.Fatalf("%s %s %v: status %d: %s", method, path, body, r.Status, r.Body)
	}
	v := &viewAnswer{}
	if err := json.Unmarshal(r.Body, v); err != nil {
		t.Fatalf("%s: %v: %s", path, err, r.Body)
	}
	return v
}

// escaped makes a query string of parameters written as they are meant.
func escaped(query string) string {
	values := url.Values{}
	for _, p := range strings.Split(query, "&") {
		if name, v, ok := strings.Cut(p, "="); ok {
			values.Set(name, v)
		}
	}
	return values.Encode()
}

// inBody makes the same parameters members of an object.
func inBody(query string) string {
	var members []string
	for _, p := range strings.Split(query, "&") {
		if name, v, ok := strings.Cut(p, "="); ok {
			if !json.Valid([]byte(v)) {
				v = `"` + v + `"`
			}
			members = append(members, `"`+name+`":`+v)
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// numbered fills a database with documents d0, d1, … that have n and type, and a
// design document with views of them.
func numbered(t *testing.T, s *testserver.Server, count int, query ...string) string {
	t.Helper()
	db := "/" + s.DB(t, query...)
	docs := []string{`{"_id":"_design/d","views":{
		"n":{"map":"function(doc){ emit(doc.n, null); }"},
		"both":{"map":"function(doc){ emit([doc.type, doc.n], doc.n); }","reduce":"_sum"},
		"type":{"map":"function(doc){ emit(doc.type, doc.n); }","reduce":"_count"},
		"js":{"map":"function(doc){ emit(doc.type, doc.n); }","reduce":"function(keys, values, rereduce){ return sum(values); }"},
		"a/b":{"map":"function(doc){ emit(doc._id, 1); }"}}}`}
	for i := range count {
		docs = append(docs, fmt.Sprintf(`{"_id":"d%d","n":%d,"type":"%c"}`, i, i, 'a'+i%2))
	}
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[`+strings.Join(docs, ",")+`]}`).Want(201)
	return db
}

// The bytes of answers.
func TestViewLayout(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := numbered(t, s, 3)
	rev := s.Do(t, "GET", db+"/d1", nil).Str("_rev")
	list := func(head string, rows ...string) string {
		return "{" + head + "\"rows\":[\r\n" + strings.Join(rows, ",\r\n") + "\r\n]}"
	}
	rows := []string{`{"id":"d0","key":0,"value":null}`, `{"id":"d1","key":1,"value":null}`, `{"id":"d2","key":2,"value":null}`}
	n := db + "/_design/d/_view/n"
	both := db + "/_design/d/_view/both"
	for _, x := range []struct{ method, path, body, want string }{
		{"GET", n, "", list(`"total_rows":3,"offset":0,`, rows...)},
		{"GET", n + "?limit=0", "", list(`"total_rows":3,"offset":0,`)},
		{"GET", n + "?startkey=2&endkey=1", "", list(`"total_rows":3,"offset":2,`)},
		{"GET", n + "?startkey=0&endkey=1&descending=true", "", list(`"total_rows":3,"offset":2,`)},
		{"GET", n + "?sorted=false", "", list(``, rows...)},
		{"GET", n + "?key=1&include_docs=true", "", list(`"total_rows":3,"offset":1,`,
			`{"id":"d1","key":1,"value":null,"doc":{"_id":"d1","_rev":"`+rev+`","n":1,"type":"b"}}`)},
		{"POST", n, `{"keys":[2,7,0]}`, list(`"total_rows":3,"offset":0,`, rows[2], rows[0])},
		{"POST", n, `{"keys":[2,7,0],"skip":1}`, list(`"total_rows":3,"offset":1,`, rows[0])},
		{"POST", n, `{"keys":[2]}`, list(`"total_rows":3,"offset":2,`, rows[2])},
		{"POST", n, `{"keys":[]}`, list(`"total_rows":3,"offset":0,`)},
		{"POST", n, `{}`, list(`"total_rows":3,"offset":0,`, rows...)},
		{"GET", both, "", list(``, `{"key":null,"value":3}`)},
		{"GET", both + "?group_level=1", "", list(``, `{"key":["a"],"value":2}`, `{"key":["b"],"value":1}`)},
		{"GET", both + "?group=true&skip=1&limit=1", "", list(``, `{"key":["a",2],"value":2}`)},
		{"GET", both + "?limit=0", "", list(``)},
		{"POST", n + "/queries", `{"queries":[{"key":1},{"limit":1,"descending":true}]}`,
			"{\"results\":[\r\n" + list(`"total_rows":3,"offset":1,`, rows[1]) + ",\r\n" + list(`"total_rows":3,"offset":0,`, rows[2]) + "\r\n]}"},
		{"POST", n, `{"queries":[{"limit":0}]}`, "{\"results\":[\r\n" + list(`"total_rows":3,"offset":0,`) + "\r\n]}"},
		{"POST", n + "/queries", `{"queries":[]}`, "{\"results\":[\r\n\r\n]}"},
		{"POST", both + "/queries", `{"queries":[{},{"reduce":false,"limit":1}]}`,
			"{\"results\":[\r\n" + list(``, `{"key":null,"value":3}`) + ",\r\n" + list(`"total_rows":3,"offset":0,`, `{"id":"d0","key":["a",0],"value":0}`) + "\r\n]}"},
	} {
		var body any
		if x.body != "" {
			body = x.body
		}
		r := s.Do(t, x.method, x.path, body)
		if got := string(r.Body); r.Status != 200 || got != x.want+"\n" {
			t.Errorf("%s %s %s: %d\ngot  %q\nwant %q", x.method, x.path, x.body, r.Status, got, x.want+"\n")
		}
		if r.Header.Get("ETag") == "" || r.Header.Get("Content-Type") != "text/plain;charset=utf-8" || r.Header.Get("Cache-Control") != "must-revalidate" {
			t.Errorf("%s: %v", x.path, r.Header)
		}
	}
	if head := s.Do(t, "HEAD", n, nil).Want(200); len(head.Body) != 0 || head.Header.Get("ETag") == "" {
		t.Errorf("HEAD: %v %s", head.Header, head.Body)
	}
	one, two := s.Do(t, "GET", n, nil), s.Do(t, "GET", n, nil)
	if one.Header.Get("ETag") == two.Header.Get("ETag") {
		t.Error("the ETags of two answers are the same")
	}
	if v := queryView(t, s, "GET", db+"/_design/d/_view/a%2Fb?limit=1", nil); v.show() != `3 0 d0:"d0"=1` {
		t.Errorf("a view with a slash in its name: %s", v.show())
	}
	zipped := s.Do(t, "GET", n, nil, "Accept-Encoding", "gzip").Want(200)
	if zipped.Header.Get("Content-Encoding") != "gzip" {
		t.Fatalf("%v", zipped.Header)
	}
	gz, err := gzip.NewReader(bytes.NewReader(zipped.Body))
	if err != nil {
		t.Fatal(err)
	}
	if plain, err := io.ReadAll(gz); err != nil || string(plain) != list(`"total_rows":3,"offset":0,`, rows...)+"\n" {
		t.Errorf("%v: %s", err, plain)
	}
}

// update_seq is the sequence of what the rows show, for rows and for groups.
func TestViewUpdateSeq(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := numbered(t, s, 3, "q=2")
	for _, path := range []string{"/_design/d/_view/n", "/_design/d/_view/both"} {
		v := queryView(t, s, "GET", db+path+"?update_seq=true", nil)
		if now := s.Do(t, "GET", db, nil).Str("update_seq"); v.UpdateSeq != now {
			t.Errorf("%s: update_seq %q, the database has %q", path, v.UpdateSeq, now)
		}
		changes := s.Do(t, "GET", db+"/_changes?since="+v.UpdateSeq, nil).Want(200).Object()
		if rows := changes["results"].([]any); len(rows) != 0 {
			t.Errorf("%s: %v came before the answer", path, rows)
		}
	}
	r := s.Do(t, "GET", db+"/_design/d/_view/n?update_seq=true&limit=0", nil).Want(200)
	if !bytes.HasPrefix(r.Body, []byte(`{"total_rows":3,"offset":0,"update_seq":"`)) {
		t.Errorf("%s", r.Body)
	}
	r = s.Do(t, "GET", db+"/_design/d/_view/both?update_seq=true", nil).Want(200)
	if !bytes.HasPrefix(r.Body, []byte(`{"update_seq":"`)) {
		t.Errorf("%s", r.Body)
	}
}

// One question in all the ways it can be put: in the query string, in a body, as
// one of several, on both paths.
func TestViewWays(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	for _, ranges := range []string{"q=1", "q=3"} {
		db := numbered(t, s, 6, ranges)
		for _, x := range []struct{ view, query, want string }{
			{"n", ``, `6 0 d0:0=null d1:1=null d2:2=null d3:3=null d4:4=null d5:5=null`},
			{"n", `startkey=2&endkey=4`, `6 2 d2:2=null d3:3=null d4:4=null`},
			{"n", `start_key=2&end_key=4&inclusive_end=false`, `6 2 d2:2=null d3:3=null`},
			{"n", `startkey=4&endkey=2&descending=true`, `6 1 d4:4=null d3:3=null d2:2=null`},
			{"n", `startkey=2&endkey=4&descending=true`, `6 3`},
			{"n", `startkey=4&endkey=2`, `6 4`},
			{"n", `startkey="a"`, `6 6`},
			{"n", `startkey="a"&descending=true&limit=1`, `6 0 d5:5=null`},
			{"n", `endkey=null`, `6 0`},
			{"n", `key=3`, `6 3 d3:3=null`},
			{"n", `key=3&inclusive_end=false`, `6 3`},
			{"n", `key=3.5`, `6 4`},
			{"n", `keys=[3,1,3]`, `6 0 d3:3=null d1:1=null d3:3=null`},
			{"n", `keys=[3,1,3]&limit=1&skip=1`, `6 1 d1:1=null`},
			{"n", `skip=2&limit=2`, `6 2 d2:2=null d3:3=null`},
			{"n", `skip=100`, `6 6`},
			{"n", `limit=1&descending=true&skip=1`, `6 1 d4:4=null`},
			{"n", `reduce=false&stable=true&limit=1`, `6 0 d0:0=null`},
			{"type", `reduce=false&key="a"&startkey_docid=d2`, `6 1 d2:"a"=2 d4:"a"=4`},
			{"type", `reduce=false&key="a"&start_key_doc_id=d1&end_key_doc_id=d3`, `6 1 d2:"a"=2`},
			{"type", `reduce=false&key="a"&startkey_docid=d3&endkey_docid=d0&descending=true`, `6 4 d2:"a"=2 d0:"a"=0`},
			{"type", `reduce=false&startkey="a"&endkey="b"&endkey_docid=d3`, `6 0 d0:"a"=0 d2:"a"=2 d4:"a"=4 d1:"b"=1 d3:"b"=3`},
			{"type", `reduce=false&endkey="b"&endkey_docid=d3&inclusive_end=false&skip=3`, `6 3 d1:"b"=1`},
			{"type", `reduce=false&startkey_docid=d3`, `6 0 d0:"a"=0 d2:"a"=2 d4:"a"=4 d1:"b"=1 d3:"b"=3 d5:"b"=5`},
			{"type", `reduce=false&keys=["b","a"]&startkey_docid=d3`, `6 0 d3:"b"=3 d5:"b"=5 d4:"a"=4`},
			{"type", `reduce=false&keys=["a","b"]&descending=true`, `6 0 d4:"a"=4 d2:"a"=2 d0:"a"=0 d5:"b"=5 d3:"b"=3 d1:"b"=1`},
			{"type", ``, `null null null=6`},
			{"type", `reduce=true&key="a"`, `null null null=3`},
			{"type", `group=true`, `null null "a"=3 "b"=3`},
			{"type", `group=true&descending=true`, `null null "b"=3 "a"=3`},
			{"type", `keys=["b","x","a"]&group=true`, `null null "b"=3 "a"=3`},
			{"type", `keys=["b"]`, `null null null=3`},
			{"type", `startkey="a"&startkey_docid=d2&endkey="b"&endkey_docid=d1`, `null null null=3`},
			{"type", `group=true&skip=1`, `null null "b"=3`},
			{"type", `group=true&limit=1`, `null null "a"=3`},
			{"js", ``, `null null null=15`},
			{"js", `group=true`, `null null "a"=6 "b"=9`},
			{"both", `group_level=1&startkey=["a",2]&endkey=["b",3]`, `null null ["a"]=6 ["b"]=4`},
			{"both", `group_level=2&limit=2&descending=true`, `null null ["b",5]=5 ["b",3]=3`},
			{"both", `group_level=0`, `null null null=15`},
		} {
			path := db + "/_design/d/_view/" + x.view
			ways := map[string]*viewAnswer{
				"GET":  queryView(t, s, "GET", path+"?"+escaped(x.query), nil),
				"POST": queryView(t, s, "POST", path, inBody(x.query)),
			}
			for _, p := range []string{path, path + "/queries"} {
				r := s.Do(t, "POST", p, `{"queries":[`+inBody(x.query)+`]}`).Want(200)
				var several struct{ Results []viewAnswer }
				if err := json.Unmarshal(r.Body, &several); err != nil || len(several.Results) != 1 {
					t.Fatalf("%s: %v: %s", x.query, err, r.Body)
				}
				ways["queries on "+p] = &several.Results[0]
			}
			for how, v := range ways {
				if v.show() != x.want {
					t.Errorf("%s %s %s?%s:\ngot  %s\nwant %s", ranges, how, x.view, x.query, v.show(), x.want)
				}
			}
		}
	}
}

// What the query string and the body say together.
func TestViewBody(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := numbered(t, s, 4)
	path := db + "/_design/d/_view/n"
	for _, x := range []struct{ query, body, want string }{
		{`?limit=1`, `{"limit":2}`, `4 0 d0:0=null`},
		{`?descending=true`, `{"keys":[1]}`, `4 2 d1:1=null`},
		{``, `{"startkey":null,"limit":null,"keys":null,"skip":2}`, `4 2 d2:2=null d3:3=null`},
		{``, `{"key":null}`, `4 0`},
	} {
		if v := queryView(t, s, "POST", path+x.query, x.body); v.show() != x.want {
			t.Errorf("%s %s: %s, want %s", x.query, x.body, v.show(), x.want)
		}
	}
	// The query string is what several queries have in common.
	r := s.Do(t, "POST", path+"/queries?limit=1&descending=true", `{"queries":[{},{"limit":2},{"descending":false}]}`).Want(200)
	var several struct{ Results []viewAnswer }
	if err := json.Unmarshal(r.Body, &several); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range several.Results {
		got = append(got, v.show())
	}
	if all := strings.Join(got, "; "); all != `4 0 d3:3=null; 4 0 d3:3=null d2:2=null; 4 0 d0:0=null` {
		t.Errorf("%s", all)
	}
}

// What cannot be answered, and in which words.
func TestViewErrors(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := numbered(t, s, 2)
	s.Do(t, "PUT", db+"/_design/gone", `{"views":{"v":{"map":"function(d){emit(1)}"}}}`).Want(201)
	s.Do(t, "GET", db+"/_design/gone/_view/v", nil).Want(200)
	rev := s.Do(t, "GET", db+"/_design/gone", nil).Str("_rev")
	s.Do(t, "DELETE", db+"/_design/gone?rev="+rev, nil).Want(200)
	s.Do(t, "PUT", db+"/_design/q", `{"language":"query","views":{"v":{"map":{"fields":{"a":"asc"}},"reduce":"_count"}}}`).Want(201)
	s.Do(t, "PUT", db+"/_design/e", `{"language":"erlang","views":{"v":{"map":"fun({Doc}) -> Emit(null, 1) end."}}}`).Want(201)
	n, typ := "/_design/d/_view/n", "/_design/d/_view/type"
	for _, x := range []struct {
		method, path, body string
		status             int
		name, reason       string
	}{
		{"GET", "/_design/d/_view/none", "", 404, "not_found", "missing_named_view"},
		{"GET", "/_design/none/_view/v", "", 404, "not_found", "missing"},
		{"GET", "/_design/none/_info", "", 404, "not_found", "missing"},
		{"GET", "/_design/gone/_view/v", "", 404, "not_found", "deleted"},
		{"GET", "/_design/gone/_info", "", 404, "not_found", "deleted"},
		{"GET", "/_design/q/_view/v", "", 501, "not_implemented", "An index of the language `query` cannot be asked as a view."},
		{"GET", "/_design/q/_view/w", "", 404, "not_found", "missing_named_view"},
		{"GET", "/_design/e/_view/v", "", 500, "unknown_query_language", "erlang"},
		{"POST", "/_design/none/_view/v/queries", `{"queries":[]}`, 404, "not_found", "missing"},
		{"POST", "/_design/d/_view/none/queries", `{"queries":[{}]}`, 404, "not_found", "missing_named_view"},
		{"GET", n + "?limit=x", "", 400, "query_parse_error", `Invalid value for integer: "x"`},
		{"GET", "/_design/d/_view/none?limit=x", "", 400, "query_parse_error", `Invalid value for integer: "x"`},
		{"GET", n + "?group=true", "", 400, "query_parse_error", "Invalid use of grouping on a map view."},
		{"GET", n + "?reduce=true", "", 400, "query_parse_error", "Reduce is invalid for map-only views."},
		{"GET", typ + "?include_docs=true", "", 400, "query_parse_error", "`include_docs` is invalid for reduce"},
		{"GET", typ + "?keys=[1,2]", "", 400, "query_parse_error", "Multi-key fetches for reduce views must use `group=true`"},
		{"GET", n + "?keys=[1]&startkey=0", "", 400, "query_parse_error", "`keys` is incompatible with `key`, `start_key` and `end_key`"},
		{"GET", n + "?key={", "", 400, "bad_request", "invalid UTF-8 JSON"},
		{"GET", n + "?partition=p", "", 400, "query_parse_error", "`partition` parameter is not supported in this design doc"},
		{"POST", n, `{"limit":"5"}`, 400, "query_parse_error", `Invalid value for integer: "5"`},
		{"POST", n, `{"keys":1}`, 400, "bad_request", "`keys` body member must be an array."},
		{"POST", n, `{"keys":[1],"queries":[]}`, 400, "bad_request", "`keys` and `queries` are mutually exclusive"},
		{"POST", n, `{"queries":1}`, 400, "bad_request", "`queries` body member must be an array."},
		{"POST", n, `[]`, 400, "bad_request", "Request body must be a JSON object"},
		{"POST", n, `{`, 400, "bad_request", "invalid UTF-8 JSON"},
		{"POST", n + "/queries", `{}`, 400, "bad_request", "POST body must include `queries` parameter."},
		{"POST", n + "/queries", `{"queries":[1]}`, 400, "bad_request", "`queries` must be an array of objects."},
		{"POST", n + "/queries", `{"queries":[{},{"limit":-1}]}`, 400, "query_parse_error", "Invalid value for positive integer: -1"},
		{"POST", n, `{"keys":[` + strings.Repeat("1,", 500_000) + `1]}`, 413, "too_many_documents", "A list in a request may have 500000 entries."},
		{"PUT", n, `{}`, 405, "method_not_allowed", "Only GET,HEAD,POST allowed"},
		{"GET", n + "/queries", ``, 405, "method_not_allowed", "Only POST allowed"},
		{"POST", "/_design/d/_info", `{}`, 405, "method_not_allowed", "Only GET,HEAD allowed"},
	} {
		var body any
		if x.body != "" {
			body = x.body
		}
		r := s.Do(t, x.method, db+x.path, body)
		if r.Status != x.status || r.Str("error") != x.name || r.Str("reason") != x.reason {
			t.Errorf("%s %s %.60s: %d %s", x.method, x.path, x.body, r.Status, r.Body)
		}
	}
	s.Do(t, "POST", db+n, `{"keys":[1]}`, "Content-Type", "text/plain").Want(415)
	s.Do(t, "GET", db+n, nil, "Authorization", "").Want(401)
	s.Do(t, "GET", db+"/_design/d/_info", nil, "Authorization", "").Want(401)
	s.Do(t, "GET", "/no-such-database/_design/d/_view/n", nil).Want(404)
}
