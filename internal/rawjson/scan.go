package rawjson

import (
	"bytes"
	"math/bits"
)

// The scanners below find the end of a piece of normalised text. They check
// nothing, but on text that is not normalised they still stay inside it and come
// to an end, so that damaged bytes give wrong results and never a panic.

// valueEnd returns the position after the value at i.
func valueEnd(v []byte, i int) int {
	if i >= len(v) {
		return len(v)
	}
	switch v[i] {
	case '"':
		return textEnd(v, i)
	case '{', '[':
		return containerEnd(v, i)
	}
	for i < len(v) && v[i] != ',' && v[i] != '}' && v[i] != ']' {
		i++
	}
	return i
}

// textEnd returns the position after the string whose opening quote is at i. It
// looks for quotes only and counts the backslashes before each one it finds; the
// runs it counts never overlap, so the cost stays linear.
func textEnd(v []byte, i int) int {
	start := i + 1
	j := start
	for words := 0; j+8 <= len(v); words++ {
		if words == 8 {
			// A long string: the vectorised search is worth its call.
			q := bytes.IndexByte(v[j:], '"')
			if q < 0 {
				return len(v)
			}
			j += q
			if !escapedAt(v, start, j) {
				return j + 1
			}
			j++
			words = 0
			continue
		}
		quotes := zeroLanes(load64(v[j:]) ^ laneOnes*'"')
		if quotes == 0 {
			j += 8
			continue
		}
		j += bits.TrailingZeros64(quotes) / 8
		if !escapedAt(v, start, j) {
			return j + 1
		}
		j++
	}
	for ; j < len(v); j++ {
		if v[j] == '"' && !escapedAt(v, start, j) {
			return j + 1
		}
	}
	return len(v)
}

// escapedAt tells whether an odd number of backslashes stands before position j
// of a string whose content begins at start.
func escapedAt(v []byte, start, j int) bool {
	k := j
	for k > start && v[k-1] == '\\' {
		k--
	}
	return (j-k)&1 == 1
}

// nameEnd is textEnd for member names: it also tells whether there are escapes.
func nameEnd(v []byte, i int) (end int, escaped bool) {
	j := i + 1
	for j < len(v) {
		if j+8 <= len(v) {
			stops := quotesOrEscapes(load64(v[j:]))
			if stops == 0 {
				j += 8
				continue
			}
			j += bits.TrailingZeros64(stops) / 8
		}
		switch v[j] {
		case '"':
			return j + 1, escaped
		case '\\':
			escaped = true
			j += 2
		default:
			j++
		}
	}
	return len(v), escaped
}

// containerEnd returns the position after the object or array at i. Only brackets
// outside strings count, and in normalised text they always pair up.
func containerEnd(v []byte, i int) int {
	depth := 0
	for i < len(v) {
		if i+8 <= len(v) {
			marks := bracketsOrQuotes(load64(v[i:]))
			if marks == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(marks) / 8
		}
		switch v[i] {
		case '"':
			i = textEnd(v, i)
			continue
		case '{', '[':
			depth++
		case '}', ']':
			depth--
			if depth <= 0 {
				return i + 1
			}
		}
		i++
	}
	return len(v)
}

// cursor walks over the members of one object or the elements of one array.
type cursor struct {
	v []byte
	i int // the position of the next name or element
}

// enter returns a cursor on the first member or element of the container v that
// starts with the given bracket; the cursor of anything else is at its end.
func enter(v []byte, bracket byte) cursor {
	if len(v) < 2 || v[0] != bracket {
		return cursor{v: v, i: len(v)}
	}
	return cursor{v: v, i: 1}
}

// done tells whether nothing is left.
func (c *cursor) done() bool {
	return c.i >= len(c.v) || c.v[c.i] == '}' || c.v[c.i] == ']'
}

// name reads the raw name of the member at the cursor and moves to its value. It
// fails on damaged text only.
func (c *cursor) name() (raw []byte, escaped, ok bool) {
	if c.v[c.i] != '"' {
		return nil, false, false
	}
	start := c.i + 1
	end, escaped := nameEnd(c.v, c.i)
	if end-1 < start || end+1 >= len(c.v) || c.v[end] != ':' {
		return nil, false, false
	}
	c.i = end + 1
	return c.v[start : end-1 : end-1], escaped, true
}

// value reads the value at the cursor and moves past it and past the comma.
func (c *cursor) value() []byte {
	start := c.i
	end := valueEnd(c.v, start)
	c.past(end)
	return c.v[start:end:end]
}

// past moves the cursor to what follows a value that ends at end.
func (c *cursor) past(end int) {
	if end < len(c.v) && c.v[end] == ',' {
		end++
	}
	c.i = end
}
