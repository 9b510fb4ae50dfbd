package noderpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// ends tells what has ended on the node itself.
type ends struct {
	shardapi.Host
	what chan string
}

// Shard implements shardapi.Host.
func (e ends) Shard(id shardapi.CopyID) shardapi.Shard { return endsShard{e.Host.Shard(id), e.what} }

type endsShard struct {
	shardapi.Shard
	what chan string
}

// List implements shardapi.Shard.
func (s endsShard) List(ctx context.Context, req *shardapi.ListRequest) (*shardapi.ListHead, shardapi.Stream[shardapi.Row], error) {
	head, rows, err := s.Shard.List(ctx, req)
	return head, endsStream[shardapi.Row]{rows, "List", s.what}, err
}

// View implements shardapi.Shard: an endless view, as long as somebody reads it.
func (s endsShard) View(ctx context.Context, _ *shardapi.ViewRequest) (*shardapi.ViewHead, shardapi.Stream[shardapi.ViewRow], error) {
	return &shardapi.ViewHead{}, endsStream[shardapi.ViewRow]{endlessView{ctx}, "View", s.what}, nil
}

// endlessView gives rows until its context ends.
type endlessView struct{ ctx context.Context }

// Next implements shardapi.Stream.
func (v endlessView) Next() ([]shardapi.ViewRow, error) {
	return []shardapi.ViewRow{{Value: make([]byte, 100_000)}}, v.ctx.Err()
}

// Close implements shardapi.Stream.
func (endlessView) Close() error { return nil }

// Changes implements shardapi.Shard.
func (s endsShard) Changes(ctx context.Context, req *shardapi.ChangesRequest) (shardapi.ChangeStream, error) {
	rows, err := s.Shard.Changes(ctx, req)
	return endsChanges{rows, s.what}, err
}

// OpenBlob implements shardapi.Shard.
func (s endsShard) OpenBlob(ctx context.Context, id model.BlobID, offset, length int64) (io.ReadCloser, error) {
	r, err := s.Shard.OpenBlob(ctx, id, offset, length)
	return endsBlob{r, s.what}, err
}

// Updated implements shardapi.Shard.
func (s endsShard) Updated(ctx context.Context, after uint64) (uint64, error) {
	s.what <- "Updated begins"
	seq, err := s.Shard.Updated(ctx, after)
	s.what <- "Updated"
	return seq, err
}

// Stage implements shardapi.Shard.
func (s endsShard) Stage(ctx context.Context, r io.Reader) (*shardapi.Staged, error) {
	staged, err := s.Shard.Stage(ctx, r)
	if err != nil {
		s.what <- "Stage"
	}
	return staged, err
}

type endsStream[T any] struct {
	shardapi.Stream[T]
	name string
	what chan string
}

// Close implements shardapi.Stream.
func (s endsStream[T]) Close() error {
	s.what <- s.name
	return s.Stream.Close()
}

type endsChanges struct {
	shardapi.ChangeStream
	what chan string
}

// Close implements shardapi.Stream.
func (s endsChanges) Close() error {
	s.what <- "Changes"
	return s.ChangeStream.Close()
}

type endsBlob struct {
	io.ReadCloser
	what chan string
}

// Close implements io.Closer.
func (s endsBlob) Close() error {
	s.what <- "OpenBlob"
	return s.ReadCloser.Close()
}

