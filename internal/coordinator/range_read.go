package coordinator

import (
	"context"
	"errors"
	"io"
	"math"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/shardapi"
)

// openRanges asks ranges for a stream each, side by side. When one fails, the
// others are not waited for: an index may take long to build.
func openRanges[H, T any](ctx context.Context, c *Coordinator, db *cluster.Database,
	ask func(ctx context.Context, s shardapi.Shard) (*H, shardapi.Stream[T], error)) ([]*H, []mergeSource[T], context.CancelCauseFunc, error) {
	heads := make([]*H, len(db.Shards))
	sources := make([]mergeSource[T], len(db.Shards))
	ctx, cancel := context.WithCancelCause(ctx) // the streams live on it too
	err := c.each(ctx, db, func(ctx context.Context, i int, s shardapi.Shard) error {
		head, stream, err := ask(ctx, s)
		if err != nil {
			cancel(err)
			return err
		}
		heads[i], sources[i].stream = head, stream
		if err := sources[i].fetch(); err != nil {
			cancel(err)
			return err
		}
		return nil
	})
	if err == nil {
		return heads, sources, cancel, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = c.Explain(db, cause) // what came first, not what it did to the others
	}
	cancel(nil)
	_ = closeSources(sources) // the error that counts is known
	return nil, nil, nil, err
}

// limitOfParts is how many rows each range must give for a window of limit rows
// after skip.
func limitOfParts(limit, skip int64) int64 {
	switch {
	case limit < 0 || skip <= 0:
		return limit
	case limit > math.MaxInt64-skip:
		return -1 // both are a client's; the window keeps the limit
	}
	return limit + skip
}

// window leaves out the first rows of a stream and ends it at a limit.
type window[T any] struct {
	from shardapi.Stream[T]
	skip int64
	left int64 // <0: no limit
}

// Next gives the part of the next batch that lies in the window.
func (w *window[T]) Next() ([]T, error) {
	if w.left == 0 {
		return nil, io.EOF
	}
	if w.skip > 0 {
		if m, ok := w.from.(*merge[T]); ok {
			n, err := m.dropRun(w.skip)
			if n > 0 || err != nil {
				w.skip -= n
				return nil, err
			}
		}
	}
	rows, err := w.from.Next()
	if err != nil {
		return nil, err
	}
	if w.skip > 0 {
		n := min(w.skip, int64(len(rows)))
		rows, w.skip = rows[n:], w.skip-n
	}
	if w.left >= 0 {
		rows = rows[:min(w.left, int64(len(rows)))]
		w.left -= int64(len(rows))
	}
	return rows, nil
}

// Close ends the stream below.
func (w *window[T]) Close() error { return w.from.Close() }

// errStreamClosed is what a reader gets after Close.
var errStreamClosed = errors.New("the stream is closed")
