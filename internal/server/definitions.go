package server

import (
	"context"
	"sync/atomic"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/design"
	"github.com/divandb/divan/internal/designs"
	"github.com/divandb/divan/internal/model"
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

// errNotReady is the answer to whoever asks before the start has come so far.
var errNotReady = &model.Error{Kind: model.KindUnavailable, Name: "service_unavailable", Reason: "The server is starting."}

// Of implements shardhost.Definitions. Every write asks, so what the design
// documents define is made of them once and kept with them.
func (d *definitions) Of(ctx context.Context, id shardapi.CopyID) (*shardhost.Defined, error) {
	registry, known := d.registry.Load(), d.designs.Load()
	if registry == nil || known == nil {
		return nil, errNotReady
	}
	db, ok := registry.ByCopy(id)
	if !ok {
		return nil, model.ErrCopyClosed // its database is deleted
	}
	set, err := known.All(ctx, db)
	if err != nil {
		return nil, err
	}
	return set.Derive(db, defined).(*shardhost.Defined), nil
}

// defined puts together what design documents define.
func defined(db *cluster.Database, set *designs.Set) any {
	out := &shardhost.Defined{Partitioned: db.Partitioned}
	for _, doc := range set.Docs {
		if len(doc.Views) > 0 {
			views := shardhost.DesignViews{Design: doc.ID, AutoUpdate: doc.AutoUpdate, Views: make([]shardapi.ViewDef, len(doc.Views))}
			for i := range doc.Views {
				views.Views[i] = designs.ViewDef(db, doc, &doc.Views[i])
			}
			out.Views = append(out.Views, views)
		}
		if doc.Validate == "" {
			continue
		}
		validator := shardhost.Validator{Design: doc.ID, Func: doc.Validate}
		if doc.Language == design.JavaScript {
			validator.Program = designs.Program(db, doc)
		} else {
			// It was written to keep something out; letting everything in is not ours to choose.
			validator.Err = design.UnknownLanguage(doc.Language)
		}
		out.Validators = append(out.Validators, validator)
	}
	return out
}

// changed hears that a design document of a copy was written. It is for all copies
// of its database.
func (d *definitions) changed(id shardapi.CopyID) {
	registry, known, host := d.registry.Load(), d.designs.Load(), d.host.Load()
	if registry == nil || known == nil || host == nil {
		return // nothing is known yet
	}
	db, ok := registry.ByCopy(id)
	if !ok {
		return
	}
	known.Changed(db)
	for i := range db.Shards {
		for k := range db.Shards[i].Copies {
			if c := &db.Shards[i].Copies[k]; c.Node == registry.Self() {
				host.DesignsChanged(c.ID)
			}
		}
	}
}

// name gives the database of a copy, for the log.
func (d *definitions) name(id shardapi.CopyID) string {
	if r := d.registry.Load(); r != nil {
		if db, ok := r.ByCopy(id); ok {
			return db.Name
		}
	}
	return ""
}
