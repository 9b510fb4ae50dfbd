package noderpc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// faulty is the fault point: a RoundTripper that cuts what goes through it.
type faulty struct {
	next http.RoundTripper
	mu   sync.Mutex
	fate map[string]fate // by procedure
	read map[string]int  // bytes of the last answer that got through, by procedure
}

// fate is what happens to the calls of a procedure.
type fate struct {
	response, request int // bytes that get through; negative: all
	why               error
}

func newFaulty(t *testing.T) *faulty {
	c := NewHTTPClient(nil)
	t.Cleanup(c.CloseIdleConnections)
	return &faulty{next: c.Transport, fate: make(map[string]fate), read: make(map[string]int)}
}

// set decides the fate of a procedure.
func (f *faulty) set(proc string, x fate) {
	f.mu.Lock()
	f.fate[proc] = x
	f.read[proc] = 0
	f.mu.Unlock()
}

// length gives how many bytes the last answer had.
func (f *faulty) length(proc string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.read[proc]
}

// RoundTrip implements http.RoundTripper.
func (f *faulty) RoundTrip(r *http.Request) (*http.Response, error) {
	proc := r.URL.Path
	f.mu.Lock()
	x, cut := f.fate[proc]
	f.mu.Unlock()
	if cut && x.request >= 0 {
		r.Body = &cutBody{ReadCloser: r.Body, left: x.request, why: x.why, seen: func(int) {}}
	}
	resp, err := f.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	left := -1
	if cut {
		left = x.response
	}
	resp.Body = &cutBody{ReadCloser: resp.Body, left: left, why: x.why, seen: func(n int) {
		f.mu.Lock()
		f.read[proc] += n
		f.mu.Unlock()
	}}
	return resp, nil
}

// cutBody lets some bytes through and then fails.
type cutBody struct {
	io.ReadCloser
	left int // negative: all of them
	why  error
	seen func(int)
}

// Read implements io.Reader.
func (b *cutBody) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, b.why
	}
	if b.left > 0 && len(p) > b.left {
		p = p[:b.left]
	}
	n, err := b.ReadCloser.Read(p)
	if b.left > 0 {
		b.left -= n
	}
	b.seen(n)
	return n, err
}

// cuts are the ways in which a connection ends too early. The first is the
// nastiest: to the reader it looks like an orderly end.
var cuts = []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET}

// cutPlaces are places in an answer of n bytes: around the frames at both ends,
// and spread over the rest.
func cutPlaces(n int) []int {
	out := []int{0, 1, 4, 5, 6, 100, n - 1, n - 2, n - 5, n - 20}
	for i := 1; i < 8; i++ {
		out = append(out, n*i/8)
	}
	return out
}

// filled makes a node with documents and an attachment, and a way to it through f.
func filled(t *testing.T, f http.RoundTripper) (shardapi.Shard, model.BlobID) {
	t.Helper()
	n := newNode(t, nil, Options{})
	s := n.host.Shard(1)
	staged, err := s.Stage(t.Context(), bytes.NewReader(bytes.Repeat([]byte("0123456789abcdef"), 1<<16)))
	if err != nil {
		t.Fatal(err)
	}
	edits := []model.Edit{{ID: "att", Body: []byte(`{}`), Atts: []model.AttachmentEdit{{Attachment: model.Attachment{Name: "f"}, Staged: staged.Ticket}}}}
	for i := range 1500 {
		edits = append(edits, model.Edit{ID: fmt.Sprintf("d%05d", i), Body: fmt.Appendf(nil, `{"i":%d}`, i)})
	}
	if _, err := s.Write(t.Context(), &shardapi.WriteRequest{Edits: edits}); err != nil {
		t.Fatal(err)
	}
	return dialNode(t, n.addr, Options{HTTPClient: &http.Client{Transport: f}}).Shard(1), staged.Blob
}

