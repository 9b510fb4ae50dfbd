package changes

import (
	"context"
	"errors"
	"io"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/shardapi"
)

// Scan goes once through a database's changes as they are now, range by range.
type Scan struct {
	position
	ctx    context.Context
	s      *Service
	db     *cluster.Database
	o      FeedOptions
	left   int64  // rows still wanted; <0: no limit
	next   int    // ranges before it are done or under way
	last   Vector // descending: the position of the last row
	stream shardapi.ChangeStream
	rows   []Row
}

// Scan starts a scan. ctx ends it.
func (s *Service) Scan(ctx context.Context, db *cluster.Database, o FeedOptions) (*Scan, error) {
	sc := &Scan{ctx: ctx, s: s, db: db, o: o, left: o.Limit}
	sc.enc = NewEncoder(db)
	sc.vec = make(Vector, len(db.Shards))
	copy(sc.vec, o.Since)
	if o.Descending {
		// A row's token stands for "this far in its range, and the present elsewhere".
		now, err := s.Now(ctx, db)
		if err != nil {
			return nil, err
		}
		sc.vec = now
	}
	return sc, nil
}

// Next gives the next rows, all of one range, valid until the next call; it may
// give none when a filter let nothing through for a while. At the end: io.EOF.
func (sc *Scan) Next() ([]Row, error) {
	for {
		if sc.left == 0 {
			return nil, io.EOF
		}
		if sc.stream == nil {
			if sc.next == len(sc.db.Shards) {
				return nil, io.EOF
			}
			if err := sc.open(); err != nil {
				return nil, err
			}
			continue
		}
		batch, err := sc.stream.Next()
		if errors.Is(err, io.EOF) {
			if !sc.o.Descending {
				sc.vec[sc.index] = max(sc.vec[sc.index], sc.stream.Seq())
			}
			if err := sc.closeStream(); err != nil {
				return nil, err
			}
			continue
		}
		if err != nil {
			return nil, sc.s.coord.Explain(sc.db, err)
		}
		return sc.take(batch), nil
	}
}

// open starts on the next range.
func (sc *Scan) open() error {
	index := sc.next
	sc.next++
	sc.index = index
	var since uint64
	if index < len(sc.o.Since) {
		since = sc.o.Since[index]
	}
	req, ok := sc.o.request(sc.db, index, since, sc.left)
	if !ok { // none of the wanted documents lies here
		info, err := sc.s.coord.Shard(sc.db, index).Info(sc.ctx)
		if err != nil {
			return sc.s.coord.Explain(sc.db, err)
		}
		sc.vec[index] = max(sc.vec[index], info.Seq)
		return nil
	}
	stream, err := sc.s.coord.Changes(sc.ctx, sc.db, index, req)
	if err != nil {
		return err
	}
	sc.stream = stream
	return nil
}

// take makes rows of a batch and moves on.
func (sc *Scan) take(batch []shardapi.Change) []Row {
	if sc.left >= 0 {
		batch = batch[:min(int64(len(batch)), sc.left)]
		sc.left -= int64(len(batch))
	}
	sc.rows = sc.rows[:0]
	for i := range batch {
		sc.rows = append(sc.rows, Row{Change: &batch[i]})
	}
	if len(batch) == 0 {
		return nil
	}
	newest := batch[len(batch)-1].Seq
	if sc.o.Descending {
		sc.last = append(sc.last[:0], sc.vec...)
		sc.last[sc.index] = newest
	} else {
		sc.vec[sc.index] = newest
	}
	return sc.rows
}

// AppendSeq appends the token for last_seq: where to go on from, or, descending,
// the last row's.
func (sc *Scan) AppendSeq(dst []byte) []byte { return sc.enc.Append(dst, sc.Vector()) }

// Vector gives a copy of the position that AppendSeq writes.
func (sc *Scan) Vector() Vector {
	if sc.last != nil {
		return append(Vector(nil), sc.last...)
	}
	return sc.position.Vector()
}

// Pending counts the changes after the last row, filtered or not. A descending
// scan leaves none.
func (sc *Scan) Pending() (int64, error) {
	if sc.o.Descending {
		return 0, nil
	}
	return sc.s.coord.Pending(sc.ctx, sc.db, sc.vec)
}

func (sc *Scan) closeStream() error {
	if sc.stream == nil {
		return nil
	}
	s := sc.stream
	sc.stream = nil
	return s.Close()
}

// Close ends the scan.
func (sc *Scan) Close() error {
	sc.left = 0
	return sc.closeStream()
}
