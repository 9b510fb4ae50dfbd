package noderpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// Handler serves the copies of a host.
type Handler struct {
	next   http.Handler
	mu     sync.RWMutex // guards closed against calls that begin
	closed bool
	calls  sync.WaitGroup
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.mu.RLock()
	if h.closed {
		h.mu.RUnlock()
		http.Error(w, "this node is stopping", http.StatusServiceUnavailable)
		return
	}
	h.calls.Add(1)
	h.mu.RUnlock()
	defer h.calls.Done()
	h.next.ServeHTTP(w, r)
}

// Close refuses further calls and returns when none is under way. http.Server's
// Close cuts the connections but does not wait: without this wait a stream could
// still be reading from a store that is closed next.
func (h *Handler) Close() {
	h.mu.Lock()
	h.closed = true
	h.mu.Unlock()
	h.calls.Wait()
}

// NewHandler serves the copies of host. To stop it, close the http.Server, which
// ends the calls, then the Handler, then the host.
func NewHandler(host shardapi.Host, o Options) (*Handler, error) {
	c, err := newCodec()
	if err != nil {
		return nil, err
	}
	opts := []connect.HandlerOption{
		connect.WithCodec(c), connect.WithReadMaxBytes(o.maxMessage()), connect.WithSendMaxBytes(o.maxMessage()),
		connect.WithCompression("gzip", nil, nil), // bodies are on their way to a fast neighbour
	}
	s := &service{host: host}
	mux := http.NewServeMux()

	unary(mux, procWrite, opts, func(ctx context.Context, q *call[shardapi.WriteRequest]) (*shardapi.WriteResponse, error) {
		return s.at(q.Copy).Write(ctx, &q.Req)
	})
	unary(mux, procRead, opts, func(ctx context.Context, q *call[shardapi.ReadRequest]) (*shardapi.ReadResponse, error) {
		return s.at(q.Copy).Read(ctx, &q.Req)
	})
	unary(mux, procRevsDiff, opts, func(ctx context.Context, q *call[shardapi.RevsDiffRequest]) (*shardapi.RevsDiffResponse, error) {
		return s.at(q.Copy).RevsDiff(ctx, &q.Req)
	})
	unary(mux, procWriteLocal, opts, func(ctx context.Context, q *call[shardapi.LocalEdit]) (*model.Rev, error) {
		rev, err := s.at(q.Copy).WriteLocal(ctx, &q.Req)
		return &rev, err
	})
	unary(mux, procReadLocal, opts, func(ctx context.Context, q *call[string]) (*model.Doc, error) {
		return s.at(q.Copy).ReadLocal(ctx, q.Req)
	})
	unary(mux, procPending, opts, func(ctx context.Context, q *call[uint64]) (*answer[int64], error) {
		n, err := s.at(q.Copy).Pending(ctx, q.Req)
		return &answer[int64]{n}, err
	})
	unary(mux, procUpdated, opts, func(ctx context.Context, q *call[uint64]) (*answer[uint64], error) {
		seq, err := s.at(q.Copy).Updated(ctx, q.Req)
		return &answer[uint64]{seq}, err
	})
	unary(mux, procInfo, opts, func(ctx context.Context, q *call[none]) (*shardapi.Info, error) {
		return s.at(q.Copy).Info(ctx)
	})
	unary(mux, procPartitionInfo, opts, func(ctx context.Context, q *call[string]) (*shardapi.PartitionInfo, error) {
		return s.at(q.Copy).PartitionInfo(ctx, q.Req)
	})
	unary(mux, procSync, opts, func(ctx context.Context, q *call[none]) (*none, error) {
		return &none{}, s.at(q.Copy).Sync(ctx)
	})
	unary(mux, procViewInfo, opts, func(ctx context.Context, q *call[[]string]) (*shardapi.ViewInfo, error) {
		return s.at(q.Copy).ViewInfo(ctx, q.Req)
	})
	unary(mux, procUnstage, opts, func(ctx context.Context, q *call[string]) (*none, error) {
		return &none{}, s.at(q.Copy).Unstage(ctx, q.Req)
	})
	unary(mux, procDrop, opts, func(ctx context.Context, q *call[none]) (*none, error) {
		return &none{}, s.host.Drop(ctx, q.Copy)
	})
	unary(mux, procTasks, opts, func(ctx context.Context, _ *none) (*answer[[]shardapi.Task], error) {
		tasks, err := s.host.Tasks(ctx)
		return &answer[[]shardapi.Task]{tasks}, err
	})
	mux.Handle(procList, connect.NewServerStreamHandler(procList, s.list, opts...))
	mux.Handle(procView, connect.NewServerStreamHandler(procView, s.view, opts...))
	mux.Handle(procChanges, connect.NewServerStreamHandler(procChanges, s.changes, opts...))
	mux.Handle(procOpenBlob, connect.NewServerStreamHandler(procOpenBlob, s.openBlob, opts...))
	mux.Handle(procStage, connect.NewClientStreamHandler(procStage, s.stage, opts...))
	return &Handler{next: permit(o.Secret, mux)}, nil
}

