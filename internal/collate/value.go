package collate

import (
	"bytes"
	"cmp"
	"iter"

	"github.com/divandb/divan/internal/rawjson"
)

// The first byte of a value's key. 0 ends an array or an object and is lower
// than every value, which puts the shorter one first.
const (
	tagEnd    = 0x00
	tagNull   = 0x10
	tagFalse  = 0x20
	tagTrue   = 0x21
	tagNumber = 0x30
	tagString = 0x40
	tagArray  = 0x50
	tagObject = 0x60
)

// tagOf gives the tag of a normalised value.
func tagOf(v []byte) byte {
	switch rawjson.KindOf(v) {
	case rawjson.KindBool:
		if v[0] == 't' {
			return tagTrue
		}
		return tagFalse
	case rawjson.KindNumber:
		return tagNumber
	case rawjson.KindString:
		return tagString
	case rawjson.KindArray:
		return tagArray
	case rawjson.KindObject:
		return tagObject
	}
	return tagNull
}

// Compare orders two normalised JSON values: -1, 0 or 1. Values that it calls
// equal may be spelled differently (1 and 1.0, composed and decomposed text).
func Compare(a, b []byte) int {
	ta, tb := tagOf(a), tagOf(b)
	if ta != tb {
		return cmp.Compare(ta, tb)
	}
	switch ta {
	case tagNumber:
		return compareNumbers(a, b)
	case tagString:
		return compareQuoted(a, b)
	case tagArray:
		return compareArrays(a, b)
	case tagObject:
		return compareObjects(a, b)
	}
	return 0
}

// compareQuoted orders two JSON strings, without decoding where nothing is
// escaped.
func compareQuoted(a, b []byte) int {
	if bytes.Equal(a, b) {
		return 0
	}
	var ra, rb [128]byte
	return compareDecoded(decode(ra[:0], a), decode(rb[:0], b))
}

// compareDecoded orders text held as bytes.
func compareDecoded(a, b []byte) int {
	if bytes.Equal(a, b) {
		return 0
	}
	if isASCII(a) && isASCII(b) {
		return compareASCII(a, b)
	}
	return compareText(a, b)
}

// decode gives the text of a JSON string: a part of v itself when nothing is
// escaped, else decoded into room.
func decode(room, v []byte) []byte {
	if len(v) >= 2 && bytes.IndexByte(v, '\\') < 0 {
		return v[1 : len(v)-1]
	}
	text, _ := rawjson.AppendUnquoted(room, v)
	return text
}

// compareArrays goes element by element; the shorter is first.
func compareArrays(a, b []byte) int {
	next, stop := iter.Pull(rawjson.Elements(b))
	defer stop()
	for x := range rawjson.Elements(a) {
		y, ok := next()
		if !ok {
			return 1
		}
		if c := Compare(x, y); c != 0 {
			return c
		}
	}
	if _, more := next(); more {
		return -1
	}
	return 0
}

// compareObjects goes member by member as they are written: names, then values;
// the shorter is first.
func compareObjects(a, b []byte) int {
	next, stop := iter.Pull2(rawjson.Members(b))
	defer stop()
	for nameA, x := range rawjson.Members(a) {
		nameB, y, ok := next()
		if !ok {
			return 1
		}
		if c := compareDecoded(nameA, nameB); c != 0 {
			return c
		}
		if c := Compare(x, y); c != 0 {
			return c
		}
	}
	if _, _, more := next(); more {
		return -1
	}
	return 0
}

// AppendKey appends bytes that sort as Compare orders: for all values,
// bytes.Compare(AppendKey(nil, a), AppendKey(nil, b)) == Compare(a, b). A key
// ends itself, so keys and other fields may follow one another. It cannot be
// turned back into the value.
func AppendKey(dst, v []byte) []byte {
	tag := tagOf(v)
	dst = append(dst, tag)
	switch tag {
	case tagNumber:
		return appendNumber(dst, v)
	case tagString:
		var room [128]byte
		return appendText(dst, decode(room[:0], v))
	case tagArray:
		for x := range rawjson.Elements(v) {
			dst = AppendKey(dst, x)
		}
		return append(dst, tagEnd)
	case tagObject:
		for name, x := range rawjson.Members(v) {
			dst = appendText(append(dst, tagString), name)
			dst = AppendKey(dst, x)
		}
		return append(dst, tagEnd)
	}
	return dst
}
