package httpapi

import (
	"bufio"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/model"
)

// The class of a request follows from its route.
func TestRequestClasses(t *testing.T) {
	t.Parallel()
	routes := buildRoutes(routeTable())
	for class, requests := range map[auth.Class][]string{
		auth.ClassLookup: {
			"GET /", "GET /_session", "POST /_session", "GET /_uuids", "GET /db", "HEAD /db/doc", "GET /db/doc", "GET /db/doc/att/ach", "GET /db/_design/d",
			"GET /db/_local/x", "GET /db/_security", "GET /db/_revs_limit", "POST /db/_revs_diff", "POST /db/_missing_revs",
			"POST /db/_ensure_full_commit", "GET /db/_partition/p", "GET /db/_design/d/_show/f/x", "GET /db/_design/d/_rewrite/x",
			"GET /db/_design/d/_info",
		},
		auth.ClassWrite: {
			"PUT /db", "DELETE /db", "POST /db", "PUT /db/doc", "POST /db/doc", "DELETE /db/doc", "COPY /db/doc", "PUT /db/doc/att", "DELETE /db/doc/att",
			"POST /db/_bulk_docs", "PUT /db/_local/x", "DELETE /db/_local/x", "COPY /db/_local/x", "PUT /db/_design/d", "DELETE /db/_design/d",
			"PUT /db/_security", "PUT /db/_revs_limit", "POST /db/_design/d/_update/f", "PUT /db/_design/d/_update/f/x",
		},
		auth.ClassQuery: {
			"GET /_all_dbs", "POST /_dbs_info", "GET /_db_updates", "GET /db/_all_docs", "POST /db/_all_docs", "POST /db/_all_docs/queries",
			"GET /db/_design_docs", "GET /db/_local_docs", "GET /db/_changes", "POST /db/_changes", "POST /db/_bulk_get",
			"GET /db/_design/d/_view/v", "POST /db/_design/d/_view/v/queries", "GET /db/_partition/p/_all_docs",
			"GET /db/_partition/p/_design/d/_view/v", "GET /db/_design/d/_list/f/v",
		},
	} {
		for _, line := range requests {
			r, err := http.ReadRequest(newLine(line))
			if err != nil {
				t.Fatal(err)
			}
			segs, _ := splitPath(r.URL.EscapedPath(), nil)
			node, _ := routes.match(segs, nil)
			if node == nil || node.methods[r.Method] == nil {
				t.Errorf("%s: no route", line)
				continue
			}
			if got := node.methods[r.Method].class(r.Method); got != class {
				t.Errorf("%s: class %d, want %d", line, got, class)
			}
		}
	}
}

// Whoever stops in the middle of a body is given up on HTTP/2 too, alone: other
// requests of the connection go on.
func TestBodyPatienceOverHTTP2(t *testing.T) {
	t.Parallel()
	a := New(Options{Registry: noSettings{}, Auth: everybodyIsAdmin{}})
	a.bodyPatience = 100 * time.Millisecond
	a.routes = buildRoutes([]route{
		{"POST", "/read", public, func(_ *API, rq *request) error {
			_, release, err := rq.readBody(1 << 20)
			defer release()
			if err == nil {
				rq.json(200, []byte(`{}`))
			}
			return err
		}},
	})
	srv := httptest.NewUnstartedServer(a)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	defer srv.Close()
	post := func(body io.Reader) int {
		t.Helper()
		res, err := srv.Client().Post(srv.URL+"/read", "application/json", body)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.ProtoMajor != 2 {
			t.Errorf("%s", res.Proto)
		}
		return res.StatusCode
	}
	still, end := io.Pipe()
	defer end.Close()
	done := make(chan int)
	go func() { done <- post(still) }()
	if _, err := end.Write([]byte("{")); err != nil {
		t.Fatal(err)
	}
	if status := post(strings.NewReader("{}")); status != 200 {
		t.Errorf("another request: %d", status)
	}
	if status := <-done; status != 400 {
		t.Errorf("a still one: %d", status)
	}
}

// Whoever is told to come back is told when.
func TestRetryAfter(t *testing.T) {
	t.Parallel()
	a := New(Options{Registry: noSettings{}, Auth: everybodyIsAdmin{}})
	answer := func(err error) handler { return func(*API, *request) error { return err } }
	a.routes = buildRoutes([]route{
		{"GET", "/closed", public, answer(model.ErrClosed)},
		{"GET", "/many", public, answer(auth.ErrTooMany)},
		{"GET", "/full", public, answer(model.ErrStorageFull)},
		{"GET", "/soon", public, func(_ *API, rq *request) error {
			rq.retryAfter(1001 * time.Millisecond)
			return auth.ErrTooMany
		}},
	})
	for path, want := range map[string]string{"/closed": "503 5", "/many": "429 60", "/soon": "429 2", "/full": "507 "} {
		w := httptest.NewRecorder()
		a.ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if got := strconv.Itoa(w.Code) + " " + w.Header().Get("Retry-After"); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
}

// newLine gives the text of a request without headers.
func newLine(line string) *bufio.Reader {
	return bufio.NewReader(strings.NewReader(line + " HTTP/1.1\r\n\r\n"))
}
