package httpapi

import (
	"bufio"
	"bytes"
	"io"
	"mime"
	"net/textproto"
	"strings"

	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
)

const (
	// partBuffer is how much of a multipart body is in memory at a time, and the
	// longest line of headers or preamble.
	partBuffer = 64 << 10
	// maxPartHeaders bounds the headers of one part, maxPreamble what may stand
	// before the first.
	maxPartHeaders = 32 << 10
	maxPreamble    = 64 << 10
	// maxBoundary is far above the 70 characters that the standard allows.
	maxBoundary = 200
)

// errMultipart is the answer to a multipart body that cannot be taken apart.
func errMultipart(reason string) *model.Error {
	return model.BadRequest("The multipart body cannot be read: " + reason)
}

// partReader takes a multipart body apart as it comes in, holding no more of it
// than its buffer. Lines may end in CR LF or in LF alone; the first boundary
// decides. (The library's reader takes a body that stops within the headers of a
// part for one that is complete, which would make half an upload a whole one.)
type partReader struct {
	from  *bufio.Reader
	nl    []byte
	delim []byte // nl "--" boundary
	limit int    // parts that may still come
	state partState
	known int // bytes at the front of the buffer that are known to be the part's
}

// partState is where the reader stands.
type partState uint8

const (
	partsBefore  partState = iota // before the first boundary
	partsHeaders                  // after a boundary, before headers
	partsStart                    // at the first byte of a part
	partsData                     // within a part
	partsAtMark                   // at a delimiter that ends a part
	partsOver                     // after the end mark
)

// newPartReader reads the boundary from the Content-Type. A part more than limit
// is an error.
func newPartReader(contentType string, body io.Reader, limit int) (*partReader, error) {
	_, params, err := mime.ParseMediaType(contentType)
	if err != nil || params["boundary"] == "" || len(params["boundary"]) > maxBoundary {
		return nil, errMultipart("its Content-Type has no proper boundary.")
	}
	return &partReader{from: bufio.NewReaderSize(body, partBuffer), nl: []byte("\r\n"), delim: []byte("\r\n--" + params["boundary"]), limit: limit}, nil
}

// next gives the next part; what is left of the one before is passed over. After
// the last one, whose end must be marked, it gives io.EOF.
func (r *partReader) next() (*part, error) {
	if r.state == partsBefore {
		if err := r.findFirst(); err != nil {
			return nil, err
		}
	}
	for r.state == partsStart || r.state == partsData {
		n, err := r.available()
		if err != nil {
			return nil, err
		}
		r.known = 0
		r.discard(n)
	}
	if r.state == partsAtMark {
		if err := r.passMark(); err != nil {
			return nil, err
		}
	}
	if r.state == partsOver {
		return nil, io.EOF
	}
	if r.limit == 0 {
		return nil, errMultipart("it has more parts than it should.")
	}
	r.limit--
	header, err := r.readHeader()
	if err != nil {
		return nil, err
	}
	r.state = partsStart
	return &part{from: r, header: header}, nil
}

// line reads one line with its end. A line that the body cuts short is an error,
// except the end mark, after which nothing need come.
func (r *partReader) line() ([]byte, error) {
	line, err := r.from.ReadSlice('\n')
	switch {
	case err == nil || err == io.EOF && r.isEnd(line):
		return line, nil
	case err == bufio.ErrBufferFull:
		return nil, errMultipart("a line is too long.")
	}
	return nil, cutShort(err)
}

// cutShort is the error of a body that ends where it must not. It keeps our own
// words and hides everything that reads like the end of a stream.
func cutShort(err error) error {
	if model.KindOf(err) != model.KindInternal {
		return err
	}
	return errBodyCut
}

// isEnd tells whether a line begins with the end mark. What follows is epilogue,
// which means nothing and need not begin on a line of its own.
func (r *partReader) isEnd(line []byte) bool {
	rest, ok := bytes.CutPrefix(line, r.delim[len(r.nl):])
	return ok && bytes.HasPrefix(rest, []byte("--"))
}

// isBoundary tells whether a line is a boundary before a part, and how it ends.
func (r *partReader) isBoundary(line []byte) (nl string, ok bool) {
	rest, ok := bytes.CutPrefix(line, r.delim[len(r.nl):])
	if !ok || len(bytes.Trim(rest, " \t\r\n")) != 0 {
		return "", false
	}
	if bytes.HasSuffix(rest, []byte("\r\n")) {
		return "\r\n", true
	}
	return "\n", true
}

// findFirst passes over the preamble and the first boundary.
func (r *partReader) findFirst() error {
	for passed := 0; passed <= maxPreamble; {
		line, err := r.line()
		if err != nil {
			return err
		}
		if r.isEnd(line) {
			r.state = partsOver
			return nil
		}
		if nl, ok := r.isBoundary(line); ok {
			r.delim = append([]byte(nl), r.delim[len(r.nl):]...)
			r.nl = []byte(nl)
			r.state = partsHeaders
			return nil
		}
		passed += len(line)
	}
	return errMultipart("there is no boundary at its start.")
}