// readings are the streams, each read to its end; what came is told by a number
// that grows with it.
func readings(s shardapi.Shard, blob model.BlobID) map[string]func(context.Context) (int, error) {
	return map[string]func(context.Context) (int, error){
		procList: func(ctx context.Context) (n int, err error) {
			_, rows, err := s.List(ctx, &shardapi.ListRequest{Limit: -1, IncludeDocs: true})
			if err != nil {
				return 0, err
			}
			defer rows.Close()
			for {
				batch, err := rows.Next()
				if err != nil {
					return n, err
				}
				n += len(batch)
			}
		},
		procChanges: func(ctx context.Context) (n int, err error) {
			rows, err := s.Changes(ctx, &shardapi.ChangesRequest{Limit: -1, IncludeDocs: true})
			if err != nil {
				return 0, err
			}
			defer rows.Close()
			for {
				batch, err := rows.Next()
				if err != nil {
					return n, err
				}
				n += len(batch)
				if rows.Seq() > 1501 {
					return n, fmt.Errorf("at %d", rows.Seq())
				}
			}
		},
		procOpenBlob: func(ctx context.Context) (n int, err error) {
			r, err := s.OpenBlob(ctx, blob, 0, -1)
			if err != nil {
				return 0, err
			}
			defer r.Close()
			buf := make([]byte, 10_000)
			for {
				k, err := r.Read(buf)
				n += k
				if err != nil {
					return n, err
				}
			}
		},
	}
}

// A stream that is cut, wherever and however, never ends as if it were whole.
func TestCutStreams(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	s, blob := filled(t, f)
	for proc, read := range readings(s, blob) {
		f.set(proc, fate{response: -1, request: -1})
		whole, err := read(t.Context())
		if err != io.EOF {
			t.Fatalf("%s without a fault: %v", proc, err)
		}
		size := f.length(proc)
		if size < 10_000 {
			t.Fatalf("%s: an answer of %d bytes shows nothing", proc, size)
		}
		for _, why := range cuts {
			for _, at := range cutPlaces(size) {
				f.set(proc, fate{response: at, request: -1, why: why})
				n, err := read(t.Context())
				if err == io.EOF || model.KindOf(err) != model.KindUnavailable {
					t.Errorf("%s cut by %v at %d of %d: %d of %d, %v", proc, why, at, size, n, whole, err)
				}
			}
		}
		f.set(proc, fate{response: -1, request: -1})
		if n, err := read(t.Context()); err != io.EOF || n != whole {
			t.Errorf("%s after the faults: %d of %d, %v", proc, n, whole, err)
		}
	}
}

// stageWatch tells what became of each Stage on the node itself.
type stageWatch struct {
	shardapi.Host
	ended chan error
}

// Shard implements shardapi.Host.
func (w stageWatch) Shard(id shardapi.CopyID) shardapi.Shard {
	return stageWatchShard{w.Host.Shard(id), w.ended}
}

type stageWatchShard struct {
	shardapi.Shard
	ended chan error
}

// Stage implements shardapi.Shard.
func (s stageWatchShard) Stage(ctx context.Context, r io.Reader) (*shardapi.Staged, error) {
	staged, err := s.Shard.Stage(ctx, r)
	s.ended <- err
	return staged, err
}

// Bytes that are cut on their way are not staged, neither here nor there.
func TestCutStage(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	ended := make(chan error, 1)
	n := newNode(t, func(h shardapi.Host) shardapi.Host { return stageWatch{h, ended} }, Options{})
	s := dialNode(t, n.addr, Options{HTTPClient: &http.Client{Transport: f}}).Shard(1)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	c, err := newCodec()
	if err != nil {
		t.Fatal(err)
	}
	first, err := c.Marshal(&chunk{Copy: 1, Data: data[:chunkSize]})
	if err != nil {
		t.Fatal(err)
	}
	message := 5 + len(first) // before its end the copy hears nothing of the call
	for _, why := range cuts {
		// Between two messages a cut looks most like an end.
		for _, at := range []int{0, 3, 1000, message - 1, message, message + 3, message + 1000, 2 * message, 900 << 10, 4 * message} {
			f.set(procStage, fate{response: -1, request: at, why: why})
			staged, err := s.Stage(t.Context(), bytes.NewReader(data))
			if err == nil || model.KindOf(err) == model.KindTooLarge {
				t.Fatalf("cut by %v at %d: %+v, %v", why, at, staged, err)
			}
			if at >= message {
				if err := <-ended; err == nil {
					t.Fatalf("cut by %v at %d: staged on the node", why, at)
				}
			}
		}
	}
	// The answer is lost: the caller must not take it for done.
	for _, at := range []int{0, 3, 40} {
		f.set(procStage, fate{response: at, request: -1, why: io.EOF})
		if staged, err := s.Stage(t.Context(), bytes.NewReader(data)); model.KindOf(err) != model.KindUnavailable {
			t.Fatalf("answer cut at %d: %+v, %v", at, staged, err)
		}
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
	}
	f.set(procStage, fate{response: -1, request: -1})
	if staged, err := s.Stage(t.Context(), bytes.NewReader(data)); err != nil || staged.Length != 1<<20 || <-ended != nil {
		t.Fatalf("after the faults: %+v, %v", staged, err)
	}
}

