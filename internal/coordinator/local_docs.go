package coordinator

import (
	"context"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// WriteLocal writes a _local document.
func (c *Coordinator) WriteLocal(ctx context.Context, db *cluster.Database, edit *shardapi.LocalEdit) (model.Rev, error) {
	rev, err := c.shardOf(db, edit.ID).WriteLocal(ctx, edit)
	return rev, c.Explain(db, err)
}

// ReadLocal reads one; model.ErrMissing if there is none.
func (c *Coordinator) ReadLocal(ctx context.Context, db *cluster.Database, id string) (*model.Doc, error) {
	doc, err := c.shardOf(db, id).ReadLocal(ctx, id)
	return doc, c.Explain(db, err)
}
