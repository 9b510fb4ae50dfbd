package bench

import (
	"context"
	"fmt"
	"net/url"
	"time"
)

// The design document of the view rows, as in the baseline.
const (
	viewDesign  = `{"views":{"by_type":{"map":"function(doc) { emit([doc.type, doc.created], doc.amount); }","reduce":"_stats"}}}`
	viewPath    = "/_design/bench/_view/by_type"
	viewPurpose = "views"
)

// needViewDocs fills the database of the view rows. It is not the shared one:
// whoever writes there must not pay for an index.
func (s *session) needViewDocs(ctx context.Context, purpose string, n int) error {
	if s.viewed[purpose] > 0 {
		return nil
	}
	name := s.database(purpose)
	if err := s.createFresh(ctx, name); err != nil {
		return err
	}
	t, err := s.fill(ctx, name, n, largeFactor*s.options.Duration)
	if err == nil && t.ops < int64(n) {
		err = fmt.Errorf("only %d of %d documents were written in time", t.ops, n)
	}
	if s.viewed == nil {
		s.viewed = map[string]int{}
	}
	s.viewed[purpose] = int(t.ops)
	return err
}

// needView builds the view as well.
func (s *session) needView(ctx context.Context, purpose string, n int) error {
	if err := s.needViewDocs(ctx, purpose, n); err != nil || s.built[purpose] {
		return err
	}
	_, err := s.buildView(ctx, purpose)
	return err
}

// buildView writes the design document and asks the view, which answers when it is
// built.
func (s *session) buildView(ctx context.Context, purpose string) (tally, error) {
	c, err := s.target.dial(ctx)
	if err != nil {
		return tally{}, err
	}
	defer c.close()
	db := "/" + s.database(purpose)
	start := time.Now()
	if _, err := c.want(ctx, "PUT", db+"/_design/bench", []byte(viewDesign), 201); err != nil {
		return tally{}, err
	}
	counter := rowCounter{mark: `"value":{"sum":`}
	err = c.stream(ctx, db+viewPath, largeFactor*s.options.Duration, func(part []byte) error {
		counter.feed(part)
		return nil
	})
	if err != nil {
		return tally{}, err
	}
	if counter.rows != 1 {
		return tally{}, fmt.Errorf("GET %s: %d rows, 1 was expected", db+viewPath, counter.rows)
	}
	if s.built == nil {
		s.built = map[string]bool{}
	}
	s.built[purpose] = true
	return tally{ops: int64(s.viewed[purpose]), elapsed: time.Since(start)}, nil
}

// viewBuild builds the view over documents that are there.
type viewBuild struct {
	purpose string
	docs    int
}

func (v viewBuild) prepare(ctx context.Context, s *session) error {
	return s.needViewDocs(ctx, v.purpose, v.docs)
}

func (v viewBuild) run(ctx context.Context, s *session) (tally, error) {
	t, err := s.buildView(ctx, v.purpose)
	if v.purpose != viewPurpose {
		t.addNote(fmt.Sprintf("%d documents", v.docs))
	}
	return t, err
}

// viewQuery asks the view.
type viewQuery struct {
	purpose     string
	docs        int
	connections int
	ops         int
	// query gives the query string of one question.
	query func(w *worker) string
}

func (v viewQuery) prepare(ctx context.Context, s *session) error {
	return s.needView(ctx, v.purpose, v.docs)
}

func (v viewQuery) run(ctx context.Context, s *session) (tally, error) {
	path := "/" + s.database(v.purpose) + viewPath
	return s.drive(ctx, v.connections, v.ops, s.options.Duration, func(ctx context.Context, w *worker, _ int) error {
		_, err := w.conn.want(ctx, "GET", path+v.query(w), nil, 200)
		return err
	})
}

// rangeQuery asks for twenty rows from a random place on.
func rangeQuery(w *worker) string {
	kind := docTypes[w.rand.IntN(len(docTypes))]
	from := 1_600_000_000 + w.rand.Int64N(200_000_000)
	start := fmt.Sprintf(`[%q,%d]`, kind, from)
	end := fmt.Sprintf(`[%q,%d]`, kind, from+50_000_000)
	return "?reduce=false&limit=20&startkey=" + url.QueryEscape(start) + "&endkey=" + url.QueryEscape(end)
}

// reduceQuery reduces everything.
func reduceQuery(*worker) string { return "" }

// groupQuery reduces by type.
func groupQuery(*worker) string { return "?group_level=1" }

// viewAfterChange changes a document and asks the view, which has to take the
// change in first. The latency is that of the question alone.
type viewAfterChange struct{ docs, ops int }

func (v viewAfterChange) prepare(ctx context.Context, s *session) error {
	return s.needView(ctx, viewPurpose, v.docs)
}

func (v viewAfterChange) run(ctx context.Context, s *session) (tally, error) {
	db := "/" + s.database(viewPurpose)
	return s.drive(ctx, 1, v.ops, s.options.Duration, func(ctx context.Context, w *worker, _ int) error {
		if _, err := w.readAndWrite(ctx, w.documentPath(db+"/", w.rand.IntN(v.docs)), 201); err != nil {
			return err
		}
		w.began = time.Now()
		_, err := w.conn.want(ctx, "GET", db+viewPath+rangeQuery(w), nil, 200)
		return err
	})
}
