package selector

import (
	"math/big"
	"slices"
	"strconv"
	"strings"

	"github.com/divandb/divan/internal/rawjson"
)

// slotRoom is how many top-level names a match finds without allocating.
const slotRoom = 8

// Match tells whether the document matches.
func (s *Selector) Match(doc Doc) bool {
	if s.root == nil {
		return true
	}
	var room [slotRoom][]byte
	slots := room[:]
	if len(s.names) > slotRoom {
		slots = make([][]byte, len(s.names))
	}
	s.scan(slots, doc.Body)
	return s.root.matchDoc(&doc, slots)
}

// scan finds the members the selector speaks of, in one pass that ends when it
// has them all.
func (s *Selector) scan(slots [][]byte, body []byte) {
	switch len(s.names) {
	case 0:
		return
	case 1:
		slots[0], _ = rawjson.Get(body, s.names[0])
		return
	}
	missing := len(s.names)
	for name, v := range rawjson.Members(body) {
		i := -1
		if len(s.names) > slotRoom {
			if at, ok := s.slots[string(name)]; ok {
				i = at
			}
		} else {
			for j := range s.names {
				if s.names[j] == string(name) {
					i = j
					break
				}
			}
		}
		if i < 0 {
			continue
		}
		slots[i] = v
		if missing--; missing == 0 {
			return
		}
	}
}

// matchDoc matches a node at the top, where fields are those of the document.
func (n *node) matchDoc(doc *Doc, slots [][]byte) bool {
	switch n.op {
	case opAnd:
		for _, kid := range n.kids {
			if !kid.matchDoc(doc, slots) {
				return false
			}
		}
		return true
	case opOr:
		for _, kid := range n.kids {
			if kid.matchDoc(doc, slots) {
				return true
			}
		}
		return len(n.kids) == 0
	}
	// Negations have sunk below the fields: what is left is a field.
	if len(n.path) == 0 {
		return n.kids[0].match(value{json: doc.whole()})
	}
	v, where := doc.lookup(n, slots)
	return n.matchAt(v, where)
}

// place says where a path led.
type place uint8

// Where a path leads: to a value, to nothing, or through something that has no
// members. CouchDB tells the last two apart: {"$exists":false} matches only the
// second.
const (
	found place = iota
	notFound
	badPath
)

// matchAt matches the condition of a field against what was found there.
func (n *node) matchAt(v value, where place) bool {
	cond := n.kids[0]
	switch where {
	case notFound:
		return cond.op == opExists && !cond.yes
	case badPath:
		return false
	}
	return cond.match(v)
}

// lookup finds the value of a field of the document.
func (d *Doc) lookup(n *node, slots [][]byte) (value, place) {
	first := n.path[0]
	var v value
	switch {
	case first == "_id":
		v = value{text: d.ID, isText: true}
	case first == "_rev":
		v = value{text: d.Rev, isText: true}
	case first[0] == '_':
		if d.Extra == nil {
			return value{}, notFound
		}
		json, ok := d.Extra(first)
		if !ok {
			return value{}, notFound
		}
		v.json = json
	default:
		if slots[n.slot] == nil {
			return value{}, notFound
		}
		v.json = slots[n.slot]
	}
	return descend(v, n.path[1:])
}

// descend follows a path: member names through objects, positions through arrays.
func descend(v value, path []string) (value, place) {
	for _, name := range path {
		if v.isText {
			return value{}, badPath
		}
		switch rawjson.KindOf(v.json) {
		case rawjson.KindObject:
			next, ok := rawjson.Get(v.json, name)
			if !ok {
				return value{}, notFound
			}
			v.json = next
		case rawjson.KindArray:
			next, ok := element(v.json, name)
			if !ok {
				return value{}, badPath
			}
			v.json = next
		default:
			return value{}, badPath
		}
	}
	return v, found
}

// element gives the element of an array at a written position.
func element(arr []byte, name string) ([]byte, bool) {
	at, err := strconv.Atoi(name)
	if err != nil || at < 0 {
		return nil, false
	}
	for v := range rawjson.Elements(arr) {
		if at == 0 {
			return v, true
		}
		at--
	}
	return nil, false
}

// whole gives the document as one value, for the odd selector that compares it
// as such.
func (d *Doc) whole() []byte {
	out := rawjson.AppendString([]byte(`{"_id":`), d.ID)
	out = rawjson.AppendString(append(out, `,"_rev":`...), d.Rev)
	if len(d.Body) > 2 {
		out = append(append(out, ','), d.Body[1:]...)
		return out
	}
	return append(out, '}')
}

