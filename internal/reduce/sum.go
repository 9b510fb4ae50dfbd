package reduce

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/divandb/divan/internal/rawjson"
)

// sum is _sum: numbers, arrays of numbers element by element, objects member by
// member. A number among arrays counts as an array of one; objects do not mix with
// either. The faults of values are values themselves, shown in the row.
//
// A state is a byte for its sort and then a number, a tree (with the length of its
// JSON before it) or the JSON of a fault.
type sum struct {
	number
	tree    *sumNode // set once there was an array or an object; number is in it then
	fault   []byte   // set by the first value that cannot be added
	started bool     // something was added
	input   int      // how many bytes went in, for the check that a reduction shrinks
}

// The sorts of states.
const (
	sumNumber = 'n'
	sumTree   = 't'
	sumFault  = 'e'
)

// What is said of a value that cannot be added, in CouchDB's words.
const sumReason = "The _sum function requires that map values be numbers, arrays of numbers, or objects. Objects cannot be mixed with other data structures. Objects can be arbitrarily nested, provided that the values for all fields are themselves numbers, arrays of numbers, or objects."

// sumRange is said of a sum that no float holds.
const sumRange = "The sum is beyond the range of floating point numbers."

// Output over overflowSize bytes must be at most half the input.
const overflowSize = 5000

func (s *sum) reset() {
	s.number.reset()
	s.tree, s.fault, s.started, s.input = nil, nil, false, 0
}

func (s *sum) addRows(rows []Row) {
	for i := range rows {
		r := &rows[i]
		s.input += len(r.Key) + len(r.ID) + len(r.Value)
		if n, ok := rawjson.Int(r.Value); ok && s.tree == nil {
			s.number.addInt(n)
			s.started = true
			continue
		}
		if s.addValue(r.Value); s.fault != nil {
			return
		}
	}
}

// addValue adds a value of any sort.
func (s *sum) addValue(v []byte) {
	if s.tree == nil {
		if n := readNumber(v); n.kind != notNumber {
			s.number.add(n)
			s.started = true
			return
		}
	} else if s.tree.addFlat(v) {
		return
	}
	node := readNode(v, 0)
	if s.fault = node.givenFault(); s.fault == nil {
		s.addNode(node)
	}
}

// addNode adds a tree.
func (s *sum) addNode(node *sumNode) {
	switch {
	case s.tree != nil:
	case node.kind == nodeArray:
		// A sum begins with 0, and that makes [0] of no elements.
		s.toArray()
	case node.kind == nodeObject && !s.started:
		s.tree, s.started = node, true
		return
	}
	s.started = true
	if s.tree == nil || !s.tree.add(node, &s.fault) {
		if s.fault == nil {
			s.fault = sumFaultOf(node)
		}
	}
}

// toArray makes the number so far the first element of an array.
func (s *sum) toArray() {
	first := &sumNode{kind: nodeNumber}
	first.number.addNumber(&s.number)
	s.tree = &sumNode{kind: nodeArray, items: []*sumNode{first}}
}

// sumFaultOf gives the JSON that is shown for a value that cannot be added.
func sumFaultOf(cause *sumNode) []byte {
	out := []byte(`{"error":"builtin_reduce_error","reason":`)
	out = rawjson.AppendString(out, sumReason)
	out = append(out, `,"caused_by":`...)
	out, _ = cause.appendJSON(out)
	return append(out, '}')
}

func (s *sum) addState(state []byte) error {
	if len(state) == 0 {
		return errState
	}
	if s.fault != nil {
		return nil
	}
	body := state[1:]
	switch state[0] {
	case sumFault:
		s.fault = body
		s.input += len(body)
		return nil
	case sumNumber:
		return s.addNumberState(body)
	case sumTree:
		size, used := binary.Uvarint(body)
		if used <= 0 {
			return errState
		}
		node, rest, ok := decodeNode(body[used:], 0)
		if !ok || len(rest) > 0 {
			return errState
		}
		s.addNode(node)
		s.input += int(size)
		return nil
	}
	return errState
}

// addNumberState adds the state of a sum of numbers.
func (s *sum) addNumberState(body []byte) error {
	s.input += len(body)
	if s.tree == nil {
		s.started = true
		if rest, ok := s.number.addBytes(body); !ok || len(rest) > 0 {
			return errState
		}
		return nil
	}
	node := &sumNode{kind: nodeNumber}
	if rest, ok := node.number.addBytes(body); !ok || len(rest) > 0 {
		return errState
	}
	s.addNode(node)
	return nil
}

func (s *sum) appendState(dst []byte) []byte {
	if s.fault == nil && s.tree == nil {
		return s.number.appendBytes(append(dst, sumNumber))
	}
	if s.fault == nil {
		shown, _ := s.tree.appendJSON(nil)
		if !s.overflows(len(shown)) {
			dst = binary.AppendUvarint(append(dst, sumTree), uint64(len(shown)))
			return s.tree.appendBytes(dst)
		}
	} else {
		s.overflows(len(s.fault))
	}
	return append(append(dst, sumFault), s.fault...)
}

// overflows tells whether the output is too large for its input, and makes that
// the fault. It bounds the states of values that only grow, such as objects whose
// members are all different.
func (s *sum) overflows(output int) bool {
	if output <= overflowSize || 2*output <= s.input {
		return false
	}
	s.fault = []byte(`{"error":"builtin_reduce_error","reason":"` + overflowReason(s.input, output) + `"}`)
	return true
}

// overflowReason is said of a reduction that does not shrink, in CouchDB's words.
func overflowReason(input, output int) string {
	return fmt.Sprintf("Reduce output must shrink more rapidly: input size: %d output size: %d", input, output)
}

// finalSum shows a state of _sum.
func finalSum(state []byte) ([]byte, error) {
	var s sum
	if err := s.addState(state); err != nil {
		return nil, err
	}
	if s.fault != nil {
		return bytes.Clone(s.fault), nil
	}
	var out []byte
	var ok bool
	if s.tree != nil {
		out, ok = s.tree.appendJSON(nil)
	} else {
		out, ok = s.number.appendJSON(nil)
	}
	if !ok {
		return []byte(`{"error":"builtin_reduce_error","reason":"` + sumRange + `"}`), nil
	}
	return out, nil
}
