package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/httpapi"
	"github.com/divandb/divan/internal/testserver"
)

// raw sends bytes as they are, and gives the answer.
func raw(t *testing.T, s *testserver.Server, head, body string) (*http.Response, string) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, head+"\r\nConnection: close\r\nContent-Length: "+fmt.Sprint(len(body))+"\r\n\r\n"+body); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%q: %v", head, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("%q: %v", head, err)
	}
	return resp, string(text)
}

func adminAuth() string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(testserver.AdminName+":"+testserver.AdminPassword))
}

// Names that look like paths are names: nothing appears outside of the data
// directory, and nothing inside is named by a client.
func TestPathTraversal(t *testing.T) {
	t.Parallel()
	top := t.TempDir()
	s := testserver.Start(t, testserver.Config(func(c *config.Config) { c.Data = filepath.Join(top, "a", "b", "data") }))
	db := "/" + s.DB(t)
	large := strings.Repeat("evil", 50_000) // large enough for a file of its own
	for i, evil := range []string{
		"..%2f..%2fevil", "..%2F..%2Fevil", "%2e%2e%2f%2e%2e%2fevil", "..%5c..%5cevil", "%2Ftmp%2Fevil", "evil%00.txt", "..%00%2fevil",
		"....%2f%2fevil", "%252e%252e%252fevil", "..;%2fevil", "C:%5cevil", "%c0%ae%c0%ae%c0%afevil", "..%u2215evil", "evil%0a", "~%2fevil", "%2e%2e", "%2e",
	} {
		if r := s.Do(t, "PUT", "/"+evil, nil); r.Status != 403 && r.Status != 400 && r.Status != 405 {
			t.Errorf("database %s: %d %s", evil, r.Status, r.Body)
		}
		// A slash in a database's name is fine where the rest of it is.
		if r := s.Do(t, "PUT", "/a"+evil, nil); r.Status != 403 && r.Status != 400 && evil != "%2Ftmp%2Fevil" {
			t.Errorf("database a%s: %d %s", evil, r.Status, r.Body)
		}
		if r := s.Do(t, "DELETE", "/"+evil, nil); r.Status < 400 || r.Status > 499 {
			t.Errorf("DELETE %s: %d %s", evil, r.Status, r.Body)
		}
		// As ids and names of attachments most of these are fine, and come back as they went.
		for _, path := range []string{db + "/" + evil, db + "/_local/" + evil, db + "/_design/" + evil} {
			r := s.Do(t, "PUT", path, `{"n":1}`)
			if r.Status != 201 && r.Status != 400 && r.Status != 409 { // some are the same name
				t.Errorf("PUT %s: %d %s", path, r.Status, r.Body)
			}
			if r.Status == 201 {
				s.Do(t, "GET", path, nil).Want(200)
			}
		}
		r := s.Do(t, "PUT", fmt.Sprintf("%s/holder%d/%s", db, i, evil), large, "Content-Type", "text/plain; evil")
		if r.Status != 201 && r.Status != 400 {
			t.Errorf("attachment %s: %d %s", evil, r.Status, r.Body)
		}
		s.Do(t, "PUT", fmt.Sprintf("%s/with%d/x%s", db, i, evil), large, "Content-Type", "application/x-evil")
		name := fmt.Sprintf("--x\r\nContent-Disposition: form-data; name=\"_attachments\"; filename=\"../../evil%d\"\r\n\r\n%s\r\n--x--\r\n", i, large)
		s.Do(t, "POST", fmt.Sprintf("%s/form%d", db, i), name, "Content-Type", "multipart/form-data; boundary=x").Want(201)
	}
	for _, target := range []string{
		"/../../../../etc/passwd", "/_utils/..%2f..%2f..%2fetc%2fpasswd", "//etc/passwd", "/%2fetc%2fpasswd", "http://elsewhere/../../etc/passwd",
		"http://elsewhere//etc/passwd", "/./../etc/passwd", db + "/../../etc/passwd", db + "/x/../../../../../etc/passwd", "/..\\..\\etc\\passwd", "*",
	} {
		resp, body := raw(t, s, "GET "+target+" HTTP/1.1\r\nHost: x\r\nAuthorization: "+adminAuth(), "")
		if resp.StatusCode < 300 || resp.StatusCode > 499 || strings.Contains(body, "root:") {
			t.Errorf("GET %s: %d %s", target, resp.StatusCode, body)
		}
	}
	if resp, _ := raw(t, s, "GET /\x00 HTTP/1.1\r\nHost: x", ""); resp.StatusCode != 400 {
		t.Errorf("NUL: %d", resp.StatusCode)
	}
	s.Stop(t)
	files := 0
	err := filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		rest, _ := filepath.Rel(top, path)
		inside := strings.HasPrefix(rest+"/", "a/b/data/")
		if inside && !d.IsDir() {
			files++
		}
		if !inside && rest != "." && rest != "a" && rest != "a/b" || strings.Contains(d.Name(), "evil") {
			t.Errorf("%s has appeared", rest)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Errorf("%d files: %v", files, err)
	}
	if _, err := os.Stat("/tmp/evil"); err == nil {
		t.Error("/tmp/evil has appeared")
	}
}

