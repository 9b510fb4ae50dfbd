package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// What stands exactly once in every row, and in no document of the bench.
const (
	rowOfAllDocs = `"value":{"rev":"`
	rowOfChanges = `"changes":[{"rev":"`
)

// rowCounter counts the rows of a stream that arrives in parts of any size, by
// counting a mark. Parsing the rows would cost the driver more than some servers
// take to write them.
type rowCounter struct {
	mark string
	rows int64
	tail []byte // the end of what came so far, too short to hold a mark
}

// feed takes the next part of the stream.
func (r *rowCounter) feed(part []byte) {
	// A mark may lie across the border: join the tail with as much of the part
	// as can complete one.
	keep := len(r.mark) - 1
	joint := append(r.tail, part[:min(keep, len(part))]...)
	r.rows += int64(bytes.Count(joint, []byte(r.mark)))
	r.rows += int64(bytes.Count(part, []byte(r.mark)))
	if len(part) >= keep {
		r.tail = append(r.tail[:0], part[len(part)-keep:]...)
		return
	}
	r.tail = append(joint[:0], joint[max(0, len(joint)-keep):]...)
}

// errTimeUp ends a stream that ran into the time limit.
var errTimeUp = errors.New("time is up")

// streamRows reads path of a database and counts the rows of the answer.
func (s *session) streamRows(ctx context.Context, path, mark string, want int, limit time.Duration) (tally, error) {
	c, err := s.target.dial(ctx)
	if err != nil {
		return tally{}, err
	}
	defer c.close()
	counter := rowCounter{mark: mark}
	start := time.Now()
	deadline := start.Add(limit)
	err = c.stream(ctx, path, limit+opTimeout, func(part []byte) error {
		counter.feed(part)
		if time.Now().After(deadline) {
			return errTimeUp
		}
		return nil
	})
	t := tally{ops: counter.rows, elapsed: time.Since(start)}
	switch {
	case errors.Is(err, errTimeUp) && counter.rows > 0:
		t.note = fmt.Sprintf("stopped by time after %d of %d", counter.rows, want)
		return t, nil
	case err != nil:
		return t, err
	case counter.rows != int64(want):
		return t, fmt.Errorf("GET %s: %d rows, %d were expected", path, counter.rows, want)
	}
	return t, nil
}

// fullStream reads every row of the shared database in one answer.
type fullStream struct{ view, mark string }

func (fullStream) prepare(ctx context.Context, s *session) error { return s.needDocs(ctx) }

func (f fullStream) run(ctx context.Context, s *session) (tally, error) {
	return s.streamRows(ctx, "/"+s.database("docs")+"/"+f.view, f.mark, s.loaded, s.options.Duration)
}

// largeStream is fullStream over the large database: what counts is the peak of
// the server's memory.
type largeStream struct{ view, mark string }

// largeFactor is how much longer than other workloads the large ones may take.
const largeFactor = 20

func (largeStream) prepare(ctx context.Context, s *session) error {
	if s.large > 0 {
		return nil
	}
	name := s.database("large")
	if err := s.createFresh(ctx, name); err != nil {
		return err
	}
	t, err := s.fill(ctx, name, s.options.LargeDocs, largeFactor*s.options.Duration)
	s.large = int(t.ops)
	return err
}

func (l largeStream) run(ctx context.Context, s *session) (tally, error) {
	t, err := s.streamRows(ctx, "/"+s.database("large")+"/"+l.view, l.mark, s.large, largeFactor*s.options.Duration)
	t.addNote(fmt.Sprintf("%d documents", s.large))
	return t, err
}
