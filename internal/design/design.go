// Package design reads design documents: it takes one apart into the functions
// and options the server knows, and refuses one that breaks the rules. It runs
// nothing.
package design

import "github.com/divandb/divan/internal/model"

// Prefix begins the id of every design document.
const Prefix = "_design/"

// The languages that mean something here. Every other one may be written, and
// nothing of such a document runs.
const (
	JavaScript = "javascript"
	Query      = "query" // declarative indexes: their definitions are objects
)

// Doc is a design document taken apart.
type Doc struct {
	ID       string // with _design/
	Rev      model.Rev
	Language string // javascript when none is given
	Body     []byte // normalised JSON, without underscore members

	Views      []View // those of language javascript, by name
	Lib        []byte // views.lib; nil if there is none
	AutoUpdate bool   // false with autoupdate: false

	// ViewsDesign is what the functions of views see of the document:
	// {"views":{"lib":…}}, or {}. LibHash names it, so that views of one document
	// can share an engine for as long as it stays the same.
	ViewsDesign []byte
	LibHash     string

	Validate string // validate_doc_update; empty if there is none, or if it is no text
	Filters  map[string]string
	Updates  map[string]string
	Shows    map[string]string
	Lists    map[string]string
	Rewrites []byte // JSON array or string; nil if there is none

	others map[string]struct{} // names of the views of another language
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

// NamedView is View for whoever answers a client: a view that cannot be asked has
// the error that says why.
func (d *Doc) NamedView(name string) (*View, error) {
	if v, ok := d.View(name); ok {
		return v, nil
	}
	if _, other := d.others[name]; !other {
		return nil, &model.Error{Kind: model.KindNotFound, Name: "not_found", Reason: "missing_named_view"}
	}
	if d.Language == Query {
		return nil, &model.Error{Kind: model.KindNotImplemented, Name: "not_implemented",
			Reason: "An index of the language `query` cannot be asked as a view."}
	}
	return nil, UnknownLanguage(d.Language)
}

// UnknownLanguage is the answer to whoever needs a function in a language that
// nobody here runs.
func UnknownLanguage(language string) *model.Error {
	return &model.Error{Kind: model.KindInternal, Name: "unknown_query_language", Reason: language}
}

// Function is a function of a design document that must compile.
type Function struct {
	Kind string // "map", "reduce", "filter", "validate_doc_update", "update", "show", "list", "rewrites"
	Name string // of the view, filter, …
	Text string
}

// CompileError is the refusal of a design document whose function does not
// compile.
func (f *Function) CompileError(reason string) *model.Error {
	where := "Compilation of the " + f.Kind + " function"
	switch f.Kind {
	case "map", "reduce":
		where += " in the '" + f.Name + "' view"
	case "validate_doc_update", "rewrites":
	default:
		where += " '" + f.Name + "'"
	}
	return &model.Error{Kind: model.KindBadRequest, Name: "compilation_error", Reason: where + " failed: " + reason}
}