// No name, value or function writes a header of its own.
func TestHeaderInjection(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	s.Do(t, "PUT", db+"/_design/d", map[string]any{
		"shows": map[string]string{
			"value":  `function() { return {headers: {"X-Fine": "a\r\nX-Evil: 1\r\n\r\n<script>", "Location": "/x\r\nX-Evil: 1"}, body: "b"}; }`,
			"name":   `function() { return {headers: {"X-Fine: 1\r\nX-Evil": "1", "X Evil": "1", "": "1", "X-Evil:": "1", "\u0000X-Evil": "1"}, body: "b"}; }`,
			"cookie": `function(doc, req) { return {headers: {"Set-Cookie": req.query.c, "set-cookie": req.query.c}, body: "b"}; }`,
			"cors":   `function() { return {headers: {"Access-Control-Allow-Origin": "*", "Access-Control-Allow-Credentials": "true", "Content-Security-Policy": "default-src *", "X-Content-Type-Options": "x"}, body: "b"}; }`,
		},
		"updates": map[string]string{"u": `function(doc, req) { return [{_id: "a\r\nX-Evil: 1"}, {headers: {"X-A": "1\nX-Evil: 1"}, body: "b"}]; }`},
	}).Want(201)
	s.Do(t, "PUT", db+"/x", `{}`).Want(201)
	for _, c := range []struct {
		method, path string
		header       []string
	}{
		{"PUT", "/a%0d%0aX-Evil:1", nil},
		{"PUT", "/a%0d%0aX-Evil:%201/att%0d%0aX-Evil:%201", nil},
		{"PUT", "/_local/a%0d%0aX-Evil:1", nil},
		{"PUT", "/_design/a%0d%0aX-Evil:1", nil},
		{"GET", "/_design%2Fa%0d%0aX-Evil:1?q=%0d%0aX-Evil:1", nil},
		{"COPY", "/x", []string{"Destination", "c%0d%0aX-Evil:1"}},
		{"GET", "/_design/d/_show/value", nil},
		{"GET", "/_design/d/_show/name", nil},
		{"GET", "/_design/d/_show/cors", nil},
		{"POST", "/_design/d/_update/u", nil},
		{"GET", "/x", []string{"X-Couch-Request-ID", "a\tX-Evil: 1"}},
		{"GET", "/x?rev=%0d%0aX-Evil:1", nil},
	} {
		r := s.Do(t, c.method, db+c.path, `{}`, c.header...)
		if r.Header.Get("X-Evil") != "" || r.Header.Get("Access-Control-Allow-Origin") != "" || r.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s %s: %v", c.method, c.path, r.Header)
		}
		for name, values := range r.Header {
			if strings.ContainsAny(name+strings.Join(values, ""), "\r\n") {
				t.Errorf("%s %s: %q %q", c.method, c.path, name, values)
			}
		}
		if strings.Contains(c.path, "_show") && r.Header.Get("Content-Security-Policy") != "sandbox" {
			t.Errorf("%s: %v", c.path, r.Header)
		}
	}
	// A show must not log its reader in as somebody else, however it spells the cookie.
	for _, cookie := range []string{"AuthSession=x", "AuthSession%20=x", "%20AuthSession=x", "%09AuthSession%09=x", "=AuthSession=x", "a=b,%20AuthSession=x", "a=b%0d%0aSet-Cookie:%20AuthSession=x"} {
		r := s.Do(t, "GET", db+"/_design/d/_show/cookie?c="+cookie, nil).Want(200)
		if strings.Contains(strings.Join(r.Header["Set-Cookie"], "|"), "AuthSession") {
			t.Errorf("%s: %v", cookie, r.Header["Set-Cookie"])
		}
	}
}

