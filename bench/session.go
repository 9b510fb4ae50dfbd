package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// session is one run of the bench against one server.
type session struct {
	options Options
	target  *target
	run     string // part of every database name of this run

	loaded int // documents in the shared database; 0 before it is filled
	large  int // documents in the large database

	viewed map[string]int  // documents in the databases of the view rows
	built  map[string]bool // which of them have their view

	mu        sync.Mutex
	databases []string // created and to be deleted at the end
}

// newSession prepares a run. It talks to nobody yet.
func newSession(o Options) (*session, error) {
	t, err := parseTarget(o.URL)
	if err != nil {
		return nil, err
	}
	var tag [4]byte
	if _, err := rand.Read(tag[:]); err != nil {
		return nil, err
	}
	return &session{options: o, target: t, run: hex.EncodeToString(tag[:])}, nil
}

// database gives the name of this run's database for a purpose.
func (s *session) database(purpose string) string { return "bench_" + s.run + "_" + purpose }

// create makes a database over c and remembers it for cleanup. The name is
// remembered first: a creation whose answer was lost must be undone too.
func (s *session) create(ctx context.Context, c *connection, name string) error {
	s.mu.Lock()
	s.databases = append(s.databases, name)
	s.mu.Unlock()
	path := "/" + name
	if s.options.Q > 0 {
		path += fmt.Sprintf("?q=%d", s.options.Q)
	}
	_, err := c.want(ctx, "PUT", path, []byte{}, 201, 202)
	return err
}

// createFresh makes a database over a connection of its own.
func (s *session) createFresh(ctx context.Context, name string) error {
	c, err := s.target.dial(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	return s.create(ctx, c, name)
}

// cleanup deletes every database of this run. It goes on after an error, so
// that one that cannot be deleted does not leave the others behind.
func (s *session) cleanup(ctx context.Context) error {
	if len(s.databases) == 0 {
		return nil
	}
	c, err := s.target.dial(ctx)
	if err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	defer c.close()
	var failed error
	for _, name := range s.databases {
		if _, err := c.want(ctx, "DELETE", "/"+name, nil, 200, 202, 404); err != nil {
			failed = errors.Join(failed, fmt.Errorf("clean up: %w", err))
		}
	}
	s.databases = nil
	return failed
}

// info reads the database information.
func (s *session) info(ctx context.Context, name string) (docs, fileBytes int64, err error) {
	c, err := s.target.dial(ctx)
	if err != nil {
		return 0, 0, err
	}
	defer c.close()
	answer, err := c.want(ctx, "GET", "/"+name, nil, 200)
	if err != nil {
		return 0, 0, err
	}
	var info struct {
		DocCount int64 `json:"doc_count"`
		Sizes    struct {
			File int64 `json:"file"`
		} `json:"sizes"`
	}
	if err := json.Unmarshal(answer, &info); err != nil {
		return 0, 0, fmt.Errorf("GET /%s: %w", name, err)
	}
	return info.DocCount, info.Sizes.File, nil
}

// tally is what a workload did.
type tally struct {
	ops       int64
	elapsed   time.Duration
	latencies []time.Duration // sorted; empty where a latency means nothing
	note      string
	// value and valueUnit replace the rate in rows that are a size.
	value     int64
	valueUnit string
}

// worker is one connection with what belongs to it.
type worker struct {
	number int
	conn   *connection
	rand   *mathrand.Rand
	buf    []byte // for the body of a request
	path   []byte
	// began, when an operation sets it, is where its latency begins: what came before
	// was only to get there.
	began time.Time
}

// drive runs op with numbers from 0 to ops-1 on that many connections until all
// are done or the time is up, and measures each. The first error ends it.
func (s *session) drive(ctx context.Context, connections, ops int, limit time.Duration,
	op func(ctx context.Context, w *worker, i int) error) (tally, error) {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	connections = max(1, min(connections, ops))
	workers := make([]*worker, connections)
	for n := range workers {
		c, err := s.target.dial(ctx)
		if err != nil {
			return tally{}, err
		}
		defer c.close()
		workers[n] = &worker{number: n, conn: c, rand: newRand(n)}
	}
	var next atomic.Int64
	var group sync.WaitGroup
	latencies := make([][]time.Duration, connections)
	start := time.Now()
	deadline := start.Add(limit)
	for n, w := range workers {
		group.Go(func() {
			own := make([]time.Duration, 0, 2*ops/connections+1)
			for begin := time.Now(); begin.Before(deadline) && ctx.Err() == nil; {
				i := int(next.Add(1)) - 1
				if i >= ops {
					break
				}
				if err := op(ctx, w, i); err != nil {
					stop(err)
					break
				}
				end := time.Now()
				if !w.began.IsZero() {
					begin, w.began = w.began, time.Time{}
				}
				own = append(own, end.Sub(begin))
				begin = end
			}
			latencies[n] = own
		})
	}
	group.Wait()
	elapsed := time.Since(start)
	if err := context.Cause(ctx); err != nil {
		return tally{}, err
	}
	t := tally{elapsed: elapsed, latencies: mergeSorted(latencies)}
	t.ops = int64(len(t.latencies))
	if t.ops == 0 {
		return t, errors.New("no operation ended within the time limit")
	}
	if t.ops < int64(ops) {
		t.note = fmt.Sprintf("stopped by time after %d of %d", t.ops, ops)
	}
	return t, nil
}
