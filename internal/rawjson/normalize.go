package rawjson

import (
	"math"
	"math/bits"
	"slices"
	"sync"
	"unicode/utf8"
)

// normalizer is the state of one Normalize call. Positions in it are 32 bits wide
// to keep the member records small; Normalize refuses longer sources.
type normalizer struct {
	src      []byte
	out      []byte
	base     int // length of out before this call
	run      int // src[run:i] is accepted but not copied yet
	maxDepth int
	err      *SyntaxError

	names nameSet
	dead  []span // ranges of out, relative to base, that a later duplicate replaced
}

// span is a half-open range of the output, relative to its base.
type span struct{ start, end uint32 }

// normalizers keeps the working memory between calls, since every write to the
// database needs one for a few microseconds.
var normalizers = sync.Pool{New: func() any { return new(normalizer) }}

// Normalize appends src to dst in normal form and returns the extended slice.
// Whatever is not one JSON value in valid UTF-8, nested at most maxDepth
// containers deep (a scalar has depth 0), is refused with a *SyntaxError, and dst
// comes back with its old length. dst and src must not overlap.
func Normalize(dst, src []byte, maxDepth int) ([]byte, error) {
	if len(src) > math.MaxInt32 {
		return dst, &SyntaxError{Offset: math.MaxInt32, Reason: "text is too long"}
	}
	n := normalizers.Get().(*normalizer)
	n.src, n.base, n.maxDepth = src, len(dst), maxDepth
	n.out = slices.Grow(dst, len(src))
	out, err := n.normalize()
	n.release()
	if err != nil {
		return dst, err
	}
	return out, nil
}

// normalize runs the whole conversion.
func (n *normalizer) normalize() ([]byte, *SyntaxError) {
	i := n.value(n.skipSpace(0), 0)
	if i < 0 {
		return nil, n.err
	}
	i = n.skipSpace(i)
	if i < len(n.src) {
		n.fail(i, "unexpected data after the value")
		return nil, n.err
	}
	n.out = append(n.out, n.src[n.run:]...)
	if len(n.dead) > 0 {
		n.dropDead()
	}
	return n.out, nil
}

// release gives the state back to the pool, without references to the caller's
// bytes and without the memory that one huge document made it grow.
func (n *normalizer) release() {
	n.src, n.out, n.err, n.run = nil, nil, nil, 0
	n.dead = n.dead[:0]
	if cap(n.dead) > 4096 {
		n.dead = nil
	}
	n.names.reset()
	normalizers.Put(n)
}

// fail records the first error and returns the position that means failure.
func (n *normalizer) fail(at int, reason string) int {
	if n.err == nil {
		n.err = &SyntaxError{Offset: at, Reason: reason}
	}
	return -1
}

// skipSpace returns the position of the next byte that is no whitespace.
func (n *normalizer) skipSpace(i int) int {
	if i < len(n.src) && n.src[i] <= ' ' {
		return n.cutSpace(i)
	}
	return i
}

// cutSpace copies what was accepted up to i and starts a new run after the
// whitespace there. Text that has no whitespace is thus copied in one piece.
func (n *normalizer) cutSpace(i int) int {
	n.out = append(n.out, n.src[n.run:i]...)
	src := n.src
	for i < len(src) && (src[i] == ' ' || src[i] == '\n' || src[i] == '\t' || src[i] == '\r') {
		i++
	}
	n.run = i
	return i
}

// value accepts the value that starts at i, inside depth containers, and returns
// the position after it, or -1.
func (n *normalizer) value(i, depth int) int {
	if i >= len(n.src) {
		return n.fail(i, "unexpected end of text")
	}
	switch c := n.src[i]; c {
	case '"':
		end, _ := n.text(i)
		return end
	case '{':
		return n.object(i, depth+1)
	case '[':
		return n.array(i, depth+1)
	case 't':
		return n.literal(i, "true")
	case 'f':
		return n.literal(i, "false")
	case 'n':
		return n.literal(i, "null")
	default:
		if c != '-' && (c < '0' || c > '9') {
			return n.fail(i, "unexpected character where a value starts")
		}
		end, ok := numberEnd(n.src, i)
		if !ok {
			return n.fail(end, "bad number")
		}
		return end
	}
}

// literal accepts one of the three words of JSON.
func (n *normalizer) literal(i int, word string) int {
	if len(n.src)-i < len(word) || string(n.src[i:i+len(word)]) != word {
		return n.fail(i, "unexpected word")
	}
	return i + len(word)
}

// array accepts the array that starts at i and is the depth-th container.
func (n *normalizer) array(i, depth int) int {
	if depth > n.maxDepth {
		return n.fail(i, "nested too deeply")
	}
	i = n.skipSpace(i + 1)
	if i < len(n.src) && n.src[i] == ']' {
		return i + 1
	}
	for {
		if i = n.value(i, depth); i < 0 {
			return i
		}
		i = n.skipSpace(i)
		if i >= len(n.src) {
			return n.fail(i, "unexpected end of text in an array")
		}
		switch n.src[i] {
		case ',':
			i = n.skipSpace(i + 1)
		case ']':
			return i + 1
		default:
			return n.fail(i, "expected a comma or the end of the array")
		}
	}
}

