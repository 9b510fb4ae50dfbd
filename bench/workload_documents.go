package bench

import (
	"bytes"
	"context"
	"fmt"
	"sync/atomic"
)

// getRandom reads random documents of the shared database by id.
type getRandom struct{ ops int }

func (getRandom) prepare(ctx context.Context, s *session) error { return s.needDocs(ctx) }

func (g getRandom) run(ctx context.Context, s *session) (tally, error) {
	prefix := "/" + s.database("docs") + "/"
	return s.drive(ctx, 16, g.ops, s.options.Duration, func(ctx context.Context, w *worker, _ int) error {
		path := w.documentPath(prefix, w.rand.IntN(s.loaded))
		_, err := w.conn.want(ctx, "GET", path, nil, 200)
		return err
	})
}

// documentPath gives the path of document number i.
func (w *worker) documentPath(prefix string, i int) string {
	w.path = appendID(append(w.path[:0], prefix...), i)
	return string(w.path)
}

// put writes new documents one by one. Every write is acknowledged durable, so
// what grows with the connections is how well the server shares its fsyncs.
type put struct{ connections, ops int }

func (p put) purpose() string { return fmt.Sprintf("put%d", p.connections) }

func (p put) prepare(ctx context.Context, s *session) error {
	return s.createFresh(ctx, s.database(p.purpose()))
}

func (p put) run(ctx context.Context, s *session) (tally, error) {
	prefix := "/" + s.database(p.purpose()) + "/"
	return s.drive(ctx, p.connections, p.ops, s.options.Duration, func(ctx context.Context, w *worker, i int) error {
		w.buf = appendDocument(w.buf[:0], w.rand, "", "")
		_, err := w.conn.want(ctx, "PUT", w.documentPath(prefix, i), w.buf, 201)
		return err
	})
}

// update reads a document and writes it back changed: one operation.
type update struct{ ops int }

const updateConnections = 16

func (update) prepare(ctx context.Context, s *session) error { return s.needDocs(ctx) }

func (u update) run(ctx context.Context, s *session) (tally, error) {
	prefix := "/" + s.database("docs") + "/"
	// Each worker has its own share of the documents: conflicts are the conflict
	// storm's matter.
	share := s.loaded / updateConnections
	if share == 0 {
		return tally{}, fmt.Errorf("update needs at least %d documents", updateConnections)
	}
	return s.drive(ctx, updateConnections, u.ops, s.options.Duration, func(ctx context.Context, w *worker, _ int) error {
		path := w.documentPath(prefix, w.number*share+w.rand.IntN(share))
		_, err := w.readAndWrite(ctx, path, 201)
		return err
	})
}

// readAndWrite gets a document and puts a new body on the revision it found. It
// gives the status of the PUT, which must be one of those given.
func (w *worker) readAndWrite(ctx context.Context, path string, statuses ...int) (int, error) {
	answer, err := w.conn.want(ctx, "GET", path, nil, 200)
	if err != nil {
		return 0, err
	}
	rev, ok := revisionOf(answer)
	if !ok {
		return 0, fmt.Errorf("GET %s: no _rev in %.200s", path, answer)
	}
	w.buf = appendDocument(w.buf[:0], w.rand, "", rev)
	status, answer, err := w.conn.do(ctx, "PUT", path, w.buf)
	if err != nil {
		return 0, err
	}
	for _, s := range statuses {
		if s == status {
			return status, nil
		}
	}
	return 0, unexpected("PUT", path, status, answer)
}

// revisionOf finds the revision in a document of the bench; none of them has
// the member name inside a value.
func revisionOf(doc []byte) (string, bool) {
	_, rest, found := bytes.Cut(doc, []byte(`"_rev":"`))
	rev, _, ended := bytes.Cut(rest, []byte(`"`))
	return string(rev), found && ended && len(rev) > 2
}

// conflictStorm has many writers read and write few documents. An operation is
// one GET and one PUT, whether the PUT won or was refused as a conflict.
type conflictStorm struct{ ops int }

// The shape of the storm.
const (
	stormWriters   = 16
	stormDocuments = 10
)

func (conflictStorm) prepare(ctx context.Context, s *session) error {
	name := s.database("storm")
	if err := s.createFresh(ctx, name); err != nil {
		return err
	}
	_, err := s.fill(ctx, name, stormDocuments, s.options.Duration)
	return err
}

func (c conflictStorm) run(ctx context.Context, s *session) (tally, error) {
	prefix := "/" + s.database("storm") + "/"
	var conflicts atomic.Int64
	t, err := s.drive(ctx, stormWriters, c.ops, s.options.Duration, func(ctx context.Context, w *worker, _ int) error {
		status, err := w.readAndWrite(ctx, w.documentPath(prefix, w.rand.IntN(stormDocuments)), 201, 409)
		if status == 409 {
			conflicts.Add(1)
		}
		return err
	})
	if err == nil {
		t.addNote(fmt.Sprintf("%d %% conflicts", 100*conflicts.Load()/t.ops))
	}
	return t, err
}

// addNote appends to the note of a row.
func (t *tally) addNote(note string) {
	if t.note != "" {
		t.note += "; "
	}
	t.note += note
}
