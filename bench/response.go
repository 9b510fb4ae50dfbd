package bench

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// Limits on what a server can make the driver hold or loop over.
const (
	maxHeaderLines = 256      // header lines of one answer
	maxInterim     = 16       // 1xx answers before the real one
	maxBody        = 64 << 20 // bytes of an answer kept in memory
	readBuffer     = 64 << 10 // also the longest header line
)

// errBadResponse is wrapped by every complaint about the shape of an answer.
var errBadResponse = errors.New("malformed HTTP response")

// responseHead is what the driver reads of an answer's head.
type responseHead struct {
	status  int
	length  int64 // Content-Length; -1 when not given
	chunked bool
	close   bool // the server will close the connection after this answer
	http10  bool
}

// responseReader reads HTTP/1.x answers off a connection one after the other.
// It is much smaller than net/http's reader on purpose: no header map, no
// goroutine, no allocation per answer.
type responseReader struct {
	br   *bufio.Reader
	body []byte // reused by nextBody
}

// newResponseReader reads answers from r.
func newResponseReader(r io.Reader) *responseReader {
	return &responseReader{br: bufio.NewReaderSize(r, readBuffer)}
}

// nextBody reads a whole answer. The body is valid until the next call.
func (r *responseReader) nextBody() (responseHead, []byte, error) {
	r.body = r.body[:0]
	head, err := r.next(func(_ responseHead, part []byte) error {
		if len(r.body)+len(part) > maxBody {
			return fmt.Errorf("%w: body over %d bytes", errBadResponse, maxBody)
		}
		r.body = append(r.body, part...)
		return nil
	})
	return head, r.body, err
}

// next reads an answer and hands its body to sink in parts as they arrive, so
// that a stream of any length passes in constant memory. An error of sink ends
// the reading and leaves the connection unusable.
func (r *responseReader) next(sink func(head responseHead, part []byte) error) (responseHead, error) {
	head, err := r.head()
	for interim := 0; err == nil && head.status < 200; interim++ {
		// 101 would change the protocol; the driver never asks for that.
		if head.status == 101 || interim == maxInterim {
			return head, fmt.Errorf("%w: unexpected status %d", errBadResponse, head.status)
		}
		head, err = r.head()
	}
	if err != nil {
		return head, err
	}
	switch {
	case head.status == 204 || head.status == 304:
		return head, nil
	case head.chunked:
		return head, r.chunks(head, sink)
	case head.length >= 0:
		return head, r.exactly(head, head.length, sink)
	}
	// Neither length nor chunks: the body ends with the connection.
	head.close = true
	return head, r.untilEOF(head, sink)
}

