package httpapi

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
)

func TestRouteTableBuilds(t *testing.T) {
	tree := buildRoutes(routeTable())
	for _, c := range []struct{ method, path, shape string }{
		{"GET", "/", "/"},
		{"HEAD", "/db", "/{db}"},
		{"GET", "/db/", "/{db}"},
		{"GET", "/a%2Fb", "/{db}"},
		{"GET", "/db/_all_docs", "/{db}/_all_docs"},
		{"GET", "/_all_dbs/x", "/{db}/{doc}"},
		{"GET", "/_users/x", "/{db}/{doc}"},
		{"GET", "/db/_design/d", "/{db}/_design/{ddoc}"},
		{"GET", "/db/_design/d/a/b", "/{db}/_design/{ddoc}/{att...}"},
		{"GET", "/db/_design/d/_view/v", "/{db}/_design/{ddoc}/_view/{view}"},
		{"POST", "/db/_design/d/_view/v/queries", "/{db}/_design/{ddoc}/_view/{view}/queries"},
		{"GET", "/db/_design/d/_info", "/{db}/_design/{ddoc}/_info"},
		{"GET", "/db/_partition/p/_design/d/_view/v", "/{db}/_partition/{partition}/_design/{ddoc}/_view/{view}"},
		{"PUT", "/db/doc/a/b.bin", "/{db}/{doc}/{att...}"},
		{"GET", "/db/_local/x", "/{db}/_local/{local}"},
		{"GET", "/db/_partition/p/_all_docs", "/{db}/_partition/{partition}/_all_docs"},
	} {
		segs, ok := splitPath(c.path, nil)
		if !ok {
			t.Fatalf("%s does not split", c.path)
		}
		node, _ := tree.match(segs, nil)
		if node == nil || node.methods[c.method] == nil {
			t.Errorf("%s %s: no route", c.method, c.path)
			continue
		}
		if got := node.methods[c.method].shape; got != c.shape {
			t.Errorf("%s %s: route %s, want %s", c.method, c.path, got, c.shape)
		}
	}
	if node, _ := tree.match([]string{"", "x"}, nil); node != nil {
		t.Error("an empty database segment has a route")
	}
}

// Nothing else is open to strangers, whatever routes are added.
func TestPublicRoutes(t *testing.T) {
	var open []string
	for _, r := range routeTable() {
		if r.need == public {
			open = append(open, r.methods+" "+r.shape)
		}
	}
	if got := strings.Join(open, ", "); got != "GET /, GET /_up, POST /_session, GET /_session, DELETE /_session" {
		t.Errorf("public: %s", got)
	}
}

// A row without a right must not make a server.
func TestRouteWithoutRightPanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a route without a right was taken")
		}
	}()
	buildRoutes([]route{{methods: "GET", shape: "/x", handle: getRoot}})
}

func TestSplitPath(t *testing.T) {
	for in, want := range map[string]string{
		"/":              "",
		"/a/b%2Fc/d+e":   "a|b/c|d+e",
		"/a//b":          "a||b",
		"/%C3%A9/%25":    "é|%",
		"/db/_design%2F": "db|_design/",
	} {
		segs, ok := splitPath(in, nil)
		if got := strings.Join(segs, "|"); !ok || got != want {
			t.Errorf("splitPath(%q) = %q %v, want %q", in, got, ok, want)
		}
	}
	for _, bad := range []string{"/%", "/a%2", "/%zz"} {
		if _, ok := splitPath(bad, nil); ok {
			t.Errorf("splitPath(%q) was taken", bad)
		}
	}
}

func FuzzSplitPath(f *testing.F) {
	f.Add("/a/b%2Fc")
	f.Fuzz(func(t *testing.T, p string) {
		segs, ok := splitPath(p, nil)
		if !ok {
			return
		}
		var esc []string
		for _, s := range segs {
			esc = append(esc, escapeSegment(s))
		}
		again, ok := splitPath("/"+strings.Join(esc, "/"), nil)
		if !ok || strings.Join(again, "\x00") != strings.TrimSuffix(strings.Join(segs, "\x00"), "\x00") && strings.Join(again, "\x00") != strings.Join(segs, "\x00") {
			t.Fatalf("%q: %q became %q", p, segs, again)
		}
	})
}

type everybodyIsAdmin struct{}

func (everybodyIsAdmin) Authenticate(*http.Request) (Principal, error) {
	return Principal{Name: "admin", ServerAdmin: true}, nil
}

func (everybodyIsAdmin) Login(*http.Request, string, string) (Principal, string, error) {
	return Principal{}, "", nil
}

func (everybodyIsAdmin) SessionLife() time.Duration { return time.Minute }

func (everybodyIsAdmin) Known(context.Context, string) bool { return true }

func (everybodyIsAdmin) NewKey(context.Context) (string, string, error) { return "", "", nil }

func (everybodyIsAdmin) AdminNames() []string { return []string{"admin"} }

func (everybodyIsAdmin) SetAdmin(string, string) error { return nil }

func (everybodyIsAdmin) RemoveAdmin(string) error { return nil }

// noSettings is a registry of which nothing is asked but settings.
type noSettings struct{ cluster.Registry }

func (noSettings) Setting(string) ([]byte, bool) { return nil, false }

func (everybodyIsAdmin) UserSecrets(context.Context, string) ([]byte, error) { return nil, nil }

// A panic in a handler is a 500 with a reference, and the next request is served.
func TestPanicIsAnswered(t *testing.T) {
	var log bytes.Buffer
	a := New(Options{Registry: noSettings{}, Auth: everybodyIsAdmin{}, Log: slog.New(slog.NewTextHandler(&log, nil))})
	a.routes = buildRoutes([]route{
		{"GET", "/boom", public, func(*API, *request) error { panic("boom") }},
		{"GET", "/ok", public, func(_ *API, rq *request) error { rq.json(200, []byte(`{}`)); return nil }},
		{"GET", "/kind", public, func(*API, *request) error { return model.ErrStorageFull }},
	})
	srv := httptest.NewServer(a)
	defer srv.Close()
	for path, want := range map[string]int{"/boom": 500, "/ok": 200, "/kind": 507} {
		resp, err := http.Get(srv.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if resp.StatusCode != want || err != nil {
			t.Errorf("%s: status %d, want %d, %v", path, resp.StatusCode, want, err)
		}
		if path == "/boom" {
			ref := resp.Header.Get("X-Couch-Stack-Hash")
			if ref == "" || !strings.Contains(string(body), `"ref":"`+ref+`"`) {
				t.Errorf("no reference in the answer to a panic: %q %s", ref, body)
			}
			// The server has answered, so the line is written.
			if !strings.Contains(log.String(), "request="+ref) || !strings.Contains(log.String(), "panic=boom") {
				t.Errorf("the log does not have %s: %s", ref, log.String())
			}
		}
	}
}
