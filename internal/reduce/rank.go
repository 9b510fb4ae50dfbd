package reduce

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/rawjson"
)

// rank is _top_N and _bottom_N: the N greatest or least values in the order of
// views, each once: as in CouchDB values that are equal in that order are one. Its
// state is the JSON array that a client sees.
type rank struct {
	n          int
	descending bool
	values     [][]byte // the best first
}

func (k *rank) reset() { k.values = k.values[:0] }

func (k *rank) addRows(rows []Row) {
	for i := range rows {
		k.add(rows[i].Value)
	}
}

// add puts a value into its place.
func (k *rank) add(v []byte) {
	if len(k.values) == k.n && k.compare(k.values[k.n-1], v) < 0 {
		return
	}
	i, equal := slices.BinarySearchFunc(k.values, v, k.compare)
	if equal {
		// Equal values can be spelled differently. Which one is shown must not
		// depend on the order in which copies answer.
		if cmp.Or(cmp.Compare(len(v), len(k.values[i])), bytes.Compare(v, k.values[i])) < 0 {
			k.values[i] = v
		}
		return
	}
	if len(k.values) == k.n {
		k.values = k.values[:k.n-1]
	}
	k.values = slices.Insert(k.values, i, v)
}

// compare orders the better first.
func (k *rank) compare(a, b []byte) int {
	if k.descending {
		return collate.Compare(b, a)
	}
	return collate.Compare(a, b)
}

func (k *rank) addState(s []byte) error {
	if !isArray(s) {
		return errState
	}
	for v := range rawjson.Elements(s) {
		k.add(v)
	}
	return nil
}

func (k *rank) appendState(dst []byte) []byte {
	dst = append(dst, '[')
	for i, v := range k.values {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(dst, v...)
	}
	return append(dst, ']')
}

// isArray tells whether a state has the brackets of an array.
func isArray(s []byte) bool { return len(s) >= 2 && s[0] == '[' && s[len(s)-1] == ']' }

// finalRank shows a state of _top_N or _bottom_N.
func finalRank(state []byte) ([]byte, error) {
	if !isArray(state) {
		return nil, errState
	}
	return bytes.Clone(state), nil
}
