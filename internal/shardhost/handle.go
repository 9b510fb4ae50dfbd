package shardhost

import (
	"context"
	"errors"
	"io"
	"sync"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shard"
	"github.com/divandb/divan/internal/shardapi"
)

var (
	_ shardapi.Host  = (*Host)(nil)
	_ shardapi.Shard = handle{}
)

// handle is the Shard of a copy. It finds the copy anew at every call, so that
// holding a handle keeps nothing open.
type handle struct {
	h  *Host
	id shardapi.CopyID
}

// Shard gives the handle of a copy.
func (h *Host) Shard(id shardapi.CopyID) shardapi.Shard { return handle{h, id} }

// use runs fn on the open copy.
func use[T any](s handle, fn func(c *shard.Copy) (T, error)) (T, error) {
	e, err := s.h.acquire(s.id)
	if err != nil {
		var zero T
		return zero, err
	}
	defer e.release()
	return fn(e.copy)
}

// Write implements shardapi.Shard.
func (s handle) Write(ctx context.Context, req *shardapi.WriteRequest) (*shardapi.WriteResponse, error) {
	return use(s, func(c *shard.Copy) (*shardapi.WriteResponse, error) { return s.checkedWrite(ctx, c, req) })
}

// Read implements shardapi.Shard.
func (s handle) Read(ctx context.Context, req *shardapi.ReadRequest) (*shardapi.ReadResponse, error) {
	return use(s, func(c *shard.Copy) (*shardapi.ReadResponse, error) { return c.Read(ctx, req) })
}

// RevsDiff implements shardapi.Shard.
func (s handle) RevsDiff(ctx context.Context, req *shardapi.RevsDiffRequest) (*shardapi.RevsDiffResponse, error) {
	return use(s, func(c *shard.Copy) (*shardapi.RevsDiffResponse, error) { return c.RevsDiff(ctx, req) })
}

// WriteLocal implements shardapi.Shard.
func (s handle) WriteLocal(ctx context.Context, edit *shardapi.LocalEdit) (model.Rev, error) {
	return use(s, func(c *shard.Copy) (model.Rev, error) { return c.WriteLocal(ctx, edit) })
}

// ReadLocal implements shardapi.Shard.
func (s handle) ReadLocal(ctx context.Context, id string) (*model.Doc, error) {
	return use(s, func(c *shard.Copy) (*model.Doc, error) { return c.ReadLocal(ctx, id) })
}

// List implements shardapi.Shard.
func (s handle) List(ctx context.Context, req *shardapi.ListRequest) (*shardapi.ListHead, shardapi.Stream[shardapi.Row], error) {
	e, err := s.h.acquire(s.id)
	if err != nil {
		return nil, nil, err
	}
	head, rows, err := e.copy.List(ctx, req)
	if err != nil {
		e.release()
		return nil, nil, err
	}
	return head, &held[shardapi.Row]{Stream: rows, entry: e}, nil
}

// Changes implements shardapi.Shard.
func (s handle) Changes(ctx context.Context, req *shardapi.ChangesRequest) (shardapi.ChangeStream, error) {
	if req.Script != nil {
		return s.scriptedChanges(ctx, req)
	}
	e, err := s.h.acquire(s.id)
	if err != nil {
		return nil, err
	}
	rows, err := e.copy.Changes(ctx, req)
	if err != nil {
		e.release()
		return nil, err
	}
	return &heldChanges{held: held[shardapi.Change]{Stream: rows, entry: e}, at: rows}, nil
}

// Pending implements shardapi.Shard.
func (s handle) Pending(ctx context.Context, since uint64) (int64, error) {
	return use(s, func(c *shard.Copy) (int64, error) { return c.Pending(ctx, since) })
}

// Updated implements shardapi.Shard.
func (s handle) Updated(ctx context.Context, after uint64) (uint64, error) {
	return use(s, func(c *shard.Copy) (uint64, error) { return c.Updated(ctx, after) })
}

// Info implements shardapi.Shard.
func (s handle) Info(ctx context.Context) (*shardapi.Info, error) {
	return use(s, func(c *shard.Copy) (*shardapi.Info, error) { return c.Info(ctx) })
}

// PartitionInfo implements shardapi.Shard.
func (s handle) PartitionInfo(ctx context.Context, partition string) (*shardapi.PartitionInfo, error) {
	return use(s, func(c *shard.Copy) (*shardapi.PartitionInfo, error) { return c.PartitionInfo(ctx, partition) })
}

// Sync implements shardapi.Shard.
func (s handle) Sync(ctx context.Context) error {
	_, err := use(s, func(c *shard.Copy) (struct{}, error) { return struct{}{}, c.Sync(ctx) })
	return err
}

// Stage implements shardapi.Shard.
func (s handle) Stage(ctx context.Context, r io.Reader) (*shardapi.Staged, error) {
	return use(s, func(c *shard.Copy) (*shardapi.Staged, error) { return c.Stage(ctx, r) })
}

// Unstage implements shardapi.Shard.
func (s handle) Unstage(ctx context.Context, ticket string) error {
	_, err := use(s, func(c *shard.Copy) (struct{}, error) { return struct{}{}, c.Unstage(ctx, ticket) })
	return err
}

// OpenBlob implements shardapi.Shard. An open file outlives even a dropped copy,
// so the copy need not be held.
func (s handle) OpenBlob(ctx context.Context, id model.BlobID, offset, length int64) (io.ReadCloser, error) {
	return use(s, func(c *shard.Copy) (io.ReadCloser, error) { return c.OpenBlob(ctx, id, offset, length) })
}

// held is a stream that keeps its copy open until its end.
type held[T any] struct {
	shardapi.Stream[T]
	entry *entry
	once  sync.Once
}

// Next gives the next batch; at the end, and after an error, the copy is let go.
func (h *held[T]) Next() ([]T, error) {
	batch, err := h.Stream.Next()
	if err != nil {
		if cerr := h.Close(); cerr != nil && errors.Is(err, io.EOF) {
			err = cerr
		}
	}
	return batch, err
}

// Close ends the stream.
func (h *held[T]) Close() error {
	err := h.Stream.Close()
	h.once.Do(h.entry.release)
	return err
}

// heldChanges adds what a ChangeStream has more.
type heldChanges struct {
	held[shardapi.Change]
	at shardapi.ChangeStream
}

// Seq tells how far the stream has come.
func (h *heldChanges) Seq() uint64 { return h.at.Seq() }
