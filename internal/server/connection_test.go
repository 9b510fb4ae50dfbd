package server_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// What is no HTTP at all gets an error body too, on a fresh connection and on one
// that has served.
func TestUnreadableRequests(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	good := "GET /_up HTTP/1.1\r\nHost: x\r\n\r\n"
	for _, c := range []struct {
		request, name string
		status        int
	}{
		{"GET /db/%zz HTTP/1.1\r\nHost: x\r\n\r\n", "bad_request", 400},
		{"GET /db/a%2 HTTP/1.1\r\nHost: x\r\n\r\n", "bad_request", 400},
		{"GET / HTTP/1.1\r\n\r\n", "bad_request", 400},
		{"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n", "bad_request", 400},
		{"PUT /db/x HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", "bad_request", 400},
		{"PUT /db/x HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n", "bad_request", 400},
		{"GET / HTTP/3.0\r\nHost: x\r\n\r\n", "http_version_not_supported", 505},
		{"PUT /db/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: snail\r\n\r\n", "not_implemented", 501},
		{"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 2<<20) + "\r\n\r\n", "headers_too_large", 431},
		{"\x16\x03\x01\r\n\r\n", "bad_request", 400},
	} {
		for _, before := range []int{0, 2} {
			conn, err := net.Dial("tcp", s.Addr)
			if err != nil {
				t.Fatal(err)
			}
			in := bufio.NewReader(conn)
			go func() { _, _ = io.WriteString(conn, strings.Repeat(good, before)+c.request) }() // a refusal may come before the end
			for range before {
				readAnswer(t, in, 200)
			}
			var e struct{ Error, Reason string }
			body := readAnswer(t, in, c.status)
			if err := json.Unmarshal(body, &e); err != nil || e.Error != c.name || e.Reason == "" {
				t.Errorf("%.40q: %s", c.request, body)
			}
			_ = conn.Close()
		}
	}
}

func readAnswer(t *testing.T, in *bufio.Reader, status int) []byte {
	t.Helper()
	res, err := http.ReadResponse(in, nil)
	if err != nil {
		t.Error(err)
		return nil
	}
	body, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != status {
		t.Errorf("status %d, want %d: %v %s", res.StatusCode, status, err, body)
	}
	return body
}

// Bytes that look like a refusal of net/http's stay as they are.
func TestRefusalAsContent(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	s.Do(t, "PUT", "/db", nil).Want(201)
	text := "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n400 Bad Request"
	for i, n := range []int{1, 100, 10_000} {
		path := fmt.Sprintf("/db/doc%d/file", i)
		content := strings.Repeat(text, n)
		s.Do(t, "PUT", path, strings.NewReader(content), "Content-Type", "application/octet-stream").Want(201)
		if r := s.Do(t, "GET", path, nil).Want(200); string(r.Body) != content {
			t.Errorf("%d bytes of %d came back", len(r.Body), len(content))
		}
	}
}
