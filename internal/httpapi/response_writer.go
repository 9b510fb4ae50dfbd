package httpapi

import (
	"io"
	"net/http"
	"time"
)

// writePatience is how long a client may leave its connection stuffed before it
// counts as gone. Without it one that has stopped reading would hold its request,
// and an iterator of the store, for ever.
const writePatience = 60 * time.Second

// patientFrom is the size from which a write may have to wait for the client; what
// is smaller fits into the buffers on the way.
const patientFrom = 16 << 10

// sendPiece is how much of a file goes to the kernel under one deadline: a client
// has writePatience for this much, however large the file is.
const sendPiece = 4 << 20

// statusWriter remembers the status, so that a failure knows whether an answer has
// begun, and puts a deadline on what may have to wait.
type statusWriter struct {
	http.ResponseWriter
	incoming *patientBody
	cors     corsGrant
	status   int
	until    time.Time // the deadline on the connection; zero if there is none
}

// WriteHeader implements http.ResponseWriter.
func (w *statusWriter) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
		h := w.Header()
		h[bodyTime] = w.incoming.header()
		w.cors.put(h)
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *statusWriter) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	if len(p) >= patientFrom {
		w.extend()
	}
	return w.ResponseWriter.Write(p)
}

// ReadFrom hands a reader on to the original, which gives files to the kernel.
// Without it io.Copy would see only Write and carry every byte through here.
func (w *statusWriter) ReadFrom(src io.Reader) (n int64, err error) {
	if w.status == 0 {
		w.WriteHeader(http.StatusOK)
	}
	rf, ok := w.ResponseWriter.(io.ReaderFrom)
	limited, isLimited := src.(*io.LimitedReader)
	if !ok || !isLimited {
		return io.Copy(struct{ io.Writer }{w}, src)
	}
	for limited.N > 0 {
		w.extend()
		piece := &io.LimitedReader{R: limited.R, N: min(limited.N, sendPiece)}
		sent, err := rf.ReadFrom(piece)
		n += sent
		limited.N -= sent
		if err != nil || sent == 0 {
			return n, err
		}
	}
	return n, nil
}

// FlushError is for http.ResponseController.
func (w *statusWriter) FlushError() error {
	w.extend()
	return http.NewResponseController(w.ResponseWriter).Flush()
}

// extend moves the deadline when it has come near: not every time, since a
// deadline is a timer of the runtime.
func (w *statusWriter) extend() {
	now := time.Now()
	if w.until.Sub(now) < writePatience {
		w.until = now.Add(2 * writePatience)
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(w.until) // a connection without deadlines does without
	}
}

// done takes the deadline off, for the next request on the connection.
func (w *statusWriter) done() {
	if !w.until.IsZero() {
		_ = http.NewResponseController(w.ResponseWriter).SetWriteDeadline(time.Time{}) // as in extend
	}
}

// Unwrap is for http.ResponseController.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }
