package httpapi_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

const hostsPath = "/_api/v2/user/virtual_hosts"

func setHost(t *testing.T, s *testserver.Server, host, path string) {
	t.Helper()
	s.Do(t, "POST", hostsPath, map[string]string{"host": host, "path": path}).Want(200)
}

func TestVirtualHostsList(t *testing.T) {
	t.Parallel()
	s, log := withAudit(t)
	list := func(want string) {
		t.Helper()
		if got := strings.TrimSpace(string(s.Do(t, "GET", hostsPath, nil).Want(200).Body)); got != `{"virtual_hosts":`+want+`}` {
			t.Errorf("%s, want %s", got, want)
		}
	}
	list(`[]`)
	if r := s.Do(t, "POST", hostsPath, `{"host":"A.Example.","path":"/db/"}`).Want(200); r.Object()["ok"] != true {
		t.Errorf("%s", r.Body)
	}
	setHost(t, s, "b.example", "/a%2fb/_design/x y/_rewrite")
	s.Do(t, "POST", hostsPath, `{"host":"c.example"}`).Want(200)
	setHost(t, s, "d.example", "/")
	list(`[["a.example","/db"],["b.example","/a%2Fb/_design/x%20y/_rewrite"],["c.example",""],["d.example",""]]`)
	setHost(t, s, "a.example", "/other")
	list(`[["a.example","/other"],["b.example","/a%2Fb/_design/x%20y/_rewrite"],["c.example",""],["d.example",""]]`)
	s.Do(t, "DELETE", hostsPath, `{"host":"B.example"}`).Want(200)
	s.Do(t, "DELETE", hostsPath, `{"host":"b.example"}`).Want(404)
	s.Do(t, "DELETE", hostsPath, `{"host":"nowhere.example"}`).Want(404)
	list(`[["a.example","/other"],["c.example",""],["d.example",""]]`)

	for _, body := range []string{
		``, `[]`, `"a.example"`, `{}`, `{"host":1}`, `{"host":""}`, `{"host":"."}`, `{"host":"a..example"}`, `{"host":"http://a.example"}`, `{"host":"a.example:80"}`,
		`{"host":"a.example/x"}`, `{"host":"*.example"}`, `{"host":"a b"}`, `{"host":"-a.example"}`, `{"host":"a-.example"}`, `{"host":"ä.example"}`, `{"host":"a.example\u0000"}`,
		`{"host":"127.0.0.1"}`, `{"host":"::1"}`, `{"host":"[::1]"}`, `{"host":"x.1"}`, `{"host":"` + strings.Repeat("x", 64) + `.example"}`, `{"host":"` + strings.Repeat("x.", 130) + `x"}`,
		`{"host":"x.example","path":1}`, `{"host":"x.example","path":"db"}`, `{"host":"x.example","path":"/db/../other"}`, `{"host":"x.example","path":"/db/%2e%2E"}`,
		`{"host":"x.example","path":"/db/a%2f..%2fb"}`, `{"host":"x.example","path":"/db/."}`, `{"host":"x.example","path":"/db//x"}`, `{"host":"x.example","path":"//db"}`,
		`{"host":"x.example","path":"/db?x=1"}`, `{"host":"x.example","path":"/db#x"}`, `{"host":"x.example","path":"/db%zz"}`, `{"host":"x.example","path":"/db/%00"}`,
		`{"host":"x.example","path":"/db/_design%2Fd"}`, `{"host":"x.example","path":"/db/%ff"}`, `{"host":"x.example","path":"/` + strings.Repeat("x", 1000) + `"}`,
		`{"host":"x.example","path":"http://db"}`, `{"host":"x.example","Path":"/db"}`, `{"Host":"x.example"}`,
	} {
		if r := s.Do(t, "POST", hostsPath, body).Want(400); r.Str("error") != "bad_request" {
			t.Errorf("%s: %s", body, r.Body)
		}
	}
	s.Do(t, "POST", hostsPath, `{"host":"x.example"}`, "Content-Type", "text/plain").Want(415)
	s.Do(t, "DELETE", hostsPath, `{}`).Want(400)
	s.Do(t, "DELETE", hostsPath, nil).Want(400)
	list(`[["a.example","/other"],["c.example",""],["d.example",""]]`)
	for _, action := range []string{`action="virtual host set" user=admin`, `action="virtual host removed" user=admin`} {
		if !strings.Contains(log.String(), action) {
			t.Errorf("no %s in the log", action)
		}
	}
}

// Changes made at the same time are all kept.
func TestVirtualHostsTogether(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			if r := s.Do(t, "POST", hostsPath, fmt.Sprintf(`{"host":"h%d.example","path":"/db"}`, i)); r.Status != 200 {
				t.Errorf("%d %s", r.Status, r.Body)
			}
		})
	}
	all.Wait()
	if n := len(s.Do(t, "GET", hostsPath, nil).Object()["virtual_hosts"].([]any)); n != 20 {
		t.Errorf("%d hosts", n)
	}
}

