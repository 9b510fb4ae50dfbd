package collate

import "github.com/divandb/divan/internal/rawjson"

// ArrayPrefix appends what the sort keys of all arrays begin with that begin with
// the same n elements as the array v, and no other sort key does. So it is where a
// group of group_level n lies. ok is false, and nothing is appended, where v is no
// array or has fewer elements: such a key is a group for itself, with the sort key
// that AppendKey or, in the raw order, AppendRawKey gives.
func ArrayPrefix(dst, v []byte, n int, raw bool) (_ []byte, ok bool) {
	if n < 1 || rawjson.KindOf(v) != rawjson.KindArray {
		return dst, false
	}
	start := len(dst)
	if raw {
		dst = append(dst, rawArray)
	} else {
		dst = append(dst, tagArray)
	}
	for x := range rawjson.Elements(v) {
		if raw {
			dst = AppendRawKey(dst, x)
		} else {
			dst = AppendKey(dst, x)
		}
		if n--; n == 0 {
			return dst, true
		}
	}
	return dst[:start], false
}
