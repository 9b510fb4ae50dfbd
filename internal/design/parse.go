package design

import (
	"maps"
	"slices"
	"strings"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/reduce"
)

// Options of Parse.
type Options struct {
	Partitioned bool // the database is: views are partitioned unless they say otherwise
}

// Parse takes a design document apart. body is normalised JSON without underscore
// members, as the store has it. Errors are *model.Error (invalid_design_doc). The
// Doc keeps body.
func Parse(id string, body []byte, o Options) (*Doc, error) {
	if rawjson.KindOf(body) != rawjson.KindObject {
		return nil, model.BadRequest("Document must be a JSON object")
	}
	p := parser{doc: &Doc{ID: id, Language: JavaScript, Body: body, AutoUpdate: true}, database: o}
	for name, value := range rawjson.Members(body) {
		if known := p.member(string(name)); known != nil {
			*known = value
		}
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	if err := p.read(); err != nil {
		return nil, err
	}
	return p.doc, nil
}

// parser is a design document while it is taken apart.
type parser struct {
	doc      *Doc
	database Options

	// The members that mean something; nil where there is none.
	autoupdate, filters, language, lists, options, rewrites, shows, updates, validate, views []byte

	design viewOptions // options of the document
}

// viewOptions are options of views.
type viewOptions struct {
	includeDesign, localSeq, partitioned, raw bool
}

// member gives the place of a member.
func (p *parser) member(name string) *[]byte {
	switch name {
	case "autoupdate":
		return &p.autoupdate
	case "filters":
		return &p.filters
	case "language":
		return &p.language
	case "lists":
		return &p.lists
	case "options":
		return &p.options
	case "rewrites":
		return &p.rewrites
	case "shows":
		return &p.shows
	case "updates":
		return &p.updates
	case "validate_doc_update":
		return &p.validate
	case "views":
		return &p.views
	}
	return nil
}

// invalid makes the error of Parse.
func invalid(reason string) *model.Error {
	return &model.Error{Kind: model.KindBadRequest, Name: "invalid_design_doc", Reason: reason}
}

// mustBe refuses a value of another type. A member that is not there is right;
// null is a value as any other.
func mustBe(value []byte, path string, kinds ...rawjson.Kind) error {
	if value == nil || slices.Contains(kinds, rawjson.KindOf(value)) {
		return nil
	}
	words := make([]string, len(kinds))
	for i, k := range kinds {
		words[i] = k.String()
	}
	return invalid("`" + path + "` field must have " + strings.Join(words, " or ") + " type")
}

// check holds the types of all members, in the order in which CouchDB looks at
// them, so that a document with several faults is refused for the same one.
func (p *parser) check() error {
	if language, ok := rawjson.String(p.language); ok {
		p.doc.Language = language
	}
	validate := []rawjson.Kind{rawjson.KindString}
	if p.doc.Language == Query {
		validate = append(validate, rawjson.KindObject) // a selector
	}
	for _, err := range []error{
		checkFunctions(p.filters, "filters"),
		mustBe(p.language, "language", rawjson.KindString),
		checkFunctions(p.lists, "lists"),
		p.checkOptions(),
		mustBe(p.rewrites, "rewrites", rawjson.KindArray, rawjson.KindString),
		checkFunctions(p.shows, "shows"),
		checkFunctions(p.updates, "updates"),
		mustBe(p.validate, "validate_doc_update", validate...),
		p.checkViews(),
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// checkFunctions holds an object of functions to its form. An entry may be an
// object: modules for require live among the functions.
func checkFunctions(obj []byte, path string) error {
	if err := mustBe(obj, path, rawjson.KindObject); err != nil {
		return err
	}
	for name, value := range rawjson.Members(obj) {
		if err := mustBe(value, path+"."+string(name), rawjson.KindString, rawjson.KindObject); err != nil {
			return err
		}
	}
	return nil
}

// checkOptions reads the options of the document.
func (p *parser) checkOptions() error {
	if err := mustBe(p.options, "options", rawjson.KindObject); err != nil {
		return err
	}
	p.design.partitioned = p.database.Partitioned
	for _, o := range []struct {
		name string
		to   *bool
	}{
		{"include_design", &p.design.includeDesign},
		{"local_seq", &p.design.localSeq},
		{"partitioned", &p.design.partitioned},
	} {
		value, given := rawjson.Get(p.options, o.name)
		if !given {
			continue
		}
		if err := mustBe(value, "options."+o.name, rawjson.KindBool); err != nil {
			return err
		}
		*o.to, _ = rawjson.Bool(value)
	}
	p.design.raw = rawCollation(p.options)
	return nil
}

// rawCollation tells whether options ask for an order without the rules of
// languages.
func rawCollation(options []byte) bool {
	value, _ := rawjson.Get(options, "collation")
	text, _ := rawjson.String(value)
	return text == "raw"
}

// checkViews holds the views to their form.
func (p *parser) checkViews() error {
	if err := mustBe(p.views, "views", rawjson.KindObject); err != nil {
		return err
	}
	if lib, ok := rawjson.Get(p.views, "lib"); ok {
		if err := mustBe(lib, "views.lib", rawjson.KindObject); err != nil {
			return err
		}
	}
	mapKind := rawjson.KindString
	if p.doc.Language == Query {
		mapKind = rawjson.KindObject
	}
	// Every view is looked at for one thing before any is for the next.
	for _, check := range []func(name string, view []byte) error{
		func(name string, view []byte) error {
			if err := mustBe(view, "views."+name, rawjson.KindObject); err != nil {
				return err
			}
			return checkMember(view, "views."+name, "map", mapKind)
		},
		func(name string, view []byte) error {
			return checkMember(view, "views."+name, "reduce", rawjson.KindString)
		},
		func(name string, view []byte) error {
			if name == "lib" {
				return nil
			}
			if _, ok := rawjson.Get(view, "map"); !ok {
				return invalid("View `" + name + "` must contain map function")
			}
			return checkMember(view, "views."+name, "options", rawjson.KindObject)
		},
	} {
		for name, view := range rawjson.Members(p.views) {
			if err := check(string(name), view); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkMember refuses a member of another type.
func checkMember(obj []byte, path, name string, kind rawjson.Kind) error {
	value, _ := rawjson.Get(obj, name)
	return mustBe(value, path+"."+name, kind)
}

// read fills the document, whose types are right.
func (p *parser) read() error {
	d := p.doc
	d.AutoUpdate = autoUpdate(p.autoupdate)
	d.Rewrites = p.rewrites
	d.Validate, _ = rawjson.String(p.validate)
	d.Filters = functions(p.filters)
	d.Lists = functions(p.lists)
	d.Shows = functions(p.shows)
	d.Updates = functions(p.updates)
	d.setLib(p.views)
	if p.design.partitioned && !p.database.Partitioned {
		return invalid("partitioned option cannot be true in a non-partitioned database.")
	}
	for rawName, value := range rawjson.Members(p.views) {
		name := string(rawName)
		if _, isView := rawjson.Get(value, "map"); name == "lib" || !isView {
			continue // modules
		}
		if err := p.view(name, value); err != nil {
			return err
		}
	}
	slices.SortFunc(d.Views, func(a, b View) int { return strings.Compare(a.Name, b.Name) })
	return nil
}

// autoUpdate reads autoupdate: false, or {"views": false}.
func autoUpdate(value []byte) bool {
	if views, ok := rawjson.Get(value, "views"); ok {
		value = views
	}
	on, isBool := rawjson.Bool(value)
	return on || !isBool
}

// functions gives the entries that are text.
func functions(obj []byte) map[string]string {
	var out map[string]string
	for name, value := range rawjson.Members(obj) {
		text, ok := rawjson.String(value)
		if !ok {
			continue
		}
		if out == nil {
			out = make(map[string]string)
		}
		out[string(name)] = text
	}
	return out
}

// view adds one view.
func (p *parser) view(name string, obj []byte) error {
	d := p.doc
	v := View{Name: name, IncludeDesign: p.design.includeDesign, LocalSeq: p.design.localSeq,
		RawCollation: p.design.raw, Partitioned: p.design.partitioned}
	if v.Partitioned {
		v.IncludeDesign = false // design documents are in no partition
	}
	reduceText, reduces := rawjson.Get(obj, "reduce")
	v.Reduce, _ = rawjson.String(reduceText)
	if d.Language != JavaScript && d.Language != Query {
		d.otherLanguage(name)
		return nil
	}
	if reduces {
		if strings.TrimSpace(v.Reduce) == "" { // here it would mean that there is none
			f := Function{Kind: "reduce", Name: name}
			return f.CompileError("Expression does not eval to a function.")
		}
		if reduce.IsBuiltin(v.Reduce) {
			if _, err := reduce.Builtin(v.Reduce); err != nil {
				return err
			}
		}
	}
	if d.Language == Query {
		d.otherLanguage(name)
		return nil
	}
	mapText, _ := rawjson.Get(obj, "map")
	v.Map, _ = rawjson.String(mapText)
	if options, ok := rawjson.Get(obj, "options"); ok {
		v.RawCollation = v.RawCollation || rawCollation(options)
	}
	v.Sig = signature(d, &v)
	d.Views = append(d.Views, v)
	return nil
}

// otherLanguage notes a view that cannot be asked.
func (d *Doc) otherLanguage(name string) {
	if d.others == nil {
		d.others = make(map[string]struct{})
	}
	d.others[name] = struct{}{}
}

// Functions lists everything that must compile, views.lib not included: the views
// first, as CouchDB does, then the rest by kind and name.
func (d *Doc) Functions() []Function {
	if d.Language != JavaScript {
		return nil
	}
	var out []Function
	for i := range d.Views {
		v := &d.Views[i]
		out = append(out, Function{"map", v.Name, v.Map})
		if v.Reduce != "" && !reduce.IsBuiltin(v.Reduce) {
			out = append(out, Function{"reduce", v.Name, v.Reduce})
		}
	}
	for _, group := range []struct {
		kind string
		of   map[string]string
	}{{"filter", d.Filters}, {"list", d.Lists}, {"show", d.Shows}, {"update", d.Updates}} {
		for _, name := range slices.Sorted(maps.Keys(group.of)) {
			out = append(out, Function{group.kind, name, group.of[name]})
		}
	}
	if d.Validate != "" {
		out = append(out, Function{"validate_doc_update", "", d.Validate})
	}
	if text, ok := rawjson.String(d.Rewrites); ok {
		out = append(out, Function{"rewrites", "", text})
	}
	return out
}
