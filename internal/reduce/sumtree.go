package reduce

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/divandb/divan/internal/rawjson"
)

// sumNode is a sum of arrays or objects. A value that is no number, array or
// object has a place in it too: it is a fault only once something is added to it,
// as in CouchDB.
type sumNode struct {
	kind    nodeKind
	number  number      // nodeNumber
	items   []*sumNode  // nodeArray: numbers and opaque ones
	members []sumMember // nodeObject
	sorted  bool        // the members are: they were added to others
	raw     []byte      // nodeOpaque: JSON
}

// sumMember is a member of a sum of objects.
type sumMember struct {
	name  string
	value *sumNode
}

// nodeKind is what a node is.
type nodeKind byte

const (
	nodeNumber nodeKind = 'n'
	nodeArray  nodeKind = 'a'
	nodeObject nodeKind = 'o'
	nodeSorted nodeKind = 's' // in states only: an object with sorted
	nodeOpaque nodeKind = 'x'
)

// maxDepth is how deep objects are looked into.
const maxDepth = 200

// readNode reads a JSON value.
func readNode(v []byte, depth int) *sumNode {
	switch kind := rawjson.KindOf(v); {
	case depth > maxDepth:
	case kind == rawjson.KindNumber:
		if n := readNumber(v); n.kind != notNumber {
			node := &sumNode{kind: nodeNumber}
			node.number.add(n)
			return node
		}
	case kind == rawjson.KindArray:
		node := &sumNode{kind: nodeArray}
		for x := range rawjson.Elements(v) {
			item := &sumNode{kind: nodeOpaque, raw: x}
			if rawjson.KindOf(x) == rawjson.KindNumber {
				item = readNode(x, depth+1)
			}
			node.items = append(node.items, item)
		}
		return node
	case kind == rawjson.KindObject:
		node := &sumNode{kind: nodeObject}
		for name, x := range rawjson.Members(v) {
			node.members = append(node.members, sumMember{string(name), readNode(x, depth+1)})
		}
		return node
	}
	return &sumNode{kind: nodeOpaque, raw: v}
}

// givenFault gives the JSON of a value that is itself the fault of a reduction.
func (n *sumNode) givenFault() []byte {
	if n.kind != nodeObject {
		return nil
	}
	for _, m := range n.members {
		if m.name == "error" && m.value.kind == nodeOpaque && string(m.value.raw) == `"builtin_reduce_error"` {
			out, _ := n.appendJSON(nil)
			return out
		}
	}
	return nil
}

// add adds o, which it may take over. It gives false if they do not go together;
// if a value in them is a fault already, that is put into fault.
func (n *sumNode) add(o *sumNode, fault *[]byte) bool {
	switch {
	case n.kind == nodeNumber && o.kind == nodeNumber:
		n.number.addNumber(&o.number)
		return true
	case n.kind == nodeArray && o.kind == nodeArray:
		return n.addItems(o.items)
	case n.kind == nodeArray && o.kind == nodeNumber:
		return n.addItems([]*sumNode{o})
	case n.kind == nodeNumber && o.kind == nodeArray:
		first := *n
		*n = sumNode{kind: nodeArray, items: []*sumNode{&first}}
		return n.addItems(o.items)
	case n.kind == nodeObject && o.kind == nodeObject:
		if *fault = o.givenFault(); *fault == nil {
			*fault = n.givenFault()
		}
		return *fault == nil && n.addMembers(o, fault)
	}
	return false
}

// flatMembers is how many members a value may have to be added by addFlat.
const flatMembers = 16

// addFlat adds a JSON value of the common sort without making nodes of it: a list
// of numbers, or an object of numbers that the sum has all names of already. It
// gives false, and has changed nothing, where the value is another.
func (n *sumNode) addFlat(v []byte) bool {
	var found [flatMembers]*sumNode
	var numbers [flatMembers]addend
	count := 0
	switch {
	case n.kind == nodeArray && rawjson.KindOf(v) == rawjson.KindArray:
		for x := range rawjson.Elements(v) {
			if count == min(flatMembers, len(n.items)) {
				return false
			}
			found[count], numbers[count] = n.items[count], readNumber(x)
			if found[count].kind != nodeNumber || numbers[count].kind == notNumber {
				return false
			}
			count++
		}
	case n.kind == nodeObject && n.sorted && rawjson.KindOf(v) == rawjson.KindObject:
		for name, x := range rawjson.Members(v) {
			if count == flatMembers {
				return false
			}
			at, ok := slices.BinarySearchFunc(n.members, name, func(m sumMember, name []byte) int { return cmp.Compare(m.name, string(name)) })
			if !ok {
				return false
			}
			found[count], numbers[count] = n.members[at].value, readNumber(x)
			if found[count].kind != nodeNumber || numbers[count].kind == notNumber {
				return false
			}
			count++
		}
	default:
		return false
	}
	for i := range count {
		found[i].number.add(numbers[i])
	}
	return true
}

