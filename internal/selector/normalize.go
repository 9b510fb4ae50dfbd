package selector

import (
	"strings"
)

// fieldPusher moves field names down to the conditions, and counts what that
// writes.
type fieldPusher struct {
	written int
}

// push gives n with every condition directly under its full field name: through
// combinations the name goes down, nested fields join with a dot. The Match
// operators start anew, their fields are those of an element.
func (f *fieldPusher) push(n *node, path string) (*node, error) {
	switch n.op {
	case opField:
		name := n.field
		if path != "" {
			name = path + "." + name
		}
		return f.push(n.kids[0], name)
	case opAnd, opOr, opNor, opNot:
		out := &node{op: n.op, kids: make([]*node, len(n.kids))}
		for i, kid := range n.kids {
			var err error
			if out.kids[i], err = f.push(kid, path); err != nil {
				return nil, err
			}
		}
		return out, nil
	case opElemMatch, opAllMatch, opKeyMapMatch:
		kid, err := f.push(n.kids[0], "")
		if err != nil {
			return nil, err
		}
		n = &node{op: n.op, kids: []*node{kid}}
	}
	if f.written += len(path); f.written > MaxFieldText {
		return nil, errTooLarge("The field names of the selector are too long together.")
	}
	parts, err := splitField(path)
	if err != nil {
		return nil, err
	}
	return &node{op: opField, field: path, path: parts, kids: []*node{n}}, nil
}

// splitField takes a dotted name apart. A dot behind a backslash is part of a
// name; backslashes are dropped. The empty name is the value itself.
func splitField(field string) ([]string, error) {
	if field == "" {
		return nil, nil
	}
	var parts []string
	start := 0
	for i := 0; i <= len(field); i++ {
		if i < len(field) && (field[i] != '.' || i > 0 && field[i-1] == '\\') {
			continue
		}
		part := strings.ReplaceAll(field[start:i], `\`, "")
		if part == "" {
			return nil, badRequest("invalid_field_name", "Invalid field name: "+excerpt([]byte(field)))
		}
		parts = append(parts, part)
		start = i + 1
	}
	return parts, nil
}

// sinkNegations moves $not and $nor down to the conditions, so that a planner
// can see ranges through them. It does not enter the Match operators: there a
// $not stays what it says, also for elements that lack the field.
func sinkNegations(n *node) *node {
	switch n.op {
	case opNot:
		return negate(n.kids[0])
	case opNor:
		return &node{op: opAnd, kids: each(n.kids, negate)}
	case opAnd, opOr:
		return &node{op: n.op, kids: each(n.kids, sinkNegations)}
	}
	return n
}

// negated are the conditions that have an opposite.
var negated = map[op]op{
	opLt: opGte, opGte: opLt, opLte: opGt, opGt: opLte, opEq: opNe, opNe: opEq, opIn: opNin, opNin: opIn,
}

// negate gives the opposite of n, by De Morgan's laws where n combines.
func negate(n *node) *node {
	switch n.op {
	case opNot:
		return sinkNegations(n.kids[0])
	case opNor:
		return &node{op: opOr, kids: each(n.kids, sinkNegations)}
	case opAnd:
		return &node{op: opOr, kids: each(n.kids, negate)}
	case opOr:
		return &node{op: opAnd, kids: each(n.kids, negate)}
	case opField:
		return &node{op: opField, field: n.field, path: n.path, kids: each(n.kids, negate)}
	case opExists:
		arg := "true"
		if n.arg[0] == 't' {
			arg = "false"
		}
		return &node{op: opExists, arg: []byte(arg)}
	}
	if opposite, ok := negated[n.op]; ok {
		return &node{op: opposite, arg: n.arg}
	}
	return &node{op: opNot, kids: []*node{n}}
}

// each maps nodes.
func each(list []*node, f func(*node) *node) []*node {
	out := make([]*node, len(list))
	for i, n := range list {
		out[i] = f(n)
	}
	return out
}
