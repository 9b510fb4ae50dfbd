package httpapi_test

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// JSON comes back as it went in.
func TestDocumentsKeepTheirText(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	for i, body := range []string{
		`{"z":1,"a":2,"m":{"y":1,"b":2}}`,
		`{"n":[1000.0,1e3,-0,0.10,12345678901234567890,1E+2,123456789012345678901234567890.5]}`,
		`{"s":"\u00e9é\u0000\ud83d\ude00😀\/\"\\","\u0061":1}`,
		`{"nested":{"_underscore":1,"_id":2}}`,
		`{"empty":{},"list":[],"null":null,"t":true}`,
	} {
		path := fmt.Sprintf("%s/d%d", db, i)
		rev := s.Do(t, "PUT", path, body).Want(201).Str("rev")
		want := fmt.Sprintf(`{"_id":"d%d","_rev":"%s",%s`, i, rev, body[1:]) + "\n"
		if got := string(s.Do(t, "GET", path, nil).Want(200).Body); got != want {
			t.Errorf("got  %swant %s", got, want)
		}
	}
	s.Do(t, "PUT", db+"/dup", `{"a":1,"b":{"x":1,"x":2}, "a":2 }`).Want(201)
	if got := string(s.Do(t, "GET", db+"/dup", nil).Body); !strings.HasSuffix(got, `"b":{"x":2},"a":2}`+"\n") {
		t.Errorf("duplicates: %s", got)
	}
}

func TestReservedMembers(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	for _, body := range []string{`{"_foo":1}`, `{"\u005ffoo":1}`} {
		r := s.Do(t, "PUT", db+"/x", body).Want(400)
		if r.Str("error") != "doc_validation" || r.Str("reason") != "Bad special document member: _foo" {
			t.Errorf("%s", r.Body)
		}
	}
	s.Do(t, "GET", db+"/x", nil).Want(404)
	s.Do(t, "PUT", db+"/x", `{"_conflicts":[],"_revs_info":[],"_local_seq":1,"_deleted_conflicts":[],"a":{"_b":1}}`).Want(201)
	if got := s.Do(t, "GET", db+"/x", nil).Object(); len(got) != 3 {
		t.Errorf("%v", got)
	}
	// What replication leaves in its documents may be copied to any database.
	s.Do(t, "PUT", db+"/r", `{"_replication_id":"i","_replication_state":"triggered","_replication_state_time":1,"_replication_stats":{},"_replication_state_reason":null}`).Want(201)
	if got := s.Do(t, "GET", db+"/r", nil).Object(); len(got) != 7 || got["_replication_id"] != "i" {
		t.Errorf("%v", got)
	}
	s.Do(t, "PUT", db+"/r2", `{"_replication_other":1}`).Want(400)
}

func TestRevsOfAnEdit(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	rev1 := s.Do(t, "PUT", db+"/a", `{"n":1}`).Want(201).Str("rev")
	s.Do(t, "PUT", db+"/a", `{"n":1}`).Want(409)
	s.Do(t, "PUT", db+"/a", `{"_rev":"1-abc","n":2}`).Want(409)
	s.Do(t, "PUT", db+"/a", `{"_rev":"x","n":2}`).Want(400)
	s.Do(t, "PUT", db+"/a", `{"_rev":5}`).Want(400)
	s.Do(t, "PUT", db+"/a?rev="+rev1, `{"_rev":"1-abc"}`).Want(400)
	s.Do(t, "PUT", db+"/a?rev="+rev1, `{}`, "If-Match", "1-abc").Want(400)
	rev2 := s.Do(t, "PUT", db+"/a", `{"n":2}`, "If-Match", `"`+rev1+`"`).Want(201).Str("rev")
	rev3 := s.Do(t, "PUT", db+"/a?rev="+rev2, `{"n":3}`).Want(201).Str("rev")
	s.Do(t, "PUT", db+"/a?rev="+rev2, `{"n":3}`).Want(409)
	if got := s.Do(t, "GET", db+"/a?rev="+rev1, nil).Want(200).Object(); got["n"] != 1.0 {
		t.Errorf("old revision %v", got)
	}
	del := s.Do(t, "DELETE", db+"/a", nil, "If-Match", rev3).Want(200)
	if e := s.Do(t, "GET", db+"/a", nil).Want(404); e.Str("reason") != "deleted" {
		t.Errorf("%s", e.Body)
	}
	tomb := s.Do(t, "GET", db+"/a?rev="+del.Str("rev"), nil).Want(200).Object()
	if tomb["_deleted"] != true {
		t.Errorf("%v", tomb)
	}
	s.Do(t, "DELETE", db+"/a?rev="+rev3, nil).Want(409)
	// A deletion by PUT may keep members for whoever reads the tombstone.
	s.Do(t, "PUT", db+"/b", `{"_id":"other","n":1}`).Want(201)
	tag := s.Do(t, "HEAD", db+"/b", nil).Want(200).Header.Get("ETag")
	bye := s.Do(t, "PUT", db+"/b", `{"_deleted":true,"why":"x"}`, "If-Match", tag).Want(200).Str("rev")
	if tomb = s.Do(t, "GET", db+"/b?rev="+bye, nil).Want(200).Object(); tomb["why"] != "x" || tomb["_deleted"] != true {
		t.Errorf("%v", tomb)
	}
	s.Do(t, "HEAD", db+"/b", nil).Want(404)
	again := s.Do(t, "PUT", db+"/a", `{"n":5}`).Want(201).Str("rev")
	if !strings.HasPrefix(again, "5-") {
		t.Errorf("recreated as %s", again)
	}
	// The same edit gives the same revision, wherever it is made.
	other := "/" + s.DB(t)
	if r := s.Do(t, "PUT", other+"/q", `{ "n" : 1 }`).Want(201).Str("rev"); r != rev1 {
		t.Errorf("the same edit gave %s and %s", r, rev1)
	}
}