// A unary answer that is cut is an error, whatever it was.
func TestCutAnswers(t *testing.T) {
	t.Parallel()
	f := newFaulty(t)
	s, _ := filled(t, f)
	ctx := t.Context()
	calls := map[string]func() error{
		procWrite: func() error {
			_, err := s.Write(ctx, &shardapi.WriteRequest{Edits: []model.Edit{{ID: "d00001", Body: []byte(`{}`)}}})
			return err
		},
		procRead: func() error {
			_, err := s.Read(ctx, &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: "d00001"}}})
			return err
		},
		procInfo:    func() error { _, err := s.Info(ctx); return err },
		procPending: func() error { _, err := s.Pending(ctx, 0); return err },
		procUpdated: func() error { _, err := s.Updated(ctx, 0); return err },
		procSync:    func() error { return s.Sync(ctx) },
	}
	for proc, call := range calls {
		if err := call(); err != nil {
			t.Fatalf("%s without a fault: %v", proc, err)
		}
		size := f.length(proc)
		for _, why := range cuts {
			for at := range size {
				f.set(proc, fate{response: at, request: -1, why: why})
				if err := call(); model.KindOf(err) != model.KindUnavailable {
					t.Errorf("%s cut by %v at %d of %d: %v", proc, why, at, size, err)
				}
			}
		}
	}
}

// cutConn is a TCP connection that dies after so many bytes were read from it.
type cutConn struct {
	net.Conn
	left *atomic.Int64
}

// Read implements net.Conn.
func (c cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.left.Add(int64(-n)) < 0 {
		return 0, errors.Join(syscall.ECONNRESET, c.Close())
	}
	return n, err
}

// A connection that dies takes its calls with it, and the next call gets another.
func TestDeadConnections(t *testing.T) {
	t.Parallel()
	var left atomic.Int64
	client := NewHTTPClient(func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		return cutConn{c, &left}, err
	})
	t.Cleanup(client.CloseIdleConnections)
	left.Store(1 << 40)
	s, blob := filled(t, client.Transport)
	for proc, read := range readings(s, blob) {
		for _, at := range []int64{0, 10, 5000, 50_000} {
			left.Store(at)
			if n, err := read(t.Context()); err == io.EOF || model.KindOf(err) != model.KindUnavailable {
				t.Errorf("%s on a connection that died after %d bytes: %d, %v", proc, at, n, err)
			}
			left.Store(1 << 40)
			if _, err := s.Info(t.Context()); err != nil {
				t.Errorf("the call after it: %v", err)
			}
		}
	}
	// An upload notices too, even if nothing more would ever come from its source.
	left.Store(0)
	pr, pw := io.Pipe()
	go func() {
		_, err := io.Copy(pw, io.LimitReader(strings.NewReader(strings.Repeat("x", 4<<20)), 4<<20))
		_ = pw.CloseWithError(err)
	}()
	if staged, err := s.Stage(t.Context(), pr); model.KindOf(err) != model.KindUnavailable {
		t.Errorf("Stage on a dead connection: %+v, %v", staged, err)
	}
	_ = pr.Close()
}

// A node that is not there is out of reach, and says so as such.
func TestNobodyThere(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := dialNode(t, addr, Options{}).Shard(1)
	for proc, read := range readings(s, model.BlobID{}) {
		if _, err := read(t.Context()); model.KindOf(err) != model.KindUnavailable {
			t.Errorf("%s: %v", proc, err)
		}
	}
	if _, err := s.Stage(t.Context(), strings.NewReader("x")); model.KindOf(err) != model.KindUnavailable {
		t.Errorf("Stage: %v", err)
	}
	if err := s.Sync(t.Context()); model.KindOf(err) != model.KindUnavailable {
		t.Errorf("Sync: %v", err)
	}
}