// A few bytes that stand for very many are refused before they are that many.
func TestGzipBombs(t *testing.T) {
	t.Parallel()
	p := testserver.StartProcess(t, "--max-request-size", "1MiB", "--max-attachment-size", "1MiB", "--cache-size", "16MiB")
	db := "/" + p.DB(t)
	var bomb bytes.Buffer
	zw := gzip.NewWriter(&bomb)
	io.WriteString(zw, `{"docs":[],"keys":[],"queries":[],"x":"`)
	for range 200 {
		zw.Write(bytes.Repeat([]byte("a"), 1<<20))
	}
	io.WriteString(zw, `"}`)
	zw.Close()
	var wg sync.WaitGroup
	for _, c := range [][2]string{
		{"PUT", db + "/x"}, {"POST", db}, {"POST", db + "/_bulk_docs"}, {"POST", db + "/_bulk_get"}, {"POST", db + "/_all_docs"}, {"POST", db + "/_all_docs/queries"},
		{"POST", db + "/_revs_diff"}, {"POST", db + "/_changes"}, {"PUT", db + "/_security"}, {"PUT", db + "/_local/x"}, {"PUT", db + "/_design/x"}, {"POST", "/_session"},
		{"POST", "/_dbs_info"}, {"PUT", db + "/doc/att"},
	} {
		wg.Go(func() {
			contentType := "application/json"
			if strings.HasSuffix(c[1], "/att") {
				contentType = "text/plain" // stored as it comes, and unpacked to be counted
			}
			r := p.Do(t, c[0], c[1], bomb.Bytes(), "Content-Encoding", "gzip", "Content-Type", contentType)
			if r.Status != 413 {
				t.Errorf("%s %s: %d %s", c[0], c[1], r.Status, r.Body)
			}
		})
	}
	wg.Wait()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID))
	if err != nil {
		if runtime.GOOS == "linux" {
			t.Fatal(err) // the server is gone
		}
		t.Skip("the system does not tell how much memory a process has used")
	}
	var peak int
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	if _, err := fmt.Sscan(rest, &peak); err != nil || peak > 300<<10 {
		t.Errorf("%d KiB of memory for %d KiB of bombs (%v)", peak, bomb.Len()*14>>10, err)
	}
	p.Do(t, "PUT", db+"/fine/att", gzipped(t, "text"), "Content-Encoding", "gzip", "Content-Type", "text/plain").Want(201)
}

// Answers are never wrapped in a call of somebody's function.
func TestNoJSONP(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	s.Do(t, "PUT", db+"/x", `{}`).Want(201)
	for _, path := range []string{"/?", "/_all_dbs?", "/_session?", "/_uuids?", db + "?", db + "/x?", db + "/_all_docs?", db + "/_changes?", db + "/missing?", db + "/_security?"} {
		r := s.Do(t, "GET", path+"callback=evil&jsonp=evil", nil, "Accept", "application/javascript, text/javascript, */*")
		if ct := r.Header.Get("Content-Type"); strings.Contains(ct, "javascript") || bytes.Contains(r.Body, []byte("evil(")) || r.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %s %s", path, ct, r.Body)
		}
	}
}

