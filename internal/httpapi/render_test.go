package httpapi_test

import (
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// renderDesign has one of each of the functions that make answers.
var renderDesign = map[string]any{
	"lib": map[string]any{"greet": "exports.word = 'hello';"},
	"views": map[string]any{
		"ids":  map[string]any{"map": "function(d) { emit(d._id, d.n); }"},
		"sums": map[string]any{"map": "function(d) { emit(d.kind, d.n); }", "reduce": "_sum"},
	},
	"shows": map[string]any{
		"text":     "function(doc, req) { return doc ? 'doc ' + doc._id : 'none'; }",
		"object":   "function(doc, req) { return {code: 201, headers: {'X-Own': 'yes', 'Content-Type': 'text/plain'}, body: 'made'}; }",
		"json":     "function(doc, req) { return {json: {id: req.id, method: req.method, q: req.query.q}}; }",
		"base64":   "function(doc, req) { return {headers: {'Content-Type': 'image/x'}, base64: 'aGVsbG8='}; }",
		"lib":      "function(doc, req) { return require('lib/greet').word; }",
		"provides": "function(doc, req) { provides('html', function() { return '<b>h</b>'; }); provides('json', function() { return toJSON({a: 1}); }); }",
		"throws":   "function(doc, req) { throw new Error('broken'); }",
		"bad":      "function(doc, req) { return {code: 'x', body: ''}; }",
		"cookie":   "function(doc, req) { return {headers: {'Set-Cookie': 'AuthSession=abc', 'Content-Security-Policy': 'none', 'Content-Length': '1'}, body: 'long body'}; }",
		"redirect": "function(doc, req) { return {code: 302, headers: {Location: '/elsewhere'}, body: ''}; }",
	},
	"lists": map[string]any{
		"csv":    "function(head, req) { start({headers: {'Content-Type': 'text/csv'}}); send('total ' + head.total_rows + '\\n'); var r; while (r = getRow()) { send(r.id + ',' + r.value + (r.doc ? ',' + r.doc.kind : '') + '\\n'); } return 'end'; }",
		"groups": "function(head, req) { var r, out = []; while (r = getRow()) out.push(r.key + '=' + r.value); return out.join(' '); }",
		"first":  "function(head, req) { var r = getRow(); return r ? r.id : 'empty'; }",
		"body":   "function(head, req) { return req.method + ' ' + typeof req.body; }",
		"throws": "function(head, req) { start({}); send('some'); throw new Error('later'); }",
	},
	"updates": map[string]any{
		"count":  "function(doc, req) { if (!doc) return [null, 'nothing']; doc.n++; return [doc, {code: 203, headers: {'X-Own': 'u'}, body: 'n is ' + doc.n}]; }",
		"create": "function(doc, req) { return [{_id: req.query.id || req.uuid, form: req.form.a, body: req.body}, 'created']; }",
		"noid":   "function(doc, req) { return [{x: 1}, 'x']; }",
		"member": "function(doc, req) { return [{_id: 'm', _bad: 1}, 'x']; }",
	},
	"rewrites": []any{
		map[string]any{"from": "/doc/:id", "to": "../../:id", "method": "GET"},
		map[string]any{"from": "/by/:k", "to": "_view/ids", "query": map[string]any{"key": ":k"}},
		map[string]any{"from": "/range/<a>/<b>", "to": "_view/ids", "query": map[string]any{"startkey": ":a", "endkey": ":b"}},
		map[string]any{"from": "/tree/*", "to": "../../*"},
		map[string]any{"from": "/make", "to": "_update/create", "method": "POST"},
		map[string]any{"from": "/loop", "to": "_rewrite/loop"},
		map[string]any{"from": "/out", "to": "../../../_all_dbs"},
		map[string]any{"from": "/", "to": "_show/text"},
	},
}

// renderDB makes a database with documents and the design document.
func renderDB(t *testing.T, s *testserver.Server) string {
	t.Helper()
	db := "/" + s.DB(t)
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"a","n":1,"kind":"x"},{"_id":"b","n":2,"kind":"y"},{"_id":"c/d","n":3,"kind":"x"}]}`).Want(201)
	s.Do(t, "PUT", db+"/_design/r", renderDesign).Want(201)
	return db
}

func TestShow(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := renderDB(t, s) + "/_design/r/_show/"
	for _, c := range []struct {
		method, path, accept string
		status               int
		contentType, body    string
	}{
		{"GET", "text/a", "", 200, "text/html; charset=utf-8", "doc a"},
		{"GET", "text", "", 200, "text/html; charset=utf-8", "none"},
		{"GET", "text/missing", "", 200, "text/html; charset=utf-8", "none"},
		{"GET", "text/c%2Fd", "", 200, "text/html; charset=utf-8", "doc c/d"},
		{"GET", "text/c/d", "", 200, "text/html; charset=utf-8", "doc c/d"},
		{"GET", "object", "", 201, "text/plain", "made"},
		{"GET", "json/a?q=1", "", 200, "application/json", `{"id":"a","method":"GET","q":"1"}`},
		{"POST", "json", "", 200, "application/json", `{"id":null,"method":"POST"}`},
		{"GET", "base64", "", 200, "image/x", "hello"},
		{"GET", "lib", "", 200, "text/html; charset=utf-8", "hello"},
		{"GET", "provides", "text/html", 200, "text/html; charset=utf-8", "<b>h</b>"},
		{"GET", "provides", "application/json", 200, "application/json", `{"a":1}`},
		{"GET", "provides", "image/png", 406, "", ""},
		{"GET", "redirect", "", 302, "", ""},
		{"GET", "throws", "", 500, "", ""},
		{"GET", "bad", "", 500, "", ""},
		{"GET", "none", "", 404, "", ""},
	} {
		r := s.Do(t, c.method, db+c.path, nil, "Accept", c.accept)
		if r.Status != c.status || c.status < 300 && (string(r.Body) != c.body || r.Header.Get("Content-Type") != c.contentType) {
			t.Errorf("%s %s: %d %q %q", c.method, c.path, r.Status, r.Header.Get("Content-Type"), r.Body)
		}
		if c.status < 300 && r.Header.Get("Content-Security-Policy") != "sandbox" {
			t.Errorf("%s: not sandboxed", c.path)
		}
	}
	if r := s.Do(t, "GET", db+"throws", nil); !strings.Contains(r.Str("reason"), "broken") {
		t.Errorf("%s", r.Body)
	}
	r := s.Do(t, "GET", db+"cookie", nil).Want(200)
	if string(r.Body) != "long body" || r.Header.Get("Set-Cookie") != "" || r.Header.Get("Content-Security-Policy") != "sandbox" {
		t.Errorf("%v %s", r.Header, r.Body)
	}
	if r := s.Do(t, "GET", db+"redirect", nil); r.Header.Get("Location") != "/elsewhere" {
		t.Errorf("%v", r.Header)
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := renderDB(t, s)
	other := map[string]any{"views": map[string]any{"rev": map[string]any{"map": "function(d) { emit(-d.n, d._id); }"}}}
	s.Do(t, "PUT", db+"/_design/o", other).Want(201)
	list := db + "/_design/r/_list/"
	for _, c := range []struct {
		method, path string
		body         any
		status       int
		want         string
	}{
		{"GET", "csv/ids", nil, 200, "total 3\na,1\nb,2\nc/d,3\nend"},
		{"GET", "csv/ids?include_docs=true&limit=1&skip=1", nil, 200, "total 3\nb,2,y\nend"},
		{"GET", "csv/ids?descending=true&limit=1", nil, 200, "total 3\nc/d,3\nend"},
		{"GET", `csv/ids?key="b"`, nil, 200, "total 3\nb,2\nend"},
		{"POST", "csv/ids", `{"keys":["b","a"]}`, 200, "total 3\nb,2\na,1\nend"},
		{"GET", "groups/sums?group=true", nil, 200, "x=4 y=2"},
		{"GET", "groups/sums", nil, 200, "null=6"},
		{"GET", "csv/o/rev?limit=1", nil, 200, "total 3\nc/d,c/d\nend"},
		{"GET", "first/ids", nil, 200, "a"},
		{"GET", `first/ids?startkey="zzz"`, nil, 200, "empty"},
		{"POST", "body/ids", `{"keys":[]}`, 200, "POST string"},
		{"GET", "csv/none", nil, 404, ""},
		{"GET", "none/ids", nil, 404, ""},
		{"GET", "csv/none/ids", nil, 404, ""},
		{"GET", "csv/ids?limit=x", nil, 400, ""},
	} {
		r := s.Do(t, c.method, list+c.path, c.body)
		if r.Status != c.status || c.status == 200 && string(r.Body) != c.want {
			t.Errorf("%s %s: %d %q", c.method, c.path, r.Status, r.Body)
		}
	}
	if r := s.Do(t, "GET", list+"csv/ids", nil); r.Header.Get("Content-Type") != "text/csv" || r.Header.Get("Content-Security-Policy") != "sandbox" {
		t.Errorf("%v", r.Header)
	}
	// What fails before the first byte has a status of its own; what fails later cuts
	// the answer off, so that nobody takes it for whole.
	if r, err := s.Try(t.Context(), "GET", list+"throws/ids", nil); err == nil && r.Status == 200 {
		t.Errorf("a list that throws ends well: %q", r.Body)
	}
}

func TestUpdateHandler(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := renderDB(t, s)
	up := db + "/_design/r/_update/"
	r := s.Do(t, "PUT", up+"count/a", nil).Want(203)
	rev := r.Header.Get("X-Couch-Update-NewRev")
	if string(r.Body) != "n is 2" || !strings.HasPrefix(rev, "2-") || r.Header.Get("X-Couch-Id") != "a" || r.Header.Get("X-Own") != "u" {
		t.Errorf("%v %s", r.Header, r.Body)
	}
	if got := s.Do(t, "GET", db+"/a", nil); got.Str("_rev") != rev || got.Object()["n"] != 2.0 {
		t.Errorf("%s", got.Body)
	}
	if r := s.Do(t, "POST", up+"count/missing", nil).Want(200); string(r.Body) != "nothing" || r.Header.Get("X-Couch-Update-NewRev") != "" {
		t.Errorf("%v %s", r.Header, r.Body)
	}
	s.Do(t, "GET", db+"/missing", nil).Want(404)
	r = s.Do(t, "POST", up+"create?id=made", "a=b+c", "Content-Type", "application/x-www-form-urlencoded").Want(201)
	if string(r.Body) != "created" {
		t.Errorf("%s", r.Body)
	}
	if got := s.Do(t, "GET", db+"/made", nil); got.Str("form") != "b c" || got.Str("body") != "a=b+c" {
		t.Errorf("%s", got.Body)
	}
	s.Do(t, "POST", up+"create?id=made", nil).Want(409)
	s.Do(t, "POST", up+"noid", nil).Want(400)
	s.Do(t, "POST", up+"member", nil).Want(400)
	s.Do(t, "POST", up+"none", nil).Want(404)
	s.Do(t, "GET", up+"create", nil).Want(405)
	// Validation holds for what functions write, too.
	s.Do(t, "PUT", db+"/_design/v", `{"validate_doc_update":"function(n) { if (n.form) throw {forbidden: 'no forms'}; }"}`).Want(201)
	r = s.Do(t, "POST", up+"create?id=other", "a=b", "Content-Type", "application/x-www-form-urlencoded").Want(403)
	if r.Str("reason") != "no forms" {
		t.Errorf("%s", r.Body)
	}
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := renderDB(t, s)
	rw := db + "/_design/r/_rewrite"
	for _, c := range []struct {
		method, path string
		status       int
		contains     string
	}{
		{"GET", "/doc/a", 200, `"_id":"a"`},
		{"HEAD", "/doc/a", 200, ""},
		{"PUT", "/doc/a", 404, "rewrite_error"},
		{"GET", "/by/b", 200, `{"id":"b","key":"b","value":2}`},
		{"GET", "/range/a/b", 200, `"offset":0`},
		{"GET", "/tree/_all_docs?limit=1", 200, `"total_rows":4`},
		{"GET", "/", 200, "none"},
		{"GET", "", 200, "none"},
		{"GET", "/nowhere", 404, "rewrite_error"},
		{"GET", "/loop", 400, "recursion"},
		{"GET", "/out", 400, "insecure_rewrite_rule"},
	} {
		r := s.Do(t, c.method, rw+c.path, nil)
		if r.Status != c.status || !strings.Contains(string(r.Body), c.contains) {
			t.Errorf("%s %s: %d %s", c.method, c.path, r.Status, r.Body)
		}
	}
	s.Do(t, "POST", rw+"/make?id=by-rule", nil).Want(201)
	s.Do(t, "GET", db+"/by-rule", nil).Want(200)

	s.Do(t, "PUT", db+"/_design/f", `{"rewrites":"function(req) { var p = req.path.slice(4); if (p[0] == 'no') return {code: 403, body: 'stay out'}; if (p[0] == 'put') return {path: '../../made', method: 'PUT', body: JSON.stringify({by: 'rule'}), headers: {'Content-Type': 'application/json'}}; if (p[0] == 'none') return; return {path: '../../' + p.join('/'), query: {limit: 1}}; }"}`).Want(201)
	fn := db + "/_design/f/_rewrite/"
	if r := s.Do(t, "GET", fn+"no", nil).Want(403); string(r.Body) != "stay out" {
		t.Errorf("%s", r.Body)
	}
	s.Do(t, "GET", fn+"put", nil).Want(201)
	if r := s.Do(t, "GET", db+"/made", nil); r.Str("by") != "rule" {
		t.Errorf("%s", r.Body)
	}
	if r := s.Do(t, "GET", fn+"_all_docs", nil).Want(200); len(r.Object()["rows"].([]any)) != 1 {
		t.Errorf("%s", r.Body)
	}
	s.Do(t, "GET", fn+"none", nil).Want(404)
	// A rewritten request needs the rights of where it goes, and has its credentials.
	s.Do(t, "GET", fn+"_all_docs", nil, "Authorization", "").Want(401)
}