// match matches a node against a value: a condition, or inside a Match operator
// whole selectors.
func (n *node) match(v value) bool {
	switch n.op {
	case opField:
		if len(n.path) == 0 {
			return n.kids[0].match(v)
		}
		return n.matchAt(descend(v, n.path))
	case opAnd:
		for _, kid := range n.kids {
			if !kid.match(v) {
				return false
			}
		}
		return true
	case opOr:
		return len(n.kids) == 0 || n.matchAny(v)
	case opNor:
		return !n.matchAny(v)
	case opNot:
		return !n.kids[0].match(v)
	case opEq:
		return n.compareArg(v) == 0
	case opNe:
		return n.compareArg(v) != 0
	case opGt:
		return n.compareArg(v) > 0
	case opGte:
		return n.compareArg(v) >= 0
	case opLt:
		return n.compareArg(v) < 0
	case opLte:
		return n.compareArg(v) <= 0
	case opIn:
		return n.matchIn(v)
	case opNin:
		return !n.matchIn(v)
	case opExists:
		return n.yes
	case opType:
		return n.text == v.kind().String()
	case opMod:
		return n.matchMod(v)
	case opSize:
		return v.kind() == rawjson.KindArray && int64(rawjson.Len(v.json)) == n.size
	case opRegex:
		s, ok := v.string()
		return ok && n.re.MatchString(s)
	case opBeginsWith:
		s, ok := v.string()
		return ok && strings.HasPrefix(s, n.text)
	case opAll:
		return n.matchAll(v)
	}
	return n.matchElements(v)
}

// matchAny tells whether one of the kids matches.
func (n *node) matchAny(v value) bool {
	for _, kid := range n.kids {
		if kid.match(v) {
			return true
		}
	}
	return false
}

// matchIn looks v up in the sorted list, or when v is an array each element.
func (n *node) matchIn(v value) bool {
	if v.isText {
		return n.among(rawjson.AppendString(nil, v.text))
	}
	if rawjson.KindOf(v.json) != rawjson.KindArray {
		return n.among(v.json)
	}
	for e := range rawjson.Elements(v.json) {
		if n.among(e) {
			return true
		}
	}
	return false
}

// among tells whether the list holds a value.
func (n *node) among(v []byte) bool {
	_, ok := slices.BinarySearchFunc(n.args, v, n.compareJSON)
	return ok
}

// matchMod takes integers only, as CouchDB does: 4.0 is none.
func (n *node) matchMod(v value) bool {
	if v.isText {
		return false
	}
	if i, ok := rawjson.Int(v.json); ok && n.small {
		return i%n.div64 == n.rem64
	}
	i, ok := integer(v.json)
	return ok && new(big.Int).Rem(i, n.div).Cmp(n.rem) == 0
}

// matchAll wants every argument among the elements; one array as the only
// argument may also be the value itself. No argument matches nothing. Equality
// is that of the spelled values, not the collation's: "a" is not "a\u0000".
func (n *node) matchAll(v value) bool {
	if v.kind() != rawjson.KindArray || len(n.args) == 0 {
		return false
	}
	if len(n.args) == 1 && rawjson.KindOf(n.args[0]) == rawjson.KindArray && compareRaw(n.args[0], v.json) == 0 {
		return true
	}
next:
	for _, want := range n.args {
		for e := range rawjson.Elements(v.json) {
			if compareRaw(e, want) == 0 {
				continue next
			}
		}
		return false
	}
	return true
}

// matchElements holds the inner selector against the elements of an array or
// the member names of an object.
func (n *node) matchElements(v value) bool {
	if v.isText {
		return false
	}
	inner := n.kids[0]
	switch n.op {
	case opElemMatch:
		for e := range rawjson.Elements(v.json) {
			if inner.match(value{json: e}) {
				return true
			}
		}
		return false
	case opAllMatch:
		some := false
		for e := range rawjson.Elements(v.json) {
			if !inner.match(value{json: e}) {
				return false
			}
			some = true
		}
		return some
	}
	for name := range rawjson.Members(v.json) { // $keyMapMatch
		if inner.match(value{text: string(name), isText: true}) {
			return true
		}
	}
	return false
}
