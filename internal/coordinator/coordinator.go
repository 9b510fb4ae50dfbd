// Package coordinator turns one operation on a database into calls on the shard
// copies that hold it, and their answers into one: it splits by range, asks the
// ranges side by side, and puts the answers back in the order of the request or
// merges them in the order of ids. One file per operation. It knows no disk and
// no HTTP: a copy may be in this process or behind noderpc.
//
// Each range has one copy now. Choosing among copies, quorums and read repair
// come into shard and the operations here; nothing above or below changes.
package coordinator

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// Nodes gives the copies of a node: this one's own, or those behind a connection.
type Nodes interface {
	Host(node string) shardapi.Host
}

// Options of a Coordinator.
type Options struct {
	// GzipLevel is how hard compressible attachments are compressed, 1 to 9.
	// Default 6.
	GzipLevel int
	// Compressible decides which content types are stored gzipped. Default:
	// Compressible.
	Compressible func(contentType string) bool
	// JS runs reduce functions over the ranges' reductions.
	JS *jsvm.Pool
}

// Coordinator runs operations over copies.
type Coordinator struct {
	registry cluster.Registry
	nodes    Nodes
	o        Options
	gzips    gzipPool
}

// New makes a Coordinator.
func New(registry cluster.Registry, nodes Nodes, o Options) *Coordinator {
	if o.GzipLevel <= 0 || o.GzipLevel > 9 {
		o.GzipLevel = 6
	}
	if o.Compressible == nil {
		o.Compressible = Compressible
	}
	return &Coordinator{registry: registry, nodes: nodes, o: o}
}

// Shard gives the copy of a range that is asked first.
func (c *Coordinator) Shard(db *cluster.Database, index int) shardapi.Shard {
	first := &db.Shards[index].Copies[0]
	return c.nodes.Host(first.Node).Shard(first.ID)
}

// shardOf gives the copy that holds a document.
func (c *Coordinator) shardOf(db *cluster.Database, docID string) shardapi.Shard {
	return c.Shard(db, db.ShardOf(docID))
}

// Explain turns a copy's refusal into what it means for the database: a closed
// copy of a database that is no longer there (or is another one under the same
// name) is a missing database. All other errors stay as they are.
func (c *Coordinator) Explain(db *cluster.Database, err error) error {
	if err == nil || !errors.Is(err, model.ErrCopyClosed) {
		return err
	}
	now, getErr := c.registry.Get(db.Name)
	if getErr != nil || now.Instance != db.Instance {
		return model.ErrDBNotFound
	}
	return err
}

// each calls do for every range, side by side; the first error by range wins.
func (c *Coordinator) each(ctx context.Context, db *cluster.Database, do func(ctx context.Context, index int, s shardapi.Shard) error) error {
	all := make([]int, len(db.Shards))
	for i := range all {
		all[i] = i
	}
	return c.Explain(db, c.fanOut(ctx, all, func(ctx context.Context, i int) error {
		return do(ctx, i, c.Shard(db, i))
	}))
}

// fanOut runs do for every index side by side, the last in this goroutine, and
// joins nothing: the first error in order is the answer.
func (c *Coordinator) fanOut(ctx context.Context, indexes []int, do func(ctx context.Context, index int) error) error {
	if len(indexes) == 1 {
		return do(ctx, indexes[0])
	}
	errs := make([]error, len(indexes))
	done := make(chan struct{}, len(indexes))
	for n, i := range indexes[:len(indexes)-1] {
		theCrew.run(func() {
			defer func() { done <- struct{}{} }()
			errs[n] = Guard(func() error { return do(ctx, i) })
		})
	}
	last := len(indexes) - 1
	errs[last] = Guard(func() error { return do(ctx, indexes[last]) })
	for range last {
		<-done
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Guard calls do and turns a panic into an error. A panic in a goroutine of ours
// would end the process, where one in a request's own ends only the request;
// those out of the store end the process by themselves.
func Guard(do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = &model.Error{Kind: model.KindInternal, Name: "internal_server_error", Reason: "The operation failed.",
				Err: fmt.Errorf("panic: %v\n%s", r, debug.Stack())}
		}
	}()
	return do()
}
