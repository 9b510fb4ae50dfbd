package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/divandb/divan/internal/model"
)

// OpenBlob reads stored attachment bytes from offset; length < 0 means to the end.
func (c *Copy) OpenBlob(_ context.Context, id model.BlobID, offset, length int64) (io.ReadCloser, error) {
	if err := c.alive(); err != nil {
		return nil, err
	}
	row, found, err := c.readBlobRow(&id)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, model.ErrMissingAtt
	}
	if offset < 0 || offset > row.length {
		return nil, &model.Error{Kind: model.KindRange, Name: "requested_range_not_satisfiable", Reason: "Requested range not satisfiable"}
	}
	if length < 0 || length > row.length-offset {
		length = row.length - offset
	}
	if !row.file {
		return c.openInline(&id, offset, length)
	}
	f, err := os.Open(c.blobPath(&id))
	if errors.Is(err, os.ErrNotExist) {
		if _, found, rerr := c.readBlobRow(&id); rerr == nil && !found {
			return nil, model.ErrMissingAtt // compaction came between
		}
		return nil, &model.Error{Kind: model.KindCorruption, Name: "corruption", Reason: "The file of an attachment is missing.", Err: err}
	}
	if err != nil {
		return nil, fmt.Errorf("open attachment: %w", err)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return nil, errors.Join(fmt.Errorf("open attachment: %w", err), f.Close())
	}
	if offset+length == row.length {
		return f, nil
	}
	return &fileRange{LimitedReader: io.LimitedReader{R: f, N: length}, file: f}, nil
}

// openInline reads a small one.
func (c *Copy) openInline(id *model.BlobID, offset, length int64) (io.ReadCloser, error) {
	val, found, err := c.store.Get(c.appendBlobKey(nil, tableInline, id))
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, model.ErrMissingAtt // compaction came between
	}
	defer val.Release()
	b := val.Bytes()
	if int64(len(b)) < offset+length {
		return nil, corrupt("attachment")
	}
	return io.NopCloser(bytes.NewReader(append([]byte(nil), b[offset:offset+length]...))), nil
}

// fileRange is a part of a file. Its WriteTo hands the plain LimitedReader on, as
// that is what the network layer knows how to give to the kernel.
type fileRange struct {
	io.LimitedReader
	file *os.File
}

// WriteTo implements io.WriterTo.
func (f *fileRange) WriteTo(w io.Writer) (int64, error) { return io.Copy(w, &f.LimitedReader) }

// Close closes the file.
func (f *fileRange) Close() error { return f.file.Close() }
