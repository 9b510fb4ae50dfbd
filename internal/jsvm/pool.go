package jsvm

import (
	"context"
	"log/slog"
	"runtime"
	"sync"
	"time"
)

// Options of a Pool. The zero value is good but for Command.
type Options struct {
	// Command starts a worker: the path of the divan binary and "js-worker".
	Command []string
	// Workers is how many run at most; default: the number of cores. They are
	// started when first needed. As many again may serve list functions, which hold
	// a worker for as long as their client reads.
	Workers int
	// CallTime is how long one call of a function may take, in processor time where
	// the system tells it; default 5 s.
	CallTime time.Duration
	// Memory is how many bytes a worker may use; default 256 MiB.
	Memory int64
	// Log takes what scripts log and what happens to workers.
	Log *slog.Logger
}

// Pool runs scripts in worker processes.
type Pool struct {
	o      Options
	calls  workerSet
	lists  workerSet
	pace   pace
	sights sights
}

// New makes a Pool. It starts no process yet.
func New(o Options) *Pool {
	if o.Workers <= 0 {
		o.Workers = runtime.NumCPU()
	}
	if o.CallTime <= 0 {
		o.CallTime = 5 * time.Second
	}
	if o.Memory <= 0 {
		o.Memory = 256 << 20
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	p := &Pool{o: o}
	p.calls.o, p.lists.o = &p.o, &p.o
	return p
}

// Close kills the workers; calls under way fail with ErrClosed.
func (p *Pool) Close() error {
	p.calls.close()
	p.lists.close()
	return nil
}

// workerSet hands out at most Options.Workers processes, to waiters in the order of
// their arrival.
type workerSet struct {
	o *Options

	mu      sync.Mutex
	closed  bool
	live    map[*process]struct{} // all processes
	places  int                   // processes, and those about to be started
	idle    []*process            // the most recently used one last
	waiters []*waiter
	reaper  *time.Timer
}

// waiter is a call without a worker. It gets one, or nil and with it the place to
// start one.
type waiter struct {
	given chan *process
}

// idleTime is how long a worker beyond the first stays without work.
const idleTime = 3 * time.Minute

// take gives a worker, best one that has an engine for the key. It belongs to the
// caller until put or remove.
func (s *workerSet) take(ctx context.Context, key string) (*process, error) {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return nil, ErrClosed
	}
	if len(s.idle) > 0 {
		i := len(s.idle) - 1
		for k := i; k >= 0; k-- {
			if s.idle[k].knows(key) {
				i = k
				break
			}
		}
		w := s.idle[i]
		s.idle = append(s.idle[:i], s.idle[i+1:]...)
		s.mu.Unlock()
		return w, nil
	}
	if s.places < s.o.Workers {
		s.places++
		s.mu.Unlock()
		return s.start(ctx)
	}
	wait := &waiter{given: make(chan *process, 1)}
	s.waiters = append(s.waiters, wait)
	s.mu.Unlock()
	select {
	case w, ok := <-wait.given:
		return s.accept(ctx, w, ok)
	case <-ctx.Done():
	}
	s.mu.Lock()
	for i, other := range s.waiters {
		if other == wait {
			s.waiters = append(s.waiters[:i], s.waiters[i+1:]...)
			s.mu.Unlock()
			return nil, ctx.Err()
		}
	}
	s.mu.Unlock()
	// Too late: a worker or a place is on its way, and goes to the next one.
	switch w, ok := <-wait.given; {
	case !ok:
	case w != nil:
		s.put(w)
	default:
		s.giveUpPlace()
	}
	return nil, ctx.Err()
}

// accept is the end of a wait.
func (s *workerSet) accept(ctx context.Context, w *process, ok bool) (*process, error) {
	switch {
	case !ok:
		return nil, ErrClosed
	case w != nil:
		return w, nil
	default:
		return s.start(ctx)
	}
}

// start starts a process in a place that the caller holds.
func (s *workerSet) start(ctx context.Context) (*process, error) {
	w, err := startProcess(ctx, s.o)
	if err != nil {
		s.giveUpPlace()
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		w.kill()
		return nil, ErrClosed
	}
	if s.live == nil {
		s.live = map[*process]struct{}{}
	}
	s.live[w] = struct{}{}
	return w, nil
}

// put gives a worker back.
func (s *workerSet) put(w *process) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	if len(s.waiters) > 0 {
		s.nextWaiter().given <- w
		return
	}
	w.idleSince = time.Now()
	s.idle = append(s.idle, w)
	if s.reaper == nil {
		s.reaper = time.AfterFunc(idleTime, s.reap)
	}
}

// remove kills a worker; its place goes to the next waiter.
func (s *workerSet) remove(w *process) {
	w.kill()
	s.mu.Lock()
	delete(s.live, w)
	s.mu.Unlock()
	s.giveUpPlace()
}

func (s *workerSet) giveUpPlace() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed && len(s.waiters) > 0 {
		s.nextWaiter().given <- nil
		return
	}
	s.places--
}

func (s *workerSet) nextWaiter() *waiter {
	next := s.waiters[0]
	s.waiters = append(s.waiters[:0], s.waiters[1:]...)
	return next
}

// reap ends workers beyond one that had nothing to do for a while.
func (s *workerSet) reap() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reaper = nil
	if s.closed {
		return
	}
	for len(s.idle) > 0 && len(s.live) > 1 && time.Since(s.idle[0].idleSince) >= idleTime {
		w := s.idle[0]
		s.idle = append(s.idle[:0], s.idle[1:]...)
		delete(s.live, w)
		s.places--
		w.kill()
	}
	if len(s.idle) > 0 {
		s.reaper = time.AfterFunc(idleTime, s.reap)
	}
}

func (s *workerSet) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, wait := range s.waiters {
		close(wait.given)
	}
	for w := range s.live {
		w.kill()
	}
	s.waiters, s.idle, s.live = nil, nil, nil
	if s.reaper != nil {
		s.reaper.Stop()
	}
}

// isClosed tells the end of the pool from the end of a worker.
func (s *workerSet) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}
