package noderpc

import (
	"context"
	"errors"
	"io"

	"connectrpc.com/connect"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// incoming is a server stream with the means to end it: closing it cancels the
// work on the other side.
type incoming[M any] struct {
	ctx    context.Context // of the caller
	call   context.Context // ends with Close
	cancel context.CancelFunc
	in     *connect.ServerStreamForClient[M]
	end    error // once set, what next gives for ever
}

// errStreamClosed is what a reader gets after Close.
var errStreamClosed = errors.New("noderpc: the stream is closed")

// open begins a server stream.
func open[Q, M any](ctx context.Context, h *Host, c *connect.Client[Q, M], q *Q) (*incoming[M], error) {
	call, cancel := context.WithCancel(ctx)
	in, err := c.CallServerStream(call, signed(h, q))
	if err != nil {
		cancel()
		return nil, localError(ctx, err)
	}
	return &incoming[M]{ctx: ctx, call: call, cancel: cancel, in: in}, nil
}

// next gives the next message, io.EOF at the end. The end, good or bad, lets go of
// the connection; a stream that was cut never ends with io.EOF, as connect's own
// last message is missing.
func (s *incoming[M]) next() (*M, error) {
	if s.end == nil && s.in.Receive() {
		return s.in.Msg(), nil
	}
	if s.end == nil {
		switch err := s.in.Err(); {
		case err == nil:
			s.end = io.EOF
		case s.call.Err() != nil && s.ctx.Err() == nil:
			s.end = errStreamClosed
		default:
			s.end = localError(s.ctx, err)
		}
		_ = s.Close()
	}
	return nil, s.end
}

// first gives the first message, which every stream has.
func (s *incoming[M]) first() (*M, error) {
	m, err := s.next()
	if err == io.EOF {
		err = unreachable(errCut)
	}
	return m, err
}

// Close ends the stream.
func (s *incoming[M]) Close() error {
	s.cancel()
	_ = s.in.Close() // cancelled: its error says only that
	return nil
}

// openRows begins a stream that has a head.
func openRows[Q, H, R any](ctx context.Context, s *remote, c *connect.Client[call[Q], rowsMessage[H, R]], req *Q) (*H, shardapi.Stream[R], error) {
	in, err := open(ctx, s.h, c, &call[Q]{s.id, *req})
	if err != nil {
		return nil, nil, err
	}
	m, err := in.first()
	if err == nil && m.Head == nil {
		err = errors.Join(unreachable(errCut), in.Close())
	}
	if err != nil {
		return nil, nil, err
	}
	return m.Head, &rowStream[H, R]{in}, nil
}

// rowStream is what comes after the head.
type rowStream[H, R any] struct{ *incoming[rowsMessage[H, R]] }

// Next implements shardapi.Stream.
func (s *rowStream[H, R]) Next() ([]R, error) {
	m, err := s.next()
	if err != nil {
		return nil, err
	}
	return m.Rows, nil
}

// List implements shardapi.Shard.
func (s *remote) List(ctx context.Context, req *shardapi.ListRequest) (*shardapi.ListHead, shardapi.Stream[shardapi.Row], error) {
	return openRows(ctx, s, s.h.list, req)
}

// View implements shardapi.Shard.
func (s *remote) View(ctx context.Context, req *shardapi.ViewRequest) (*shardapi.ViewHead, shardapi.Stream[shardapi.ViewRow], error) {
	return openRows(ctx, s, s.h.view, req)
}

// Changes implements shardapi.Shard.
func (s *remote) Changes(ctx context.Context, req *shardapi.ChangesRequest) (shardapi.ChangeStream, error) {
	in, err := open(ctx, s.h, s.h.changes, &call[shardapi.ChangesRequest]{s.id, *req})
	if err != nil {
		return nil, err
	}
	// The first message tells whether the copy answers at all.
	first, err := in.first()
	if err != nil {
		return nil, err
	}
	return &changeStream{incoming: in, first: first, seq: req.Since}, nil
}

// changeStream is the batches of a Changes.
type changeStream struct {
	*incoming[changesMessage]
	first *changesMessage
	seq   uint64
}

// Next implements shardapi.Stream.
func (s *changeStream) Next() ([]shardapi.Change, error) {
	m := s.first
	s.first = nil
	if m == nil {
		var err error
		if m, err = s.next(); err != nil {
			return nil, err
		}
	}
	s.seq = m.Seq
	return m.Changes, nil
}

// Seq implements shardapi.ChangeStream.
func (s *changeStream) Seq() uint64 { return s.seq }

// OpenBlob implements shardapi.Shard.
func (s *remote) OpenBlob(ctx context.Context, id model.BlobID, offset, length int64) (io.ReadCloser, error) {
	in, err := open(ctx, s.h, s.h.openBlob, &call[blobRequest]{s.id, blobRequest{id, offset, length}})
	if err != nil {
		return nil, err
	}
	m, err := in.first()
	if err != nil {
		return nil, err
	}
	return &blobReader{incoming: in, data: m.Data, done: m.Done}, nil
}

// blobReader is the chunks of an attachment as a reader.
type blobReader struct {
	*incoming[chunk]
	data []byte
	done bool
}

// Read implements io.Reader.
func (r *blobReader) Read(p []byte) (int, error) {
	for len(r.data) == 0 {
		if r.done {
			return 0, io.EOF
		}
		m, err := r.next()
		if err == io.EOF {
			err = unreachable(errCut) // the last chunk says Done
		}
		if err != nil {
			return 0, err
		}
		r.data, r.done = m.Data, m.Done
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}