func TestETags(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	r := s.Do(t, "PUT", db+"/a", `{}`).Want(201)
	tag := r.Header.Get("ETag")
	if tag != `"`+r.Str("rev")+`"` {
		t.Errorf("ETag %s", tag)
	}
	for _, match := range []string{tag, `"x", ` + tag, "*", "W/" + tag} {
		g := s.Do(t, "GET", db+"/a", nil, "If-None-Match", match).Want(304)
		if len(g.Body) != 0 || g.Header.Get("ETag") != tag {
			t.Errorf("304 with %q %v", g.Body, g.Header)
		}
	}
	s.Do(t, "GET", db+"/a", nil, "If-None-Match", `"1-x"`).Want(200)
	s.Do(t, "HEAD", db+"/a", nil, "If-None-Match", tag).Want(304)
	s.Do(t, "GET", db+"/a?rev="+r.Str("rev"), nil, "If-None-Match", tag).Want(304)
	if s.Do(t, "GET", db+"/a?conflicts=true", nil).Header.Get("ETag") != "" {
		t.Error("an ETag although the answer depends on more than the revision")
	}
	head := s.Do(t, "HEAD", db+"/a", nil).Want(200)
	get := s.Do(t, "GET", db+"/a", nil).Want(200)
	if head.Header.Get("Content-Length") != fmt.Sprint(len(get.Body)) || head.Header.Get("ETag") != tag {
		t.Errorf("HEAD %v", head.Header)
	}
	if get.Header.Get("Cache-Control") != "must-revalidate" {
		t.Errorf("Cache-Control %q", get.Header.Get("Cache-Control"))
	}
}

func TestContentTypes(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	for accept, want := range map[string]string{"": "text/plain;charset=utf-8", "*/*": "text/plain;charset=utf-8",
		"application/json": "application/json", "text/html, application/json;q=0.5": "application/json", "text/plain": "text/plain;charset=utf-8"} {
		if got := s.Do(t, "GET", "/_up", nil, "Accept", accept).Header.Get("Content-Type"); got != want {
			t.Errorf("Accept %q: %q", accept, got)
		}
	}
	db := "/" + s.DB(t)
	for _, path := range []string{db, db + "/_bulk_docs", db + "/_revs_diff", db + "/_missing_revs", db + "/_bulk_get", db + "/_all_docs"} {
		if e := s.Do(t, "POST", path, `{}`, "Content-Type", "text/plain").Want(415); e.Str("error") != "bad_content_type" {
			t.Errorf("%s: %s", path, e.Body)
		}
	}
}

