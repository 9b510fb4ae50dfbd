package collate

import (
	"bytes"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// CompareStrings orders text as ICU's root collation does. Strings that differ
// only in code points without weight (controls, formatting marks) or only in
// canonical composition are equal, as they are in CouchDB; whoever needs a total
// order compares the bytes next.
func CompareStrings(a, b string) int {
	if a == b {
		return 0
	}
	if isASCII(a) && isASCII(b) {
		return compareASCII(a, b)
	}
	return compareText([]byte(a), []byte(b))
}

// compareText is CompareStrings for any text, by way of the keys.
func compareText(a, b []byte) int {
	var ka, kb [256]byte
	return bytes.Compare(appendText(ka[:0], a), appendText(kb[:0], b))
}

// isASCII tells whether the fast paths may be taken.
func isASCII[T string | []byte](s T) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// compareASCII walks both strings once: the first primary difference decides;
// the first tertiary difference is remembered for the case that none comes.
// ASCII has one secondary only, and no contractions with itself.
func compareASCII[T string | []byte](a, b T) int {
	t := root()
	tertiary := 0
	i := 0
	for i < len(a) && i < len(b) && a[i] == b[i] {
		i++
	}
	j := i
	for {
		var wa, wb weight
		for i < len(a) && wa == 0 {
			wa = t.ascii[a[i]]
			i++
		}
		for j < len(b) && wb == 0 {
			wb = t.ascii[b[j]]
			j++
		}
		if wa == wb {
			if wa == 0 {
				return tertiary
			}
			continue
		}
		if wa>>16 != wb>>16 {
			if wa>>16 < wb>>16 {
				return -1
			}
			return 1
		}
		if tertiary == 0 {
			tertiary = 1
			if wa < wb {
				tertiary = -1
			}
		}
	}
}

// appendText appends the sort key of a string: the primaries, two bytes each, a
// 0 byte; the secondaries' ranks without the common ones at the end, a 0 byte;
// the tertiaries likewise, a 0 byte. No level holds a 0 where a byte of it may
// begin, so the key ends itself and more can follow.
func appendText(dst, s []byte) []byte {
	if isASCII(s) {
		return appendASCII(dst, s)
	}
	// The copy keeps s from escaping into the normaliser: callers decode into
	// room on their stack, and ASCII, the common case, shall not allocate.
	var room [64]weight
	return appendLevels(dst, root().weigh(room[:0], bytes.Clone(s)))
}

// appendASCII is appendText for ASCII.
func appendASCII[T string | []byte](dst []byte, s T) []byte {
	t := root()
	upper := false
	for i := 0; i < len(s); i++ {
		if w := t.ascii[s[i]]; w != 0 {
			dst = append(dst, byte(w>>24), byte(w>>16))
			upper = upper || byte(w) != commonTertiary
		}
	}
	dst = append(dst, 0, 0) // no secondary differs from the common one
	if upper {
		last := len(dst)
		for i := 0; i < len(s); i++ {
			w := t.ascii[s[i]]
			if w == 0 {
				continue
			}
			dst = append(dst, byte(w))
			if byte(w) != commonTertiary {
				last = len(dst)
			}
		}
		dst = dst[:last]
	}
	return append(dst, 0)
}

// appendLevels writes the weights level by level.
func appendLevels(dst []byte, ws []weight) []byte {
	for _, w := range ws {
		if w>>16 != 0 {
			dst = append(dst, byte(w>>24), byte(w>>16))
		}
	}
	dst = append(dst, 0)
	last := len(dst)
	for _, w := range ws {
		if s := byte(w >> 8); s != 0 {
			dst = append(dst, s)
			if s != commonSecondary {
				last = len(dst)
			}
		}
	}
	dst = append(dst[:last], 0)
	last = len(dst)
	for _, w := range ws {
		if c := byte(w); c != 0 {
			dst = append(dst, c)
			if c != commonTertiary {
				last = len(dst)
			}
		}
	}
	return append(dst[:last], 0)
}

// weigh appends the weights of s: canonical decomposition, then the longest
// sequence the table knows at each place.
func (t *table) weigh(dst []weight, s []byte) []weight {
	if !norm.NFD.IsNormal(s) {
		s = norm.NFD.Append(make([]byte, 0, len(s)+16), s...)
	}
	return t.weighNormal(dst, s)
}

// weighNormal is weigh for decomposed text.
func (t *table) weighNormal(dst []weight, s []byte) []weight {
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRune(s[i:])
		i += n
		cell := *t.cell(r)
		switch {
		case cell == 0:
			dst = appendImplicit(dst, r)
		case cell&cellContraction != 0 && i < len(s):
			var used int
			dst, used = t.contract(dst, r, cell, s[i:])
			i += used
		default:
			dst = t.appendCell(dst, cell)
		}
	}
	return dst
}

// contract weighs a code point that starts contractions, and tells how much of
// the text behind it is done: first the longest sequence that follows at once,
// then, mark by mark, combining marks that no mark of the same class stands
// before (the algorithm's rule S2.1: a mark in between is weighed afterwards).
// Normalised text has at most 30 marks in a row, so this costs a bounded time.
func (t *table) contract(dst []weight, first rune, cell uint64, text []byte) ([]weight, int) {
	list := t.contractions[first]
	var best *contraction
	var have []rune
	used := 0
	for i := range list {
		if bytes.HasPrefix(text, list[i].text) {
			best, have, used = &list[i], list[i].rest, len(list[i].text)
			break
		}
	}
	var skipped []byte // marks that stand between and are weighed afterwards
	end := used        // the end of the last mark that joined
	lastClass := uint8(0)
	var pending []byte
	for i := used; i < len(text); {
		class := norm.NFD.Properties(text[i:]).CCC()
		if class == 0 {
			break
		}
		r, n := utf8.DecodeRune(text[i:])
		if c := find(list, have, r); c != nil && class != lastClass {
			best, have = c, c.rest
			skipped = append(skipped, pending...)
			pending = pending[:0]
			end = i + n
		} else {
			pending = append(pending, text[i:i+n]...)
			lastClass = class
		}
		i += n
	}
	if best == nil {
		return t.appendCell(dst, cell), 0
	}
	dst = append(dst, best.weights...)
	if len(skipped) > 0 {
		dst = t.weighNormal(dst, skipped)
	}
	return dst, end
}

// find gives the contraction that is have with one more code point.
func find(list []contraction, have []rune, more rune) *contraction {
next:
	for i := range list {
		rest := list[i].rest
		if len(rest) != len(have)+1 || rest[len(have)] != more {
			continue
		}
		for j, r := range have {
			if rest[j] != r {
				continue next
			}
		}
		return &list[i]
	}
	return nil
}
