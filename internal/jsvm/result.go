package jsvm

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/divandb/divan/internal/rawjson"
)

// result is what one function made of one item.
type result struct {
	json []byte // an array
	err  error
}

// replyDepth bounds the nesting of results: documents of the greatest depth the
// server takes, within the arrays of a reply.
const replyDepth = 1200

var errNoResult = errors.New("the script gave what is no result")

// openReply checks the text that a worker sent, and takes it apart into the array of
// results, in memory of its own, and the lines of the log.
func openReply(reply []byte) (results []byte, lines []string, err error) {
	whole, err := rawjson.Normalize(make([]byte, 0, len(reply)), pairSurrogates(reply), replyDepth)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", errNoResult, err)
	}
	if rawjson.KindOf(whole) != rawjson.KindArray {
		return nil, nil, errNoResult
	}
	part := 0
	for v := range rawjson.Elements(whole) {
		if part++; part == 1 {
			results = v
			continue
		}
		if rawjson.KindOf(v) == rawjson.KindArray {
			for line := range rawjson.Elements(v) {
				if s, ok := rawjson.String(line); ok {
					lines = append(lines, s)
				}
			}
		}
	}
	if len(results) == 0 {
		return nil, nil, errNoResult
	}
	return results, lines, nil
}

// splitReply takes the results apart, of which there must be n.
func splitReply(results []byte, n int) ([]result, error) {
	switch rawjson.KindOf(results) {
	case rawjson.KindArray:
	case rawjson.KindObject:
		return unpack(results, n)
	default:
		return nil, errNoResult
	}
	out := make([]result, 0, n)
	for v := range rawjson.Elements(results) {
		if len(out) == n {
			return nil, errNoResult
		}
		switch rawjson.KindOf(v) {
		case rawjson.KindArray:
			out = append(out, result{json: v})
		case rawjson.KindObject:
			thrown, ok := thrownOf(v)
			if !ok {
				return nil, errNoResult
			}
			out = append(out, result{err: thrown})
		default:
			return nil, errNoResult
		}
	}
	if len(out) != n {
		return nil, errNoResult
	}
	return out, nil
}

// unpack makes results of {"n":[count or thrown,…],"f":[key,value,…]}.
func unpack(packed []byte, n int) ([]result, error) {
	counts, _ := rawjson.Get(packed, "n")
	flat, _ := rawjson.Get(packed, "f")
	if rawjson.KindOf(counts) != rawjson.KindArray || rawjson.KindOf(flat) != rawjson.KindArray {
		return nil, errNoResult
	}
	out := make([]result, 0, n)
	left := make([]int64, 0, n) // values that each result still gets
	for v := range rawjson.Elements(counts) {
		if len(out) == n {
			return nil, errNoResult
		}
		if rawjson.KindOf(v) == rawjson.KindObject {
			thrown, ok := thrownOf(v)
			if !ok {
				return nil, errNoResult
			}
			out, left = append(out, result{err: thrown}), append(left, 0)
			continue
		}
		count, ok := rawjson.Int(v)
		if !ok || count < 0 || count > int64(len(flat)) {
			return nil, errNoResult
		}
		out, left = append(out, result{json: noRows}), append(left, 2*count)
	}
	// A pair gets two brackets, and each result two more: the memory never moves.
	rows := make([]byte, 0, 2*len(flat)+2*n)
	at, start := 0, 0
	isKey := true
	for v := range rawjson.Elements(flat) {
		for at < len(out) && left[at] == 0 {
			at++
		}
		if at == len(out) {
			return nil, errNoResult
		}
		switch {
		case !isKey:
			rows = append(append(append(rows, ','), v...), ']')
		case start == len(rows):
			rows = append(append(rows, "[["...), v...)
		default:
			rows = append(append(rows, ",["...), v...)
		}
		isKey = !isKey
		if left[at]--; left[at] == 0 {
			rows = append(rows, ']')
			out[at].json = rows[start:len(rows):len(rows)]
			start = len(rows)
		}
	}
	for ; at < len(out); at++ {
		if left[at] != 0 {
			return nil, errNoResult
		}
	}
	if len(out) != n {
		return nil, errNoResult
	}
	return out, nil
}

// noRows is the result of a map function that emitted nothing.
var noRows = []byte("[]")

// thrownOf reads {"e":[name,reason]}.
func thrownOf(v []byte) (*Thrown, bool) {
	pair, ok := rawjson.Get(v, "e")
	if !ok || rawjson.KindOf(pair) != rawjson.KindArray {
		return nil, false
	}
	var t Thrown
	n := 0
	for part := range rawjson.Elements(pair) {
		s, ok := rawjson.String(part)
		if !ok {
			return nil, false
		}
		switch n++; n {
		case 1:
			t.Name = s
		case 2:
			t.Reason = s
		}
	}
	return &t, n == 2
}

// only gives the one element of an array.
func only(arr []byte) (v []byte, ok bool) {
	n := 0
	for e := range rawjson.Elements(arr) {
		v = e
		n++
	}
	return v, n == 1
}

// isRows says that v is an array of pairs: a script can make its own emit, or what
// turns its rows into text, give something else.
func isRows(v []byte) bool {
	for row := range rawjson.Elements(v) {
		if rawjson.KindOf(row) != rawjson.KindArray || rawjson.Len(row) != 2 {
			return false
		}
	}
	return true
}

// pairSurrogates replaces escapes of lone surrogates by that of U+FFFD. A string of
// JavaScript can hold one half of a pair, JSON text as the server keeps it cannot.
func pairSurrogates(text []byte) []byte {
	if !bytes.Contains(text, []byte(`\ud`)) {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); {
		if text[i] != '\\' || i+1 >= len(text) {
			out = append(out, text[i])
			i++
			continue
		}
		switch half := surrogate(text[i:]); {
		case half == 'h' && surrogate(text[min(i+6, len(text)):]) == 'l':
			out = append(out, text[i:i+12]...)
			i += 12
		case half != 0:
			out = append(out, `\ufffd`...)
			i += 6
		default:
			out = append(out, text[i], text[i+1])
			i += 2
		}
	}
	return out
}

// surrogate says which half of a pair the escape at the start of text is: 'h', 'l',
// or 0 for none.
func surrogate(text []byte) byte {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' || text[2]|0x20 != 'd' {
		return 0
	}
	if !isHex(text[3]) || !isHex(text[4]) || !isHex(text[5]) {
		return 0
	}
	switch c := text[3] | 0x20; {
	case c >= 'c':
		return 'l'
	case c >= '8':
		return 'h'
	default:
		return 0
	}
}

func isHex(c byte) bool {
	return c >= '0' && c <= '9' || c|0x20 >= 'a' && c|0x20 <= 'f'
}
