package selector

import (
	"bytes"
	"math/big"
	"regexp"
	"strings"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// reader reads one selector and counts its nodes.
type reader struct {
	nodes int
}

// explicit reads a condition or selector and makes everything implicit explicit:
// a bare value is $eq, several members are an $and. Arguments are checked here.
func (r *reader) explicit(v []byte, depth int) (*node, error) {
	if depth > MaxDepth {
		return nil, badRequest("bad_request", "The selector is nested too deep.")
	}
	if r.nodes++; r.nodes > MaxConditions {
		return nil, errTooLarge("The selector has too many conditions.")
	}
	count := 0
	if rawjson.KindOf(v) == rawjson.KindObject {
		count = rawjson.Len(v)
	}
	if count == 0 {
		return &node{op: opEq, arg: v}, nil // a bare value, {} among them
	}
	and := &node{op: opAnd}
	for name, value := range rawjson.Members(v) {
		if r.nodes++; r.nodes > MaxConditions {
			return nil, errTooLarge("The selector has too many conditions.")
		}
		n, err := r.explicitMember(string(name), value, depth)
		if err != nil {
			return nil, err
		}
		if count == 1 {
			return n, nil
		}
		and.kids = append(and.kids, n)
	}
	return and, nil
}

// explicitMember reads one member: a field or an operator.
func (r *reader) explicitMember(name string, v []byte, depth int) (*node, error) {
	if !strings.HasPrefix(name, "$") {
		cond, err := r.explicit(v, depth+1)
		if err != nil {
			return nil, err
		}
		return &node{op: opField, field: name, kids: []*node{cond}}, nil
	}
	switch name {
	case "$and":
		return r.explicitList(opAnd, v, depth)
	case "$or":
		return r.explicitList(opOr, v, depth)
	case "$nor":
		return r.explicitList(opNor, v, depth)
	case "$not":
		return r.explicitOne(opNot, v, depth)
	case "$elemMatch":
		return r.explicitOne(opElemMatch, v, depth)
	case "$allMatch":
		return r.explicitOne(opAllMatch, v, depth)
	case "$keyMapMatch":
		return r.explicitOne(opKeyMapMatch, v, depth)
	case "$text":
		switch rawjson.KindOf(v) {
		case rawjson.KindString, rawjson.KindNumber, rawjson.KindBool:
			return nil, &model.Error{Kind: model.KindNotImplemented, Name: "not_implemented", Reason: "The operator $text is not offered."}
		}
		return nil, badArg(name, v)
	case "$where", "$geoWithin", "$geoIntersects", "$near", "$nearSphere":
		return nil, badRequest("not_supported", "Unsupported operator: "+name)
	}
	for o := opEq; int(o) < len(opNames); o++ {
		if opNames[o] == name {
			return condition(o, v)
		}
	}
	return nil, badRequest("invalid_operator", "Invalid operator: "+excerpt([]byte(name)))
}

// explicitList reads the argument of $and, $or or $nor.
func (r *reader) explicitList(o op, v []byte, depth int) (*node, error) {
	if rawjson.KindOf(v) != rawjson.KindArray {
		return nil, badArg(opNames[o], v)
	}
	n := &node{op: o}
	for e := range rawjson.Elements(v) {
		kid, err := r.explicit(e, depth+1)
		if err != nil {
			return nil, err
		}
		n.kids = append(n.kids, kid)
	}
	return n, nil
}

// explicitOne reads the argument of an operator that takes one selector.
func (r *reader) explicitOne(o op, v []byte, depth int) (*node, error) {
	if rawjson.KindOf(v) != rawjson.KindObject {
		return nil, badArg(opNames[o], v)
	}
	kid, err := r.explicit(v, depth+1)
	if err != nil {
		return nil, err
	}
	return &node{op: o, kids: []*node{kid}}, nil
}

// condition checks the argument of an operator that holds no selector.
func condition(o op, v []byte) (*node, error) {
	n := &node{op: o, arg: v}
	kind := rawjson.KindOf(v)
	ok := true
	switch o {
	case opIn, opNin, opAll:
		ok = kind == rawjson.KindArray
	case opExists:
		ok = kind == rawjson.KindBool
	case opType, opBeginsWith:
		ok = kind == rawjson.KindString
	case opSize:
		size, isInt := rawjson.Int(v)
		ok = isInt && size >= 0
	case opMod:
		div, _ := modArgs(v)
		ok = div != nil
	case opRegex:
		pattern, isString := rawjson.String(v)
		if !isString {
			return nil, badArg(opNames[o], v)
		}
		if len(pattern) > MaxPattern {
			return nil, badRequest("bad_arg", "Bad argument for operator $regex: the pattern is too long.")
		}
		re, err := regexp.Compile(pattern)
		if err != nil {
			e := badArg(opNames[o], v)
			e.Err = err
			return nil, e
		}
		n.re = re
	}
	if !ok {
		return nil, badArg(opNames[o], v)
	}
	return n, nil
}

// modArgs reads [divisor, remainder]: two integers, the first not 0. It gives
// nil for anything else.
func modArgs(v []byte) (div, rem *big.Int) {
	if rawjson.KindOf(v) != rawjson.KindArray || rawjson.Len(v) != 2 {
		return nil, nil
	}
	var both [2]*big.Int
	i := 0
	for e := range rawjson.Elements(v) {
		n, ok := integer(e)
		if !ok {
			return nil, nil
		}
		both[i] = n
		i++
	}
	if both[0].Sign() == 0 {
		return nil, nil
	}
	return both[0], both[1]
}

// maxDigits bounds the integers that $mod computes with: the time to read one
// grows with the square of its length.
const maxDigits = 4096

// integer reads a number spelled as an integer.
func integer(v []byte) (*big.Int, bool) {
	if rawjson.KindOf(v) != rawjson.KindNumber || len(v) > maxDigits || bytes.ContainsAny(v, ".eE") {
		return nil, false
	}
	return new(big.Int).SetString(string(v), 10)
}
