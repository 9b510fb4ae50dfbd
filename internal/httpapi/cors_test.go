package httpapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/testserver"
)

const corsPath = "/_api/v2/user/config/cors"

// corsHeaders gives what an answer says of CORS: origin, credentials.
func corsHeaders(h http.Header) string {
	out := h.Get("Access-Control-Allow-Origin")
	if c := h.Get("Access-Control-Allow-Credentials"); c != "" {
		out += " credentials=" + c
	}
	return out
}

// varies tells whether caches are told that the answer differs with a header.
func varies(h http.Header, name string) bool {
	for _, v := range h.Values("Vary") {
		for part := range strings.SplitSeq(v, ",") {
			if strings.TrimSpace(part) == name {
				return true
			}
		}
	}
	return false
}

func setCORS(t *testing.T, s *testserver.Server, credentials bool, origins ...string) {
	t.Helper()
	s.Do(t, "PUT", corsPath, map[string]any{"enable_cors": true, "allow_credentials": credentials, "origins": origins}).Want(200)
}

// Nothing is said of CORS until it is switched on, and OPTIONS is a method like others.
func TestCORSIsOff(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	if got := string(s.Do(t, "GET", corsPath, nil).Want(200).Body); got != `{"enable_cors":false,"allow_credentials":false,"origins":[]}`+"\n" {
		t.Errorf("%s", got)
	}
	none := func(r *testserver.Response) {
		t.Helper()
		for name := range r.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s: %s", name, r.Header.Get(name))
			}
		}
		if varies(r.Header, "Origin") {
			t.Error("the answer varies with Origin")
		}
	}
	preflight := []string{"Origin", "https://a.example", "Access-Control-Request-Method", "PUT"}
	r := s.Do(t, "OPTIONS", "/_all_dbs", nil, preflight...).Want(405)
	if r.Header.Get("Allow") != "GET,HEAD" {
		t.Errorf("Allow %q", r.Header.Get("Allow"))
	}
	none(r)
	none(s.Do(t, "OPTIONS", "/", nil, append(preflight, "Authorization", "")...).Want(401))
	none(s.Do(t, "GET", "/", nil, "Origin", "https://a.example").Want(200))
	// Listed, and off: the same.
	s.Do(t, "PUT", corsPath, `{"enable_cors":false,"allow_credentials":true,"origins":["https://a.example","*"]}`).Want(200)
	none(s.Do(t, "OPTIONS", "/_all_dbs", nil, preflight...).Want(405))
	none(s.Do(t, "GET", "/", nil, "Origin", "https://a.example").Want(200))
}

