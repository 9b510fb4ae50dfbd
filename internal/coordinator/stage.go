package coordinator

import (
	"context"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
)

// StageRequest brings the bytes of an attachment ahead of the write that names
// them.
type StageRequest struct {
	DocID       string // decides the range
	Name        string
	ContentType string
	// Encoding is "" for plain bytes, which are gzipped here if their type is
	// compressible, or "gzip" for bytes that are so already and stay as they are.
	Encoding string
	// Length is the identity length of bytes that come encoded; <0: find out.
	Length int64
	// MaxLength bounds that length; 0: it may be any. A few bytes can stand for very
	// many, which would all be unpacked to count them.
	MaxLength int64
	Body      io.Reader
}

// Stage stores the bytes and gives the edit that names them. Bytes that no write
// will name are given up with Unstage.
func (c *Coordinator) Stage(ctx context.Context, db *cluster.Database, req StageRequest) (model.AttachmentEdit, error) {
	edit := model.AttachmentEdit{Attachment: model.Attachment{Name: req.Name, ContentType: req.ContentType, Encoding: req.Encoding}}
	body := req.Body
	var packed *gzipReader
	var plain *gunzipCounter
	switch {
	case req.Encoding == "" && c.o.Compressible(req.ContentType):
		packed = c.gzips.get(req.Body, c.o.GzipLevel)
		body, edit.Encoding = packed, "gzip"
	case req.Encoding != "" && req.Length < 0:
		plain = countGunzipped(req.Body, req.MaxLength)
		defer plain.stop()
		body = plain
	}
	shard := c.shardOf(db, req.DocID)
	staged, err := shard.Stage(ctx, body)
	if err != nil {
		return edit, c.Explain(db, err)
	}
	edit.Staged, edit.Blob, edit.Digest = staged.Ticket, staged.Blob, staged.Digest
	edit.EncodedLength = staged.Length
	switch {
	case packed != nil:
		edit.Length = packed.read
		c.gzips.put(packed) // not after an error: a connection may still read from it
	case plain != nil:
		if edit.Length, err = plain.result(); err != nil {
			return edit, errors.Join(model.BadRequest("The attachment "+req.Name+" is not valid gzip data."), shard.Unstage(ctx, staged.Ticket))
		}
		if req.MaxLength > 0 && edit.Length > req.MaxLength {
			return edit, errors.Join(&model.Error{Kind: model.KindTooLarge, Name: "attachment_too_large", Reason: req.Name}, shard.Unstage(ctx, staged.Ticket))
		}
	case req.Encoding != "":
		edit.Length = req.Length
	default:
		edit.Length = staged.Length
	}
	return edit, nil
}

// Unstage gives up a ticket that no write will name.
func (c *Coordinator) Unstage(ctx context.Context, db *cluster.Database, docID, ticket string) error {
	return c.Explain(db, c.shardOf(db, docID).Unstage(ctx, ticket))
}

// gunzipCounter passes gzipped bytes through and counts what they unpack to, up to one
// more than the most that they may.
type gunzipCounter struct {
	from  io.Reader
	pipe  *io.PipeWriter
	done  chan struct{}
	count int64
	err   error
}

func countGunzipped(from io.Reader, most int64) *gunzipCounter {
	r, w := io.Pipe()
	g := &gunzipCounter{from: from, pipe: w, done: make(chan struct{})}
	go func() {
		defer close(g.done)
		g.err = Guard(func() error {
			zr, err := gzip.NewReader(r)
			if err == nil {
				var unpacked io.Reader = zr
				if most > 0 {
					unpacked = io.LimitReader(zr, most+1)
				}
				g.count, err = io.Copy(io.Discard, unpacked)
			}
			return err
		})
		r.CloseWithError(io.ErrClosedPipe) // a writer must not wait for us any more
	}()
	return g
}

// Read passes bytes on.
func (g *gunzipCounter) Read(p []byte) (int, error) {
	n, err := g.from.Read(p)
	if n > 0 {
		// An error here means that the bytes are no gzip (any more): result says so.
		_, _ = g.pipe.Write(p[:n])
	}
	if err != nil {
		g.stop()
	}
	return n, err
}

// stop tells the counter that no more bytes come.
func (g *gunzipCounter) stop() { g.pipe.Close() }

// result gives the identity length once all bytes have passed.
func (g *gunzipCounter) result() (int64, error) {
	g.stop()
	<-g.done
	return g.count, g.err
}
