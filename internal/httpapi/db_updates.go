package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/changes"
	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// updatesAnswer is an answer of _db_updates under way.
type updatesAnswer struct {
	a          *API
	rq         *request
	kind       feedKind
	idle       idleRule
	descending bool
	left       int64  // rows still wanted; negative: all
	at         uint64 // the event after which to go on
	last       uint64 // what last_seq tells
	feed       *feedStream
	quiet      time.Time // since when nothing was sent
	service    string
	account    []byte // as JSON
}

// dbUpdatesFeed answers GET of _db_updates, the events of all databases.
func dbUpdatesFeed(a *API, rq *request) error {
	if _, err := rq.q(); err != nil {
		return err
	}
	u := &updatesAnswer{a: a, rq: rq, left: -1, service: a.Registry.UUID(), account: rawjson.AppendString(nil, a.Account)}
	if err := u.read(); err != nil {
		return err
	}
	var err error
	u.feed, err = rq.openFeed(u.kind, u.idle)
	defer u.feed.close()
	if err == nil {
		err = u.run()
	}
	return err
}

// read reads the parameters.
func (u *updatesAnswer) read() (err error) {
	feed, _ := u.rq.str("feed")
	switch feed {
	case "", "normal":
		u.kind = feedNormal
	case "longpoll":
		u.kind = feedLongpoll
	case "continuous", "live":
		u.kind = feedContinuous
	case "eventsource":
		u.kind = feedEventSource
	default:
		return errFeedKind
	}
	if s, ok := u.rq.str("limit"); ok {
		if u.left, err = strconv.ParseInt(s, 10, 64); err != nil || u.left < 0 {
			return errFeedLimit
		}
	}
	if u.descending, err = u.rq.boolean("descending", false); err != nil {
		return err
	}
	// Unlike _changes, this feed goes on by itself when the client says nothing.
	if u.idle, err = u.rq.readIdle(idleRule{every: idleEvery, beat: true}); err != nil {
		return err
	}
	u.at, err = u.readSince()
	u.last = u.at
	return err
}

// readSince gives the event to start after.
func (u *updatesAnswer) readSince() (uint64, error) {
	text, _ := u.rq.str("since")
	if u.kind == feedEventSource {
		if id := u.rq.r.Header.Get("Last-Event-ID"); id != "" {
			text = id
		}
	}
	text = unquoteToken(text)
	newest := u.a.Registry.LastEvent()
	if text == "now" {
		return newest, nil
	}
	at, err := changes.DecodeUpdatesToken(u.service, text)
	if at > newest {
		// From a state of the service that was lost: repeat rather than miss.
		at = 0
	}
	return at, err
}

// run puts what there is and, in a live feed, what comes.
func (u *updatesAnswer) run() error {
	if u.rq.r.Method == http.MethodHead {
		return u.feed.end()
	}
	since := u.at
	if u.descending {
		u.at = u.a.Registry.LastEvent()
		for ev := range u.a.Registry.Events(since, true, u.events()) {
			if !u.sees(ev) {
				continue
			}
			if err := u.put(ev); err != nil {
				return err
			}
			if u.left == 0 {
				break
			}
		}
	} else if err := u.forward(); err != nil {
		return err
	}
	for {
		if u.left == 0 || u.kind == feedNormal || u.kind == feedLongpoll && u.feed.rows > 0 {
			return u.finish()
		}
		// Events that the caller does not see leave no trace in the answer.
		if u.quiet.IsZero() || u.feed.dirty {
			if err := u.feed.waiting(); err != nil {
				return err
			}
			u.quiet = time.Now()
		}
		if again, err := u.wait(); err != nil || !again {
			return err
		}
		if err := u.forward(); err != nil {
			return err
		}
	}
}

// forward puts the events after u.at.
func (u *updatesAnswer) forward() error {
	for ev := range u.a.Registry.Events(u.at, false, u.events()) {
		u.at = ev.Seq
		if !u.sees(ev) {
			u.last = ev.Seq
			continue
		}
		if err := u.put(ev); err != nil {
			return err
		}
		if u.left == 0 {
			break
		}
	}
	return nil
}

// events is how many events are to be looked at: of what not everybody sees, the
// limit counts only what is shown.
func (u *updatesAnswer) events() int64 {
	if u.rq.who.ServerAdmin || u.left == 0 {
		return u.left
	}
	return -1
}

// sees tells whether the caller may see an event: one of a database that grants it
// now. Only administrators of the server see what became of databases that are gone;
// one that has the name of such a database now does not speak for it.
func (u *updatesAnswer) sees(ev cluster.Event) bool {
	if u.rq.who.ServerAdmin {
		return true
	}
	if ev.Type == cluster.EventDeleted {
		return false
	}
	db, err := u.a.Registry.Get(ev.Name)
	return err == nil && u.rq.who.rights(db).Has(auth.DBUpdates)
}

// wait waits for an event and shows signs of life meanwhile; again is false when
// the feed has ended.
func (u *updatesAnswer) wait() (again bool, err error) {
	for {
		ctx, cancel := context.WithDeadline(u.rq.ctx(), u.quiet.Add(u.idle.every))
		_, err := u.a.Registry.WaitEvents(ctx, u.at)
		cancel()
		switch {
		case err == nil:
			return true, nil
		case u.rq.ctx().Err() != nil || errors.Is(err, model.ErrClosed):
			return false, u.finish() // the server stops, or the listener has gone
		case !errors.Is(err, context.DeadlineExceeded):
			return false, err
		case !u.idle.beat:
			return false, u.finish()
		}
		if err := u.feed.heartbeat(); err != nil {
			return false, err
		}
		u.quiet = time.Now()
	}
}

// put puts one event.
func (u *updatesAnswer) put(ev cluster.Event) error {
	f := u.feed
	f.startRow()
	f.buf = append(f.buf, `{"db_name":`...)
	from := len(f.buf)
	f.buf = rawjson.AppendString(f.buf, ev.Name)
	to := len(f.buf)
	f.buf = append(f.buf, `,"dbname":`...)
	f.buf = append(f.buf, f.buf[from:to]...)
	f.buf = append(f.buf, `,"type":"`...)
	f.buf = append(f.buf, ev.Type.String()...)
	f.buf = append(f.buf, `","account":`...)
	f.buf = append(f.buf, u.account...)
	f.buf = append(f.buf, `,"seq":`...)
	f.buf = u.token(f.buf, ev.Seq)
	f.buf = append(f.buf, '}')
	f.endRow(func(dst []byte) []byte { return u.token(dst, ev.Seq) })
	u.last = ev.Seq
	if u.left > 0 {
		u.left--
	}
	return f.sendIfFull()
}

// token appends the token of an event as JSON.
func (u *updatesAnswer) token(dst []byte, event uint64) []byte {
	dst = append(dst, '"')
	return append(changes.AppendUpdatesToken(dst, u.service, event), '"')
}

// finish ends the feed.
func (u *updatesAnswer) finish() error {
	return u.feed.finish(u.token(nil, u.last), -1)
}
