package httpapi

import (
	"io"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"
)

// bodyPatience is how long a client may leave a body it is sending where it is
// before it counts as gone; a slow one may take for ever, a still one may not. Without
// it one that has stopped sending would hold its request, and its share of the memory
// for bodies, for ever.
const bodyPatience = 60 * time.Second

// patientBody is the body of a request, with a deadline on each piece of it.
type patientBody struct {
	rq       *request
	patience time.Duration
	until    time.Time     // the deadline on the connection; zero if there is none
	spent    atomic.Int64  // milliseconds in reading; a copy may be fed by a goroutine of its own
	rest     time.Duration // in reading, not yet a millisecond
	failed   error         // what ended it too early
}

// begin puts a deadline on a body that the handler may never read: net/http reads the
// rest of it before it answers, and waits as long as it takes.
func (b *patientBody) begin(now time.Time) {
	if body := b.rq.r.Body; body != nil && body != http.NoBody {
		b.deadline(now.Add(2 * b.patience))
	}
}

// source is the request body as it comes.
func (rq *request) source() io.Reader {
	if rq.r.Body == nil || rq.r.Body == http.NoBody {
		return http.NoBody
	}
	return &rq.incoming
}

// Read implements io.Reader.
func (b *patientBody) Read(p []byte) (int, error) {
	if b.failed != nil {
		return 0, b.failed
	}
	start := time.Now()
	if b.until.Sub(start) < b.patience {
		b.deadline(start.Add(2 * b.patience))
	}
	n, err := b.rq.r.Body.Read(p)
	switch {
	case err == io.EOF:
		// The connection is read on, by the server that wants to know when the client
		// leaves: that may take as long as it takes.
		b.deadline(time.Time{})
	case err != nil:
		// Nobody shall wait for the rest, net/http neither, which likes to read it.
		b.failed = err
		b.deadline(start)
	}
	if b.rest += time.Since(start); b.rest >= time.Millisecond {
		b.spent.Add(b.rest.Milliseconds())
		b.rest %= time.Millisecond
	}
	return n, err
}

// header gives the value of bodyTime.
func (b *patientBody) header() []string {
	if ms := b.spent.Load(); ms > 0 {
		return []string{strconv.FormatInt(ms, 10)}
	}
	return noBodyTime
}

func (b *patientBody) deadline(until time.Time) {
	b.until = until
	_ = http.NewResponseController(b.rq.w).SetReadDeadline(until) // a connection without deadlines does without
}

// bodyTime is the header that says for how many milliseconds a body was read.
const bodyTime = "X-Couchdb-Body-Time"

// noBodyTime is its value where there is next to nothing to read.
var noBodyTime = []string{"0"}