func TestCompressedBodies(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	var gz, zl bytes.Buffer
	w := gzip.NewWriter(&gz)
	io.WriteString(w, `{"z":1}`)
	w.Close()
	z := zlib.NewWriter(&zl)
	io.WriteString(z, `{"z":1}`)
	z.Close()
	s.Do(t, "PUT", db+"/gz", gz.Bytes(), "Content-Encoding", "gzip").Want(201)
	s.Do(t, "PUT", db+"/zl", zl.Bytes(), "Content-Encoding", "deflate").Want(201)
	s.Do(t, "POST", db+"/_all_docs", zl.Bytes(), "Content-Encoding", "deflate").Want(200)
	// Some clients send deflate without the frame that its name means.
	var bare bytes.Buffer
	f, err := flate.NewWriter(&bare, 9)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(f, `{"docs":[{"_id":"bare","z":1}]}`)
	f.Close()
	s.Do(t, "POST", db+"/_bulk_docs", bare.Bytes(), "Content-Encoding", "deflate").Want(201)
	for _, id := range []string{"gz", "zl", "bare"} {
		if d := s.Do(t, "GET", db+"/"+id, nil).Want(200).Object(); d["z"] != 1.0 {
			t.Errorf("%v", d)
		}
	}
	s.Do(t, "PUT", db+"/x", "junk", "Content-Encoding", "gzip").Want(400)
	s.Do(t, "PUT", db+"/x", gz.Bytes()[:12], "Content-Encoding", "gzip").Want(400)
	s.Do(t, "PUT", db+"/x", `{}`, "Content-Encoding", "br").Want(415)
	big := fmt.Sprintf(`{"t":%q}`, strings.Repeat("abc ", 5000))
	s.Do(t, "PUT", db+"/big", big).Want(201)
	r := s.Do(t, "GET", db+"/big", nil, "Accept-Encoding", "gzip").Want(200)
	if r.Header.Get("Content-Encoding") != "gzip" || len(r.Body) > 2000 {
		t.Errorf("%v, %d bytes", r.Header, len(r.Body))
	}
	if gunzip(t, r.Body) != string(s.Do(t, "GET", db+"/big", nil).Body) {
		t.Error("gzip changes the answer")
	}
	for _, path := range []string{"/_all_docs?include_docs=true", "/_changes?include_docs=true", "/_design_docs"} {
		plain := s.Do(t, "GET", db+path, nil).Want(200)
		packed := s.Do(t, "GET", db+path, nil, "Accept-Encoding", "gzip").Want(200)
		if packed.Header.Get("Content-Encoding") != "gzip" || gunzip(t, packed.Body) != string(plain.Body) || plain.Header.Get("Content-Encoding") != "" {
			t.Errorf("%s: %v", path, packed.Header)
		}
	}
}

// conflicted makes a document with a live conflict and a deleted branch.
func conflicted(t *testing.T, s *testserver.Server, db, id string) {
	t.Helper()
	for _, d := range []string{
		`{"_rev":"1-aa","_revisions":{"start":1,"ids":["aa"]},"v":1}`,
		`{"_rev":"2-bb","_revisions":{"start":2,"ids":["bb","aa"]},"v":2}`,
		`{"_rev":"2-cc","_revisions":{"start":2,"ids":["cc","aa"]},"v":3}`,
		`{"_rev":"2-dd","_revisions":{"start":2,"ids":["dd","aa"]},"v":4}`,
		`{"_rev":"3-dd","_revisions":{"start":3,"ids":["dd","bb","aa"]},"_deleted":true}`,
	} {
		r := s.Do(t, "PUT", db+"/"+id+"?new_edits=false", d)
		if r.Status != 201 && r.Status != 200 {
			t.Fatalf("%d %s", r.Status, r.Body)
		}
	}
}

