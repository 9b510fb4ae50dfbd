package rawjson

import "iter"

// Member is one member of an object, its name decoded.
type Member struct {
	Name  string
	Value []byte
}

// Members yields the members of an object in their order: the decoded name, which
// aliases the input unless it was written with escapes, and the raw value. It
// yields nothing for a value that is no object.
func Members(obj []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		for c := enter(obj, '{'); !c.done(); {
			name, escaped, ok := c.name()
			if !ok {
				return
			}
			if escaped {
				name = appendDecoded(make([]byte, 0, len(name)), name)
			}
			if !yield(name, c.value()) {
				return
			}
		}
	}
}

// AppendMembers appends the members of an object to dst, for callers that need
// them more than once. Values alias the input.
func AppendMembers(dst []Member, obj []byte) []Member {
	for name, value := range Members(obj) {
		dst = append(dst, Member{Name: string(name), Value: value})
	}
	return dst
}

// Elements yields the raw elements of an array in their order, and nothing for a
// value that is no array.
func Elements(arr []byte) iter.Seq[[]byte] {
	return func(yield func(value []byte) bool) {
		for c := enter(arr, '['); !c.done(); {
			before := c.i
			if value := c.value(); c.i == before || !yield(value) {
				return
			}
		}
	}
}

// Get returns the raw value of the member of obj whose decoded name is name, in
// exactly that case. It finds nothing in a value that is no object.
func Get(obj []byte, name string) ([]byte, bool) {
	for c := enter(obj, '{'); !c.done(); {
		raw, escaped, ok := c.name()
		if !ok {
			return nil, false
		}
		if string(raw) == name && !escaped || escaped && decodesTo(raw, name) {
			return c.value(), true
		}
		c.past(valueEnd(c.v, c.i))
	}
	return nil, false
}

// decodesTo tells whether the raw content of a string with escapes means s.
func decodesTo(raw []byte, s string) bool {
	// An escape never decodes to more bytes than it is written with.
	return len(s) < len(raw) && string(appendDecoded(make([]byte, 0, 64), raw)) == s
}

// Path follows member names through nested objects, from v on; the empty path
// leads to v itself. Arrays are not entered, whatever the path looks like.
func Path(v []byte, path []string) ([]byte, bool) {
	for _, name := range path {
		next, ok := Get(v, name)
		if !ok {
			return nil, false
		}
		v = next
	}
	return v, true
}

// Len counts the members of an object or the elements of an array; it is 0 for
// every other value.
func Len(v []byte) int {
	count := 0
	switch KindOf(v) {
	case KindObject:
		for c := enter(v, '{'); !c.done(); count++ {
			if _, _, ok := c.name(); !ok {
				break
			}
			c.past(valueEnd(c.v, c.i))
		}
	case KindArray:
		for c := enter(v, '['); !c.done(); count++ {
			before := c.i
			if c.past(valueEnd(c.v, c.i)); c.i == before {
				break
			}
		}
	}
	return count
}