// passMark reads the delimiter that ended a part, and tells by the state whether
// another one comes.
func (r *partReader) passMark() error {
	// At the start of a part the line end before the delimiter may be that of the
	// headers, already read.
	if head, err := r.from.Peek(len(r.nl)); err != nil {
		return cutShort(err)
	} else if bytes.Equal(head, r.nl) {
		r.discard(len(r.nl))
	}
	line, err := r.line()
	if err != nil {
		return err
	}
	if r.isEnd(line) {
		r.state = partsOver
		return nil
	}
	if _, ok := r.isBoundary(line); !ok {
		return errMultipart("a boundary is followed by other text.")
	}
	r.state = partsHeaders
	return nil
}

// readHeader reads the headers of a part up to the empty line.
func (r *partReader) readHeader() (textproto.MIMEHeader, error) {
	header := textproto.MIMEHeader{}
	last := ""
	for total := 0; total <= maxPartHeaders; {
		raw, err := r.line()
		if err != nil {
			return nil, err
		}
		total += len(raw)
		line := strings.TrimRight(string(raw), "\r\n")
		if line == "" {
			return header, nil
		}
		if (line[0] == ' ' || line[0] == '\t') && last != "" {
			header[last][len(header[last])-1] += " " + strings.TrimSpace(line)
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) == "" {
			return nil, errMultipart("a part has a malformed header.")
		}
		last = textproto.CanonicalMIMEHeaderKey(strings.TrimSpace(name))
		header[last] = append(header[last], strings.TrimSpace(value))
	}
	return nil, errMultipart("the headers of a part are too long.")
}

// available tells how many bytes at the front of the buffer belong to the part. 0
// means that the part is over, and the state says so.
func (r *partReader) available() (int, error) {
	if r.known == 0 {
		var err error
		if r.known, err = r.look(); err != nil {
			return 0, err
		}
	}
	return r.known, nil
}

// look searches the buffer for the end of the part.
func (r *partReader) look() (int, error) {
	if r.state == partsStart {
		r.state = partsData
		// A part of no bytes may have its delimiter right after the headers.
		if r.atMark(r.delim[len(r.nl):]) {
			r.state = partsAtMark
			return 0, nil
		}
	}
	for {
		buf, _ := r.from.Peek(r.from.Buffered()) // what is there can be had
		switch at := bytes.Index(buf, r.delim); {
		case at > 0:
			return at, nil
		case at == 0 && r.atMark(r.delim):
			r.state = partsAtMark
			return 0, nil
		case at == 0 && len(buf) > len(r.delim):
			return len(r.delim), nil // bytes that only begin like a delimiter
		}
		// The end of the buffer may be the start of a delimiter.
		if n := len(buf) - len(r.delim) + 1; n > 1 {
			return n - 1, nil
		}
		if _, err := r.from.Peek(len(buf) + 1); err != nil {
			return 0, cutShort(err)
		}
	}
}

// atMark tells whether a delimiter is next. The character after it decides: text
// that goes on as a word is no delimiter but bytes that begin like one.
func (r *partReader) atMark(delim []byte) bool {
	buf, err := r.from.Peek(len(delim) + 1)
	return err == nil && bytes.HasPrefix(buf, delim) && bytes.IndexByte([]byte(" \t\r\n-"), buf[len(delim)]) >= 0
}

// discard passes over bytes that are in the buffer.
func (r *partReader) discard(n int) {
	_, _ = r.from.Discard(n) // cannot fail for what was peeked
}

// part is one part of a multipart body. It can be read until the next one is asked
// for.
type part struct {
	from   *partReader
	header textproto.MIMEHeader
}

// Read gives the bytes of the part. A body that stops inside it is an error that
// nobody can take for an end.
func (p *part) Read(b []byte) (int, error) {
	r := p.from
	if r.state != partsStart && r.state != partsData {
		return 0, io.EOF
	}
	if len(b) == 0 {
		return 0, nil
	}
	n, err := r.available()
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	n, err = r.from.Read(b[:min(n, len(b))])
	r.known -= n
	return n, err
}

// disposition gives a parameter of the Content-Disposition header, "" if it is not
// there.
func (p *part) disposition(name string) string {
	_, params, err := mime.ParseMediaType(p.header.Get("Content-Disposition"))
	if err != nil {
		return ""
	}
	return params[name]
}

// contentType gives the type of the part.
func (p *part) contentType() string {
	if t := p.header.Get("Content-Type"); t != "" {
		return t
	}
	return document.DefaultContentType
}
