package selector

import (
	"bytes"
	"cmp"
	"iter"
	"strings"

	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/rawjson"
)

// value is what a condition is held against: JSON, or text that is not quoted
// (an id, a revision, a member name), so that it need not be quoted first.
type value struct {
	json   []byte
	text   string
	isText bool
}

// kind gives the JSON kind.
func (v value) kind() rawjson.Kind {
	if v.isText {
		return rawjson.KindString
	}
	return rawjson.KindOf(v.json)
}

// string gives the text of a string.
func (v value) string() (string, bool) {
	if v.isText {
		return v.text, true
	}
	return rawjson.String(v.json)
}

// compareArg orders v against the argument of n.
func (n *node) compareArg(v value) int {
	if !v.isText {
		if n.raw {
			return compareRaw(v.json, n.arg)
		}
		return collate.Compare(v.json, n.arg)
	}
	switch {
	case n.raw && n.isText:
		return strings.Compare(v.text, n.text)
	case n.isText:
		return collate.CompareStrings(v.text, n.text)
	}
	return n.compareJSON(rawjson.AppendString(nil, v.text), n.arg)
}

// compareJSON orders two JSON values as n compares.
func (n *node) compareJSON(a, b []byte) int {
	if n.raw {
		return compareRaw(a, b)
	}
	return collate.Compare(a, b)
}

// rawRank is the order of types where values are compared by their bytes, that
// of Erlang's terms: numbers, false, null, true, objects, arrays, strings.
func rawRank(v []byte) int {
	switch rawjson.KindOf(v) {
	case rawjson.KindNumber:
		return 0
	case rawjson.KindBool:
		if v[0] == 'f' {
			return 1
		}
		return 3
	case rawjson.KindNull:
		return 2
	case rawjson.KindObject:
		return 4
	case rawjson.KindArray:
		return 5
	}
	return 6
}

// compareRaw orders values as _id is ordered: text by its bytes.
func compareRaw(a, b []byte) int {
	ra, rb := rawRank(a), rawRank(b)
	if ra != rb {
		return cmp.Compare(ra, rb)
	}
	switch ra {
	case 0:
		return collate.Compare(a, b)
	case 4:
		return compareRawObjects(a, b)
	case 5:
		return compareRawArrays(a, b)
	case 6:
		sa, _ := rawjson.String(a)
		sb, _ := rawjson.String(b)
		return strings.Compare(sa, sb)
	}
	return 0
}

// compareRawArrays goes element by element.
func compareRawArrays(a, b []byte) int {
	next, stop := iter.Pull(rawjson.Elements(b))
	defer stop()
	for x := range rawjson.Elements(a) {
		y, ok := next()
		if !ok {
			return 1
		}
		if c := compareRaw(x, y); c != 0 {
			return c
		}
	}
	if _, more := next(); more {
		return -1
	}
	return 0
}

// compareRawObjects goes member by member.
func compareRawObjects(a, b []byte) int {
	next, stop := iter.Pull2(rawjson.Members(b))
	defer stop()
	for nameA, x := range rawjson.Members(a) {
		nameB, y, ok := next()
		if !ok {
			return 1
		}
		if c := bytes.Compare(nameA, nameB); c != 0 {
			return c
		}
		if c := compareRaw(x, y); c != 0 {
			return c
		}
	}
	if _, _, more := next(); more {
		return -1
	}
	return 0
}
