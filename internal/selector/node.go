package selector

import (
	"math/big"
	"regexp"
	"slices"

	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/rawjson"
)

// op is what a node does.
type op uint8

// The operators. opField is a field name above one condition.
const (
	opField op = iota
	opAnd
	opOr
	opNot
	opNor
	opEq
	opNe
	opGt
	opGte
	opLt
	opLte
	opIn
	opNin
	opExists
	opType
	opMod
	opSize
	opRegex
	opAll
	opElemMatch
	opAllMatch
	opKeyMapMatch
	opBeginsWith
)

// opNames are the operators as they are written.
var opNames = [...]string{
	opAnd: "$and", opOr: "$or", opNot: "$not", opNor: "$nor",
	opEq: "$eq", opNe: "$ne", opGt: "$gt", opGte: "$gte", opLt: "$lt", opLte: "$lte",
	opIn: "$in", opNin: "$nin", opExists: "$exists", opType: "$type", opMod: "$mod", opSize: "$size",
	opRegex: "$regex", opAll: "$all", opElemMatch: "$elemMatch", opAllMatch: "$allMatch",
	opKeyMapMatch: "$keyMapMatch", opBeginsWith: "$beginsWith",
}

// node is one node of the tree: a combination, a field with its condition, or a
// condition. Trees are built by Parse and never changed afterwards.
type node struct {
	op    op
	kids  []*node // of combinations; of opField and the Match operators exactly one
	field string  // of opField: the dotted path as it is written
	path  []string
	slot  int    // of opField at the top: place of path[0] among the selector's names
	arg   []byte // of conditions: the argument as JSON

	raw    bool     // compare by bytes: below _id
	text   string   // the argument when it is a string
	isText bool     // whether it is
	args   [][]byte // elements of a list argument; of $in and $nin sorted
	yes    bool     // of $exists
	size   int64    // of $size
	div    *big.Int // of $mod, with rem; div64 and rem64 when small
	rem    *big.Int
	div64  int64
	rem64  int64
	small  bool // div64 and rem64 hold
	re     *regexp.Regexp
}

// prepare works out what matching wants to know of each condition, once.
func (n *node) prepare(raw bool) {
	n.raw = raw || n.op == opField && n.field == "_id"
	for _, kid := range n.kids {
		kid.prepare(n.raw)
	}
	if n.arg == nil {
		return
	}
	n.text, n.isText = rawjson.String(n.arg)
	switch n.op {
	case opIn, opNin, opAll:
		for v := range rawjson.Elements(n.arg) {
			n.args = append(n.args, v)
		}
	case opExists:
		n.yes, _ = rawjson.Bool(n.arg)
	case opSize:
		n.size, _ = rawjson.Int(n.arg)
	case opMod:
		n.div, n.rem = modArgs(n.arg)
		if n.div.IsInt64() && n.rem.IsInt64() {
			n.div64, n.rem64, n.small = n.div.Int64(), n.rem.Int64(), true
		}
	}
	if n.op == opIn || n.op == opNin {
		order := collate.Compare
		if n.raw {
			order = compareRaw
		}
		slices.SortFunc(n.args, order)
	}
}

// appendJSON appends the node in the normal form.
func (n *node) appendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	switch n.op {
	case opField:
		dst = append(rawjson.AppendString(dst, n.field), ':')
		dst = n.kids[0].appendJSON(dst)
	case opAnd, opOr, opNor:
		dst = append(rawjson.AppendString(dst, opNames[n.op]), ':', '[')
		for i, kid := range n.kids {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = kid.appendJSON(dst)
		}
		dst = append(dst, ']')
	case opNot, opElemMatch, opAllMatch, opKeyMapMatch:
		dst = append(rawjson.AppendString(dst, opNames[n.op]), ':')
		dst = n.kids[0].appendJSON(dst)
	default:
		dst = append(rawjson.AppendString(dst, opNames[n.op]), ':')
		dst = append(dst, n.arg...)
	}
	return append(dst, '}')
}
