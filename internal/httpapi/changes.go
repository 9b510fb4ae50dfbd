package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/divandb/divan/internal/changes"
	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
)

// changesFeed answers GET and POST of _changes.
func changesFeed(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	q, err := a.readChanges(rq, db)
	if err != nil {
		return err
	}
	c := &changesAnswer{a: a, rq: rq, db: db, q: q, left: q.options.Limit}
	if q.kind == feedNormal {
		return c.present()
	}
	return c.live()
}

// changesAnswer is an answer of _changes under way.
type changesAnswer struct {
	a    *API
	rq   *request
	db   *cluster.Database
	q    *changesQuery
	feed *feedStream
	left int64 // rows still wanted; negative: all
}

// rowSource writes the rows of its last batch: a scan or a follower.
type rowSource interface {
	AppendRow(dst []byte, r *changes.Row, style changes.Style) []byte
	AppendRowSeq(dst []byte, r *changes.Row) []byte
	AppendSeq(dst []byte) []byte
	Vector() changes.Vector
}

// present answers a normal feed.
func (c *changesAnswer) present() error {
	sc, err := c.a.Changes.Scan(c.rq.ctx(), c.db, c.q.options)
	if err != nil {
		return err
	}
	defer sc.Close() // it only reads: a failure of the end has no consequence
	if c.rq.r.Method == http.MethodHead {
		return c.head()
	}
	// The first rows are read before the status goes out, so that what fails at
	// once fails with words.
	rows, err := sc.Next()
	if err != nil && err != io.EOF {
		return err
	}
	c.feed, err = c.rq.openFeed(feedNormal, c.q.idle)
	defer c.feed.close()
	if err != nil {
		return err
	}
	if err := c.scan(sc, rows); err != nil {
		return err
	}
	pending, err := sc.Pending()
	if err != nil {
		return err
	}
	return c.feed.finish(c.lastSeq(sc), pending)
}

// head answers HEAD, whose listener never hears a row: there is nothing to wait for.
func (c *changesAnswer) head() error {
	f, err := c.rq.openFeed(c.q.kind, c.q.idle)
	defer f.close()
	if err == nil {
		err = f.end()
	}
	return err
}

