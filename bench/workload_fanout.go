package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// fanOut has many continuous feeds follow one database while one connection
// writes documents one after the other. An operation is one event delivered; its
// latency runs from the moment the write was sent until the feed's line is here.
type fanOut struct {
	feeds, writes int

	name    string
	ready   sync.WaitGroup // feeds that have delivered the first document
	arrived sync.WaitGroup // feeds that have delivered everything
	sent    []atomic.Int64 // when write i was sent, in ns since began
	began   time.Time
	late    [][]time.Duration // latencies by feed
	stop    context.CancelCauseFunc
	ctx     context.Context
}

// fanOutReady is the document that shows that a feed is attached. Headers alone
// would not: CouchDB sends them only with the first event.
const fanOutReady = "ready"

func (f *fanOut) prepare(ctx context.Context, s *session) error {
	f.name = s.database("fanout")
	if err := s.createFresh(ctx, f.name); err != nil {
		return err
	}
	f.ctx, f.stop = context.WithCancelCause(ctx)
	f.began = time.Now()
	f.sent = make([]atomic.Int64, f.writes)
	f.late = make([][]time.Duration, f.feeds)
	f.ready.Add(f.feeds)
	f.arrived.Add(f.feeds)
	for n := range f.feeds {
		go f.follow(s, n)
	}
	c, err := s.target.dial(f.ctx)
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := c.want(f.ctx, "PUT", "/"+f.name+"/"+fanOutReady, []byte(`{}`), 201); err != nil {
		f.stop(err)
		return err
	}
	return f.await(&f.ready, s.options.Duration+opTimeout)
}

// errFeedDone ends a feed that has delivered everything.
var errFeedDone = errors.New("feed done")

// follow reads one feed until it has delivered every write. A feed that fails
// ends the whole workload, so every wait for the others ends too.
func (f *fanOut) follow(s *session, n int) {
	isReady := false
	defer func() {
		if !isReady {
			f.ready.Done()
		}
		f.arrived.Done()
	}()
	c, err := s.target.dial(f.ctx)
	if err != nil {
		f.stop(err)
		return
	}
	defer c.close()
	latencies := make([]time.Duration, 0, f.writes)
	var line []byte
	path := "/" + f.name + "/_changes?feed=continuous&since=0&heartbeat=10000"
	limit := s.options.Duration + 2*opTimeout
	err = c.stream(f.ctx, path, limit, func(part []byte) error {
		now := time.Since(f.began)
		for len(part) > 0 {
			end := bytes.IndexByte(part, '\n')
			if end < 0 {
				line = append(line, part...)
				return nil
			}
			whole := part[:end]
			if len(line) > 0 {
				line = append(line, whole...)
				whole = line
			}
			number, what := feedLine(whole)
			switch {
			case what == lineReady && !isReady:
				isReady = true
				f.ready.Done()
			case what == lineWrite && number < f.writes:
				latencies = append(latencies, now-time.Duration(f.sent[number].Load()))
			case what == lineOther:
				return fmt.Errorf("unexpected line %.200q", whole)
			}
			line, part = line[:0], part[end+1:]
		}
		if len(latencies) == f.writes {
			return errFeedDone
		}
		return nil
	})
	f.late[n] = latencies
	if !errors.Is(err, errFeedDone) {
		f.stop(fmt.Errorf("feed %d ended after %d of %d events: %w", n, len(latencies), f.writes, err))
	}
}

// What a line of a feed can be.
const (
	lineOther = iota
	lineHeartbeat
	lineReady
	lineWrite
)

// feedLine tells what a line of a feed is, and for a write its number.
func feedLine(line []byte) (number, what int) {
	if len(bytes.TrimSpace(line)) == 0 {
		return 0, lineHeartbeat
	}
	_, rest, ok := bytes.Cut(line, []byte(`"id":"`))
	id, _, ended := bytes.Cut(rest, []byte(`"`))
	switch {
	case !ok || !ended:
		return 0, lineOther
	case string(id) == fanOutReady:
		return 0, lineReady
	case len(id) < 2 || id[0] != 'w':
		return 0, lineOther
	}
	for _, c := range id[1:] {
		if c < '0' || c > '9' || number > 1<<30 {
			return 0, lineOther
		}
		number = number*10 + int(c-'0')
	}
	return number, lineWrite
}

func (f *fanOut) run(ctx context.Context, s *session) (tally, error) {
	defer f.stop(nil)
	c, err := s.target.dial(f.ctx)
	if err != nil {
		return tally{}, err
	}
	defer c.close()
	start := time.Now()
	r := newRand(0)
	var body []byte
	for i := range f.writes {
		body = appendDocument(body[:0], r, "", "")
		f.sent[i].Store(int64(time.Since(f.began)))
		if _, err := c.want(f.ctx, "PUT", fmt.Sprintf("/%s/w%d", f.name, i), body, 201); err != nil {
			f.stop(err)
			f.arrived.Wait()
			return tally{}, errors.Join(err, context.Cause(f.ctx))
		}
	}
	if err := f.await(&f.arrived, s.options.Duration+opTimeout); err != nil {
		return tally{}, err
	}
	t := tally{elapsed: time.Since(start), latencies: mergeSorted(f.late)}
	t.ops = int64(len(t.latencies))
	return t, nil
}

// await waits for all feeds, for so long.
func (f *fanOut) await(group *sync.WaitGroup, limit time.Duration) error {
	done := make(chan struct{})
	go func() { group.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(limit):
		err := fmt.Errorf("the feeds did not deliver within %s", limit)
		f.stop(err)
	}
	return context.Cause(f.ctx)
}
