// Package designs knows the design documents of every database, taken apart, and
// keeps them until they change.
package designs

import (
	"context"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/design"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/shardapi"
)

// Service knows the design documents.
type Service struct {
	coord *coordinator.Coordinator
}

// Set is the design documents of one database at one time. It does not change.
type Set struct {
	Docs []*design.Doc // by id; those that cannot be read are left out
}

// New makes a Service.
func New(coord *coordinator.Coordinator) *Service { return &Service{coord: coord} }

// All gives the design documents of a database.
func (s *Service) All(ctx context.Context, db *cluster.Database) (*Set, error) { panic("not there yet") }

// Get gives one by its id, with or without "_design/". model.ErrMissing or
// model.ErrDeleted when there is none; the error of design.Parse when it cannot be
// read.
func (s *Service) Get(ctx context.Context, db *cluster.Database, id string) (*design.Doc, error) {
	panic("not there yet")
}

// Changed forgets what is known of a database: a design document of it was
// written. Whoever asks after the return gets the new state.
func (s *Service) Changed(db *cluster.Database) { panic("not there yet") }

// Program gives the program of a design document: what its functions (filters,
// validation, updates, shows, lists) run in.
func Program(db *cluster.Database, d *design.Doc) jsvm.Program { panic("not there yet") }

// ViewDef gives the definition of a view as the copies need it.
func ViewDef(db *cluster.Database, d *design.Doc, v *design.View) shardapi.ViewDef {
	panic("not there yet")
}
