package bench

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
)

func TestResponseReader(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 3*readBuffer)
	tests := []struct {
		name   string
		in     string
		status int
		body   string
		close  bool
		err    error // nil: read well
	}{
		{name: "length", in: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", status: 200, body: "hello"},
		{name: "lower case and spaces", in: "HTTP/1.1 200 OK\r\ncontent-length:   5  \r\n\r\nhello", status: 200, body: "hello"},
		{name: "bare line feeds", in: "HTTP/1.1 200 OK\nContent-Length: 2\n\nhi", status: 200, body: "hi"},
		{name: "no reason", in: "HTTP/1.1 404\r\nContent-Length: 0\r\n\r\n", status: 404},
		{name: "empty reason", in: "HTTP/1.1 404 \r\nContent-Length: 0\r\n\r\n", status: 404},
		{name: "chunked", in: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n", status: 200, body: "abc0123456789"},
		{name: "chunk extension and trailer", in: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nX-After: 1\r\n\r\n", status: 200, body: "abc"},
		{name: "chunked wins over length", in: "HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", status: 200, body: "a"},
		{name: "until the end", in: "HTTP/1.1 200 OK\r\n\r\nall of it", status: 200, body: "all of it", close: true},
		{name: "longer than the buffer", in: "HTTP/1.1 200 OK\r\nContent-Length: 196608\r\n\r\n" + long, status: 200, body: long},
		{name: "continue first", in: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\nContent-Length: 1\r\n\r\nx", status: 201, body: "x"},
		{name: "no content", in: "HTTP/1.1 204 No Content\r\n\r\n", status: 204},
		{name: "not modified keeps no body", in: "HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n", status: 304},
		{name: "close", in: "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx", status: 200, body: "x", close: true},
		{name: "HTTP/1.0", in: "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", status: 200, body: "x", close: true},
		{name: "HTTP/1.0 kept", in: "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\nx", status: 200, body: "x"},
		{name: "other header of that length", in: "HTTP/1.1 200 OK\r\nX-Other-Length: 9\r\nContent-Length: 1\r\n\r\nx", status: 200, body: "x"},
		{name: "same length twice", in: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", status: 200, body: "x"},

		{name: "clean end", in: "", err: io.EOF},
		{name: "end in status line", in: "HTTP/1.1 20", err: io.ErrUnexpectedEOF},
		{name: "end in headers", in: "HTTP/1.1 200 OK\r\nContent-", err: io.ErrUnexpectedEOF},
		{name: "end after headers", in: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\n", err: io.ErrUnexpectedEOF},
		{name: "end in body", in: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel", err: io.ErrUnexpectedEOF},
		{name: "end in chunk", in: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel", err: io.ErrUnexpectedEOF},
		{name: "end before last chunk", in: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", err: io.ErrUnexpectedEOF},
		{name: "end in trailer", in: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", err: io.ErrUnexpectedEOF},
		{name: "not HTTP", in: "SSH-2.0-OpenSSH_9.2\r\n", err: errBadResponse},
		{name: "HTTP/2", in: "HTTP/2.0 200 OK\r\n\r\n", err: errBadResponse},
		{name: "status not a number", in: "HTTP/1.1 2x0 OK\r\n\r\n", err: errBadResponse},
		{name: "status of four digits", in: "HTTP/1.1 2000 OK\r\n\r\n", err: errBadResponse},
		{name: "status too low", in: "HTTP/1.1 099 OK\r\n\r\n", err: errBadResponse},
		{name: "switching protocols", in: "HTTP/1.1 101 Switching Protocols\r\n\r\n", err: errBadResponse},
		{name: "endless interim", in: strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", 20), err: errBadResponse},
		{name: "header without colon", in: "HTTP/1.1 200 OK\r\nwhat\r\n\r\n", err: errBadResponse},
		{name: "header without name", in: "HTTP/1.1 200 OK\r\n: x\r\n\r\n", err: errBadResponse},
		{name: "negative length", in: "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", err: errBadResponse},
		{name: "empty length", in: "HTTP/1.1 200 OK\r\nContent-Length:\r\n\r\n", err: errBadResponse},
		{name: "huge length", in: "HTTP/1.1 200 OK\r\nContent-Length: 9999999999999999999\r\n\r\n", err: errBadResponse},
		{name: "two lengths", in: "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", err: errBadResponse},
		{name: "unknown encoding", in: "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", err: errBadResponse},
		{name: "chunk size not hex", in: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", err: errBadResponse},
		{name: "chunk longer than said", in: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n0\r\n\r\n", err: errBadResponse},
		{name: "endless header line", in: "HTTP/1.1 200 OK\r\nX: " + long + "\r\n\r\n", err: errBadResponse},
		{name: "endless headers", in: "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: y\r\n", 300) + "\r\n", err: errBadResponse},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			// Whole, and byte by byte as a slow network would bring it.
			for _, in := range []io.Reader{strings.NewReader(tt.in), iotest.OneByteReader(strings.NewReader(tt.in))} {
				head, body, err := newResponseReader(in).nextBody()
				if !errors.Is(err, tt.err) {
					t.Fatalf("error %v, want %v", err, tt.err)
				}
				if tt.err != nil {
					continue
				}
				if head.status != tt.status || string(body) != tt.body || head.close != tt.close {
					t.Errorf("got %d %.60q close=%v, want %d %.60q close=%v",
						head.status, body, head.close, tt.status, tt.body, tt.close)
				}
			}
		})
	}
}

// TestResponseReaderKeepsAlive reads several answers off one connection.
func TestResponseReaderKeepsAlive(t *testing.T) {
	t.Parallel()
	r := newResponseReader(strings.NewReader(
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none" +
			"HTTP/1.1 304 Not Modified\r\n\r\n" +
			"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n" +
			"HTTP/1.1 409 Conflict\r\nContent-Length: 5\r\n\r\nthree"))
	for _, want := range []string{"200 one", "304 ", "200 two", "409 three"} {
		head, body, err := r.nextBody()
		if err != nil {
			t.Fatal(err)
		}
		if got := string(appendInt(nil, head.status)) + " " + string(body); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
	if _, _, err := r.nextBody(); !errors.Is(err, io.EOF) {
		t.Errorf("after the last: %v, want EOF", err)
	}
}

func appendInt(dst []byte, n int) []byte {
	return append(dst, byte('0'+n/100), byte('0'+n/10%10), byte('0'+n%10))
}

// FuzzResponseReader compares with net/http: what it reads and we read too must
// be the same, and nothing may panic or loop.
func FuzzResponseReader(f *testing.F) {
	f.Add([]byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"))
	f.Add([]byte("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"))
	f.Add([]byte("HTTP/1.0 200 OK\r\nConnection: keep-alive\r\n\r\nrest"))
	f.Add([]byte("HTTP/1.1 304 Not Modified\r\nContent-Length: 7\r\n\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		head, body, err := newResponseReader(bytes.NewReader(in)).nextBody()
		slowHead, slowBody, slowErr := newResponseReader(iotest.OneByteReader(bytes.NewReader(in))).nextBody()
		if head != slowHead || !bytes.Equal(body, slowBody) || (err == nil) != (slowErr == nil) {
			t.Fatalf("whole: %v %q %v; byte by byte: %v %q %v", head, body, err, slowHead, slowBody, slowErr)
		}
		if err != nil {
			return
		}
		resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(in)), nil)
		if err != nil || resp.StatusCode < 200 {
			return // net/http is stricter about header names, and shows 1xx answers
		}
		want, err := io.ReadAll(resp.Body)
		if err != nil {
			return
		}
		if resp.StatusCode != head.status || !bytes.Equal(want, body) {
			t.Fatalf("got %d %q, net/http reads %d %q", head.status, body, resp.StatusCode, want)
		}
	})
}
