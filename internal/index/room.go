package index

import (
	"context"
	"slices"
	"sync"
)

// Room bounds how much of all passes of a node is in memory, in stretches (see
// stretchDocs). A short pass takes none, so that a query after one change never
// waits for a build.
type Room struct {
	mu      sync.Mutex
	free    int
	waiting []*roomWait
}

// roomWait is a pass that waits for room.
type roomWait struct {
	got    chan struct{}
	urgent func() bool
}

// NewRoom makes room for n stretches.
func NewRoom(n int) *Room { return &Room{free: n} }

// take waits for room for a stretch. Those that are urgent when room is given back
// come first, then whoever waits longest.
func (r *Room) take(ctx context.Context, urgent func() bool) error {
	r.mu.Lock()
	if r.free > 0 {
		r.free--
		r.mu.Unlock()
		return nil
	}
	w := &roomWait{got: make(chan struct{}), urgent: urgent}
	r.waiting = append(r.waiting, w)
	r.mu.Unlock()
	select {
	case <-w.got:
		return nil
	case <-ctx.Done():
	}
	r.mu.Lock()
	at := slices.Index(r.waiting, w)
	if at >= 0 {
		r.waiting = slices.Delete(r.waiting, at, at+1)
	}
	r.mu.Unlock()
	if at < 0 { // it was given meanwhile
		r.give()
	}
	return context.Cause(ctx)
}

// give gives room back.
func (r *Room) give() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiting) == 0 {
		r.free++
		return
	}
	next := max(0, slices.IndexFunc(r.waiting, func(w *roomWait) bool { return w.urgent != nil && w.urgent() }))
	close(r.waiting[next].got)
	r.waiting = slices.Delete(r.waiting, next, next+1)
}
