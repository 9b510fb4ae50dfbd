package selector

import (
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// Fields is the part of a document that a reader wants to see.
type Fields struct {
	paths [][]string
}

// ParseFields reads a JSON array of field names, dotted as in a selector. nil means
// the whole document, as does an empty array.
func ParseFields(list []byte) (*Fields, error) {
	if rawjson.KindOf(list) != rawjson.KindArray {
		return nil, model.BadRequest("Selector error: fields must be JSON array")
	}
	if rawjson.Len(list) > MaxFields {
		return nil, errTooLarge("There are too many fields.")
	}
	f := &Fields{}
	for e := range rawjson.Elements(list) {
		name, ok := rawjson.String(e)
		if !ok {
			return nil, model.BadRequest("Selector error: a field is not a string")
		}
		path, err := splitField(name)
		if err != nil {
			return nil, err
		}
		f.paths = append(f.paths, path)
	}
	if len(f.paths) == 0 {
		return nil, nil
	}
	return f, nil
}

// MaxFields bounds the fields of one reader: each is looked for in every document.
const MaxFields = 1000

// Append appends the object that has only the wanted fields of doc, in the order in
// which they are wanted. What the document does not have is left out.
func (f *Fields) Append(dst, doc []byte) []byte {
	var top picked
	for _, path := range f.paths {
		if v, where := descend(value{json: doc}, path); where == found {
			top.put(path, v.json)
		}
	}
	return top.append(dst)
}

// picked is an object under construction, or a value in it.
type picked struct {
	name  string
	value []byte // nil: an object of kids
	kids  []*picked
}

// put puts a value at its place. What holds a whole value has its parts already.
func (p *picked) put(path []string, v []byte) {
	for _, name := range path {
		if p.value != nil {
			return
		}
		var next *picked
		for _, kid := range p.kids {
			if kid.name == name {
				next = kid
			}
		}
		if next == nil {
			next = &picked{name: name}
			p.kids = append(p.kids, next)
		}
		p = next
	}
	p.value, p.kids = v, nil
}

// append appends it as JSON.
func (p *picked) append(dst []byte) []byte {
	if p.value != nil {
		return append(dst, p.value...)
	}
	dst = append(dst, '{')
	for i, kid := range p.kids {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = rawjson.AppendString(dst, kid.name)
		dst = append(dst, ':')
		dst = kid.append(dst)
	}
	return append(dst, '}')
}
