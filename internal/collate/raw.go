package collate

import (
	"bytes"
	"cmp"
	"iter"

	"github.com/divandb/divan/internal/rawjson"
)

// The raw order is that of views with options.collation "raw": the order of Erlang's
// terms, since that is how CouchDB compares such keys. Numbers by value; false, null,
// true, by their names; objects, as lists of pairs of name and value; arrays; text,
// by its bytes.

// The first byte of a value's key in the raw order. tagEnd ends arrays and objects
// here too.
const (
	rawNumber = 0x10
	rawFalse  = 0x20
	rawNull   = 0x21
	rawTrue   = 0x22
	rawObject = 0x30
	rawArray  = 0x40
	rawString = 0x50
)

// rawTagOf gives the tag of a normalised value in the raw order.
func rawTagOf(v []byte) byte {
	switch rawjson.KindOf(v) {
	case rawjson.KindBool:
		if v[0] == 't' {
			return rawTrue
		}
		return rawFalse
	case rawjson.KindNumber:
		return rawNumber
	case rawjson.KindString:
		return rawString
	case rawjson.KindArray:
		return rawArray
	case rawjson.KindObject:
		return rawObject
	}
	return rawNull
}

// CompareRaw orders two normalised JSON values in the raw order: -1, 0 or 1.
func CompareRaw(a, b []byte) int {
	ta, tb := rawTagOf(a), rawTagOf(b)
	if ta != tb {
		return cmp.Compare(ta, tb)
	}
	switch ta {
	case rawNumber:
		return compareNumbers(a, b)
	case rawString:
		var ra, rb [128]byte
		return bytes.Compare(decode(ra[:0], a), decode(rb[:0], b))
	case rawArray:
		return compareRawArrays(a, b)
	case rawObject:
		return compareRawObjects(a, b)
	}
	return 0
}

// compareRawArrays goes element by element; the shorter is first.
func compareRawArrays(a, b []byte) int {
	next, stop := iter.Pull(rawjson.Elements(b))
	defer stop()
	for x := range rawjson.Elements(a) {
		y, ok := next()
		if !ok {
			return 1
		}
		if c := CompareRaw(x, y); c != 0 {
			return c
		}
	}
	if _, more := next(); more {
		return -1
	}
	return 0
}

// compareRawObjects goes member by member as they are written: names, then values;
// the shorter is first.
func compareRawObjects(a, b []byte) int {
	next, stop := iter.Pull2(rawjson.Members(b))
	defer stop()
	for nameA, x := range rawjson.Members(a) {
		nameB, y, ok := next()
		if !ok {
			return 1
		}
		if c := cmp.Or(bytes.Compare(nameA, nameB), CompareRaw(x, y)); c != 0 {
			return c
		}
	}
	if _, _, more := next(); more {
		return -1
	}
	return 0
}

// AppendRawKey is AppendKey for the raw order: bytes that sort as CompareRaw orders,
// and end themselves.
func AppendRawKey(dst, v []byte) []byte {
	tag := rawTagOf(v)
	dst = append(dst, tag)
	switch tag {
	case rawNumber:
		return appendNumber(dst, v)
	case rawString:
		var room [128]byte
		return appendRawText(dst, decode(room[:0], v))
	case rawArray:
		for x := range rawjson.Elements(v) {
			dst = AppendRawKey(dst, x)
		}
		return append(dst, tagEnd)
	case rawObject:
		for name, x := range rawjson.Members(v) {
			dst = appendRawText(append(dst, rawString), name)
			dst = AppendRawKey(dst, x)
		}
		return append(dst, tagEnd)
	}
	return dst
}

// appendRawText appends text so that no key is the beginning of another: 0 becomes
// 0 255, and 0 1 is the end.
func appendRawText(dst, s []byte) []byte {
	for {
		k := bytes.IndexByte(s, 0)
		if k < 0 {
			return append(append(dst, s...), 0, 1)
		}
		dst = append(append(dst, s[:k]...), 0, 255)
		s = s[k+1:]
	}
}