func TestGetParameters(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	conflicted(t, s, db, "d")
	str := func(v any) string { b, _ := json.Marshal(v); return string(b) }
	get := func(query string) map[string]any { return s.Do(t, "GET", db+"/d?"+query, nil).Want(200).Object() }
	if d := get(""); d["_rev"] != "2-dd" || d["v"] != 4.0 || len(d) != 3 {
		t.Errorf("winner %v", d)
	}
	if d := get("conflicts=true"); str(d["_conflicts"]) != `["2-cc"]` {
		t.Errorf("conflicts %v", d)
	}
	if d := get("deleted_conflicts=true"); str(d["_deleted_conflicts"]) != `["3-dd"]` {
		t.Errorf("deleted_conflicts %v", d)
	}
	if d := get("revs=true"); str(d["_revisions"]) != `{"ids":["dd","aa"],"start":2}` {
		t.Errorf("revs %v", d)
	}
	if d := get("revs_info=true"); str(d["_revs_info"]) != `[{"rev":"2-dd","status":"available"},{"rev":"1-aa","status":"available"}]` {
		t.Errorf("revs_info %v", d)
	}
	if d := get("meta=true"); d["_revs_info"] == nil || d["_conflicts"] == nil || d["_deleted_conflicts"] == nil {
		t.Errorf("meta %v", d)
	}
	if d := get("local_seq=true"); d["_local_seq"] != 5.0 {
		t.Errorf("local_seq %v", d)
	}
	if d := get("rev=2-cc"); d["v"] != 3.0 {
		t.Errorf("rev %v", d)
	}
	if d := get("rev=2-bb&latest=true"); d["_rev"] != "3-dd" {
		t.Errorf("latest %v", d)
	}
	open := func(query string) string {
		return string(bytes.TrimSpace(s.Do(t, "GET", db+"/d?"+query, nil).Want(200).Body))
	}
	if got := open("open_revs=all"); got != `[{"ok":{"_id":"d","_rev":"2-cc","v":3}},{"ok":{"_id":"d","_rev":"2-dd","v":4}},{"ok":{"_id":"d","_rev":"3-dd","_deleted":true}}]` {
		t.Errorf("open_revs=all %s", got)
	}
	if got := open(`open_revs=` + url.QueryEscape(`["9-zz","2-cc"]`)); !strings.Contains(got, `{"missing":"9-zz"}`) || !strings.Contains(got, `"_rev":"2-cc"`) {
		t.Errorf("open_revs %s", got)
	}
	s.Do(t, "GET", db+"/nope?open_revs=all", nil).Want(404)
	if r := s.Do(t, "GET", db+"/nope?open_revs="+url.QueryEscape(`["2-b","1-a"]`), nil).Want(200); string(r.Body) != `[{"missing":"2-b"},{"missing":"1-a"}]`+"\n" {
		t.Errorf("open_revs of an unknown document: %s", r.Body)
	}
	s.Do(t, "GET", db+"/d?open_revs=5", nil).Want(400)
	s.Do(t, "GET", db+"/d?rev=x", nil).Want(400)
	s.Do(t, "GET", db+"/d?conflicts=perhaps", nil).Want(400)
	if e := s.Do(t, "GET", db+"/d?rev=7-abc", nil).Want(404); e.Str("reason") != "missing" {
		t.Errorf("%s", e.Body)
	}
}

func TestPostCopyBatchQuorum(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	r := s.Do(t, "POST", db, `{"x":1}`).Want(201)
	if len(r.Str("id")) != 32 || !strings.HasSuffix(r.Header.Get("Location"), db+"/"+r.Str("id")) {
		t.Errorf("%s %v", r.Body, r.Header)
	}
	s.Do(t, "POST", db, `{"_id":"gone","_deleted":true}`).Want(201) // a PUT of this is a 200
	s.Do(t, "PUT", db+"/gone2", `{"_deleted":true}`).Want(200)
	b := s.Do(t, "POST", db+"?batch=ok", `{"_id":"q"}`).Want(202).Object()
	if b["rev"] != nil || b["id"] != "q" {
		t.Errorf("%v", b)
	}
	s.Do(t, "GET", db+"/q", nil).Want(200)
	// Nobody waits for the outcome of a batch write, so a conflict is not told either.
	for _, r := range []*testserver.Response{s.Do(t, "PUT", db+"/q?batch=ok", `{"lost":1}`), s.Do(t, "POST", db+"?batch=ok", `{"_id":"q","lost":1}`), s.Do(t, "PUT", db+"/q3?batch=ok", `{}`)} {
		if r.Want(202); r.Str("id") == "" || len(r.Object()) != 2 || r.Header.Get("Etag") != "" || r.Header.Get("Location") != "" {
			t.Errorf("%s %v", r.Body, r.Header)
		}
	}
	s.Do(t, "DELETE", db+"/q?batch=ok", nil).Want(409)
	if q := s.Do(t, "GET", db+"/q", nil).Want(200).Object(); q["lost"] != nil {
		t.Errorf("%v", q)
	}
	s.Do(t, "PUT", db+"/q?batch=ok", `{"_zip":1}`).Want(400)
	s.Do(t, "PUT", db+"/w?w=3", `{}`).Want(202)
	s.Do(t, "PUT", db+"/w1?w=1", `{}`).Want(201)
	s.Do(t, "PUT", db+"/w2?w=x", `{}`).Want(400)
	s.Do(t, "GET", db+"/w?r=3", nil).Want(200)
	s.Do(t, "PUT", db+"/src", `{"v":1,"_attachments":{"a.txt":{"content_type":"text/plain","data":"aGk="}}}`).Want(201)
	c := s.Do(t, "COPY", db+"/src", nil, "Destination", "dst%2F1").Want(201)
	if c.Str("id") != "dst/1" {
		t.Errorf("%s", c.Body)
	}
	if a := s.Do(t, "GET", db+"/dst%2F1/a.txt", nil).Want(200); string(a.Body) != "hi" {
		t.Errorf("copied attachment %q", a.Body)
	}
	s.Do(t, "COPY", db+"/src", nil, "Destination", "q").Want(409)
	s.Do(t, "COPY", db+"/src", nil, "Destination", "dst%2F1?rev="+c.Str("rev")).Want(201)
	s.Do(t, "COPY", db+"/src", nil).Want(400)
	s.Do(t, "COPY", db+"/src", nil, "Destination", "http://x/y").Want(400)
	s.Do(t, "COPY", db+"/nope", nil, "Destination", "y").Want(404)
	s.Do(t, "POST", db+"/src2", nil, "X-HTTP-Method-Override", "PUT", "Content-Type", "application/json").Want(400)
	s.Do(t, "POST", db+"/src2", `{}`, "X-HTTP-Method-Override", "PUT").Want(201)
}

