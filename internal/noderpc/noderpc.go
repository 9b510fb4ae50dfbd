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
	"net"
	"net/http"
	"net/netip"
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
	// MaxMessage bounds one message; default 512 MiB (a bulk write is one message).
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

// listMessage is one message of a List: the head first, rows after it.
type listMessage struct {
	Head *shardapi.ListHead
	Rows []shardapi.Row
}

// changesMessage is one batch of a Changes stream.
type changesMessage struct {
	Changes []shardapi.Change
	Seq     uint64
}

// chunk is a piece of an attachment. Done marks the last one of a Stage: a stream
// that ends without it was cut, and its bytes must not be taken for the whole.
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

// codec is CBOR for connect. Ids are taken as the bytes they are: a bound of a
// range need not be valid UTF-8.
type codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

func newCodec() (*codec, error) {
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
}

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

// localError undoes wireError.
func localError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if cerr := ctx.Err(); cerr != nil {
		return cerr
	}
	var ce *connect.Error
	if errors.As(err, &ce) {
		if text := ce.Meta().Get(errorHeader); text != "" {
			data, derr := base64.StdEncoding.DecodeString(text)
			e := &model.Error{}
			if derr == nil && cbor.Unmarshal(data, e) == nil {
				return e
			}
		}
		if ce.Code() == connect.CodeInternal && connect.IsWireError(err) {
			return fmt.Errorf("on another node: %w", err)
		}
	}
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

// NewHTTPClient makes a client for HTTP/2 without TLS. dial may be nil.
func NewHTTPClient(dial func(ctx context.Context, network, addr string) (net.Conn, error)) *http.Client {
	var p http.Protocols
	p.SetUnencryptedHTTP2(true)
	return &http.Client{Transport: &http.Transport{
		Protocols:       &p,
		DialContext:     dial,
		IdleConnTimeout: 90 * time.Second,
	}}
}

// NewHTTPServer makes a server that speaks HTTP/2 without TLS.
func NewHTTPServer(h http.Handler) *http.Server {
	var p http.Protocols
	p.SetHTTP1(true)
	p.SetUnencryptedHTTP2(true)
	return &http.Server{Handler: h, Protocols: &p, ReadHeaderTimeout: 10 * time.Second}
}
