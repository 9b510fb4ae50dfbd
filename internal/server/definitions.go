package server

import (
	"context"
	"sync/atomic"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/designs"
	"github.com/divandb/divan/internal/shardapi"
	"github.com/divandb/divan/internal/shardhost"
)

// definitions tells the copies what the design documents of their databases
// define. The copies are opened before anything that can read a design document
// is, so its parts are named late; nobody asks before all are there.
type definitions struct {
	registry atomic.Pointer[cluster.Local]
	host     atomic.Pointer[shardhost.Host]
	designs  atomic.Pointer[designs.Service]
}

func newDefinitions() *definitions { return &definitions{} }

// own names the copies and the registry that knows them.
func (d *definitions) own(registry *cluster.Local, host *shardhost.Host) {
	d.registry.Store(registry)
	d.host.Store(host)
}

// bind names what reads design documents.
func (d *definitions) bind(known *designs.Service) { d.designs.Store(known) }

// Of implements shardhost.Definitions.
func (d *definitions) Of(ctx context.Context, id shardapi.CopyID) (*shardhost.Defined, error) {
	panic("not there yet")
}

// changed hears that a design document of a copy was written.
func (d *definitions) changed(id shardapi.CopyID) {
	panic("not there yet")
}
