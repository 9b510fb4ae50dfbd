package server

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"strconv"
	"sync/atomic"

	"github.com/divandb/divan/internal/rawjson"
)

// connection is a client's connection. What net/http cannot read (a percent sign
// without two hex digits, headers without end) it answers by itself, in plain text
// and before any handler is asked; here that answer becomes an error body like all
// others. It is told apart by its text and by the fact that no handler has taken a
// request since the last answer was complete, so bytes of ours are never mistaken
// for it; and should net/http find other words one day, those pass as they are.
type connection struct {
	*net.TCPConn             // with all its methods: files go through its ReadFrom
	taken        atomic.Bool // a handler has the request, until its answer is complete
}

// connections is a listener that gives connections.
type connections struct{ net.Listener }

// Accept implements net.Listener.
func (l connections) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if tcp, ok := c.(*net.TCPConn); ok && err == nil {
		return &connection{TCPConn: tcp}, nil
	}
	return c, err
}

// connectionKey is where a request's context has its connection.
type connectionKey struct{}

// withConnection is the ConnContext of the HTTP server.
func withConnection(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, connectionKey{}, c)
}

// takeRequest notes that a handler has the request.
func takeRequest(r *http.Request) {
	if c, ok := r.Context().Value(connectionKey{}).(*connection); ok {
		c.taken.Store(true)
	}
}

// answered is the ConnState of the HTTP server: a connection is idle when the
// answer is complete.
func answered(c net.Conn, state http.ConnState) {
	if c, ok := c.(*connection); ok && state == http.StateIdle {
		c.taken.Store(false)
	}
}

// Write implements net.Conn.
func (c *connection) Write(p []byte) (int, error) {
	if !c.taken.Load() {
		if answer := refusal(p); answer != nil {
			if _, err := c.TCPConn.Write(answer); err != nil {
				return 0, err
			}
			return len(p), nil
		}
	}
	return c.TCPConn.Write(p)
}

// refusalHead is what follows the status line in answers of net/http's own.
var refusalHead = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")

// refusal gives our form of net/http's own answer; nil if p is none.
func refusal(p []byte) []byte {
	status, text, ok := bytes.Cut(p, refusalHead)
	if !ok || !bytes.HasPrefix(status, []byte("HTTP/1.1 ")) || bytes.Contains(status, []byte("\r\n")) {
		return nil
	}
	status = status[len("HTTP/1.1 "):]
	if len(status) < 3 {
		return nil
	}
	code, err := strconv.Atoi(string(status[:3]))
	if err != nil {
		return nil
	}
	name, reason := "bad_request", "The request line or a header is malformed."
	switch code {
	case http.StatusRequestHeaderFieldsTooLarge:
		name, reason = "headers_too_large", "The headers of the request are too large."
	case http.StatusNotImplemented:
		name, reason = "not_implemented", string(text)
	case http.StatusHTTPVersionNotSupported:
		name = "http_version_not_supported"
	}
	if _, detail, ok := bytes.Cut(status, []byte(": ")); ok {
		reason = string(detail)
	}
	body := rawjson.AppendString([]byte(`{"error":`), name)
	body = rawjson.AppendString(append(body, `,"reason":`...), reason)
	body = append(body, "}\n"...)
	b := append([]byte("HTTP/1.1 "), strconv.Itoa(code)+" "+http.StatusText(code)...)
	b = append(b, "\r\nCache-Control: must-revalidate\r\nContent-Type: application/json\r\nServer: Divan/"+Version+"\r\nConnection: close\r\nContent-Length: "...)
	b = strconv.AppendInt(b, int64(len(body)), 10)
	return append(append(b, "\r\n\r\n"...), body...)
}
