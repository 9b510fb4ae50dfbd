package reduce

import "github.com/divandb/divan/internal/jsvm"

// IsBuiltin tells whether a reduce function is one of ours: it begins with an
// underscore.
func IsBuiltin(name string) bool { return len(name) > 0 && name[0] == '_' }

// Builtin gives a built-in reduction by its name, or a *model.Error
// (invalid_design_doc) for one that does not exist.
func Builtin(name string) (Reducer, error) { panic("not there yet") }

// Script gives the reduction that a JavaScript function defines.
func Script(pool *jsvm.Pool, prog jsvm.Program, fn string) Reducer { panic("not there yet") }