// A page of another site can make a browser send forms with its reader's
// credentials: no POST route takes one.
func TestCrossSitePost(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	db := s.DB(t)
	s.Do(t, "PUT", "/"+db+"/_design/d", `{`+matrixDesign+`}`).Want(201)
	s.Do(t, "PUT", "/"+db+"/own", `{}`).Want(201)
	before := s.Do(t, "GET", "/"+db, nil).Str("update_seq")
	bodies := map[string]string{"text/plain": `{"docs":[{"_id":"evil"}],"_id":"evil","name":"admin","password":"test-password"}`,
		"application/x-www-form-urlencoded": "name=admin&password=test-password", "": `{}`,
		"text/plain; application/json":                `{"docs":[{"_id":"evil"}]}`,
		"multipart/form-data; boundary=x":             "--x\r\nContent-Disposition: form-data; name=\"_doc\"\r\n\r\n{}\r\n--x--\r\n",
		"text/plain;charset=utf-8; application/json;": `{"docs":[{"_id":"evil"}]}`}
	for _, row := range httpapi.RouteNames() {
		method, shape, _ := strings.Cut(row, " ")
		if method != "POST" {
			continue
		}
		path := fill(shape, db, "own")
		for contentType, body := range bodies {
			for _, header := range [][]string{
				{"Origin", "http://evil.example"}, {"Origin", "null"}, {"Sec-Fetch-Site", "cross-site", "Origin", "http://evil.example"},
				{"Origin", "http://" + s.Addr + ".evil.example"}, {"Sec-Fetch-Site", "same-site", "Origin", "http://evil.example"},
			} {
				r := s.Do(t, "POST", path, body, append([]string{"Content-Type", contentType}, header...)...)
				if r.Status < 400 || r.Header.Get("Set-Cookie") != "" && !strings.HasPrefix(r.Header.Get("Set-Cookie"), "AuthSession=;") {
					t.Errorf("%s as %q from %v: %d %v %s", row, contentType, header, r.Status, r.Header, r.Body)
				}
			}
		}
		// Without a word of where it comes from, what is JSON must say so.
		if strings.Contains(shape, "/_update/") || strings.Contains(shape, "/_show/") || strings.Contains(shape, "/_list/") ||
			strings.HasSuffix(shape, "/api_keys") || strings.HasSuffix(shape, "/_sync_shards") {
			continue // these take any body, or none
		}
		if r := s.Do(t, "POST", path, `{"docs":[{"_id":"evil"}],"_id":"evil","keys":[],"queries":[]}`, "Content-Type", "text/plain"); r.Status < 400 {
			t.Errorf("%s as text/plain: %d %s", row, r.Status, r.Body)
		}
	}
	if after := s.Do(t, "GET", "/"+db, nil).Str("update_seq"); after != before {
		t.Errorf("something was written: %s", s.Do(t, "GET", "/"+db+"/_all_docs", nil).Body)
	}
}