// Who may read answers, and who may send credentials.
func TestCORSOrigins(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	for _, c := range []struct {
		credentials bool
		listed      string
		origin      string
		want        string
	}{
		{true, "https://a.example", "https://a.example", "https://a.example credentials=true"},
		{false, "https://a.example", "https://a.example", "https://a.example"},
		{true, "https://A.Example:443", "https://a.example", "https://a.example credentials=true"},
		{true, "http://a.example", "http://a.example:80", "http://a.example:80 credentials=true"},
		{true, "https://a.example", "HTTPS://A.EXAMPLE", "HTTPS://A.EXAMPLE credentials=true"},
		{true, "https://a.example", "http://a.example", ""},
		{true, "https://a.example", "https://a.example:8443", ""},
		{true, "https://a.example:8443", "https://a.example:8443", "https://a.example:8443 credentials=true"},
		{true, "https://a.example", "https://a.example.evil.example", ""},
		{true, "https://a.example", "https://evila.example", ""},
		{true, "https://a.example", "https://a.example/", ""},
		{true, "https://a.example", "https://x@a.example", ""},
		{true, "https://a.example", "https://sub.a.example", ""},
		{true, "https://a.example", "null", ""},
		{true, "https://a.example", "*", ""},
		{true, "http://[::1]:3000", "http://[::1]:3000", "http://[::1]:3000 credentials=true"},
		{true, "http://[0:0:0:0:0:0:0:1]", "http://[::1]", "http://[::1] credentials=true"},
		{true, "capacitor://localhost", "capacitor://localhost", "capacitor://localhost credentials=true"},
		{true, "*", "https://evil.example", "https://evil.example"},
		{false, "*", "https://evil.example", "https://evil.example"},
		{true, "*", "null", ""},
		{true, "*", "https://evil.example/path", ""},
		{true, "* https://a.example", "https://evil.example", "https://evil.example"},
		{true, "* https://a.example", "https://a.example", "https://a.example credentials=true"},
		{true, "", "https://a.example", ""},
	} {
		setCORS(t, s, c.credentials, strings.Fields(c.listed)...)
		r := s.Do(t, "GET", "/_all_dbs", nil, "Origin", c.origin).Want(200)
		if got := corsHeaders(r.Header); got != c.want || !varies(r.Header, "Origin") {
			t.Errorf("%+v: %q, Vary %q", c, got, r.Header.Values("Vary"))
		}
		if exposed := r.Header.Get("Access-Control-Expose-Headers"); (exposed != "") != (c.want != "") {
			t.Errorf("%+v: exposed %q", c, exposed)
		}
		// The question before it has the same answer; whoever is not let in asks for a
		// method that is not there.
		r = s.Do(t, "OPTIONS", "/_all_dbs", nil, "Origin", c.origin, "Access-Control-Request-Method", "GET")
		status := 204
		if c.want == "" {
			status = 405
		}
		if got := corsHeaders(r.Want(status).Header); got != c.want || !varies(r.Header, "Origin") {
			t.Errorf("preflight %+v: %q", c, got)
		}
	}
	// Two origins are no origin, and caches hear of it without one too.
	setCORS(t, s, true, "https://a.example", "*")
	resp, _ := raw(t, s, "GET / HTTP/1.1\r\nHost: x\r\nOrigin: https://a.example\r\nOrigin: https://a.example", "")
	if got := corsHeaders(resp.Header); got != "" {
		t.Errorf("two origins: %q", got)
	}
	if r := s.Do(t, "GET", "/", nil); !varies(r.Header, "Origin") || corsHeaders(r.Header) != "" {
		t.Errorf("no origin: %v", r.Header)
	}
}

func TestCORSPreflight(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	setCORS(t, s, true, "https://a.example")
	ask := func(path string, header ...string) *testserver.Response {
		t.Helper()
		return s.Do(t, "OPTIONS", path, nil, append([]string{"Authorization", "", "Origin", "https://a.example"}, header...)...)
	}
	for _, path := range []string{"/", "/db/doc", "/db/_design/d/_view/v?x=1", "/_session", corsPath, "/no/such/path/at/all"} {
		r := ask(path, "Access-Control-Request-Method", "PUT", "Access-Control-Request-Headers", "Content-Type, authorization,x-evil, If-Match").Want(204)
		for name, want := range map[string]string{
			"Access-Control-Allow-Origin": "https://a.example", "Access-Control-Allow-Credentials": "true",
			"Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, DELETE, COPY, OPTIONS",
			"Access-Control-Allow-Headers": "content-type, authorization, if-match", "Access-Control-Max-Age": "600",
			"Set-Cookie": "", "Www-Authenticate": "",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%s: %s %q, want %q", path, name, got, want)
			}
		}
		if len(r.Body) != 0 || !varies(r.Header, "Origin") || !varies(r.Header, "Access-Control-Request-Headers") {
			t.Errorf("%s: %q, Vary %q", path, r.Body, r.Header.Values("Vary"))
		}
	}
	if r := ask("/", "Access-Control-Request-Method", "GET").Want(204); r.Header["Access-Control-Allow-Headers"] != nil {
		t.Errorf("%v", r.Header)
	}
	// No question, but a method that is not there; an answer to it is readable too.
	if r := ask("/").Want(401); corsHeaders(r.Header) != "https://a.example credentials=true" {
		t.Errorf("%v", r.Header)
	}
	if r := s.Do(t, "OPTIONS", "/", nil).Want(405); r.Header.Get("Allow") != "GET,HEAD" {
		t.Errorf("%v", r.Header)
	}
}

