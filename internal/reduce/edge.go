package reduce

import (
	"bytes"
	"cmp"
	"strings"
)

// edge is _first and _last: the value of the first or the last row in the order of
// the view, by key and then by id. Its state is the row's place and value, so that
// states of several copies can be compared; nothing at all for no row.
type edge struct {
	last  bool
	found bool
	sort  []byte
	id    string
	value []byte
}

func (e *edge) reset() { *e = edge{last: e.last} }

func (e *edge) addRows(rows []Row) {
	for i := range rows {
		e.add(rows[i].Sort, rows[i].ID, rows[i].Value)
	}
}

// add takes a row if it lies further out. Rows of one document with equal keys are
// in the order in which they were emitted, and come here in that order.
func (e *edge) add(sort []byte, id string, value []byte) {
	if e.found {
		c := cmp.Or(bytes.Compare(sort, e.sort), strings.Compare(id, e.id))
		if !e.last && c >= 0 || e.last && c < 0 {
			return
		}
	}
	e.found, e.sort, e.id, e.value = true, sort, id, value
}

func (e *edge) addState(s []byte) error {
	if len(s) == 0 {
		return nil
	}
	sort, id, value, ok := cutEdge(s)
	if !ok {
		return errState
	}
	e.add(sort, string(id), value)
	return nil
}

func (e *edge) appendState(dst []byte) []byte {
	if !e.found {
		return dst
	}
	dst = appendPiece(dst, e.sort)
	dst = appendPiece(dst, e.id)
	return append(dst, e.value...)
}

// cutEdge takes a state apart.
func cutEdge(s []byte) (sort, id, value []byte, ok bool) {
	sort, s, ok = cutBytes(s)
	if !ok {
		return nil, nil, nil, false
	}
	id, value, ok = cutBytes(s)
	return sort, id, value, ok && len(value) > 0
}

// finalEdge shows a state of _first or _last.
func finalEdge(state []byte) ([]byte, error) {
	if len(state) == 0 {
		return []byte("null"), nil
	}
	_, _, value, ok := cutEdge(state)
	if !ok {
		return nil, errState
	}
	return bytes.Clone(value), nil
}