func TestDesignAndLocalDocuments(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	r := s.Do(t, "PUT", db+"/_design/d", `{"views":{}}`).Want(201)
	if r.Str("id") != "_design/d" {
		t.Errorf("%s", r.Body)
	}
	moved := s.Do(t, "GET", db+"/_design%2Fd", nil).Want(301)
	if moved.Header.Get("Location") != db+"/_design/d" {
		t.Errorf("Location %q", moved.Header.Get("Location"))
	}
	s.Do(t, "PUT", db+"/_design%2Fd?rev="+r.Str("rev"), `{}`).Want(201)
	s.Do(t, "GET", db+"/_design/d", nil).Want(200)

	l := s.Do(t, "PUT", db+"/_local/c", `{"x":1}`).Want(201)
	if l.Str("rev") != "0-1" || l.Str("id") != "_local/c" {
		t.Errorf("%s", l.Body)
	}
	g := s.Do(t, "GET", db+"/_local/c", nil).Want(200)
	if string(g.Body) != `{"_id":"_local/c","_rev":"0-1","x":1}`+"\n" || g.Header.Get("ETag") == "" {
		t.Errorf("%s", g.Body)
	}
	s.Do(t, "PUT", db+"/_local/c", `{"_rev":"0-9"}`).Want(409)
	s.Do(t, "PUT", db+"/_local/c", `{"_rev":"0-1","x":2}`).Want(201)
	if h := s.Do(t, "PUT", db+"/_local/c", `{"_rev":"0-2","_revisions":{"start":0,"ids":["2"]},"x":3}`).Want(201); h.Str("rev") != "0-3" {
		t.Errorf("with a history: %s", h.Body)
	}
	s.Do(t, "PUT", db+"/_local/c", `{"_revisions":{"start":0,"ids":["2"]}}`).Want(409)
	if g := s.Do(t, "GET", db+"/_local/c", nil).Want(200); string(g.Body) != `{"_id":"_local/c","_rev":"0-3","x":3}`+"\n" {
		t.Errorf("after a write with a history: %s", g.Body)
	}
	s.Do(t, "PUT", db+"/_local/a", `{"_attachments":{"a":{"data":""}}}`).Want(400)
	if d := s.Do(t, "DELETE", db+"/_local/c?rev=0-3", nil).Want(200); d.Str("rev") != "0-0" {
		t.Errorf("%s", d.Body)
	}
	s.Do(t, "GET", db+"/_local/c", nil).Want(404)
	s.Do(t, "DELETE", db+"/_local/c", nil).Want(404)
	if n := s.Do(t, "GET", db, nil).Object()["doc_count"]; n != 1.0 {
		t.Errorf("%v documents: local ones do not count", n)
	}
	s.Do(t, "PUT", db+"/_local", `{}`).Want(400)
	for _, method := range []string{"GET", "PUT", "DELETE"} {
		if r := s.Do(t, method, db+"/_local/c/a.txt", `{}`).Want(400); r.Str("reason") != "_local documents do not accept attachments." {
			t.Errorf("%s %s", method, r.Body)
		}
	}
	s.Do(t, "PUT", db+"/_local/c%2Fd", `{}`).Want(201)
	s.Do(t, "PUT", db+"/_design/", `{}`).Want(400)
}