// Every answer can be read: of each kind of handler, and every error.
func TestCORSOnEveryAnswer(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(func(c *config.Config) { c.MaxURL = 2000 }))
	db := "/" + s.DB(t)
	s.Do(t, "PUT", db+"/_design/d", `{"shows":{"s":"function() { return {headers: {'Access-Control-Allow-Origin': '*', 'access-control-allow-credentials': 'true', 'Vary': 'Accept', 'Strict-Transport-Security': 'x'}, body: 'show'}; }"},"views":{"v":{"map":"function(d) { emit(1); }"}},"rewrites":[{"from":"x","to":"../../doc"}]}`).Want(201)
	s.Do(t, "PUT", db+"/doc", `{"_attachments":{"a.txt":{"content_type":"text/plain","data":"aGkgaGkgaGk="},"b":{"content_type":"image/png","data":"aGkgaGkgaGk="}}}`).Want(201)
	setCORS(t, s, true, "https://a.example")
	for _, c := range []struct {
		method, path string
		status       int
		header       []string
	}{
		{"GET", "/", 200, nil},
		{"HEAD", "/", 200, nil},
		{"GET", "/_all_dbs", 200, []string{"Accept-Encoding", "gzip"}},
		{"GET", db + "/doc", 200, nil},
		{"GET", db + "/doc?attachments=true", 200, []string{"Accept", "multipart/related"}},
		{"GET", db + "/doc/a.txt", 200, []string{"Accept-Encoding", "gzip"}},
		{"GET", db + "/doc/b", 206, []string{"Range", "bytes=1-2"}},
		{"GET", db + "/_changes", 200, nil},
		{"GET", db + "/_changes?feed=eventsource&timeout=1", 200, nil},
		{"GET", db + "/_design/d/_view/v", 200, []string{"Accept-Encoding", "gzip"}},
		{"GET", db + "/_design/d/_show/s", 200, nil},
		{"GET", db + "/_design/d/_rewrite/x", 200, nil},
		{"GET", db + "/_design%2Fd", 301, nil},
		{"GET", db + "/none", 404, nil},
		{"GET", db + "/doc/none", 404, nil},
		{"GET", "/" + strings.Repeat("x", 2000), 414, nil},
		{"PUT", db + "/doc", 409, nil},
		{"PUT", db, 412, nil},
		{"PATCH", db, 405, nil},
		{"POST", db + "/_bulk_docs", 415, []string{"Content-Type", "application/octet-stream"}},
		{"GET", "/_all_dbs", 401, []string{"Authorization", ""}},
		{"GET", "/_all_dbs", 401, []string{"Authorization", basic("nobody-here")}},
		{"GET", "/_all_dbs", 400, []string{"Authorization", "", "Cookie", "AuthSession=%%"}},
		{"POST", "/_restart", 501, nil},
	} {
		var body any
		if c.method == "PUT" || c.method == "POST" {
			body = `{}`
		}
		path, status, header := c.path, c.status, c.header
		got := s.Do(t, c.method, path, body, append([]string{"Origin", "https://a.example"}, header...)...)
		if got.Status != status || corsHeaders(got.Header) != "https://a.example credentials=true" || !varies(got.Header, "Origin") ||
			got.Header.Get("X-Content-Type-Options") != "nosniff" || got.Header.Get("Referrer-Policy") != "no-referrer" || got.Header.Get("Strict-Transport-Security") != "" {
			t.Errorf("%s %s: %d %v %s", c.method, path, got.Status, got.Header, got.Body)
		}
		if ct := got.Header.Get("Content-Type"); strings.HasPrefix(ct, "application/json") && got.Header.Get("X-Frame-Options") != "DENY" {
			t.Errorf("%s %s: no X-Frame-Options on JSON", c.method, path)
		}
		if len(got.Header.Values("Access-Control-Allow-Origin")) != 1 {
			t.Errorf("%s %s: %q", c.method, path, got.Header.Values("Access-Control-Allow-Origin"))
		}
		// An origin that is not listed is served as ever, and told nothing.
		other := s.Do(t, c.method, path, body, append([]string{"Origin", "https://evil.example"}, header...)...)
		for name := range other.Header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s %s to another origin: %s %q", c.method, path, name, other.Header.Get(name))
			}
		}
	}
}