// hostServer has two databases, a rewrite with rules and one with a function, and
// hosts for them.
func hostServer(t *testing.T) *testserver.Server {
	t.Helper()
	s := testserver.Start(t, testserver.Config(asItIs))
	for _, db := range []string{"/in", "/out"} {
		s.Do(t, "PUT", db, nil).Want(201)
		s.Do(t, "PUT", db+"/doc", `{"of":"`+db[1:]+`"}`).Want(201)
	}
	s.Do(t, "PUT", "/in/_design/a", `{"rewrites":[{"from":"","to":"../../doc"},{"from":"one","to":"../../doc"},{"from":"echo","to":"_show/echo"},{"from":"bad","to":"../../../out/doc"},{"from":"all/*","to":"../../*"}],`+
		`"shows":{"echo":"function(doc, req) { return toJSON({requested: req.requested_path, path: req.path, raw: req.raw_path}); }"}}`).Want(201)
	s.Do(t, "PUT", "/in/_design/f", `{"rewrites":"function(req) { return '../../' + req.path.slice(4).join('/'); }"}`).Want(201)
	setHost(t, s, "db.example", "/in")
	setHost(t, s, "rules.example", "/in/_design/a/_rewrite")
	setHost(t, s, "function.example", "/in/_design/f/_rewrite")
	setHost(t, s, "ddoc.example", "/in/_design/a")
	setHost(t, s, "root.example", "")
	return s
}

func TestVirtualHosts(t *testing.T) {
	t.Parallel()
	s := hostServer(t)
	for _, c := range []struct {
		host, method, path string
		status             int
		holds              string
	}{
		{"db.example", "GET", "/", 200, `"db_name":"in"`},
		{"DB.Example:5984", "GET", "/doc", 200, `"of":"in"`},
		{"db.example.", "GET", "/doc?revs=true", 200, `"_revisions"`},
		{"db.example.:80", "GET", "/doc", 200, `"of":"in"`},
		{"db.example", "HEAD", "/doc", 200, ``},
		{"db.example", "GET", "/_all_docs", 200, `"id":"doc"`},
		{"db.example", "GET", "/_design/a", 200, `"_id":"_design/a"`},
		{"db.example", "GET", "/_session", 200, `"userCtx"`},
		{"db.example", "GET", "/_session/", 200, `"userCtx"`},
		{"db.example", "GET", "/out/doc", 404, `"not_found"`},
		{"db.example", "GET", "/_all_dbs", 404, `"not_found"`},
		{"db.example", "GET", hostsPath, 404, `"not_found"`},
		{"db.example", "GET", "//out/doc", 404, `"not_found"`},
		{"rules.example", "GET", "/", 200, `"of":"in"`},
		{"rules.example", "GET", "/one", 200, `"of":"in"`},
		{"rules.example", "GET", "/all/doc", 200, `"of":"in"`},
		{"rules.example", "GET", "/echo?x=1", 200, `"requested":["echo"]`},
		{"rules.example", "GET", "/bad", 400, `insecure_rewrite_rule`},
		{"rules.example", "GET", "/doc", 404, `rewrite_error`},
		{"rules.example", "GET", "/_session", 200, `"userCtx"`},
		{"function.example", "GET", "/doc", 200, `"of":"in"`},
		{"ddoc.example", "GET", "/", 200, `"_id":"_design/a"`},
		{"ddoc.example", "GET", "/_show/echo", 200, `"path":["in","_design","a","_show","echo"]`},
		{"root.example", "GET", "/", 200, `"couchdb":"Welcome"`},
		{"root.example", "GET", "/out/doc", 200, `"of":"out"`},
		{"other.example", "GET", "/out/doc", 200, `"of":"out"`},
		{"xdb.example", "GET", "/out/doc", 200, `"of":"out"`},
		{"db.example.evil.example", "GET", "/out/doc", 200, `"of":"out"`},
	} {
		r := s.Do(t, c.method, c.path, nil, "Host", c.host)
		if r.Status != c.status || !strings.Contains(string(r.Body), c.holds) {
			t.Errorf("%s %s%s: %d %s", c.method, c.host, c.path, r.Status, r.Body)
		}
	}
	// The name that counts is that of the Host header.
	r := s.Do(t, "GET", "/doc", nil, "Host", "db.example", "X-Forwarded-Host", "root.example").Want(200)
	if r.Object()["of"] != "in" {
		t.Errorf("%s", r.Body)
	}
	if r := s.Do(t, "GET", "/out/doc", nil, "X-Forwarded-Host", "db.example").Want(200); r.Object()["of"] != "out" {
		t.Errorf("%s", r.Body)
	}
	// Writing works, and what was written is found where the answer says.
	r = s.Do(t, "PUT", "/new", `{}`, "Host", "db.example").Want(201)
	if loc := r.Header.Get("Location"); loc != "http://db.example/new" {
		t.Errorf("Location %q", loc)
	}
	s.Do(t, "GET", "/in/new", nil).Want(200)
	if loc := s.Do(t, "GET", "/_design%2Fa", nil, "Host", "db.example").Want(301).Header.Get("Location"); loc != "/_design/a" {
		t.Errorf("Location %q", loc)
	}
	s.Do(t, "COPY", "/doc", nil, "Host", "db.example", "Destination", "copy").Want(201)
	// Gone is gone.
	s.Do(t, "DELETE", hostsPath, `{"host":"db.example"}`).Want(200)
	if r := s.Do(t, "GET", "/", nil, "Host", "db.example").Want(200); r.Object()["couchdb"] != "Welcome" {
		t.Errorf("%s", r.Body)
	}
}

