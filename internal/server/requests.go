package server

import (
	"context"
	"net/http"
	"strings"
	"sync"
)

// requests follows the requests under way, so that a stop can end those that
// would never end by themselves and wait for the others.
type requests struct {
	next   http.Handler
	ending context.Context // done when feeds are to end
	end    context.CancelFunc

	mu      sync.Mutex
	running int
	idle    chan struct{} // closed when running falls to 0; nil until somebody waits
}

func newRequests(next http.Handler) *requests {
	q := &requests{next: next}
	q.ending, q.end = context.WithCancel(context.Background())
	return q
}

// ServeHTTP implements http.Handler.
func (q *requests) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q.begin()
	defer q.done()
	takeRequest(r)
	if isFeed(r) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		stop := context.AfterFunc(q.ending, cancel)
		defer stop()
		r = r.WithContext(ctx)
	}
	q.next.ServeHTTP(w, r)
}

func (q *requests) begin() {
	q.mu.Lock()
	q.running++
	q.mu.Unlock()
}

func (q *requests) done() {
	q.mu.Lock()
	q.running--
	if q.running == 0 && q.idle != nil {
		close(q.idle)
		q.idle = nil
	}
	q.mu.Unlock()
}

// wait waits until no handler runs; false if ctx ended first. The store must not
// be closed under a handler that reads it.
func (q *requests) wait(ctx context.Context) bool {
	q.mu.Lock()
	if q.running == 0 {
		q.mu.Unlock()
		return true
	}
	if q.idle == nil {
		q.idle = make(chan struct{})
	}
	idle := q.idle
	q.mu.Unlock()
	select {
	case <-idle:
		return true
	case <-ctx.Done():
		return false
	}
}

// isFeed tells whether a request waits for what will happen. Such a one has no
// end of its own, so a stop must not wait for it; everything else may finish.
func isFeed(r *http.Request) bool {
	if !strings.HasSuffix(r.URL.Path, "/_changes") && r.URL.Path != "/_db_updates" {
		return false
	}
	feed := r.URL.Query().Get("feed")
	return feed != "" && feed != "normal"
}