func TestCORSConfiguration(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	many := strings.Repeat(`"https://a.example",`, 1001)
	for body, want := range map[string]string{
		`{"enable_cors":true,"allow_credentials":true,"origins":["https://A.example","*"]}`: `{"enable_cors":true,"allow_credentials":true,"origins":["https://A.example","*"]}`,
		`{"origins":["*"]}`:                        `{"enable_cors":true,"allow_credentials":false,"origins":["*"]}`,
		`{"enable_cors":false}`:                    `{"enable_cors":false,"allow_credentials":false,"origins":[]}`,
		`{"enable_cors":true,"origins":[]}`:        `{"enable_cors":true,"allow_credentials":false,"origins":[]}`,
		`{"origins":["x"],"origins":["http://y"]}`: `{"enable_cors":true,"allow_credentials":false,"origins":["http://y"]}`, // the last one counts
	} {
		if r := s.Do(t, "PUT", corsPath, body).Want(200); r.Object()["ok"] != true {
			t.Errorf("%s: %s", body, r.Body)
		}
		if got := strings.TrimSpace(string(s.Do(t, "GET", corsPath, nil).Want(200).Body)); got != want {
			t.Errorf("%s: %s", body, got)
		}
	}
	before := s.Do(t, "GET", corsPath, nil).Body
	for _, body := range []string{
		``, `{`, `[]`, `null`, `"*"`, `{"enable_cors":"true"}`, `{"enable_cors":1}`, `{"enable_cors":null}`, `{"allow_credentials":"false"}`,
		`{"origins":"*"}`, `{"origins":{}}`, `{"origins":null}`, `{"origins":[1]}`, `{"origins":[["*"]]}`, `{"origins":["a.example"]}`,
		`{"origins":["null"]}`, `{"origins":[""]}`, `{"origins":["https://"]}`, `{"origins":["https://a.example/"]}`,
		`{"origins":["https://a.example/x"]}`, `{"origins":["https://*.example"]}`, `{"origins":["https://u:p@a.example"]}`,
		`{"origins":["https://a.example:99999"]}`, `{"origins":["https://a.example:"]}`, `{"origins":["https://a.example:0"]}`,
		`{"origins":["https://a.example,https://b.example"]}`, `{"origins":["https://a.example\r\nX: y"]}`, `{"origins":["https://ä.example"]}`,
		`{"Origins":["*"]}`, `{"enable_cors":true,"origin":["*"]}`, `{"origins":[` + many + `"*"]}`,
	} {
		if r := s.Do(t, "PUT", corsPath, body).Want(400); r.Str("error") != "bad_request" {
			t.Errorf("%s: %s", body, r.Body)
		}
	}
	s.Do(t, "PUT", corsPath, `{"origins":["`+strings.Repeat("x", 300<<10)+`"]}`).Want(413)
	if after := s.Do(t, "GET", corsPath, nil).Body; string(after) != string(before) {
		t.Errorf("%s became %s", before, after)
	}
}

// The configuration outlives a restart.
func TestCORSAndHostsAreKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := testserver.Config(func(c *config.Config) { c.Data = dir })
	s := testserver.Start(t, in)
	setCORS(t, s, true, "https://a.example")
	s.Do(t, "PUT", "/kept", nil).Want(201)
	s.Do(t, "POST", hostsPath, `{"host":"kept.example","path":"/kept"}`).Want(200)
	key := s.Do(t, "POST", "/_api/v2/api_keys", nil).Want(201)
	s.Do(t, "PUT", "/_node/_local/_config/admins/second", `"second-pw"`).Want(200)
	s.Stop(t)
	s = testserver.Start(t, in)
	r := s.Do(t, "GET", "/", nil, "Host", "kept.example", "Origin", "https://a.example").Want(200)
	if r.Object()["db_name"] != "kept" || corsHeaders(r.Header) != "https://a.example credentials=true" {
		t.Errorf("%v %s", r.Header, r.Body)
	}
	s.Do(t, "POST", "/_session", map[string]string{"name": key.Str("key"), "password": key.Str("password")}, "Authorization", "").Want(200)
	if got := fmt.Sprint(s.Do(t, "GET", "/_node/_local/_config/admins", nil, "Authorization", basic("second")).Want(200).Object()); got != "map[admin:******** second:********]" {
		t.Errorf("%s", got)
	}
}
