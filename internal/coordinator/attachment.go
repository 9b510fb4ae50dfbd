package coordinator

import (
	"context"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
)

// OpenAttachment reads an attachment's bytes as they are stored, from offset;
// length < 0 means to the end.
func (c *Coordinator) OpenAttachment(ctx context.Context, db *cluster.Database, docID string, att *model.Attachment, offset, length int64) (io.ReadCloser, error) {
	r, err := c.shardOf(db, docID).OpenBlob(ctx, att.Blob, offset, length)
	return r, c.Explain(db, err)
}

// OpenIdentity reads an attachment's bytes as they were before any encoding, from
// offset; length < 0 means to the end.
func (c *Coordinator) OpenIdentity(ctx context.Context, db *cluster.Database, docID string, att *model.Attachment, offset, length int64) (io.ReadCloser, error) {
	if att.Encoding == "" {
		return c.OpenAttachment(ctx, db, docID, att, offset, length)
	}
	stored, err := c.OpenAttachment(ctx, db, docID, att, 0, -1)
	if err != nil {
		return nil, err
	}
	zr, err := gzip.NewReader(stored)
	if err == nil && offset > 0 {
		_, err = io.CopyN(io.Discard, zr, offset)
	}
	if err != nil {
		return nil, errors.Join(err, stored.Close())
	}
	out := &identityReader{Reader: zr, stored: stored}
	if length >= 0 {
		out.Reader = io.LimitReader(zr, length)
	}
	return out, nil
}

// identityReader unpacks stored bytes.
type identityReader struct {
	io.Reader
	stored io.Closer
}

// Close closes the stored bytes.
func (r *identityReader) Close() error { return r.stored.Close() }

// CopyAttachments makes the attachments of one document usable in a write of
// another: within a range they are named by their blob, to another range their
// bytes are staged. After an error nothing stays staged.
func (c *Coordinator) CopyAttachments(ctx context.Context, db *cluster.Database, fromID string, atts []model.Attachment, toID string) ([]model.AttachmentEdit, error) {
	out := make([]model.AttachmentEdit, len(atts))
	same := db.ShardOf(fromID) == db.ShardOf(toID)
	for i := range atts {
		out[i].Attachment = atts[i]
		out[i].RevPos = 0 // the copy's history is its own
		if same {
			continue
		}
		ticket, err := c.copyBlob(ctx, db, fromID, &atts[i], toID)
		if err != nil {
			errs := []error{err}
			for _, staged := range out[:i] {
				errs = append(errs, c.Unstage(ctx, db, toID, staged.Staged))
			}
			return nil, errors.Join(errs...)
		}
		out[i].Staged = ticket
	}
	return out, nil
}

// copyBlob streams stored bytes from one range into a Stage on another.
func (c *Coordinator) copyBlob(ctx context.Context, db *cluster.Database, fromID string, att *model.Attachment, toID string) (string, error) {
	r, err := c.OpenAttachment(ctx, db, fromID, att, 0, -1)
	if err != nil {
		return "", err
	}
	defer r.Close()
	staged, err := c.shardOf(db, toID).Stage(ctx, r)
	if err != nil {
		return "", c.Explain(db, err)
	}
	return staged.Ticket, nil
}