// Numbers and lists of any size are refused, or cost nothing.
func TestUnboundedCounts(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"a"},{"_id":"b"},{"_id":"_design/d","views":{"v":{"map":"function(d) { emit([d._id, 1], 1); }","reduce":"_sum"}}}]}`).Want(201)
	const huge, tooHuge = "9223372036854775807", "99999999999999999999"
	view := db + "/_design/d/_view/v"
	for path, status := range map[string]int{
		"/_uuids?count=1000": 200, "/_uuids?count=1001": 400, "/_uuids?count=" + huge: 400, "/_uuids?count=" + tooHuge: 400, "/_uuids?count=-1": 400, "/_uuids?count=0": 400,
		db + "/_all_docs?limit=" + huge: 200, db + "/_all_docs?skip=" + huge: 200, db + "/_all_docs?limit=" + huge + "&skip=" + huge: 200,
		db + "/_all_docs?limit=" + tooHuge: 400, db + "/_all_docs?skip=" + tooHuge: 400, db + "/_all_docs?r=" + huge: 400,
		view + "?reduce=false&limit=" + huge + "&skip=" + huge: 200, view + "?limit=" + tooHuge: 200, view + "?skip=" + tooHuge: 200,
		view + "?group_level=" + huge: 200, view + "?group_level=" + tooHuge: 200, view + "?group_level=-1": 400,
		db + "/_changes?limit=" + huge: 200, db + "/_changes?limit=" + tooHuge: 400, db + "/_changes?timeout=" + huge: 200,
		db + "/_changes?feed=continuous&limit=1&heartbeat=" + huge: 200, "/_db_updates?limit=" + tooHuge: 400, "/_all_dbs?limit=" + tooHuge: 400, "/_all_dbs?skip=" + huge: 200,
		db + "/a?r=" + huge: 400, db + "/_partition/" + strings.Repeat("p", 4000): 400,
	} {
		if r := s.Do(t, "GET", path, nil); r.Status != status {
			t.Errorf("%.100s: %d, want %d: %.200s", path, r.Status, status, r.Body)
		}
	}
	some := func(n int, of string) string { return "[" + strings.Repeat(of+",", n-1) + of + "]" }
	list := func(of string) string { return some(500_001, of) }
	for path, body := range map[string]string{
		"/_all_docs": `{"keys":` + list(`""`) + `}`, "/_all_docs/queries": `{"queries":` + list(`{}`) + `}`, "/_design/d/_view/v": `{"keys":` + list(`1`) + `}`,
		"/_design/d/_view/v/queries": `{"queries":` + list(`{}`) + `}`, "/_design_docs/queries": `{"queries":` + list(`{}`) + `}`, "/_bulk_get": `{"docs":` + list(`{}`) + `}`,
		"/_bulk_docs": `{"docs":` + list(`{}`) + `}`, "/_changes?filter=_doc_ids": `{"doc_ids":` + list(`""`) + `}`, "/_revs_diff": `{"a":["1-a"],"b":` + list(`"1-a"`) + `}`,
		"/_missing_revs": `{"a":` + some(250_001, `"1-a"`) + `,"b":` + some(250_000, `"1-a"`) + `}`,
	} {
		if r := s.Do(t, "POST", db+path, body); r.Status != 413 {
			t.Errorf("%s with a long list: %d %.200s", path, r.Status, r.Body)
		}
	}
	keys := "[" + strings.Repeat(`"x",`, 100) + `"x"]`
	s.Do(t, "POST", "/_dbs_info", `{"keys":`+keys+`}`).Want(400)
}

// Members that another parser would read otherwise: the last one counts, everywhere,
// and names are matched as they are.
func TestDuplicateMembers(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	const throws, fine = `"function() { throw {forbidden: 'first'}; }"`, `"function() {}"`
	s.Do(t, "PUT", db+"/_design/last", `{"validate_doc_update":`+throws+`,"validate_doc_update":`+fine+`,"Validate_Doc_Update":`+throws+`,"VALIDATE_DOC_UPDATE":`+throws+`}`).Want(201)
	rev := s.Do(t, "PUT", db+"/x", `{"n":1,"n":2,"N":3}`).Want(201).Str("rev")
	if r := s.Do(t, "GET", db+"/x", nil); string(r.Body) != `{"_id":"x","_rev":"`+rev+`","n":2,"N":3}`+"\n" {
		t.Errorf("%s", r.Body)
	}
	design := s.Do(t, "PUT", db+"/_design/first", `{"validate_doc_update":`+fine+`,"\u0076alidate_doc_update":`+throws+`}`).Want(201)
	s.Do(t, "PUT", db+"/y", `{}`).Want(403)
	s.Do(t, "DELETE", db+"/_design/first?rev="+design.Str("rev"), nil).Want(200)
	s.Do(t, "PUT", db+"/_design/v", `{"views":{"v":{"map":"function(d) { emit('first', 1); }"}},"views":{"v":{"map":"function(d) { emit('no', 1); }","map":"function(d) { emit('last', 1); }","Map":"x"}},"Views":{"w":{"map":"function(d) {}"}},"language":"erlang","language":"javascript"}`).Want(201)
	if r := s.Do(t, "GET", db+"/_design/v/_view/v", nil).Want(200); !strings.Contains(string(r.Body), `"last"`) || strings.Contains(string(r.Body), "first") {
		t.Errorf("%s", r.Body)
	}
	s.Do(t, "GET", db+"/_design/v/_view/w", nil).Want(404)
	for body, status := range map[string]int{
		`{"_id":"one","_id":"z"}`: 201, `{"_id":"z2","_rev":"1-abc","_rev":"nonsense"}`: 400, `{"_id":"z3","_Deleted":true}`: 400, `{"_id":"z4","_REV":"1-a"}`: 400,
		`{"_id":"z5","_attachments":{"a":{"data":"aGk="}},"_attachments":{}}`: 201,
	} {
		s.Do(t, "POST", db, body).Want(status)
	}
	s.Do(t, "GET", db+"/z", nil).Want(200)
	s.Do(t, "GET", db+"/one", nil).Want(404)
	s.Do(t, "GET", db+"/z5/a", nil).Want(404)
	// A body that names its document twice, and two documents by one name.
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"no"}],"docs":[{"_id":"yes"}],"Docs":[{"_id":"no2"}]}`).Want(201)
	for id, status := range map[string]int{"no": 404, "no2": 404, "yes": 200} {
		s.Do(t, "GET", db+"/"+id, nil).Want(status)
	}
}
