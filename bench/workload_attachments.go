package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	mathrand "math/rand/v2"
)

// How attachments are written and read. The baseline's "MB" is one of these:
// an operation is one attachment of 1 MiB.
const (
	attachmentSize        = 1 << 20
	attachmentConnections = 4
	attachmentType        = "application/octet-stream" // a type no server compresses
)

// randomBytes gives bytes that do not compress.
func randomBytes(n int) []byte {
	r := mathrand.New(mathrand.NewPCG(2, 2))
	b := make([]byte, 0, n+8)
	for len(b) < n {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
	}
	return b[:n]
}

// attachmentPath gives the path of attachment number i, each in a document of
// its own.
func attachmentPath(database string, i int) string {
	return fmt.Sprintf("/%s/att-%06d/data.bin", database, i)
}

// putAttachments writes attachments 0 to n-1, all different: a server that
// stores identical bytes once would otherwise write one file.
func (s *session) putAttachments(ctx context.Context, database string, n int) (tally, error) {
	base := randomBytes(attachmentSize)
	return s.drive(ctx, attachmentConnections, n, s.options.Duration, func(ctx context.Context, w *worker, i int) error {
		if w.buf == nil {
			w.buf = append([]byte(nil), base...)
		}
		binary.LittleEndian.PutUint64(w.buf, uint64(i))
		path := attachmentPath(database, i)
		status, answer, err := w.conn.exchange(ctx, "PUT", path, attachmentType, w.buf)
		if err != nil {
			return err
		}
		if status != 201 && status != 202 {
			return unexpected("PUT", path, status, answer)
		}
		return nil
	})
}

// attachmentPut writes attachments of 1 MiB.
type attachmentPut struct{ count int }

func (attachmentPut) prepare(ctx context.Context, s *session) error {
	return s.createFresh(ctx, s.database("att_put"))
}

func (a attachmentPut) run(ctx context.Context, s *session) (tally, error) {
	return s.putAttachments(ctx, s.database("att_put"), a.count)
}

// attachmentGet reads random attachments of 1 MiB.
type attachmentGet struct{ count, ops int }

func (a attachmentGet) prepare(ctx context.Context, s *session) error {
	name := s.database("att_get")
	if err := s.createFresh(ctx, name); err != nil {
		return err
	}
	_, err := s.putAttachments(ctx, name, a.count)
	return err
}

func (a attachmentGet) run(ctx context.Context, s *session) (tally, error) {
	// As many as were written: the time limit may have cut the preparation.
	name := s.database("att_get")
	docs, _, err := s.info(ctx, name)
	if err != nil {
		return tally{}, err
	}
	return s.drive(ctx, attachmentConnections, a.ops, s.options.Duration, func(ctx context.Context, w *worker, _ int) error {
		path := attachmentPath(name, w.rand.IntN(int(docs)))
		got := 0
		err := w.conn.stream(ctx, path, opTimeout, func(part []byte) error {
			got += len(part)
			return nil
		})
		if err == nil && got != attachmentSize {
			err = fmt.Errorf("GET %s: %d bytes of %d", path, got, attachmentSize)
		}
		return err
	})
}
