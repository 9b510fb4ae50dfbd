package coordinator

import (
	"context"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/shardapi"
)

// ViewRequest asks a view of a database.
type ViewRequest struct {
	shardapi.ViewRequest
	Skip int64
}

// ViewHead comes before the rows.
type ViewHead struct {
	TotalRows int64
	Offset    int64    // with Skip counted in
	Seqs      []uint64 // per range, what the indexes are at; nil for a partition
}

// View streams the rows of a view in order, or its groups, reduced over all
// ranges and with final values.
func (c *Coordinator) View(ctx context.Context, db *cluster.Database, req *ViewRequest) (*ViewHead, shardapi.Stream[shardapi.ViewRow], error) {
	panic("not there yet")
}

// ViewInfo gives the state of indexes, per range.
func (c *Coordinator) ViewInfo(ctx context.Context, db *cluster.Database, sigs []string) ([]*shardapi.ViewInfo, error) {
	panic("not there yet")
}
