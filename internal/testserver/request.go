package testserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// Response is an answer, read whole.
type Response struct {
	Status int
	Header http.Header
	Body   []byte

	t testing.TB
}

// JSON gives the body as Go values; a body that is no JSON fails the test.
func (r *Response) JSON() any {
	r.t.Helper()
	var v any
	if err := json.Unmarshal(r.Body, &v); err != nil {
		r.t.Fatalf("status %d, a body that is no JSON: %v: %q", r.Status, err, r.Body)
	}
	return v
}

// Object is JSON for a body that must be an object.
func (r *Response) Object() map[string]any {
	r.t.Helper()
	m, ok := r.JSON().(map[string]any)
	if !ok {
		r.t.Fatalf("status %d, a body that is no object: %s", r.Status, r.Body)
	}
	return m
}

// Str gives a member of an object that must be text.
func (r *Response) Str(member string) string {
	r.t.Helper()
	s, ok := r.Object()[member].(string)
	if !ok {
		r.t.Fatalf("status %d, no text %q in %s", r.Status, member, r.Body)
	}
	return s
}

// Want fails the test if the status is another one.
func (r *Response) Want(status int) *Response {
	r.t.Helper()
	if r.Status != status {
		r.t.Fatalf("status %d, want %d: %s", r.Status, status, r.Body)
	}
	return r
}

// Do sends a request as the administrator and reads the answer. The path is sent
// as it is. The body is a string, []byte, io.Reader, nil, or anything else, which
// is sent as JSON. Headers come as name, value, name, value; a body has the
// Content-Type application/json unless they say otherwise. An empty value leaves
// a header out, Authorization too.
func (s *Server) Do(t testing.TB, method, path string, body any, header ...string) *Response {
	t.Helper()
	res, err := s.send(context.Background(), method, path, body, header)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	data, err := io.ReadAll(res.Body)
	if cerr := res.Body.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		t.Fatalf("%s %s: status %d, then %v after %q", method, path, res.StatusCode, err, data)
	}
	return &Response{Status: res.StatusCode, Header: res.Header, Body: data, t: t}
}

// Try is Do for a server that may be killed meanwhile: it gives the error instead
// of failing the test.
func (s *Server) Try(ctx context.Context, method, path string, body any, header ...string) (*Response, error) {
	res, err := s.send(ctx, method, path, body, header)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, err
	}
	return &Response{Status: res.StatusCode, Header: res.Header, Body: data}, nil
}

// Stream sends a request and leaves the body of the answer to be read as it
// comes. It ends with ctx, and with the test.
func (s *Server) Stream(t testing.TB, ctx context.Context, method, path string, body any, header ...string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	t.Cleanup(cancel)
	res, err := s.send(ctx, method, path, body, header)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	t.Cleanup(func() { _ = res.Body.Close() }) // the test has read what it wanted
	return res
}

func (s *Server) send(ctx context.Context, method, path string, body any, header []string) (*http.Response, error) {
	reader, err := bodyReader(body)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, s.URL+path, reader)
	if err != nil {
		// A path that Go's parser refuses is sent all the same.
		if req, err = http.NewRequestWithContext(ctx, method, s.URL, reader); err != nil {
			return nil, err
		}
		req.URL = &url.URL{Scheme: req.URL.Scheme, Host: req.URL.Host, User: req.URL.User, Opaque: path}
	}
	// Set here and not left to the client, so that a header may replace it.
	if u := req.URL.User; u != nil {
		password, _ := u.Password()
		req.SetBasicAuth(u.Username(), password)
		req.URL.User = nil
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if len(header)%2 != 0 {
		return nil, fmt.Errorf("headers come in pairs: %q", header)
	}
	for i := 0; i < len(header); i += 2 {
		switch {
		case header[i+1] == "":
			req.Header.Del(header[i])
		case strings.EqualFold(header[i], "Host"):
			req.Host = header[i+1]
		default:
			req.Header.Set(header[i], header[i+1])
		}
	}
	return s.Client.Do(req)
}

func bodyReader(body any) (io.Reader, error) {
	switch b := body.(type) {
	case nil:
		return nil, nil
	case string:
		return strings.NewReader(b), nil
	case []byte:
		return bytes.NewReader(b), nil
	case io.Reader:
		return b, nil
	}
	data, err := json.Marshal(body)
	return bytes.NewReader(data), err
}