// scan puts all rows of a scan, of which the first are given.
func (c *changesAnswer) scan(sc *changes.Scan, rows []changes.Row) error {
	for {
		if err := c.put(sc, rows); err != nil {
			return err
		}
		if err := c.feed.sendIfFull(); err != nil {
			return err
		}
		if err := c.feed.beatIfDue(); err != nil {
			return err
		}
		var err error
		if rows, err = sc.Next(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// manyRows stands for "no limit" where rows are counted down.
const manyRows = 1_000_000_000_000_000

// put puts rows.
func (c *changesAnswer) put(src rowSource, rows []changes.Row) error {
	f := c.feed
	for i := range rows {
		r := &rows[i]
		f.startRow()
		// Counted down from the limit, as CouchDB does: a client that asks for limit
		// and interval alike gets a token with the first row of each answer.
		count := c.left
		if count < 0 {
			count = manyRows - f.rows + 1
		} else {
			c.left--
		}
		marked := c.q.interval == 0 || count%c.q.interval == 0
		if marked {
			f.buf = src.AppendRow(f.buf, r, c.q.style)
		} else {
			f.buf = append(f.buf, `{"seq":null,`...)
			f.buf = r.AppendFragment(f.buf, c.q.style)
		}
		if c.q.options.IncludeDocs {
			if err := c.putDoc(r); err != nil {
				return err
			}
		}
		f.buf = append(f.buf, '}')
		if f.kind == feedContinuous {
			f.buf = append(f.buf, '\n')
		} else if f.kind == feedEventSource {
			f.endRow(func(dst []byte) []byte {
				if !marked {
					return append(dst, "null"...)
				}
				dst = append(dst, '"')
				return append(src.AppendRowSeq(dst, r), '"')
			})
		}
		if err := f.sendIfFull(); err != nil {
			return err
		}
	}
	return nil
}

// putDoc puts the doc member of a row.
func (c *changesAnswer) putDoc(r *changes.Row) error {
	c.feed.buf = append(c.feed.buf, `,"doc":`...)
	if r.Change.Doc == nil {
		c.feed.buf = append(c.feed.buf, "null"...)
		return nil
	}
	if c.q.fields != nil {
		return c.putFields(r.Change.Doc)
	}
	return c.feed.document(c.a, c.rq, c.db, r.Change.Doc, c.q.view)
}

// putFields puts the wanted part of a document.
func (c *changesAnswer) putFields(d *model.Doc) error {
	whole, err := document.Append(nil, d, c.q.view.options(c.rq.ctx(), c.a, c.db, d, document.AttInline))
	if err != nil {
		return err
	}
	c.feed.buf = c.q.fields.Append(c.feed.buf, whole)
	return nil
}

// lastSeq is the token of a position as JSON.
func (c *changesAnswer) lastSeq(src rowSource) []byte {
	b := append(make([]byte, 0, 128), '"')
	return append(src.AppendSeq(b), '"')
}

// live answers the feeds that wait: first a scan of what there is, which costs no
// more than a normal feed, then a follower from there on.
func (c *changesAnswer) live() error {
	if c.rq.r.Method == http.MethodHead {
		return c.head()
	}
	o := c.q.options
	if o.Descending {
		// Backwards through the present; what comes later can only come forwards.
		now, err := c.a.Changes.Now(c.rq.ctx(), c.db)
		if err != nil {
			return err
		}
		o.Since = now
	}
	sc, err := c.a.Changes.Scan(c.rq.ctx(), c.db, c.q.options)
	if err != nil {
		return err
	}
	defer sc.Close() // as in present
	c.feed, err = c.rq.openFeed(c.q.kind, c.q.idle)
	defer c.feed.close()
	if err != nil {
		return err
	}
	if err := c.scan(sc, nil); err != nil {
		return c.interrupted(sc, err)
	}
	if c.left == 0 || c.feed.kind == feedLongpoll && c.feed.rows > 0 {
		return c.finish(c.rq.ctx(), sc)
	}
	if !o.Descending {
		o.Since = sc.Vector()
	}
	if err := c.feed.waiting(); err != nil {
		return err
	}
	o.Limit = c.left
	return c.follow(o)
}

// past is a tick that has come: with it a follower gives what it has and does not
// wait.
var past = func() <-chan time.Time {
	c := make(chan time.Time)
	close(c)
	return c
}()

// follow puts what comes until the feed ends.
func (c *changesAnswer) follow(o changes.FeedOptions) error {
	ctx, f := c.rq.ctx(), c.feed
	fl := c.a.Changes.Follow(ctx, c.db, o)
	defer fl.Close() // as in present
	for {
		tick := (<-chan time.Time)(f.timer.C)
		if f.dirty {
			// All that has come goes out in one piece.
			if fl.Buffered() {
				tick = past
			} else if f.kind == feedLongpoll {
				return c.finish(ctx, fl)
			} else if err := f.flushRows(); err != nil {
				return err
			}
		}
		rows, err := fl.Next(ctx, tick)
		switch {
		case err == nil:
			if err := c.put(fl, rows); err != nil {
				return err
			}
			if len(rows) > 0 {
				continue
			}
			if err := f.beatIfDue(); err != nil {
				return err
			}
		case errors.Is(err, changes.ErrTick):
			if tick == past {
				continue
			}
			if !f.idle.beat {
				return c.finish(ctx, fl)
			}
			if err := f.heartbeat(); err != nil {
				return err
			}
		case err == io.EOF:
			return c.finish(ctx, fl)
		default:
			return c.interrupted(fl, err)
		}
	}
}

// stopPatience is how long the end of a feed may take when the server stops.
const stopPatience = time.Second

// interrupted ends a live feed in good order when its database has been deleted or
// the server stops. (Or when the listener has gone, which looks the same and does no
// harm.) Other errors stay.
func (c *changesAnswer) interrupted(src rowSource, err error) error {
	ctx := c.rq.ctx()
	if errors.Is(err, model.ErrDBNotFound) && c.feed.err == nil {
		return c.feed.finish(c.lastSeq(src), 0)
	}
	if ctx.Err() == nil || c.feed.err != nil {
		return err
	}
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopPatience)
	defer cancel()
	return c.finish(end, src)
}

// finish ends a live feed.
func (c *changesAnswer) finish(ctx context.Context, src rowSource) error {
	if c.feed.kind == feedEventSource {
		return c.feed.finish(nil, 0)
	}
	var pending int64
	if !c.q.options.Descending {
		var err error
		pending, err = c.a.Coordinator.Pending(ctx, c.db, src.Vector())
		if err != nil && !errors.Is(err, model.ErrDBNotFound) { // of a deleted one nothing is pending
			return err
		}
	}
	return c.feed.finish(c.lastSeq(src), pending)
}