// object accepts the object that starts at i and is the depth-th container. A
// member that a later one of the same name replaces is noted in n.dead and cut
// out at the very end, so that nested duplicates cannot make it move the same
// bytes once per level.
func (n *normalizer) object(i, depth int) int {
	if depth > n.maxDepth {
		return n.fail(i, "nested too deeply")
	}
	i = n.skipSpace(i + 1)
	if i < len(n.src) && n.src[i] == '}' {
		return i + 1
	}
	scope := n.names.open()
	for {
		if i >= len(n.src) {
			return n.fail(i, "unexpected end of text in an object")
		}
		if n.src[i] != '"' {
			return n.fail(i, "expected a member name")
		}
		end, escaped := n.text(i)
		if end < 0 {
			return end
		}
		at := uint32(len(n.out) - n.base + i - n.run)
		if dup, next := n.names.add(&scope, n.src, i+1, end-1, escaped, at); dup >= 0 {
			n.dead = append(n.dead, span{uint32(dup), next})
		}
		i = n.skipSpace(end)
		if i >= len(n.src) || n.src[i] != ':' {
			return n.fail(i, "expected a colon after the member name")
		}
		if i = n.value(n.skipSpace(i+1), depth); i < 0 {
			return i
		}
		i = n.skipSpace(i)
		if i >= len(n.src) {
			return n.fail(i, "unexpected end of text in an object")
		}
		switch n.src[i] {
		case ',':
			i = n.skipSpace(i + 1)
		case '}':
			n.names.close(&scope)
			return i + 1
		default:
			return n.fail(i, "expected a comma or the end of the object")
		}
	}
}

// text accepts the string whose opening quote is at i, and tells whether it holds
// escapes. UTF-8 is checked once per string and only when there is a byte beyond
// ASCII in it; escapes are ASCII, so they do not disturb that.
func (n *normalizer) text(i int) (end int, escaped bool) {
	src := n.src
	start := i + 1
	j := start
	var seen uint64 // all bytes of the string or-ed together
	for {
		for j+8 <= len(src) {
			w := load64(src[j:])
			if stops := stringStops(w); stops != 0 {
				shift := bits.TrailingZeros64(stops) &^ 7
				seen |= w & (1<<shift - 1)
				j += shift / 8
				break
			}
			seen |= w
			j += 8
		}
		for j < len(src) && src[j] >= ' ' && src[j] != '"' && src[j] != '\\' {
			seen |= uint64(src[j])
			j++
		}
		if j >= len(src) {
			return n.fail(j, "unexpected end of text in a string"), false
		}
		switch src[j] {
		case '"':
			if seen&laneTops != 0 && !utf8.Valid(src[start:j]) {
				return n.fail(badUTF8(src, start), "invalid UTF-8 in a string"), false
			}
			return j + 1, escaped
		case '\\':
			escaped = true
			if j = n.escape(j); j < 0 {
				return j, false
			}
		default:
			return n.fail(j, "control character in a string"), false
		}
	}
}

// escape accepts the escape sequence at i, both halves of it for a surrogate pair.
func (n *normalizer) escape(i int) int {
	src := n.src
	if i+1 >= len(src) {
		return n.fail(len(src), "unexpected end of text in a string")
	}
	switch src[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return i + 2
	case 'u':
		unit := hexUnit(src, i)
		switch {
		case unit < 0:
			return n.fail(i, "bad \\u escape in a string")
		case unit < 0xD800 || unit > 0xDFFF:
			return i + 6
		case unit <= 0xDBFF:
			if low := hexUnit(src, i+6); low >= 0xDC00 && low <= 0xDFFF {
				return i + 12
			}
		}
		return n.fail(i, "lone surrogate escape in a string")
	}
	return n.fail(i, "bad escape in a string")
}

// dropDead cuts the replaced members out of the output in one pass. Spans may lie
// inside one another, when a replaced member held duplicates itself.
func (n *normalizer) dropDead() {
	slices.SortFunc(n.dead, func(a, b span) int { return int(a.start) - int(b.start) })
	text := n.out[n.base:]
	kept, read := 0, 0
	for _, d := range n.dead {
		if int(d.start) > read {
			kept += copy(text[kept:], text[read:d.start])
		}
		read = max(read, int(d.end))
	}
	kept += copy(text[kept:], text[read:])
	n.out = n.out[:n.base+kept]
}

// badUTF8 finds the first byte from i on that is no valid UTF-8; there is one.
func badUTF8(src []byte, i int) int {
	for i < len(src) {
		r, size := utf8.DecodeRune(src[i:])
		if r == utf8.RuneError && size <= 1 {
			break
		}
		i += size
	}
	return i
}

// hexUnit returns the UTF-16 unit of the \u escape at i, or -1 when there is none.
func hexUnit(b []byte, i int) rune {
	if len(b)-i < 6 || b[i] != '\\' || b[i+1] != 'u' {
		return -1
	}
	var unit rune
	for _, c := range b[i+2 : i+6] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		unit = unit<<4 | rune(c)
	}
	return unit
}

// numberEnd returns the position after the number at i; when the grammar of JSON
// numbers is broken it returns the offending position and false.
func numberEnd(b []byte, i int) (int, bool) {
	if i < len(b) && b[i] == '-' {
		i++
	}
	switch {
	case i >= len(b):
		return i, false
	case b[i] == '0':
		i++
	case b[i] >= '1' && b[i] <= '9':
		i = digitsEnd(b, i)
	default:
		return i, false
	}
	if i < len(b) && b[i] == '.' {
		i++
		end := digitsEnd(b, i)
		if end == i {
			return i, false
		}
		i = end
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		end := digitsEnd(b, i)
		if end == i {
			return i, false
		}
		i = end
	}
	return i, true
}

// digitsEnd returns the position after the decimal digits at i.
func digitsEnd(b []byte, i int) int {
	for i < len(b) && b[i]-'0' <= 9 {
		i++
	}
	return i
}
