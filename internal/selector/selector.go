package selector

import (
	"github.com/divandb/divan/internal/rawjson"
)

// The limits of a selector. A client sizes it, and every document of a feed or a
// scan is held against it.
const (
	// MaxSize bounds the text of a selector; lists of some ten thousand ids fit.
	MaxSize = 1 << 20
	// MaxDepth bounds how deep conditions nest (values may nest as JSON may).
	MaxDepth = 64
	// MaxConditions bounds how many fields, combinations and conditions there are.
	MaxConditions = 20000
	// MaxPattern bounds a regular expression.
	MaxPattern = 4096
	// MaxFieldText bounds the field names of the normalised form together: a
	// long name above many conditions is written once for each.
	MaxFieldText = 4 << 20
)

// Selector is a selector that was read. It is immutable and safe for concurrent
// use.
type Selector struct {
	root *node // nil for {}, which matches everything
	// names are the distinct first names of the fields at the top, without those
	// that begin with an underscore: Match finds their values in one scan.
	names []string
	slots map[string]int // name to its place in names
}

// Doc is a document to match. Body is as stored: normalised, without underscore
// members. Extra, when set, answers for underscore members other than _id and
// _rev (_deleted, _attachments …) with their JSON value.
type Doc struct {
	ID    string
	Rev   string
	Body  []byte
	Extra func(name string) ([]byte, bool)
}

// Parse reads a normalised JSON selector. Its errors are *model.Error.
func Parse(sel []byte) (*Selector, error) {
	if len(sel) > MaxSize {
		return nil, errTooLarge("The selector is too large.")
	}
	if rawjson.KindOf(sel) != rawjson.KindObject {
		return nil, badRequest("invalid_selector_json", "Selector must be a JSON object, not: "+excerpt(sel))
	}
	if rawjson.Len(sel) == 0 {
		return &Selector{}, nil
	}
	r := reader{}
	n, err := r.explicit(append([]byte(nil), sel...), 0)
	if err != nil {
		return nil, err
	}
	f := fieldPusher{}
	if n, err = f.push(n, ""); err != nil {
		return nil, err
	}
	n = sinkNegations(n)
	if n.op == opField && n.field == "" {
		return nil, badRequest("invalid_selector", "One or more conditions is missing a field name.")
	}
	n.prepare(false)
	s := &Selector{root: n, slots: map[string]int{}}
	s.collectNames(n)
	return s, nil
}

// Normalized gives the selector in its normal form, as JSON.
func (s *Selector) Normalized() []byte {
	if s.root == nil {
		return []byte("{}")
	}
	return s.root.appendJSON(nil)
}

// collectNames gathers the first names of the fields that are looked up in the
// document itself, and tells each field node its place.
func (s *Selector) collectNames(n *node) {
	if n.op == opField {
		if len(n.path) == 0 || n.path[0][:1] == "_" {
			return
		}
		at, ok := s.slots[n.path[0]]
		if !ok {
			at = len(s.names)
			s.slots[n.path[0]] = at
			s.names = append(s.names, n.path[0])
		}
		n.slot = at
		return
	}
	for _, kid := range n.kids {
		s.collectNames(kid)
	}
}
