package httpapi

import (
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"

	"github.com/divandb/divan/internal/rawjson"
)

// The content types of JSON answers: the one the client named, and the spec's
// default for everybody else.
const (
	typeJSON  = "application/json"
	typePlain = "text/plain;charset=utf-8"
)

var (
	headerJSON           = []string{typeJSON}
	headerPlain          = []string{typePlain}
	headerMustRevalidate = []string{"must-revalidate"}
)

// gzipFrom is the size below which compressing an answer costs more than it saves.
const gzipFrom = 1400

// jsonHeaders sets what every JSON answer has.
func (rq *request) jsonHeaders() {
	h := rq.w.Header()
	if rq.accepts(typeJSON) || rq.carriesBytes() && !rq.accepts("text/plain") {
		h["Content-Type"] = headerJSON
	} else {
		h["Content-Type"] = headerPlain
	}
	if h["Cache-Control"] == nil {
		h["Cache-Control"] = headerMustRevalidate
	}
	h["X-Frame-Options"] = noFrames
}

// carriesBytes tells whether the request brings something else than JSON: an
// attachment, or a document in parts. Clients that name no type they accept then
// (nano is one) still read the answer only if it says it is JSON.
func (rq *request) carriesBytes() bool {
	return rq.method == http.MethodPut && (rq.param("att") != "" || isMultipartRelated(rq.r.Header.Get("Content-Type")))
}

// json answers with a whole body and the newline that clients of this protocol
// have always got. body may be appended to.
func (rq *request) json(status int, body []byte) {
	if status >= http.StatusBadRequest {
		// Of the answer that did not come to be.
		rq.w.Header().Del("ETag")
		rq.w.Header().Del("Cache-Control")
	}
	rq.jsonHeaders()
	body = append(body, '\n')
	rq.body(status, body)
}

// body answers with bytes whose headers are set already, gzipped when asked.
func (rq *request) body(status int, body []byte) {
	h := rq.w.Header()
	if len(body) >= gzipFrom && rq.acceptsGzip() {
		h.Set("Content-Encoding", "gzip")
		h.Add("Vary", "Accept-Encoding")
		if rq.r.Method == http.MethodHead {
			rq.w.WriteHeader(status)
			return
		}
		rq.w.WriteHeader(status)
		gz := getGzip(rq.w)
		_, _ = gz.Write(body) // a failed write means the client has gone
		_ = gz.Close()
		gzipPool.Put(gz)
		return
	}
	rq.values[1] = strconv.Itoa(len(body))
	h["Content-Length"] = rq.values[1:2:2]
	rq.w.WriteHeader(status)
	if rq.r.Method != http.MethodHead {
		_, _ = rq.w.Write(body)
	}
}

// acceptsGzip tells whether the client takes gzip.
func (rq *request) acceptsGzip() bool {
	for _, h := range rq.r.Header["Accept-Encoding"] {
		for len(h) > 0 {
			var part string
			part, h, _ = strings.Cut(h, ",")
			name, params, _ := strings.Cut(part, ";")
			name = strings.TrimSpace(name)
			if (strings.EqualFold(name, "gzip") || name == "*") && strings.TrimSpace(params) != "q=0" {
				return true
			}
		}
	}
	return false
}

var gzipPool = sync.Pool{New: func() any {
	gz, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed) // fails only for a level that does not exist
	return gz
}}

func getGzip(w io.Writer) *gzip.Writer {
	gz := gzipPool.Get().(*gzip.Writer)
	gz.Reset(w)
	return gz
}

// errorBody is {"error":…,"reason":…}.
func errorBody(name, reason string) []byte {
	b := append(make([]byte, 0, 64+len(reason)), `{"error":`...)
	b = rawjson.AppendString(b, name)
	b = append(b, `,"reason":`...)
	b = rawjson.AppendString(b, reason)
	return append(b, '}')
}

// stream is a body of unknown length: rows collect in a buffer that goes out when
// it is full, and whenever Flush says that a listener should see them now.
type stream struct {
	rq     *request
	status int // to be sent before the first byte; 0: it is out
	gz     *gzip.Writer
	buf    []byte
	err    error
}

// streamBuffer is how much collects before it goes out: large enough that a
// system call is shared by many rows, small enough for 100,000 listeners (it grows
// only while rows come faster than they leave).
const streamBuffer = 32 << 10

// startStream begins a body. With compress, gzip is used when the client takes it,
// and status and headers go out with the first bytes: what fails before them fails
// with words. Live feeds and bodies in parts pass false; they stay plain, and their
// head goes out at once.
func (rq *request) startStream(status int, compress bool) *stream {
	s := &stream{rq: rq, status: status}
	if !compress {
		s.status = 0
		rq.w.WriteHeader(status)
	}
	return s
}

// begin sends status and headers unless they are out.
func (s *stream) begin() {
	if s.status == 0 {
		return
	}
	rq := s.rq
	if rq.acceptsGzip() && rq.r.Method != http.MethodHead {
		rq.w.Header().Set("Content-Encoding", "gzip")
		rq.w.Header().Add("Vary", "Accept-Encoding")
		rq.w.WriteHeader(s.status)
		s.gz = getGzip(rq.w)
	} else {
		rq.w.WriteHeader(s.status)
	}
	s.status = 0
}

// full tells whether the buffer should go out; append to s.buf between calls.
func (s *stream) full() bool { return len(s.buf) >= streamBuffer }

// send empties the buffer towards the client. Its error means the client has gone.
func (s *stream) send() error {
	if s.err == nil && len(s.buf) > 0 && s.rq.r.Method != http.MethodHead {
		s.begin()
		var err error
		if s.gz != nil {
			_, err = s.gz.Write(s.buf)
		} else {
			_, err = s.rq.w.Write(s.buf)
		}
		s.err = gone(err)
	}
	s.buf = s.buf[:0]
	return s.err
}

// sendIfFull is send when enough has collected.
func (s *stream) sendIfFull() error {
	if s.full() {
		return s.send()
	}
	return s.err
}

// flush sends and pushes everything to the wire now.
func (s *stream) flush() error {
	s.begin()
	if err := s.send(); err != nil {
		return err
	}
	if s.gz != nil {
		if s.err = gone(s.gz.Flush()); s.err != nil {
			return s.err
		}
	}
	s.err = gone(http.NewResponseController(s.rq.w).Flush())
	return s.err
}

// goneError is a write that failed: whoever asked is not there any more. It is
// nobody's fault and not worth a line in the log.
type goneError struct{ error }

// Unwrap gives the cause.
func (e *goneError) Unwrap() error { return e.error }

// gone marks the error of a write.
func gone(err error) error {
	if err == nil {
		return nil
	}
	return &goneError{err}
}

// end finishes the body.
func (s *stream) end() error {
	s.begin()
	err := s.send()
	if s.gz != nil {
		if cerr := s.gz.Close(); err == nil {
			err = gone(cerr)
		}
		gzipPool.Put(s.gz)
		s.gz = nil
	}
	return err
}