// head reads the status line and the headers.
func (r *responseReader) head() (responseHead, error) {
	h := responseHead{length: -1}
	line, err := r.line()
	if err != nil {
		return h, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.")) || line[8] != ' ' ||
		(line[7] != '0' && line[7] != '1') || (len(line) > 12 && line[12] != ' ') {
		return h, fmt.Errorf("%w: status line %.60q", errBadResponse, line)
	}
	for _, c := range line[9:12] {
		if c < '0' || c > '9' {
			return h, fmt.Errorf("%w: status line %.60q", errBadResponse, line)
		}
		h.status = h.status*10 + int(c-'0')
	}
	if h.status < 100 {
		return h, fmt.Errorf("%w: status %d", errBadResponse, h.status)
	}
	h.http10 = line[7] == '0'
	h.close = h.http10
	for range maxHeaderLines {
		line, err = r.line()
		if err != nil {
			return h, noEOF(err)
		}
		if len(line) == 0 {
			return h, nil
		}
		if err := h.header(line); err != nil {
			return h, err
		}
	}
	return h, fmt.Errorf("%w: over %d header lines", errBadResponse, maxHeaderLines)
}

// header takes in one header line.
func (h *responseHead) header(line []byte) error {
	name, value, ok := bytes.Cut(line, []byte(":"))
	if !ok || len(name) == 0 {
		return fmt.Errorf("%w: header %.60q", errBadResponse, line)
	}
	value = bytes.TrimSpace(value)
	// The length of the name rules out nearly all headers before the fold.
	switch len(name) {
	case len("Content-Length"):
		if !bytes.EqualFold(name, []byte("Content-Length")) {
			return nil
		}
		n, err := parseSize(value, 10)
		if err != nil || (h.length >= 0 && h.length != n) {
			return fmt.Errorf("%w: Content-Length %.40q", errBadResponse, value)
		}
		h.length = n
	case len("Transfer-Encoding"):
		if !bytes.EqualFold(name, []byte("Transfer-Encoding")) {
			return nil
		}
		if !bytes.EqualFold(value, []byte("chunked")) {
			return fmt.Errorf("%w: Transfer-Encoding %.40q", errBadResponse, value)
		}
		h.chunked = true
	case len("Connection"):
		if bytes.EqualFold(name, []byte("Connection")) {
			h.close = bytes.EqualFold(value, []byte("close")) ||
				(h.http10 && !bytes.EqualFold(value, []byte("keep-alive")))
		}
	}
	return nil
}

// chunks reads a chunked body and its trailer.
func (r *responseReader) chunks(head responseHead, sink func(responseHead, []byte) error) error {
	for {
		line, err := r.line()
		if err != nil {
			return noEOF(err)
		}
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := parseSize(bytes.TrimSpace(size), 16)
		if err != nil {
			return fmt.Errorf("%w: chunk size %.40q", errBadResponse, line)
		}
		if n == 0 {
			break
		}
		if err := r.exactly(head, n, sink); err != nil {
			return err
		}
		end, err := r.line()
		if err != nil {
			return noEOF(err)
		}
		if len(end) != 0 {
			return fmt.Errorf("%w: chunk longer than its size", errBadResponse)
		}
	}
	for range maxHeaderLines {
		line, err := r.line()
		if err != nil {
			return noEOF(err)
		}
		if len(line) == 0 {
			return nil
		}
	}
	return fmt.Errorf("%w: over %d trailer lines", errBadResponse, maxHeaderLines)
}

// exactly hands the next n bytes to sink straight out of the read buffer.
func (r *responseReader) exactly(head responseHead, n int64, sink func(responseHead, []byte) error) error {
	for n > 0 {
		if r.br.Buffered() == 0 {
			if _, err := r.br.Peek(1); err != nil {
				return noEOF(err)
			}
		}
		part, err := r.br.Peek(int(min(n, int64(r.br.Buffered()))))
		if err != nil {
			return noEOF(err)
		}
		if err := sink(head, part); err != nil {
			return err
		}
		if _, err := r.br.Discard(len(part)); err != nil {
			return err
		}
		n -= int64(len(part))
	}
	return nil
}

// untilEOF hands everything up to the end of the connection to sink.
func (r *responseReader) untilEOF(head responseHead, sink func(responseHead, []byte) error) error {
	for {
		if _, err := r.br.Peek(1); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if err := r.exactly(head, int64(r.br.Buffered()), sink); err != nil {
			return err
		}
	}
}

// line reads one line without its end. The bytes are valid until the next read.
func (r *responseReader) line() ([]byte, error) {
	line, err := r.br.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, fmt.Errorf("%w: line over %d bytes", errBadResponse, readBuffer)
	}
	if err != nil {
		if len(line) > 0 {
			err = noEOF(err)
		}
		return nil, err
	}
	line = line[:len(line)-1]
	if n := len(line); n > 0 && line[n-1] == '\r' {
		line = line[:n-1]
	}
	return line, nil
}

// parseSize reads an unsigned number, without sign, space or prefix.
func parseSize(digits []byte, base int64) (int64, error) {
	if len(digits) == 0 || len(digits) > 15 {
		return 0, errBadResponse
	}
	var n int64
	for _, c := range digits {
		var d int64
		switch {
		case c >= '0' && c <= '9':
			d = int64(c - '0')
		case base == 16 && c|0x20 >= 'a' && c|0x20 <= 'f':
			d = int64(c|0x20-'a') + 10
		default:
			return 0, errBadResponse
		}
		n = n*base + d
	}
	return n, nil
}

// noEOF turns an end inside an answer into io.ErrUnexpectedEOF: only an end
// before the first byte is a clean one.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
