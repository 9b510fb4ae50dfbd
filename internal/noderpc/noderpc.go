// Package noderpc carries shardapi between nodes: connect over HTTP/2, plain
// net/http on both sides, so that a RoundTripper is the place where tests cut,
// delay and drop. Messages are the structs of shardapi and model as they are, in
// CBOR: there is no generated code and no second vocabulary to keep in step.
//
// An error that means something to a client (*model.Error) arrives as the same
// kind, name and reason; whatever else goes wrong on the way is KindUnavailable,
// which is what a copy out of reach is to its caller.
package noderpc

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/fxamacker/cbor/v2"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// Options configures both ends.
type Options struct {
	// Secret is shared by the nodes of a cluster. There is no default: without one
	// the handler answers callers on loopback only.
	Secret string
	// HTTPClient makes the calls; default NewHTTPClient(nil).
	HTTPClient *http.Client
	// MaxMessage bounds one message, sent or received; default 512 MiB (a bulk
	// write is one message). What is larger fails with KindTooLarge.
	MaxMessage int
}

const defaultMaxMessage = 512 << 20

func (o Options) maxMessage() int {
	if o.MaxMessage > 0 {
		return o.MaxMessage
	}
	return defaultMaxMessage
}

// prefix is the path under which the procedures live.
const prefix = "/divan.shard.v1/"

// The procedures.
const (
	procWrite         = prefix + "Write"
	procRead          = prefix + "Read"
	procRevsDiff      = prefix + "RevsDiff"
	procWriteLocal    = prefix + "WriteLocal"
	procReadLocal     = prefix + "ReadLocal"
	procList          = prefix + "List"
	procChanges       = prefix + "Changes"
	procPending       = prefix + "Pending"
	procUpdated       = prefix + "Updated"
	procInfo          = prefix + "Info"
	procPartitionInfo = prefix + "PartitionInfo"
	procSync          = prefix + "Sync"
	procView          = prefix + "View"
	procViewInfo      = prefix + "ViewInfo"
	procStage         = prefix + "Stage"
	procUnstage       = prefix + "Unstage"
	procOpenBlob      = prefix + "OpenBlob"
	procDrop          = prefix + "Drop"
	procTasks         = prefix + "Tasks"
)

// call is a request to one copy.
type call[T any] struct {
	Copy shardapi.CopyID
	Req  T
}

// answer wraps results that are no struct.
type answer[T any] struct {
	Value T
}

// none is an empty message.
type none struct{}

// rowsMessage is one message of a stream that has a head: the head first, rows
// after it.
type rowsMessage[H, R any] struct {
	Head *H
	Rows []R
}

// The messages of List and View.
type (
	listMessage = rowsMessage[shardapi.ListHead, shardapi.Row]
	viewMessage = rowsMessage[shardapi.ViewHead, shardapi.ViewRow]
)

// changesMessage is one batch of a Changes stream.
type changesMessage struct {
	Changes []shardapi.Change
	Seq     uint64
}

// chunk is a piece of an attachment. Done marks the last one: a stream that ends
// without it was cut, and its bytes must not be taken for the whole.
type chunk struct {
	Copy shardapi.CopyID
	Data []byte
	Done bool
}

// blobRequest asks for stored bytes.
type blobRequest struct {
	Blob           model.BlobID
	Offset, Length int64
}

// chunkSize is how much of an attachment travels in one message.
const chunkSize = 256 << 10

// chunks are buffers of that size: most attachments are far smaller.
var chunks = sync.Pool{New: func() any { return new([chunkSize]byte) }}

// fill reads until buf is full. Unlike io.ReadFull it hands on the reader's own
// error, so that io.ErrUnexpectedEOF (the source was cut) is not taken for its end.
func fill(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var k int
		k, err = r.Read(buf[n:])
		n += k
	}
	return n, err
}

// codec is CBOR for connect. Ids are taken as the bytes they are: a bound of a
// range need not be valid UTF-8.
type codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

// newCodec makes the codec, once: it is without state.
var newCodec = sync.OnceValues(func() (*codec, error) {
	enc, err := cbor.EncOptions{}.EncMode()
	if err != nil {
		return nil, fmt.Errorf("noderpc: %w", err)
	}
	dec, err := cbor.DecOptions{
		UTF8:             cbor.UTF8DecodeInvalid,
		MaxArrayElements: 1 << 26,
		MaxMapPairs:      1 << 20,
	}.DecMode()
	if err != nil {
		return nil, fmt.Errorf("noderpc: %w", err)
	}
	return &codec{enc, dec}, nil
})

// Name implements connect.Codec.
func (*codec) Name() string { return "cbor" }

// Marshal implements connect.Codec.
func (c *codec) Marshal(v any) ([]byte, error) { return c.enc.Marshal(v) }

