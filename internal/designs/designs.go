// Package designs knows the design documents of every database, taken apart, and
// keeps them until they change.
package designs

import (
	"context"
	"encoding/hex"
	"errors"
	"io"
	"strings"
	"sync/atomic"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/design"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// Service knows the design documents.
type Service struct {
	coord *coordinator.Coordinator
	cache cache
}

// Set is the design documents of one database at one time. It does not change.
type Set struct {
	Docs []*design.Doc // by id; those that cannot be read are left out

	byID   map[string]*design.Doc
	broken map[string]error // why a document cannot be read
	size   int64            // bytes of documents, for the cache

	derived atomic.Pointer[any]
}

// Derive gives what fn makes of a database's set and keeps it with the set; fn must
// be the same at every call. It is for the one who asks at every write.
func (s *Set) Derive(db *cluster.Database, fn func(*cluster.Database, *Set) any) any {
	if made := s.derived.Load(); made != nil {
		return *made
	}
	return s.derive(db, fn)
}

func (s *Set) derive(db *cluster.Database, fn func(*cluster.Database, *Set) any) any {
	made := fn(db, s)
	if !s.derived.CompareAndSwap(nil, &made) {
		return *s.derived.Load() // another was faster
	}
	return made
}

// New makes a Service.
func New(coord *coordinator.Coordinator) *Service {
	return &Service{coord: coord, cache: cache{entries: make(map[[8]byte]*entry), maxEntries: maxEntries, maxBytes: maxBytes}}
}

// All gives the design documents of a database.
func (s *Service) All(ctx context.Context, db *cluster.Database) (*Set, error) {
	if set := s.cache.get(db.Instance); set != nil {
		return set, nil
	}
	return s.cache.load(ctx, db.Instance, func() (*Set, error) { return s.read(ctx, db) })
}

// Get gives one by its id, with or without "_design/". model.ErrMissing or
// model.ErrDeleted when there is none; the error of design.Parse when it cannot be
// read.
func (s *Service) Get(ctx context.Context, db *cluster.Database, id string) (*design.Doc, error) {
	set, err := s.All(ctx, db)
	if err != nil {
		return nil, err
	}
	if !strings.HasPrefix(id, design.Prefix) {
		id = design.Prefix + id
	}
	if d := set.byID[id]; d != nil {
		return d, nil
	}
	if err := set.broken[id]; err != nil {
		return nil, err
	}
	// Only the store knows whether it was there once.
	answer, err := s.coord.ReadOne(ctx, db, shardapi.DocQuery{ID: id}, 0)
	if err != nil {
		return nil, err
	}
	if answer.Found && len(answer.Docs) > 0 && answer.Docs[0].Deleted {
		return nil, model.ErrDeleted
	}
	return nil, model.ErrMissing
}

// Changed forgets what is known of a database: a design document of it was
// written. Whoever asks after the return gets the new state.
func (s *Service) Changed(db *cluster.Database) { s.cache.forget(db.Instance) }

// read reads the design documents of a database.
func (s *Service) read(ctx context.Context, db *cluster.Database) (*Set, error) {
	_, rows, err := s.coord.List(ctx, db, &coordinator.ListRequest{ListRequest: shardapi.ListRequest{
		Table: shardapi.TableDesign, Limit: -1, IncludeDocs: true}})
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	set := &Set{byID: make(map[string]*design.Doc)}
	for {
		batch, err := rows.Next()
		if errors.Is(err, io.EOF) {
			return set, nil
		}
		if err != nil {
			return nil, s.coord.Explain(db, err)
		}
		for i := range batch {
			set.add(&batch[i], db.Partitioned)
		}
	}
}

// add takes in a document. The rows of a list are valid only while it stands there.
func (set *Set) add(row *shardapi.Row, partitioned bool) {
	id := strings.Clone(row.ID)
	if row.Doc == nil {
		return // deleted while the list was on its way; whoever did it says Changed
	}
	body := append([]byte(nil), row.Doc.Body...)
	set.size += int64(len(id) + len(body))
	d, err := design.Parse(id, body, design.Options{Partitioned: partitioned})
	if err != nil {
		if set.broken == nil {
			set.broken = make(map[string]error)
		}
		set.broken[id] = err
		return
	}
	d.Rev = model.Rev{Pos: row.Rev.Pos, Hash: strings.Clone(row.Rev.Hash)}
	set.Docs = append(set.Docs, d)
	set.byID[id] = d
}

// Program gives the program of a design document: what its functions (filters,
// validation, updates, shows, lists) run in. They see the document with its id and
// revision, as in CouchDB.
func Program(db *cluster.Database, d *design.Doc) jsvm.Program {
	// Without attachments to print there is nothing that could fail.
	full, _ := document.Append(make([]byte, 0, len(d.Body)+len(d.ID)+80), &model.Doc{ID: d.ID, Rev: d.Rev, Body: d.Body}, nil)
	return jsvm.Program{Key: programKey(db, d.ID, d.Rev.String()), Design: full}
}

// ViewDef gives the definition of a view as the copies need it. Its program has
// nothing of the design document but the modules of views, so that a new revision
// which leaves them as they are changes nothing.
func ViewDef(db *cluster.Database, d *design.Doc, v *design.View) shardapi.ViewDef {
	return shardapi.ViewDef{
		Sig:           v.Sig,
		Design:        d.ID,
		Name:          v.Name,
		Program:       jsvm.Program{Key: programKey(db, d.ID, "views/"+d.LibHash), Design: d.ViewsDesign},
		Map:           v.Map,
		Reduce:        v.Reduce,
		IncludeDesign: v.IncludeDesign,
		LocalSeq:      v.LocalSeq,
		RawCollation:  v.RawCollation,
		Partitioned:   v.Partitioned,
	}
}

// programKey names a program. The parts before the last are of fixed length or
// without a slash of their own at their end, and the last has no slash but that of
// "views/", which no revision begins with.
func programKey(db *cluster.Database, id, version string) string {
	return hex.EncodeToString(db.Instance[:]) + "/" + id + "/" + version
}
