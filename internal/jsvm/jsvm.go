// Package jsvm runs the JavaScript of design documents. It is the only importer
// of the JavaScript engine. Scripts run in worker processes of the same binary
// (`divan js-worker`), many documents per message, so that a script that runs
// away takes a worker with it and never the server: every call has a time limit
// and every worker a memory limit, and a worker that passes either is killed and
// replaced. Programs with different keys never share an engine, and so neither
// globals nor prototypes nor caches.
package jsvm

import (
	"errors"
	"fmt"

	"github.com/divandb/divan/internal/model"
)

// Program is the code of one design document of one database. Key names it:
// programs with the same key must have the same Design, and may share an engine.
type Program struct {
	Key    string
	Design []byte // the design document (normalised JSON object), from which require reads
}

// Source is a function to be checked.
type Source struct {
	Func string
}

// Emitted is what one map function made of one document.
type Emitted struct {
	Rows []byte // JSON [[key,value],…]; nil when nothing was emitted
	Err  error  // the function threw (*Thrown) or ran away (*Killed); Rows is nil then
}

// ReduceCall is one call of a reduce function.
type ReduceCall struct {
	Keys     []byte // JSON [[key,id],…]; nil with Rereduce
	Values   []byte // JSON array
	Rereduce bool
}

// Reduced is what a reduce function made of one call.
type Reduced struct {
	Value []byte // JSON
	Err   error  // *Thrown or *Killed
}

// Verdict is what a filter function said of one document.
type Verdict struct {
	Pass bool
	Err  error // *Thrown or *Killed
}

// ValidateCall is one call of a validation function; all fields are JSON.
type ValidateCall struct {
	NewDoc, OldDoc, UserCtx, Security []byte // OldDoc nil: null
}

// Thrown is an exception of a script.
type Thrown struct {
	Name   string // "forbidden", "unauthorized", or what sort of error it is: "TypeError", "error", …
	Reason string
}

// Error implements error.
func (t *Thrown) Error() string { return t.Name + ": " + t.Reason }

// Killed is the end of a script that passed a limit.
type Killed struct {
	Reason string // for a person: which limit, and its value
	// Skipped says that it was not run at all, since others of the same call passed
	// a limit so often that the rest was not worth the wait.
	Skipped bool
}

// Error implements error.
func (k *Killed) Error() string { return fmt.Sprintf("the script was stopped: %s", k.Reason) }

// ErrClosed is the answer of a closed pool.
var ErrClosed = errors.New("the JavaScript workers are stopped")

// thrownKinds are the names by which a script says what sort of refusal it means.
var thrownKinds = map[string]model.Kind{
	"forbidden":      model.KindForbidden,
	"unauthorized":   model.KindUnauthorized,
	"not_found":      model.KindNotFound,
	"not_acceptable": model.KindNotAcceptable,
	"bad_request":    model.KindBadRequest,
}

// ClientError puts the failure of a function into words for the client; what is the
// function ("filter", "show"). An error that is no script's stays as it is.
func ClientError(what string, err error) error {
	var thrown *Thrown
	var killed *Killed
	switch {
	case errors.As(err, &thrown):
		// A name that is not in the table has the zero kind: a fault.
		return &model.Error{Kind: thrownKinds[thrown.Name], Name: thrown.Name, Reason: thrown.Reason}
	case errors.As(err, &killed):
		return &model.Error{Kind: model.KindInternal, Name: "script_stopped",
			Reason: "The " + what + " function was stopped: " + killed.Reason}
	}
	return err
}