// Unmarshal implements connect.Codec.
func (c *codec) Unmarshal(data []byte, v any) error { return c.dec.Unmarshal(data, v) }

// errorHeader carries a *model.Error.
const errorHeader = "Divan-Error"

// secretHeader carries the shared secret.
const secretHeader = "Divan-Secret"

// wireError makes err fit for the wire.
func wireError(err error) error {
	if err == nil {
		return nil
	}
	var e *model.Error
	if !errors.As(err, &e) {
		switch {
		case errors.Is(err, context.Canceled):
			return connect.NewError(connect.CodeCanceled, err)
		case errors.Is(err, context.DeadlineExceeded):
			return connect.NewError(connect.CodeDeadlineExceeded, err)
		}
		return connect.NewError(connect.CodeInternal, err)
	}
	data, merr := cbor.Marshal(e)
	if merr != nil {
		return connect.NewError(connect.CodeInternal, errors.Join(err, merr))
	}
	ce := connect.NewError(connect.CodeUnknown, err)
	ce.Meta().Set(errorHeader, base64.StdEncoding.EncodeToString(data))
	return ce
}

// localError undoes wireError. A caller who gave up hears why he did, as he would
// from a copy in his own process, not how the transport put it.
func localError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var ce *connect.Error
	if !errors.As(err, &ce) {
		return unreachable(err)
	}
	if text := ce.Meta().Get(errorHeader); text != "" {
		e, derr := decodeError(text)
		if derr != nil {
			return unreachable(errors.Join(err, derr))
		}
		return e
	}
	switch ce.Code() {
	case connect.CodeInternal:
		if connect.IsWireError(err) {
			return fmt.Errorf("on another node: %w", err)
		}
	case connect.CodeResourceExhausted:
		return &model.Error{Kind: model.KindTooLarge, Name: "too_large", Reason: "The request or its answer is larger than nodes may send each other.", Err: err}
	case connect.CodeDeadlineExceeded:
		// The deadline travels with the call, and the other clock may be first.
		if _, set := ctx.Deadline(); set {
			return context.DeadlineExceeded
		}
	}
	return unreachable(err)
}

// decodeError reads the header of an error. Like ids, its words are taken as the
// bytes they are.
func decodeError(text string) (*model.Error, error) {
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		return nil, err
	}
	c, err := newCodec()
	if err != nil {
		return nil, err
	}
	e := new(model.Error)
	return e, c.Unmarshal(data, e)
}

// unreachable is the error of a copy that did not answer, or not to the end.
func unreachable(err error) *model.Error {
	return &model.Error{Kind: model.KindUnavailable, Name: "nodedown", Reason: "A copy of the data cannot be reached.", Err: err}
}

// permit refuses callers who do not belong to the cluster.
func permit(secret string, next http.Handler) http.Handler {
	want := sha256.Sum256([]byte(secret))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ok := false
		if secret != "" {
			got := sha256.Sum256([]byte(r.Header.Get(secretHeader)))
			ok = subtle.ConstantTimeCompare(got[:], want[:]) == 1
		} else if peer, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
			ok = peer.Addr().Unmap().IsLoopback()
		}
		if !ok {
			http.Error(w, "this port is for the nodes of the cluster", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// What keeps a connection between nodes healthy.
const (
	dialTimeout = 5 * time.Second
	// A peer that has gone without a word is noticed by pings: without them a
	// stream from it would wait for ever.
	pingAfter   = 15 * time.Second
	pingTimeout = 10 * time.Second
	// The client's window of a connection is 1 GiB. With at most maxStreams
	// streams of streamWindow each, readers that have stopped reading cannot use
	// it up, and so cannot hold up the other calls on the connection.
	maxStreams   = 1000
	streamWindow = 1 << 20
	// connWindow is the server's window for requests, just under what net/http takes.
	connWindow = 4<<20 - 1
)

// NewHTTPClient makes a client for HTTP/2 without TLS. dial may be nil.
func NewHTTPClient(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Client {
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{
		Protocols:          &p,
		DialContext:        dial,
		IdleConnTimeout:    90 * time.Second,
		DisableCompression: true,
		HTTP2: &http.HTTP2Config{
			MaxReceiveBufferPerStream: streamWindow,
			SendPingTimeout:           pingAfter,
			PingTimeout:               pingTimeout,
		},
	}}
}

// NewHTTPServer makes a server that speaks HTTP/2 without TLS, and nothing else:
// a browser, which another page could send here, does not speak it.
func NewHTTPServer(h http.Handler) *http.Server {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &http.Server{Handler: h, Protocols: &p, ReadHeaderTimeout: 10 * time.Second,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams:          maxStreams,
			MaxReceiveBufferPerStream:     streamWindow,
			MaxReceiveBufferPerConnection: connWindow,
			SendPingTimeout:               pingAfter,
			PingTimeout:                   pingTimeout,
		}}
}
