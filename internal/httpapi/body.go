package httpapi

import (
	"compress/flate"
	"compress/zlib"
	"context"
	"io"
	"net/http"
	"strings"
	"sync"

	"bufio"

	"github.com/klauspost/compress/gzip"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// errTooLarge is a body over the limit.
var errTooLarge = &model.Error{Kind: model.KindTooLarge, Name: "too_large", Reason: "the request entity is too large"}

// errContentType is a POST that does not say it is JSON.
var errContentType = &model.Error{Kind: model.KindUnsupportedMedia, Name: "bad_content_type", Reason: "Content-Type must be application/json"}

// bodyBudget bounds the JSON bodies in memory at one time, over all requests: a
// client that has to wait for its share is better than a server out of memory.
type bodyBudget struct {
	mu    sync.Mutex
	left  int64
	freed chan struct{} // closed and replaced whenever some is given back
}

func newBodyBudget(total int64) *bodyBudget {
	return &bodyBudget{left: total, freed: make(chan struct{})}
}

// take waits for n bytes of the budget.
func (b *bodyBudget) take(ctx context.Context, n int64) error {
	for {
		b.mu.Lock()
		if b.left >= n {
			b.left -= n
			b.mu.Unlock()
			return nil
		}
		freed := b.freed
		b.mu.Unlock()
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *bodyBudget) give(n int64) {
	b.mu.Lock()
	b.left += n
	close(b.freed)
	b.freed = make(chan struct{})
	b.mu.Unlock()
}

// smallBody is the size from which a body is counted against the budget.
const smallBody = 64 << 10

// requireJSON refuses a body that is not declared as JSON (this is also what keeps
// a foreign web page's form from writing here).
func (rq *request) requireJSON() error {
	ct, _, _ := strings.Cut(rq.r.Header.Get("Content-Type"), ";")
	if !strings.EqualFold(strings.TrimSpace(ct), typeJSON) {
		return errContentType
	}
	return nil
}

// decodedBody is the request body with its Content-Encoding undone. What comes
// out of it is bounded by whoever reads it.
func (rq *request) decodedBody() (io.Reader, error) {
	switch enc := strings.ToLower(strings.TrimSpace(rq.r.Header.Get("Content-Encoding"))); enc {
	case "", "identity":
		return rq.source(), nil
	case "gzip", "x-gzip":
		gz, err := gzip.NewReader(rq.source())
		if err != nil {
			return nil, model.BadRequest("The body is not valid gzip.")
		}
		return badEncoding{gz}, nil
	case "deflate":
		// The name means zlib; some clients send bare deflate. The first byte tells.
		br := bufio.NewReader(rq.source())
		if head, err := br.Peek(2); err == nil && head[0]&0x0f == 8 && (uint16(head[0])<<8|uint16(head[1]))%31 == 0 {
			zr, err := zlib.NewReader(br)
			if err != nil {
				return nil, model.BadRequest("The body is not valid deflate.")
			}
			return badEncoding{zr}, nil
		}
		return badEncoding{flate.NewReader(br)}, nil
	default:
		return nil, &model.Error{Kind: model.KindUnsupportedMedia, Name: "bad_content_type", Reason: "Content-Encoding must be gzip or deflate."}
	}
}

// badEncoding turns a decompressor's complaint into the client's error.
type badEncoding struct{ io.Reader }

func (b badEncoding) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if err != nil && err != io.EOF {
		err = model.BadRequest("The body does not decompress.")
	}
	return n, err
}

// readBody reads the whole body, at most limit bytes of it. release gives the
// memory back to the budget and must be called when the bytes are done with.
func (rq *request) readBody(limit int64) (body []byte, release func(), err error) {
	release = func() {}
	if rq.r.ContentLength > limit {
		return nil, release, errTooLarge
	}
	src, err := rq.decodedBody()
	if err != nil {
		return nil, release, err
	}
	taken := int64(0)
	release = func() {
		if taken > 0 {
			rq.api.bodies.give(taken)
			taken = 0
		}
	}
	size := rq.r.ContentLength
	if size < 512 {
		size = 512
	}
	if size > 1<<20 {
		size = 1 << 20 // a client may announce what it never sends
	}
	buf := make([]byte, 0, size+1)
	for {
		if len(buf) == cap(buf) {
			grow := int64(cap(buf))
			if grow >= smallBody {
				if err := rq.api.bodies.take(rq.ctx(), grow); err != nil {
					return nil, release, err
				}
				taken += grow
			}
			bigger := make([]byte, len(buf), 2*cap(buf))
			copy(bigger, buf)
			buf = bigger
		}
		n, err := src.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		if int64(len(buf)) > limit {
			return nil, release, errTooLarge
		}
		if err == io.EOF {
			return buf, release, nil
		}
		if err != nil {
			return nil, release, bodyError(err)
		}
	}
}

// bodyError keeps our own words and calls everything else a request cut short.
func bodyError(err error) error {
	if model.KindOf(err) != model.KindInternal {
		return err
	}
	return &model.Error{Kind: model.KindBadRequest, Name: "bad_request", Reason: "The request body could not be read to its end.", Err: err}
}

// readJSON reads the body as one JSON value in normal form.
func (rq *request) readJSON() (value []byte, release func(), err error) {
	raw, release, err := rq.readBody(rq.api.Limits.MaxBody)
	if err != nil {
		return nil, release, err
	}
	value, err = rawjson.Normalize(make([]byte, 0, len(raw)), raw, rq.api.Limits.MaxDepth)
	if err != nil {
		return nil, release, errInvalidJSON
	}
	return value, release, nil
}

// drainLimit is how much of an unwanted body is read, so that the connection stays
// usable and the client gets to read the answer instead of a reset.
const drainLimit = 64 << 20

func (rq *request) drainBody() {
	if rq.r.Body == nil || rq.r.Body == http.NoBody {
		return
	}
	if rq.r.Header.Get("Expect") != "" {
		return // the client still waits for leave to send; the server closes for us
	}
	_, _ = io.CopyN(io.Discard, rq.source(), drainLimit) // an error here means there is no more to read
}
