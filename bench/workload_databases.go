package bench

import (
	"bytes"
	"context"
	"fmt"
	"time"
)

// manyDatabases creates databases, writes one document into each, and lists
// them all at the end. An operation is one database.
type manyDatabases struct {
	noPreparation
	count int
}

func (m manyDatabases) run(ctx context.Context, s *session) (tally, error) {
	prefix := s.database("many_")
	start := time.Now()
	t, err := s.drive(ctx, 4, m.count, s.options.Duration, func(ctx context.Context, w *worker, i int) error {
		name := fmt.Sprintf("%s%06d", prefix, i)
		if err := s.create(ctx, w.conn, name); err != nil {
			return err
		}
		w.buf = appendDocument(w.buf[:0], w.rand, "", "")
		_, err := w.conn.want(ctx, "PUT", "/"+name+"/document", w.buf, 201)
		return err
	})
	if err != nil {
		return t, err
	}
	c, err := s.target.dial(ctx)
	if err != nil {
		return t, err
	}
	defer c.close()
	answer, err := c.want(ctx, "GET", "/_all_dbs", nil, 200)
	if err != nil {
		return t, err
	}
	t.elapsed = time.Since(start)
	if listed := bytes.Count(answer, []byte(`"`+prefix)); int64(listed) != t.ops {
		return t, fmt.Errorf("GET /_all_dbs: %d of %d new databases listed", listed, t.ops)
	}
	return t, nil
}
