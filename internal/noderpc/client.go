package noderpc

import (
	"context"
	"fmt"
	"io"
	"net/http"

	"connectrpc.com/connect"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// Host is the copies of another node.
type Host struct {
	secret string

	write         *connect.Client[call[shardapi.WriteRequest], shardapi.WriteResponse]
	read          *connect.Client[call[shardapi.ReadRequest], shardapi.ReadResponse]
	revsDiff      *connect.Client[call[shardapi.RevsDiffRequest], shardapi.RevsDiffResponse]
	writeLocal    *connect.Client[call[shardapi.LocalEdit], model.Rev]
	readLocal     *connect.Client[call[string], model.Doc]
	list          *connect.Client[call[shardapi.ListRequest], listMessage]
	changes       *connect.Client[call[shardapi.ChangesRequest], changesMessage]
	pending       *connect.Client[call[uint64], answer[int64]]
	updated       *connect.Client[call[uint64], answer[uint64]]
	info          *connect.Client[call[none], shardapi.Info]
	partitionInfo *connect.Client[call[string], shardapi.PartitionInfo]
	sync          *connect.Client[call[none], none]
	view          *connect.Client[call[shardapi.ViewRequest], viewMessage]
	viewInfo      *connect.Client[call[[]string], shardapi.ViewInfo]
	stage         *connect.Client[chunk, shardapi.Staged]
	unstage       *connect.Client[call[string], none]
	openBlob      *connect.Client[call[blobRequest], chunk]
	drop          *connect.Client[call[none], none]
	tasks         *connect.Client[none, answer[[]shardapi.Task]]
}

var _ shardapi.Host = (*Host)(nil)

// Dial gives the host behind a base URL such as http://127.0.0.1:5985. It does no I/O.
func Dial(baseURL string, o Options) (*Host, error) {
	c, err := newCodec()
	if err != nil {
		return nil, err
	}
	hc := o.HTTPClient
	if hc == nil {
		hc = NewHTTPClient(nil)
	}
	d := dialer{hc, baseURL, []connect.ClientOption{
		connect.WithCodec(c), connect.WithReadMaxBytes(o.maxMessage()), connect.WithSendMaxBytes(o.maxMessage()),
		connect.WithAcceptCompression("gzip", nil, nil),
	}}
	return &Host{
		secret:        o.Secret,
		write:         dial[call[shardapi.WriteRequest], shardapi.WriteResponse](d, procWrite),
		read:          dial[call[shardapi.ReadRequest], shardapi.ReadResponse](d, procRead),
		revsDiff:      dial[call[shardapi.RevsDiffRequest], shardapi.RevsDiffResponse](d, procRevsDiff),
		writeLocal:    dial[call[shardapi.LocalEdit], model.Rev](d, procWriteLocal),
		readLocal:     dial[call[string], model.Doc](d, procReadLocal),
		list:          dial[call[shardapi.ListRequest], listMessage](d, procList),
		changes:       dial[call[shardapi.ChangesRequest], changesMessage](d, procChanges),
		pending:       dial[call[uint64], answer[int64]](d, procPending),
		updated:       dial[call[uint64], answer[uint64]](d, procUpdated),
		info:          dial[call[none], shardapi.Info](d, procInfo),
		partitionInfo: dial[call[string], shardapi.PartitionInfo](d, procPartitionInfo),
		sync:          dial[call[none], none](d, procSync),
		view:          dial[call[shardapi.ViewRequest], viewMessage](d, procView),
		viewInfo:      dial[call[[]string], shardapi.ViewInfo](d, procViewInfo),
		stage:         dial[chunk, shardapi.Staged](d, procStage),
		unstage:       dial[call[string], none](d, procUnstage),
		openBlob:      dial[call[blobRequest], chunk](d, procOpenBlob),
		drop:          dial[call[none], none](d, procDrop),
		tasks:         dial[none, answer[[]shardapi.Task]](d, procTasks),
	}, nil
}

// dialer is what all procedures of one host share.
type dialer struct {
	client *http.Client
	base   string
	opts   []connect.ClientOption
}

func dial[Q, A any](d dialer, proc string) *connect.Client[Q, A] {
	return connect.NewClient[Q, A](d.client, d.base+proc, d.opts...)
}

// ask makes one unary call.
func ask[Q, A any](ctx context.Context, h *Host, c *connect.Client[Q, A], q *Q) (*A, error) {
	resp, err := c.CallUnary(ctx, signed(h, q))
	if err != nil {
		return nil, localError(ctx, err)
	}
	return resp.Msg, nil
}

// signed is a request that proves it comes from the cluster.
func signed[Q any](h *Host, q *Q) *connect.Request[Q] {
	r := connect.NewRequest(q)
	if h.secret != "" {
		r.Header().Set(secretHeader, h.secret)
	}
	return r
}

// Shard implements shardapi.Host.
func (h *Host) Shard(id shardapi.CopyID) shardapi.Shard { return &remote{h, id} }

// Drop implements shardapi.Host.
func (h *Host) Drop(ctx context.Context, id shardapi.CopyID) error {
	_, err := ask(ctx, h, h.drop, &call[none]{Copy: id})
	return err
}

// Tasks implements shardapi.Host.
func (h *Host) Tasks(ctx context.Context) ([]shardapi.Task, error) {
	a, err := ask(ctx, h, h.tasks, &none{})
	if err != nil {
		return nil, err
	}
	return a.Value, nil
}

// remote is one copy on another node.
type remote struct {
	h  *Host
	id shardapi.CopyID
}

// parallel holds the other node to "one answer per question": callers index by it.
func parallel(got, want int) error {
	if got != want {
		return unreachable(fmt.Errorf("noderpc: %d answers to %d questions", got, want))
	}
	return nil
}

// Write implements shardapi.Shard.
func (s *remote) Write(ctx context.Context, req *shardapi.WriteRequest) (*shardapi.WriteResponse, error) {
	a, err := ask(ctx, s.h, s.h.write, &call[shardapi.WriteRequest]{s.id, *req})
	if err != nil {
		return nil, err
	}
	return a, parallel(len(a.Results), len(req.Edits))
}

// Read implements shardapi.Shard.
func (s *remote) Read(ctx context.Context, req *shardapi.ReadRequest) (*shardapi.ReadResponse, error) {
	a, err := ask(ctx, s.h, s.h.read, &call[shardapi.ReadRequest]{s.id, *req})
	if err != nil {
		return nil, err
	}
	return a, parallel(len(a.Answers), len(req.Queries))
}

// RevsDiff implements shardapi.Shard.
func (s *remote) RevsDiff(ctx context.Context, req *shardapi.RevsDiffRequest) (*shardapi.RevsDiffResponse, error) {
	a, err := ask(ctx, s.h, s.h.revsDiff, &call[shardapi.RevsDiffRequest]{s.id, *req})
	if err != nil {
		return nil, err
	}
	return a, parallel(len(a.Diffs), len(req.IDs))
}

// WriteLocal implements shardapi.Shard.
func (s *remote) WriteLocal(ctx context.Context, edit *shardapi.LocalEdit) (model.Rev, error) {
	rev, err := ask(ctx, s.h, s.h.writeLocal, &call[shardapi.LocalEdit]{s.id, *edit})
	if err != nil {
		return model.Rev{}, err
	}
	return *rev, nil
}

// ReadLocal implements shardapi.Shard.
func (s *remote) ReadLocal(ctx context.Context, id string) (*model.Doc, error) {
	return ask(ctx, s.h, s.h.readLocal, &call[string]{s.id, id})
}

// Pending implements shardapi.Shard.
func (s *remote) Pending(ctx context.Context, since uint64) (int64, error) {
	a, err := ask(ctx, s.h, s.h.pending, &call[uint64]{s.id, since})
	if err != nil {
		return 0, err
	}
	return a.Value, nil
}

// Updated implements shardapi.Shard.
func (s *remote) Updated(ctx context.Context, after uint64) (uint64, error) {
	a, err := ask(ctx, s.h, s.h.updated, &call[uint64]{s.id, after})
	if err != nil {
		return 0, err
	}
	return a.Value, nil
}

// Info implements shardapi.Shard.
func (s *remote) Info(ctx context.Context) (*shardapi.Info, error) {
	return ask(ctx, s.h, s.h.info, &call[none]{Copy: s.id})
}

// PartitionInfo implements shardapi.Shard.
func (s *remote) PartitionInfo(ctx context.Context, partition string) (*shardapi.PartitionInfo, error) {
	return ask(ctx, s.h, s.h.partitionInfo, &call[string]{s.id, partition})
}

// Sync implements shardapi.Shard.
func (s *remote) Sync(ctx context.Context) error {
	_, err := ask(ctx, s.h, s.h.sync, &call[none]{Copy: s.id})
	return err
}

// ViewInfo implements shardapi.Shard.
func (s *remote) ViewInfo(ctx context.Context, sigs []string) (*shardapi.ViewInfo, error) {
	return ask(ctx, s.h, s.h.viewInfo, &call[[]string]{s.id, sigs})
}

// Unstage implements shardapi.Shard.
func (s *remote) Unstage(ctx context.Context, ticket string) error {
	_, err := ask(ctx, s.h, s.h.unstage, &call[string]{s.id, ticket})
	return err
}

// Stage implements shardapi.Shard.
func (s *remote) Stage(ctx context.Context, r io.Reader) (*shardapi.Staged, error) {
	// Cancelling is the only way to tell the other side that the bytes end early.
	call, cancel := context.WithCancel(ctx)
	defer cancel()
	out := s.h.stage.CallClientStream(call)
	if s.h.secret != "" {
		out.RequestHeader().Set(secretHeader, s.h.secret)
	}
	buf := chunks.Get().(*[chunkSize]byte)
	defer chunks.Put(buf)
	for {
		n, err := fill(r, buf[:])
		done := err == io.EOF
		if err != nil && !done {
			return nil, fmt.Errorf("stage attachment: %w", err)
		}
		if serr := out.Send(&chunk{Copy: s.id, Data: buf[:n], Done: done}); serr != nil || done {
			break // when sending fails, the answer says why
		}
	}
	resp, err := out.CloseAndReceive()
	if err != nil {
		return nil, localError(ctx, err)
	}
	return resp.Msg, nil
}
