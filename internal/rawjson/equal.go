package rawjson

import "bytes"

// Equal tells whether two normalised texts mean the same value: numbers compare
// by their exact value (1, 1.0 and 1e0 are one number), strings by their decoded
// content, objects irrespective of the order of members.
func Equal(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return KindOf(a) != KindInvalid
	}
	x, y := comparison{a, 0}, comparison{b, 0}
	return x.equal(&y) && x.i == len(a) && y.i == len(b)
}

// comparison is one side of Equal: a text and the position reached in it. Both
// sides advance together, so that members in the same order are read only once,
// however deeply they nest.
type comparison struct {
	v []byte
	i int
}

// equal compares the values at both positions and, if they are equal, moves both
// sides past them.
func (x *comparison) equal(y *comparison) bool {
	if x.i >= len(x.v) || y.i >= len(y.v) {
		return false
	}
	kind := KindOf(x.v[x.i:])
	if kind != KindOf(y.v[y.i:]) {
		return false
	}
	switch kind {
	case KindObject:
		return x.equalObject(y)
	case KindArray:
		return x.equalArray(y)
	case KindString:
		return equalText(x.scalar(), y.scalar())
	case KindNumber:
		return equalNumber(x.scalar(), y.scalar())
	}
	return kind != KindInvalid && bytes.Equal(x.scalar(), y.scalar())
}

// scalar reads the value at the position.
func (x *comparison) scalar() []byte {
	start := x.i
	x.i = valueEnd(x.v, start)
	return x.v[start:x.i]
}

// at tells whether the byte at the position is c, and moves past it if it is.
func (x *comparison) at(c byte) bool {
	if x.i < len(x.v) && x.v[x.i] == c {
		x.i++
		return true
	}
	return false
}

// equalArray compares two arrays.
func (x *comparison) equalArray(y *comparison) bool {
	x.i++
	y.i++
	for {
		endX, endY := x.at(']'), y.at(']')
		if endX || endY {
			return endX && endY
		}
		if !x.equal(y) {
			return false
		}
		if x.at(',') != y.at(',') {
			return false
		}
	}
}

// equalObject compares two objects: side by side as long as the names agree, then
// by an index of what is left of y.
func (x *comparison) equalObject(y *comparison) bool {
	x.i++
	y.i++
	for {
		endX, endY := x.at('}'), y.at('}')
		if endX || endY {
			return endX && endY
		}
		before := y.i
		nameX, okX := x.name()
		nameY, okY := y.name()
		if !okX || !okY {
			return false
		}
		if !bytes.Equal(nameX, nameY) {
			y.i = before
			return x.equalReordered(nameX, y)
		}
		if !x.equal(y) {
			return false
		}
		x.at(',')
		y.at(',')
	}
}

// equalReordered compares the rest of two objects whose members are in different
// orders. x stands at the value of the member called name, y at a name.
func (x *comparison) equalReordered(name []byte, y *comparison) bool {
	rest := make(map[string]int)
	for !y.at('}') {
		nameY, ok := y.name()
		if !ok {
			return false
		}
		rest[string(nameY)] = y.i
		y.i = valueEnd(y.v, y.i)
		y.at(',')
	}
	for {
		at, ok := rest[string(name)]
		if !ok {
			return false
		}
		delete(rest, string(name))
		if !x.equal(&comparison{y.v, at}) {
			return false
		}
		x.at(',')
		if x.at('}') {
			return len(rest) == 0
		}
		if name, ok = x.name(); !ok {
			return false
		}
	}
}

// name reads the decoded name at the position and moves to the value.
func (x *comparison) name() ([]byte, bool) {
	c := cursor{x.v, x.i}
	if c.done() {
		return nil, false
	}
	raw, escaped, ok := c.name()
	if escaped {
		raw = appendDecoded(make([]byte, 0, len(raw)), raw)
	}
	x.i = c.i
	return raw, ok
}

// equalText compares two string values by what they mean.
func equalText(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if bytes.IndexByte(a, '\\') < 0 && bytes.IndexByte(b, '\\') < 0 {
		return false
	}
	textA, okA := String(a)
	textB, okB := String(b)
	return okA && okB && textA == textB
}