// addItems adds the elements of an array.
func (n *sumNode) addItems(items []*sumNode) bool {
	for i, item := range items {
		if i == len(n.items) {
			n.items = append(n.items, items[i:]...)
			return true
		}
		own := n.items[i]
		if own.kind != nodeNumber || item.kind != nodeNumber {
			return false
		}
		own.number.addNumber(&item.number)
	}
	return true
}

// addMembers adds an object. Both are sorted by name first, so that it costs their
// length and not its square, whoever chose the names.
func (n *sumNode) addMembers(o *sumNode, fault *[]byte) bool {
	n.sort()
	o.sort()
	if slices.EqualFunc(n.members, o.members, func(a, b sumMember) bool { return a.name == b.name }) {
		for i := range n.members {
			if !n.members[i].value.add(o.members[i].value, fault) {
				return false
			}
		}
		return true
	}
	a, b := n.members, o.members
	merged := make([]sumMember, 0, max(len(a), len(b)))
	for len(a) > 0 && len(b) > 0 {
		switch c := strings.Compare(a[0].name, b[0].name); {
		case c < 0:
			merged, a = append(merged, a[0]), a[1:]
		case c > 0:
			merged, b = append(merged, b[0]), b[1:]
		default:
			if !a[0].value.add(b[0].value, fault) {
				return false
			}
			merged, a, b = append(merged, a[0]), a[1:], b[1:]
		}
	}
	n.members = append(append(merged, a...), b...)
	return true
}

// sort sorts the members by name.
func (n *sumNode) sort() {
	if !n.sorted {
		slices.SortStableFunc(n.members, func(a, b sumMember) int { return cmp.Compare(a.name, b.name) })
		n.sorted = true
	}
}

// appendJSON appends the sum as JSON; false if no float holds a part of it.
func (n *sumNode) appendJSON(dst []byte) (_ []byte, ok bool) {
	switch n.kind {
	case nodeNumber:
		return n.number.appendJSON(dst)
	case nodeArray:
		dst = append(dst, '[')
		for i, item := range n.items {
			if i > 0 {
				dst = append(dst, ',')
			}
			if dst, ok = item.appendJSON(dst); !ok {
				return dst, false
			}
		}
		return append(dst, ']'), true
	case nodeObject:
		dst = append(dst, '{')
		for i, m := range n.members {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(rawjson.AppendString(dst, m.name), ':')
			if dst, ok = m.value.appendJSON(dst); !ok {
				return dst, false
			}
		}
		return append(dst, '}'), true
	}
	return append(dst, n.raw...), true
}

// appendBytes appends the sum as a part of a state.
func (n *sumNode) appendBytes(dst []byte) []byte {
	kind := n.kind
	if kind == nodeObject && n.sorted {
		kind = nodeSorted
	}
	dst = append(dst, byte(kind))
	switch n.kind {
	case nodeNumber:
		return n.number.appendBytes(dst)
	case nodeArray:
		dst = binary.AppendUvarint(dst, uint64(len(n.items)))
		for _, item := range n.items {
			dst = item.appendBytes(dst)
		}
		return dst
	case nodeObject:
		dst = binary.AppendUvarint(dst, uint64(len(n.members)))
		for _, m := range n.members {
			dst = appendPiece(dst, m.name)
			dst = m.value.appendBytes(dst)
		}
		return dst
	}
	return appendPiece(dst, n.raw)
}

// decodeNode reads the sum at the beginning of s and gives what follows it.
func decodeNode(s []byte, depth int) (node *sumNode, rest []byte, ok bool) {
	if len(s) == 0 || depth > maxDepth+2 {
		return nil, nil, false
	}
	node = &sumNode{kind: nodeKind(s[0])}
	s = s[1:]
	switch node.kind {
	case nodeNumber:
		rest, ok = node.number.addBytes(s)
		return node, rest, ok
	case nodeOpaque:
		node.raw, rest, ok = cutBytes(s)
		node.raw = bytes.Clone(node.raw)
		return node, rest, ok && len(node.raw) > 0
	case nodeArray, nodeObject, nodeSorted:
	default:
		return nil, nil, false
	}
	length, used := binary.Uvarint(s)
	// Each element takes a byte at least: a length that lies shall not allocate.
	if used <= 0 || length > uint64(len(s)) {
		return nil, nil, false
	}
	s = s[used:]
	if node.kind == nodeArray {
		for range length {
			var item *sumNode
			if item, s, ok = decodeNode(s, depth+1); !ok {
				return nil, nil, false
			}
			node.items = append(node.items, item)
		}
		return node, s, true
	}
	node.sorted = node.kind == nodeSorted
	node.kind = nodeObject
	for range length {
		var m sumMember
		var name []byte
		if name, s, ok = cutBytes(s); !ok {
			return nil, nil, false
		}
		m.name = string(name)
		if m.value, s, ok = decodeNode(s, depth+1); !ok {
			return nil, nil, false
		}
		node.members = append(node.members, m)
	}
	return node, s, true
}
