package httpapi

import (
	"net/http"
	"strconv"
	"time"

	"github.com/divandb/divan/internal/model"
)

// feedKind is the form of a feed. _changes and _db_updates have the same ones.
type feedKind uint8

// The kinds of feeds.
const (
	feedNormal      feedKind = iota // what there is, then the end
	feedLongpoll                    // the same, but not before there is something
	feedContinuous                  // a row per line, on and on
	feedEventSource                 // the same for browsers
)

// idleEvery is after how much silence a feed ends or shows a sign of life when the
// client does not say.
const idleEvery = 60 * time.Second

// maxIdle bounds what a client may say; beyond it the number means "never".
const maxIdle = 30 * 24 * time.Hour

// idleRule says what happens when a feed has nothing to tell for a while.
type idleRule struct {
	every time.Duration
	beat  bool // a sign of life; otherwise the feed ends
}

// milliseconds reads a number of milliseconds.
func milliseconds(s string) (time.Duration, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, false
	}
	return time.Duration(min(n, maxIdle.Milliseconds())) * time.Millisecond, true
}

// readIdle reads heartbeat and timeout; a heartbeat supersedes a timeout.
func (rq *request) readIdle(def idleRule) (idleRule, error) {
	rule := def
	if s, ok := rq.str("timeout"); ok {
		d, ok := milliseconds(s)
		if !ok || d < 0 {
			return rule, model.BadRequest("Invalid timeout value. Expecting a non-negative integer value (in milliseconds).")
		}
		rule = idleRule{every: d}
	}
	switch s, ok := rq.str("heartbeat"); {
	case !ok:
	case s == "true":
		rule = idleRule{every: idleEvery, beat: true}
	default:
		d, ok := milliseconds(s)
		if !ok {
			return rule, model.BadRequest("Invalid heartbeat value. Expecting a positive integer value (in milliseconds).")
		}
		if d <= 0 {
			return rule, model.BadRequest("The heartbeat value should be a positive integer (in milliseconds).")
		}
		rule = idleRule{every: d, beat: true}
	}
	return rule, nil
}

// feedStream is the answer of a feed: rows in the frame of its kind.
type feedStream struct {
	*stream
	kind  feedKind
	idle  idleRule
	timer *time.Timer // runs since the last thing that was sent
	rows  int64       // so far
	dirty bool        // rows were put and not flushed
}

// openFeed sends the head of a feed. The head of a live one goes out at once: the
// client then knows that it will hear of everything from here on.
func (rq *request) openFeed(kind feedKind, idle idleRule) (*feedStream, error) {
	h := rq.w.Header()
	if kind == feedEventSource {
		h["Content-Type"] = []string{"text/event-stream"}
		h["Cache-Control"] = []string{"no-cache"}
	} else {
		rq.jsonHeaders()
	}
	f := &feedStream{kind: kind, idle: idle, timer: time.NewTimer(idle.every)}
	if kind == feedNormal {
		h.Set("ETag", randomETag())
	}
	f.stream = rq.startStream(http.StatusOK, kind == feedNormal)
	if kind == feedNormal || kind == feedLongpoll {
		f.buf = append(f.buf, "{\"results\":[\n"...)
	}
	if kind == feedNormal {
		return f, nil
	}
	return f, f.flush()
}

// close lets go of what a feed holds. The stream must have ended, one way or the
// other.
func (f *feedStream) close() {
	f.timer.Stop()
}

// startRow puts what stands before a row.
func (f *feedStream) startRow() {
	switch f.kind {
	case feedEventSource:
		f.buf = append(f.buf, "data: "...)
	case feedNormal, feedLongpoll:
		if f.rows > 0 {
			f.buf = append(f.buf, ",\r\n"...)
		}
	}
	f.rows++
	f.dirty = true
}

// endRow puts what stands after a row; id is its token as JSON.
func (f *feedStream) endRow(id func(dst []byte) []byte) {
	switch f.kind {
	case feedContinuous:
		f.buf = append(f.buf, '\n')
	case feedEventSource:
		f.buf = append(f.buf, "\nid: "...)
		f.buf = id(f.buf)
		f.buf = append(f.buf, "\n\n"...)
	}
}

// flushRows sends what was put and begins the silence anew.
func (f *feedStream) flushRows() error {
	f.dirty = false
	f.timer.Reset(f.idle.every)
	err := f.flush()
	if cap(f.buf) > idleBuffer {
		f.buf = nil // who waits shall be small: there may be very many
	}
	return err
}

// idleBuffer is the largest buffer that a waiting feed keeps.
const idleBuffer = 4 << 10

// waiting tells a listener that had nothing yet that the feed is there.
func (f *feedStream) waiting() error {
	if f.rows == 0 {
		f.buf = append(f.buf, '\n')
	}
	return f.flushRows()
}

// heartbeat sends a sign of life.
func (f *feedStream) heartbeat() error {
	if f.kind == feedEventSource {
		f.buf = append(f.buf, "event: heartbeat\ndata: \n\n"...)
	} else {
		f.buf = append(f.buf, '\n')
	}
	return f.flushRows()
}

// beatIfDue is heartbeat for those who are at work and do not wait on the timer.
func (f *feedStream) beatIfDue() error {
	select {
	case <-f.timer.C:
		if f.idle.beat {
			return f.heartbeat()
		}
		f.timer.Reset(f.idle.every)
	default:
	}
	return nil
}

// finish puts the end of the feed. lastSeq is a token as JSON; pending is left out
// when it is negative.
func (f *feedStream) finish(lastSeq []byte, pending int64) error {
	switch f.kind {
	case feedEventSource:
		return f.end()
	case feedContinuous:
		f.buf = append(f.buf, `{"last_seq":`...)
	default:
		f.buf = append(f.buf, "\n],\n\"last_seq\":"...)
	}
	f.buf = append(f.buf, lastSeq...)
	if pending >= 0 {
		f.buf = append(f.buf, `,"pending":`...)
		f.buf = strconv.AppendInt(f.buf, pending, 10)
	}
	f.buf = append(f.buf, "}\n\n"...)
	return f.end()
}
