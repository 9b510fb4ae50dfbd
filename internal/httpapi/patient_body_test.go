package httpapi

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// A client that stops in the middle of a body is given up; one that is slow is not,
// and neither is one that waits for an answer after it.
func TestBodyPatience(t *testing.T) {
	t.Parallel()
	a := New(Options{Registry: noSettings{}, Auth: everybodyIsAdmin{}})
	a.bodyPatience = 200 * time.Millisecond // far above the pauses of the slow one, below their sum
	a.routes = buildRoutes([]route{
		{"POST", "/read", public, func(_ *API, rq *request) error {
			_, release, err := rq.readBody(1 << 20)
			defer release()
			if err == nil {
				rq.json(200, []byte(`{}`))
			}
			return err
		}},
		{"POST", "/ignore", public, func(_ *API, rq *request) error { rq.json(200, []byte(`{}`)); return nil }},
		{"POST", "/wait", public, func(_ *API, rq *request) error {
			_, release, err := rq.readBody(1 << 20)
			defer release()
			if err != nil {
				return err
			}
			select {
			case <-rq.ctx().Done(): // the client has gone, or seems to
				return rq.ctx().Err()
			case <-time.After(2 * a.bodyPatience):
				rq.json(200, []byte(`{}`))
				return nil
			}
		}},
	})
	srv := httptest.NewServer(a)
	defer srv.Close()
	ask := func(path string, pieces int, pause time.Duration, whole bool) *http.Response {
		t.Helper()
		conn, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		_, err = io.WriteString(conn, "POST "+path+" HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
		for range pieces {
			if err == nil {
				time.Sleep(pause)
				_, err = io.WriteString(conn, "x")
			}
		}
		if whole && err == nil {
			_, err = io.WriteString(conn, "0123456789"[pieces:])
		}
		if err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
	if res := ask("/read", 3, 0, false); res.StatusCode != 400 {
		t.Errorf("a still one: %d", res.StatusCode)
	}
	if res := ask("/ignore", 3, 0, false); res.StatusCode != 200 {
		t.Errorf("a still one whose body nobody reads: %d", res.StatusCode)
	}
	res := ask("/read", 10, 30*time.Millisecond, true)
	if ms := res.Header.Get("X-CouchDB-Body-Time"); res.StatusCode != 200 || ms == "" || ms == "0" {
		t.Errorf("a slow one: %d, %q ms", res.StatusCode, ms)
	}
	if res := ask("/wait", 0, 0, true); res.StatusCode != 200 {
		t.Errorf("one that waits: %d", res.StatusCode)
	}
}
