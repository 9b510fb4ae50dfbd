// Package design reads design documents: it takes one apart into the functions
// and options the server knows, and refuses one that breaks the rules. It runs
// nothing.
package design

import "github.com/divandb/divan/internal/model"

// Prefix begins the id of every design document.
const Prefix = "_design/"

// Doc is a design document taken apart.
type Doc struct {
	ID       string // with _design/
	Rev      model.Rev
	Language string // javascript when none is given
	Body     []byte // normalised JSON, without underscore members

	Views      []View // those of language javascript, by name
	Lib        []byte // views.lib; nil if there is none
	AutoUpdate bool   // false with autoupdate: false

	Validate string // validate_doc_update; empty if there is none
	Filters  map[string]string
	Updates  map[string]string
	Shows    map[string]string
	Lists    map[string]string
	Rewrites []byte // JSON array or string; nil if there is none
}

// View is one view.
type View struct {
	Name   string
	Map    string
	Reduce string // empty if there is none; built-in ones begin with an underscore

	IncludeDesign bool // options.include_design
	LocalSeq      bool // options.local_seq
	RawCollation  bool // options.collation: raw
	Partitioned   bool // options.partitioned, or the default of the database

	// Sig names the index: hex of a hash of everything its rows depend on. Two
	// views with the same signature have the same rows, whatever they are called.
	Sig string
}

// View finds a view by name.
func (d *Doc) View(name string) (*View, bool) {
	for i := range d.Views {
		if d.Views[i].Name == name {
			return &d.Views[i], true
		}
	}
	return nil, false
}

// Function is a function of a design document that must compile.
type Function struct {
	Kind string // "map", "reduce", "filter", "validate_doc_update", "update", "show", "list", "rewrites"
	Name string // of the view, filter, …
	Text string
}
