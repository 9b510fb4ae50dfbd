// Package changes gives the feeds: the sequence tokens of the wire, scans of a
// database's changes as they are now, and followers that wake as soon as there
// are more. It is above the coordinator because a feed outlives one operation.
//
// A position in a database is a Vector, one sequence per range. A token is its
// wire form. Order between ranges is free; within a range rows come in order, and
// the token of a row is the vector with the row's range advanced to it, so a feed
// may be resumed from any row's token without losing a change.
//
// Followers of one database share a hub: per range one goroutine waits for new
// sequences, reads the new rows once, renders them once, and wakes everyone. See
// DESIGN.md.
package changes

import (
	"context"
	"sync"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/shardapi"
)

// Options of a Service.
type Options struct {
	// Ring is how many rows a hub keeps for followers that are a little behind;
	// those further behind read from the copies. Default 1000.
	Ring int
	// RingBytes bounds the memory of these rows; one with thousands of conflicts is
	// large. Default 1 MiB.
	RingBytes int
}

// Service gives the feeds of all databases.
type Service struct {
	coord *coordinator.Coordinator
	o     Options

	mu   sync.Mutex
	hubs map[hubKey]*hub
	work sync.WaitGroup // the goroutines of the hubs
}

// New makes a Service.
func New(coord *coordinator.Coordinator, o Options) *Service {
	if o.Ring <= 0 {
		o.Ring = 1000
	}
	if o.RingBytes <= 0 {
		o.RingBytes = 1 << 20
	}
	return &Service{coord: coord, o: o, hubs: map[hubKey]*hub{}}
}

// Close ends the hubs and returns when none of them reads any more: they outlive
// their last follower by a moment, in which the store must stay open. No feed may
// begin afterwards.
func (s *Service) Close() {
	s.mu.Lock()
	for _, h := range s.hubs {
		h.cancel()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// Vector is a position in a database: a sequence per range, in the order of
// Database.Shards. Nil is the beginning.
type Vector []uint64

// Sum is the number at the front of a token.
func (v Vector) Sum() uint64 {
	var s uint64
	for _, n := range v {
		s += n
	}
	return s
}

// FeedOptions says what a feed shall show.
type FeedOptions struct {
	Since       Vector // nil: the beginning
	Descending  bool   // scans only
	Limit       int64  // <0: no limit
	IncludeDocs bool
	Want        shardapi.Want // beside the body, with IncludeDocs

	// At most one filter.
	DocIDs   []string // not nil: only these
	Design   bool
	Selector []byte // normalised JSON
	Script   *shardapi.Script
}

// Now gives the position after everything durable.
func (s *Service) Now(ctx context.Context, db *cluster.Database) (Vector, error) {
	seqs, err := s.coord.Seqs(ctx, db)
	return Vector(seqs), err
}

// request makes the copy's request for one range; ok is false when the filter
// leaves nothing to ask of it.
func (o *FeedOptions) request(db *cluster.Database, index int, since uint64, limit int64) (req *shardapi.ChangesRequest, ok bool) {
	req = &shardapi.ChangesRequest{Since: since, Descending: o.Descending, Limit: limit,
		IncludeDocs: o.IncludeDocs, Want: o.Want, Design: o.Design, Selector: o.Selector, Script: o.Script}
	if o.DocIDs == nil {
		return req, true
	}
	for _, id := range o.DocIDs {
		if db.ShardOf(id) == index {
			req.DocIDs = append(req.DocIDs, id)
		}
	}
	return req, len(req.DocIDs) > 0
}