// service answers for a host.
type service struct {
	host shardapi.Host
}

func (s *service) at(id shardapi.CopyID) shardapi.Shard { return s.host.Shard(id) }

// unary puts one request-and-answer procedure on the mux.
func unary[Q, A any](mux *http.ServeMux, proc string, opts []connect.HandlerOption, f func(context.Context, *Q) (*A, error)) {
	mux.Handle(proc, connect.NewUnaryHandler(proc, func(ctx context.Context, r *connect.Request[Q]) (*connect.Response[A], error) {
		a, err := f(ctx, r.Msg)
		if err != nil {
			return nil, wireError(err)
		}
		return connect.NewResponse(a), nil
	}, opts...))
}

func (s *service) list(ctx context.Context, r *connect.Request[call[shardapi.ListRequest]], out *connect.ServerStream[listMessage]) error {
	head, rows, err := s.at(r.Msg.Copy).List(ctx, &r.Msg.Req)
	if err != nil {
		return wireError(err)
	}
	return sendRows(out, head, rows)
}

func (s *service) view(ctx context.Context, r *connect.Request[call[shardapi.ViewRequest]], out *connect.ServerStream[viewMessage]) error {
	head, rows, err := s.at(r.Msg.Copy).View(ctx, &r.Msg.Req)
	if err != nil {
		return wireError(err)
	}
	return sendRows(out, head, rows)
}

// sendRows sends a head and what comes after it, and closes the rows.
func sendRows[H, R any](out *connect.ServerStream[rowsMessage[H, R]], head *H, rows shardapi.Stream[R]) error {
	defer rows.Close()
	if err := out.Send(&rowsMessage[H, R]{Head: head}); err != nil {
		return err
	}
	for {
		batch, err := rows.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return wireError(err)
		}
		if err := out.Send(&rowsMessage[H, R]{Rows: batch}); err != nil {
			return err
		}
	}
}

func (s *service) changes(ctx context.Context, r *connect.Request[call[shardapi.ChangesRequest]], out *connect.ServerStream[changesMessage]) error {
	rows, err := s.at(r.Msg.Copy).Changes(ctx, &r.Msg.Req)
	if err != nil {
		return wireError(err)
	}
	defer rows.Close()
	for {
		batch, err := rows.Next()
		if err == io.EOF {
			// The end has a sequence too: what was filtered out counts as seen.
			return out.Send(&changesMessage{Seq: rows.Seq()})
		}
		if err != nil {
			return wireError(err)
		}
		if err := out.Send(&changesMessage{Changes: batch, Seq: rows.Seq()}); err != nil {
			return err
		}
	}
}

func (s *service) openBlob(ctx context.Context, r *connect.Request[call[blobRequest]], out *connect.ServerStream[chunk]) error {
	q := r.Msg.Req
	src, err := s.at(r.Msg.Copy).OpenBlob(ctx, q.Blob, q.Offset, q.Length)
	if err != nil {
		return wireError(err)
	}
	defer src.Close()
	buf := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(buf)
	for {
		n, err := fill(src, buf[:])
		done := err == io.EOF
		if err != nil && !done {
			return wireError(err)
		}
		if err := out.Send(&chunk{Data: buf[:n], Done: done}); err != nil {
			return err
		}
		if done {
			return nil
		}
	}
}

func (s *service) stage(ctx context.Context, in *connect.ClientStream[chunk]) (*connect.Response[shardapi.Staged], error) {
	if !in.Receive() {
		return nil, wireError(cutStage(in))
	}
	src := &stageReader{in: in, data: in.Msg().Data, done: in.Msg().Done}
	staged, err := s.at(in.Msg().Copy).Stage(ctx, src)
	if err != nil {
		return nil, wireError(err)
	}
	return connect.NewResponse(staged), nil
}

// errCut is a stream of chunks that ended before its last one.
var errCut = errors.New("noderpc: the stream was cut")

// cutStage is the error of a Stage that ended early. It does not wrap what the
// transport says: an io.EOF in there would look like the end of the bytes.
func cutStage(in *connect.ClientStream[chunk]) error {
	if err := in.Err(); err != nil {
		return fmt.Errorf("%w: %v", errCut, err)
	}
	return errCut
}

// stageReader is the incoming chunks as a reader.
type stageReader struct {
	in   *connect.ClientStream[chunk]
	data []byte
	done bool
}

// Read implements io.Reader.
func (r *stageReader) Read(p []byte) (int, error) {
	for len(r.data) == 0 {
		if r.done {
			return 0, io.EOF
		}
		if !r.in.Receive() {
			return 0, cutStage(r.in)
		}
		r.data, r.done = r.in.Msg().Data, r.in.Msg().Done
	}
	n := copy(p, r.data)
	r.data = r.data[n:]
	return n, nil
}