// Nothing outside of a host's path is reached through it, however it is spelt.
func TestVirtualHostsStayInside(t *testing.T) {
	t.Parallel()
	s := hostServer(t)
	for _, host := range []string{"db.example", "rules.example", "function.example", "ddoc.example"} {
		for _, path := range []string{
			"/../out/doc", "/%2e%2e/out/doc", "/.%2E/out/doc", "/%2E./../out/doc", "/..%2fout%2fdoc", "/..%2Fout/doc", "/%2e%2e%2fout%2fdoc",
			"/x/../../out/doc", "/x%2f..%2f..%2fout/doc", "/all/../../out/doc", "/all/%2e%2e/%2e%2e/out/doc", "/all/..%2f..%2fout/doc",
			"/_session/../out/doc", "/_session/%2e%2e/out/doc", "/./../../out/doc", "//../out/doc", "/..\\out\\doc", "/..;/out/doc", "/%252e%252e/out/doc",
			"/_rewrite/../../../../out/doc", "/_session%2f..%2fout%2fdoc", `/%2e%2e/out/doc"`, "/all/%2F..%2F..%2F..%2Fout%2Fdoc",
		} {
			// As the target of the request, and as an absolute one, which names a host of
			// its own: that one counts, whatever the header says.
			for _, target := range []string{path + " HTTP/1.1\r\nHost: " + host, "http://" + host + path + " HTTP/1.1\r\nHost: root.example"} {
				resp, body := raw(t, s, "GET "+target+"\r\nAuthorization: "+adminAuth(), "")
				if resp.StatusCode < 400 || strings.Contains(body, `"out"`) {
					t.Errorf("%s: %d %s", target, resp.StatusCode, body)
				}
			}
		}
	}
	// A copy would leave what is less than a database.
	s.Do(t, "COPY", "/", nil, "Host", "ddoc.example", "Destination", "_design/b").Want(400)
	s.Do(t, "GET", "/in/_design/b", nil).Want(404)
	// A request that names the host in its target is one to that host.
	resp, body := raw(t, s, "GET http://db.example/doc HTTP/1.1\r\nHost: root.example\r\nAuthorization: "+adminAuth(), "")
	if resp.StatusCode != 200 || !strings.Contains(body, `"of":"in"`) {
		t.Errorf("%d %s", resp.StatusCode, body)
	}
}

// Rights are those of the real path, and a session is good on every host.
func TestVirtualHostRights(t *testing.T) {
	t.Parallel()
	s := hostServer(t)
	addUser(t, s, "ann")
	ann := as{t, s, basic("ann")}
	ann.do("GET", "/doc", nil, "Host", "db.example").Want(403)
	s.Do(t, "GET", "/doc", nil, "Host", "db.example", "Authorization", "").Want(401)
	s.Do(t, "PUT", "/in/_security", `{"service":{"ann":["_reader"]}}`).Want(200)
	ann.do("GET", "/doc", nil, "Host", "db.example").Want(200)
	ann.do("GET", "/one", nil, "Host", "rules.example").Want(200)
	ann.do("PUT", "/doc2", `{}`, "Host", "db.example").Want(403)
	r := s.Do(t, "POST", "/_session", `{"name":"ann","password":"ann-pw"}`, "Authorization", "", "Host", "rules.example").Want(200)
	cookie, _, _ := strings.Cut(r.Header.Get("Set-Cookie"), ";")
	s.Do(t, "GET", "/doc", nil, "Host", "db.example", "Authorization", "", "Cookie", cookie).Want(200)
	s.Do(t, "DELETE", "/_session", nil, "Host", "db.example", "Authorization", "", "Cookie", cookie).Want(200)
}
