package shardhost

import (
	"context"

	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// Definitions tells what the design documents of a copy's database define. A
// design document lives in one range; what it defines is for all of them.
type Definitions interface {
	// Of gives the present definitions. It must be cheap: every write asks.
	Of(ctx context.Context, id shardapi.CopyID) (*Defined, error)
}

// Defined is what the design documents of a database define. It does not change.
type Defined struct {
	Partitioned bool // the database is
	Views       []DesignViews
	Validators  []Validator
}

// DesignViews are the views of one design document.
type DesignViews struct {
	Design     string // its id
	AutoUpdate bool
	Views      []shardapi.ViewDef
}

// Validator is a validate_doc_update function.
type Validator struct {
	Design  string
	Program jsvm.Program
	Func    string
	// Err is set for a function that cannot run here: it refuses every edit.
	Err *model.Error
}

// nothingDefined is the answer where there are no definitions.
var nothingDefined = &Defined{}

// defined gives the definitions of a copy.
func (h *Host) defined(ctx context.Context, id shardapi.CopyID) (*Defined, error) {
	if h.opts.Definitions == nil {
		return nothingDefined, nil
	}
	return h.opts.Definitions.Of(ctx, id)
}
