package bench

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// How the bulk insert writes.
const (
	bulkBatch       = 500
	bulkConnections = 4
)

// bulkInsert fills the shared database through _bulk_docs.
type bulkInsert struct{}

func (*bulkInsert) prepare(ctx context.Context, s *session) error {
	return s.createFresh(ctx, s.database("docs"))
}

func (*bulkInsert) run(ctx context.Context, s *session) (tally, error) {
	t, err := s.fill(ctx, s.database("docs"), s.options.Docs, s.options.Duration)
	s.loaded = int(t.ops)
	return t, err
}

// fill writes documents 0 to n-1 into a database. The latencies are of batches,
// the operations are documents. Where time cut it short, the documents written
// are those of the first batches, so the others can be told by their number.
func (s *session) fill(ctx context.Context, name string, n int, limit time.Duration) (tally, error) {
	path := "/" + name + "/_bulk_docs"
	batches := (n + bulkBatch - 1) / bulkBatch
	t, err := s.drive(ctx, bulkConnections, batches, limit, func(ctx context.Context, w *worker, i int) error {
		first, last := i*bulkBatch, min(n, (i+1)*bulkBatch)
		b := append(w.buf[:0], `{"docs":[`...)
		var id [32]byte
		for d := first; d < last; d++ {
			if d > first {
				b = append(b, ',')
			}
			b = appendDocument(b, w.rand, string(appendID(id[:0], d)), "")
		}
		b = append(b, `]}`...)
		w.buf = b
		answer, err := w.conn.want(ctx, "POST", path, b, 201, 202)
		if err != nil {
			return err
		}
		if ok := bytes.Count(answer, []byte(`"rev":"1-`)); ok != last-first {
			return fmt.Errorf("POST %s: %d of %d documents written: %.200s", path, ok, last-first, answer)
		}
		return nil
	})
	if err != nil {
		return t, err
	}
	// Workers take batch numbers in order and finish what they took, so the
	// batches done are the first ones.
	t.ops = min(t.ops*bulkBatch, int64(n))
	return t, nil
}

// needDocs fills the shared database for a workload that reads it when the bulk
// insert was not chosen or did not come first.
func (s *session) needDocs(ctx context.Context) error {
	if s.loaded > 0 {
		return nil
	}
	if err := s.createFresh(ctx, s.database("docs")); err != nil {
		return err
	}
	t, err := s.fill(ctx, s.database("docs"), s.options.Docs, 10*s.options.Duration)
	s.loaded = int(t.ops)
	return err
}

// diskUse reads how many bytes of disk a document takes after the bulk insert.
type diskUse struct{}

func (diskUse) prepare(ctx context.Context, s *session) error { return s.needDocs(ctx) }

func (diskUse) run(ctx context.Context, s *session) (tally, error) {
	docs, file, err := s.info(ctx, s.database("docs"))
	if err != nil {
		return tally{}, err
	}
	if docs != int64(s.loaded) {
		return tally{}, fmt.Errorf("the database counts %d documents, %d were written", docs, s.loaded)
	}
	return tally{value: file / docs, valueUnit: "B/doc"}, nil
}

// idleMemory reads the server's memory before the first workload. It is idle
// memory after start only when the server was just started.
type idleMemory struct{ noPreparation }

func (idleMemory) run(_ context.Context, s *session) (tally, error) {
	if s.options.PID == 0 {
		return tally{note: "needs --pid"}, nil
	}
	u, err := treeUsage(s.options.PID)
	return tally{value: u.rss >> 20, valueUnit: "MB"}, err
}