// A caller who leaves ends the work on the other node: nothing stays open there.
func TestLeavingEndsRemoteWork(t *testing.T) {
	t.Parallel()
	what := make(chan string, 10)
	n := newNode(t, func(h shardapi.Host) shardapi.Host { return ends{h, what} }, Options{})
	direct := n.host.Shard(1)
	staged, err := direct.Stage(t.Context(), bytes.NewReader(make([]byte, 32<<20)))
	if err != nil {
		t.Fatal(err)
	}
	edits := []model.Edit{{ID: "a", Body: []byte(`{}`), Atts: []model.AttachmentEdit{{Attachment: model.Attachment{Name: "f"}, Staged: staged.Ticket}}}}
	for i := range 1500 {
		edits = append(edits, model.Edit{ID: fmt.Sprintf("d%05d", i), Body: fmt.Appendf(nil, `{"pad":"%06000d"}`, i)})
	}
	resp, err := direct.Write(t.Context(), &shardapi.WriteRequest{Edits: edits})
	if err != nil {
		t.Fatal(err)
	}
	s := dialNode(t, n.addr, Options{}).Shard(1)
	begin := map[string]func(ctx context.Context) (io.Closer, error){
		"List": func(ctx context.Context) (io.Closer, error) {
			_, rows, err := s.List(ctx, &shardapi.ListRequest{Limit: -1, IncludeDocs: true})
			return rows, err
		},
		"Changes": func(ctx context.Context) (io.Closer, error) {
			return s.Changes(ctx, &shardapi.ChangesRequest{Limit: -1, IncludeDocs: true})
		},
		"View": func(ctx context.Context) (io.Closer, error) {
			_, rows, err := s.View(ctx, &shardapi.ViewRequest{})
			return rows, err
		},
		"OpenBlob": func(ctx context.Context) (io.Closer, error) { return s.OpenBlob(ctx, staged.Blob, 0, -1) },
	}
	for name, open := range begin {
		for _, leave := range []string{"by Close", "by its context"} {
			ctx, cancel := context.WithCancel(t.Context())
			c, err := open(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if leave == "by Close" {
				err = c.Close()
			} else {
				cancel()
			}
			if got := <-what; got != name || err != nil {
				t.Errorf("left %s %s: %s ended, %v", name, leave, got, err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			cancel()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	out := make(chan error, 1)
	go func() {
		_, err := s.Updated(ctx, resp.Seq)
		out <- err
	}()
	if got := <-what; got != "Updated begins" {
		t.Fatal(got)
	}
	cancel()
	if got := <-what; got != "Updated" {
		t.Fatal(got)
	}
	if err := <-out; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	broken := io.MultiReader(bytes.NewReader(make([]byte, 1<<20)), iotest.ErrReader(errors.New("broken")))
	if _, err := s.Stage(t.Context(), broken); err == nil {
		t.Fatal("staged")
	}
	if got := <-what; got != "Stage" {
		t.Fatal(got)
	}
}

// Readers that have stopped reading do not hold up anybody else.
func TestStalledReaders(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil, Options{})
	s := dialNode(t, n.addr, Options{}).Shard(1)
	staged, err := s.Stage(t.Context(), bytes.NewReader(make([]byte, 8<<20)))
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Write(t.Context(), &shardapi.WriteRequest{Edits: []model.Edit{{ID: "a", Body: []byte(`{}`),
		Atts: []model.AttachmentEdit{{Attachment: model.Attachment{Name: "f"}, Staged: staged.Ticket}}}}})
	if err != nil {
		t.Fatal(err)
	}
	for range 50 {
		r, err := s.OpenBlob(t.Context(), staged.Blob, 0, -1)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
	}
	r, err := s.OpenBlob(t.Context(), staged.Blob, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, r); err != nil || n != 8<<20 {
		t.Fatalf("read %d: %v", n, err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}

// failing is a host whose every answer is one error.
type failing struct {
	shardapi.Host
	err error
}

// Shard implements shardapi.Host.
func (f failing) Shard(shardapi.CopyID) shardapi.Shard { return failingShard{err: f.err} }

type failingShard struct {
	shardapi.Shard
	err error
}

// Sync implements shardapi.Shard.
func (f failingShard) Sync(context.Context) error { return f.err }

// List implements shardapi.Shard: the error comes after rows.
func (f failingShard) List(context.Context, *shardapi.ListRequest) (*shardapi.ListHead, shardapi.Stream[shardapi.Row], error) {
	return &shardapi.ListHead{}, &failingRows[shardapi.Row]{err: f.err}, nil
}

// View implements shardapi.Shard: the error comes after rows.
func (f failingShard) View(context.Context, *shardapi.ViewRequest) (*shardapi.ViewHead, shardapi.Stream[shardapi.ViewRow], error) {
	return &shardapi.ViewHead{}, &failingRows[shardapi.ViewRow]{err: f.err}, nil
}

type failingRows[T any] struct {
	err  error
	once bool
}

// Next implements shardapi.Stream.
func (f *failingRows[T]) Next() ([]T, error) {
	if f.once {
		return nil, f.err
	}
	f.once = true
	return make([]T, 1), nil
}

// Close implements shardapi.Stream.
func (f *failingRows[T]) Close() error { return nil }

// Errors cross the wire with their meaning, from calls and in the midst of streams.
func TestErrorsAcross(t *testing.T) {
	t.Parallel()
	fault := errors.New("a fault of ours")
	for _, c := range []struct {
		err, want error
		kind      model.Kind
	}{
		{err: model.ErrConflict, want: model.ErrConflict, kind: model.KindConflict},
		{err: fmt.Errorf("wrapped: %w", model.ErrStorageFull), want: model.ErrStorageFull, kind: model.KindStorageFull},
		{err: model.MissingStub("ä\n\xff\x00", strings.Repeat("n", 100_000)), want: model.MissingStub("ä\n\xff\x00", strings.Repeat("n", 100_000)), kind: model.KindPrecondition},
		{err: &model.Error{Kind: model.KindCorruption, Name: "c", Reason: "r", Err: fault}, want: &model.Error{Kind: model.KindCorruption, Name: "c", Reason: "r"}, kind: model.KindCorruption},
		{err: fault, kind: model.KindInternal},
		{err: io.ErrUnexpectedEOF, kind: model.KindInternal},
		{err: fmt.Errorf("in a body: %w", io.EOF), kind: model.KindInternal},
		{err: context.Canceled, kind: model.KindUnavailable}, // the other side's, not ours
	} {
		h, err := NewHandler(failing{err: c.err}, Options{})
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewUnstartedServer(h)
		srv.Config.Protocols = NewHTTPServer(nil).Protocols
		srv.Start()
		s := dialNode(t, strings.TrimPrefix(srv.URL, "http://"), Options{}).Shard(1)
		check := func(how string, err error) {
			if err == nil || err == io.EOF || model.KindOf(err) != c.kind || c.want != nil && !errors.Is(err, c.want) {
				t.Errorf("%v %s came as %v", c.err, how, err)
			}
		}
		check("of a call", s.Sync(t.Context()))
		_, rows, err := s.List(t.Context(), &shardapi.ListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		afterRows(t, rows, check)
		_, view, err := s.View(t.Context(), &shardapi.ViewRequest{})
		if err != nil {
			t.Fatal(err)
		}
		afterRows(t, view, check)
		srv.Close()
	}
}

// afterRows reads rows and then errors.
func afterRows[T any](t *testing.T, rows shardapi.Stream[T], check func(how string, err error)) {
	t.Helper()
	if batch, err := rows.Next(); err != nil || len(batch) != 1 {
		t.Fatalf("before the error: %v %v", batch, err)
	}
	_, err := rows.Next()
	check("of a stream", err)
	_, err = rows.Next()
	check("asked again", err)
	if err := rows.Close(); err != nil {
		t.Error(err)
	}
}

// What is no slice and what is an empty one stay apart, and bytes stay bytes: the
// copy decides by both.
func TestMessagesUnchanged(t *testing.T) {
	t.Parallel()
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	empty, odd := "", "\xff\x00"
	for _, m := range []any{
		&call[shardapi.ChangesRequest]{7, shardapi.ChangesRequest{DocIDs: nil, Selector: nil}},
		&call[shardapi.ChangesRequest]{7, shardapi.ChangesRequest{Since: 1<<64 - 1, Limit: -1, DocIDs: []string{}, Selector: []byte{}}},
		&call[shardapi.ChangesRequest]{7, shardapi.ChangesRequest{Script: &shardapi.Script{Program: jsvm.Program{Key: odd, Design: []byte("{}")}, Func: "f", Map: true, Req: []byte{}, AllLeaves: true}}},
		&call[shardapi.ViewRequest]{7, shardapi.ViewRequest{
			Def:    shardapi.ViewDef{Sig: odd, Design: "_design/d", Name: odd, Program: jsvm.Program{Key: "k"}, Map: "m", Reduce: "r", IncludeDesign: true, LocalSeq: true, RawCollation: true, Partitioned: true},
			Ranges: []shardapi.KeyRange{{Start: []byte("1"), StartID: odd, HasStartID: true, HasEndID: true, ExclusiveEnd: true}, {End: []byte{}}},
			Update: shardapi.UpdateAfter, Partition: odd, Descending: true, Limit: -1, Reduce: true, GroupLevel: shardapi.GroupExact, Offset: true,
		}},
		&viewMessage{Head: &shardapi.ViewHead{TotalRows: -1, Offset: 2, Seq: 1<<64 - 1}},
		&viewMessage{Rows: []shardapi.ViewRow{{Range: 3, Sort: []byte(odd), Key: []byte("null"), ID: odd, Value: []byte{}}, {}}},
		&call[[]string]{1, []string{odd, ""}},
		&shardapi.ViewInfo{Seq: 1<<64 - 1, CopySeq: 2, SizeFile: 3, SizeActive: 4, SizeExternal: 5, Updating: true, Waiting: 6},
		&answer[[]shardapi.Task]{[]shardapi.Task{{Type: "indexer", Copy: 1, Design: odd}}},
		&call[shardapi.WriteRequest]{1, shardapi.WriteRequest{DB: "d", User: model.User{Name: odd, Roles: []string{"_admin", ""}}, Security: []byte("{}")}},
		&call[shardapi.ListRequest]{1<<64 - 1, shardapi.ListRequest{Start: &empty, End: nil, Limit: -1}},
		&call[shardapi.ListRequest]{0, shardapi.ListRequest{Start: nil, End: &odd, Table: shardapi.TableLocal, Want: 15}},
		&call[shardapi.WriteRequest]{1, shardapi.WriteRequest{Edits: []model.Edit{
			{ID: odd, Body: []byte(`{}`), Atts: []model.AttachmentEdit{{Attachment: model.Attachment{Blob: model.BlobID{1, 2}, Digest: [16]byte{3}, Length: 1 << 60}, Staged: "t", Stub: true}}},
			{Atts: []model.AttachmentEdit{}, Path: []model.Rev{}}, {Body: []byte{}},
		}}},
		&shardapi.WriteResponse{Results: []model.EditResult{{ID: "a", Err: &model.Error{Kind: model.KindConflict, Name: "n", Reason: odd}}, {}}, Seq: 3},
		&shardapi.ReadResponse{Answers: []shardapi.DocAnswer{{Found: true, Docs: []model.Doc{{Path: []model.Rev{{Pos: 1, Hash: odd}}, RevsInfo: []model.RevStatus{{Status: "x"}}}}, Missing: []model.Rev{}}, {}}},
		&listMessage{Head: &shardapi.ListHead{TotalRows: -1}},
		&listMessage{Rows: []shardapi.Row{{ID: "a", Doc: &model.Doc{Body: []byte("{}")}}, {}}},
		&changesMessage{Changes: []shardapi.Change{{Leaves: []model.Leaf{{Deleted: true}}}}, Seq: 9},
		&chunk{Data: []byte{0, 255}, Done: true},
		&answer[[]shardapi.Task]{nil}, &none{},
	} {
		data, err := c.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		got := reflect.New(reflect.TypeOf(m).Elem())
		if err := c.Unmarshal(data, got.Interface()); err != nil {
			t.Fatal(err)
		}
		clear(data) // buffers are used again: nothing may point into them
		if !reflect.DeepEqual(got.Interface(), m) {
			t.Errorf("%+v came as %+v", m, got.Interface())
		}
	}
}

// Without the secret nobody gets in; without any secret only this machine does.
func TestWhoMayCall(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil, Options{Secret: "right"})
	for secret, ok := range map[string]bool{"right": true, "wrong": false, "": false} {
		s := dialNode(t, n.addr, Options{Secret: secret}).Shard(1)
		_, infoErr := s.Info(t.Context())
		_, _, listErr := s.List(t.Context(), &shardapi.ListRequest{Limit: -1})
		_, stageErr := s.Stage(t.Context(), bytes.NewReader(make([]byte, 1<<20)))
		for _, err := range []error{infoErr, listErr, stageErr} {
			if ok && err != nil || !ok && model.KindOf(err) != model.KindUnavailable {
				t.Errorf("secret %q: %v", secret, err)
			}
		}
	}
	open, err := NewHandler(n.host, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for from, status := range map[string]int{
		"127.0.0.1:9": 200, "[::1]:9": 200, "[::ffff:127.0.0.1]:9": 200,
		"192.0.2.1:9": 403, "[2001:db8::1]:9": 403, "": 403, "@": 403,
	} {
		r := httptest.NewRequest(http.MethodPost, procTasks, bytes.NewReader([]byte{0xa0}))
		r.Header.Set("Content-Type", "application/cbor")
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		open.ServeHTTP(w, r)
		if w.Code != status {
			t.Errorf("from %q: %d", from, w.Code)
		}
	}
}

// A message over the limit is refused as such by whoever meets it first.
func TestMessageLimit(t *testing.T) {
	t.Parallel()
	n := newNode(t, nil, Options{MaxMessage: 100_000})
	write := func(s shardapi.Shard, id string, size int) error {
		_, err := s.Write(t.Context(), &shardapi.WriteRequest{Edits: []model.Edit{{ID: id, Body: fmt.Appendf(nil, `{"x":"%0*d"}`, size, 1)}}})
		return err
	}
	for name, o := range map[string]Options{"here": {MaxMessage: 100_000}, "there": {}} {
		s := dialNode(t, n.addr, o).Shard(1)
		if err := write(s, name, 200_000); model.KindOf(err) != model.KindTooLarge {
			t.Errorf("refused %s: %v", name, err)
		}
		if err := write(s, name, 1000); err != nil {
			t.Errorf("after it: %v", err)
		}
	}
	if err := write(n.host.Shard(1), "large", 200_000); err != nil {
		t.Fatal(err)
	}
	s := dialNode(t, n.addr, Options{}).Shard(1)
	_, err := s.Read(t.Context(), &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: "large", Want: shardapi.WantBody}}})
	if model.KindOf(err) != model.KindTooLarge {
		t.Errorf("an answer over the limit: %v", err)
	}
}
