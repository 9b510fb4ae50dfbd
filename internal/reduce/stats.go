package reduce

import (
	"encoding/binary"
	"math"
	"math/big"
	"strconv"

	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// stats is _stats: sum, count, least, greatest and sum of squares of numbers; of
// arrays element by element; objects with those five fields count as what was
// summed up before. A value it cannot take fails the reduction, as in CouchDB,
// where that is an error of the whole view.
//
// A state is a byte for its sort and then one figure, an array of them, or the
// reason of the failure.
type stats struct {
	started bool
	own     figures // when the values are numbers or objects
	items   []stats // when they are arrays: of each place
	isArray bool
	failed  string
}

// The sorts of states.
const (
	statsFigures = 'f'
	statsArray   = 'a'
	statsFailed  = 'e'
)

// figures are the five.
type figures struct {
	sum, count, squares number
	min, max            extreme
}

// extreme is the least or the greatest number. Of an integer and a float that are
// equal it is the integer.
type extreme struct {
	kind numberKind // notNumber: none yet
	i    int64
	f    float64
	text []byte // JSON, of a bigInt
}

func (s *stats) reset() {
	s.own.reset()
	s.started, s.items, s.isArray, s.failed = false, nil, false, ""
}

func (f *figures) reset() {
	f.sum.reset()
	f.count.reset()
	f.squares.reset()
	f.min, f.max = extreme{}, extreme{}
}

func (s *stats) addRows(rows []Row) {
	for i := range rows {
		v := rows[i].Value
		if n, ok := rawjson.Int(v); ok && !s.isArray && s.failed == "" {
			s.started = true
			s.own.addInt(n)
			continue
		}
		s.addValue(v, 0)
	}
}

// addValue adds a value; depth counts the arrays around it.
func (s *stats) addValue(v []byte, depth int) {
	if s.failed != "" {
		return
	}
	if n := readNumber(v); n.kind != notNumber {
		if s.begin(false, 0, v) && !s.own.addNumber(n, v) {
			s.failed = "The square of " + cut(v) + " is beyond the range of floating point numbers."
		}
		return
	}
	switch kind := rawjson.KindOf(v); {
	case kind == rawjson.KindArray && depth < maxDepth:
		if !s.begin(true, rawjson.Len(v), v) {
			return
		}
		i := 0
		for x := range rawjson.Elements(v) {
			item := &s.items[i]
			if item.addValue(x, depth+1); item.failed != "" {
				s.failed = item.failed
				return
			}
			i++
		}
	case kind == rawjson.KindObject:
		if s.begin(false, 0, v) {
			s.failed = s.own.addObject(v)
		}
	default:
		s.failed = statsReason(v)
	}
}

// begin settles whether there are arrays, and of which length, or checks that it
// fits what was settled.
func (s *stats) begin(isArray bool, length int, v []byte) bool {
	if !s.started {
		s.started, s.isArray = true, isArray
		s.items = make([]stats, length)
		return true
	}
	if s.isArray != isArray || len(s.items) != length {
		s.failed = statsReason(v)
		return false
	}
	return true
}

// statsReason is said of a value that is no number or does not fit the others, in
// CouchDB's words.
func statsReason(v []byte) string {
	return "The _stats function requires that map values be numbers or arrays of numbers, not '" + cut(v) + "'"
}

// cut shortens a value for a message.
func cut(v []byte) string {
	const most = 200
	if len(v) > most {
		return string(v[:most]) + "…"
	}
	return string(v)
}

// addInt is addNumber for the commonest numbers.
func (f *figures) addInt(v int64) {
	f.count.addInt(1)
	f.sum.addInt(v)
	f.squares.addSquare(v)
	x := extreme{kind: smallInt, i: v}
	if f.min.kind != smallInt || v < f.min.i {
		f.min.take(&x, -1)
	}
	if f.max.kind != smallInt || v > f.max.i {
		f.max.take(&x, 1)
	}
}

// addNumber adds a number that is spelled v; false if its square is too large.
func (f *figures) addNumber(n addend, v []byte) bool {
	if n.kind == smallInt {
		f.addInt(n.i)
		return true
	}
	f.count.addInt(1)
	f.sum.add(n)
	switch n.kind {
	case bigInt:
		f.squares.addBig(new(big.Int).Mul(n.big, n.big))
	case floatValue:
		square := n.f * n.f
		if math.IsInf(square, 0) {
			return false
		}
		f.squares.addFloat(square)
	}
	x := extremeOf(n, v)
	f.min.take(&x, -1)
	f.max.take(&x, 1)
	return true
}

// addObject adds figures that were summed up before; it gives what is wrong.
func (f *figures) addObject(v []byte) string {
	for i, name := range [...]string{"sum", "count", "min", "max", "sumsqr"} {
		x, ok := rawjson.Get(v, name)
		if !ok {
			return "user _stats input missing required field " + name + " (" + cut(v) + ")"
		}
		n := readNumber(x)
		if n.kind == notNumber {
			return "non-numeric _stats input received for " + name + ": " + cut(x)
		}
		e := extremeOf(n, x)
		switch i {
		case 0:
			f.sum.add(n)
		case 1:
			f.count.add(n)
		case 2:
			f.min.take(&e, -1)
		case 3:
			f.max.take(&e, 1)
		case 4:
			f.squares.add(n)
		}
	}
	return ""
}

// extremeOf makes an extreme of a number that is spelled v.
func extremeOf(n addend, v []byte) extreme {
	x := extreme{kind: n.kind, i: n.i, f: n.f}
	if n.kind == bigInt {
		x.text = v
	}
	return x
}

// take takes the other number if it lies on the given side.
func (e *extreme) take(o *extreme, side int) {
	if o.kind == notNumber {
		return
	}
	if e.kind == notNumber {
		*e = *o
		return
	}
	switch c := e.compare(o); {
	case c == -side, c == 0 && e.kind == floatValue && o.kind != floatValue:
		*e = *o
	}
}

// compare orders by value.
func (e *extreme) compare(o *extreme) int {
	switch {
	case e.kind == smallInt && o.kind == smallInt:
		return order(e.i < o.i, e.i > o.i)
	case e.kind == floatValue && o.kind == floatValue:
		return order(e.f < o.f, e.f > o.f)
	}
	return collate.Compare(e.appendJSON(nil), o.appendJSON(nil))
}

// order turns two comparisons into a sign.
func order(less, greater bool) int {
	switch {
	case less:
		return -1
	case greater:
		return 1
	}
	return 0
}

// appendJSON appends the number.
func (e *extreme) appendJSON(dst []byte) []byte {
	switch e.kind {
	case floatValue:
		return appendFloat(dst, e.f)
	case bigInt:
		return append(dst, e.text...)
	}
	return strconv.AppendInt(dst, e.i, 10) // 0 for none
}

func (s *stats) addState(state []byte) error {
	if rest, ok := s.addBytes(state, 0); !ok || len(rest) > 0 {
		return errState
	}
	return nil
}

// addBytes adds the state at the beginning of b and gives what follows it.
func (s *stats) addBytes(b []byte, depth int) (rest []byte, ok bool) {
	if len(b) == 0 || depth > maxDepth {
		return nil, false
	}
	kind := b[0]
	b = b[1:]
	switch kind {
	case statsFailed:
		reason, rest, ok := cutBytes(b)
		if s.failed == "" {
			s.failed = string(reason)
		}
		return rest, ok && len(reason) > 0
	case statsFigures:
		s.begin(false, 0, []byte("a number"))
		return s.own.addBytes(b)
	case statsArray:
		length, used := binary.Uvarint(b)
		if used <= 0 || length > uint64(len(b)) {
			return nil, false
		}
		b = b[used:]
		fits := s.begin(true, int(length), []byte("an array of another length"))
		for i := range int(length) {
			var other stats
			item := &other
			if fits {
				item = &s.items[i]
			}
			if b, ok = item.addBytes(b, depth+1); !ok {
				return nil, false
			}
			if s.failed == "" {
				s.failed = item.failed
			}
		}
		return b, true
	}
	return nil, false
}

// addBytes adds the figures at the beginning of b and gives what follows them.
func (f *figures) addBytes(b []byte) ([]byte, bool) {
	for _, n := range [...]*number{&f.sum, &f.count, &f.squares} {
		var ok bool
		if b, ok = n.addBytes(b); !ok {
			return nil, false
		}
	}
	for i, e := range [...]*extreme{&f.min, &f.max} {
		text, rest, ok := cutBytes(b)
		if !ok {
			return nil, false
		}
		b = rest
		if len(text) == 0 {
			continue
		}
		n := readNumber(text)
		if n.kind == notNumber {
			return nil, false
		}
		x := extremeOf(n, text)
		e.take(&x, 2*i-1)
	}
	return b, true
}

func (s *stats) appendState(dst []byte) []byte {
	switch {
	case s.failed != "":
		return appendPiece(append(dst, statsFailed), s.failed)
	case s.isArray:
		dst = binary.AppendUvarint(append(dst, statsArray), uint64(len(s.items)))
		for i := range s.items {
			dst = s.items[i].appendState(dst)
		}
		return dst
	}
	f := &s.own
	dst = append(dst, statsFigures)
	for _, n := range [...]*number{&f.sum, &f.count, &f.squares} {
		dst = n.appendBytes(dst)
	}
	for _, e := range [...]*extreme{&f.min, &f.max} {
		if e.kind == notNumber {
			dst = append(dst, 0)
			continue
		}
		// The length stands before the text and has one byte but for long integers.
		if e.kind == bigInt {
			dst = appendPiece(dst, e.text)
			continue
		}
		at := len(dst)
		dst = e.appendJSON(append(dst, 0))
		dst[at] = byte(len(dst) - at - 1)
	}
	return dst
}

// appendJSON appends what a client sees; false if no float holds a part of it.
func (s *stats) appendJSON(dst []byte) ([]byte, bool) {
	if !s.isArray {
		return s.own.appendJSON(dst)
	}
	dst = append(dst, '[')
	for i := range s.items {
		if i > 0 {
			dst = append(dst, ',')
		}
		var ok bool
		if dst, ok = s.items[i].appendJSON(dst); !ok {
			return dst, false
		}
	}
	return append(dst, ']'), true
}

// appendJSON appends the five as an object.
func (f *figures) appendJSON(dst []byte) (_ []byte, ok bool) {
	if dst, ok = f.sum.appendJSON(append(dst, `{"sum":`...)); !ok {
		return dst, false
	}
	if dst, ok = f.count.appendJSON(append(dst, `,"count":`...)); !ok {
		return dst, false
	}
	dst = f.min.appendJSON(append(dst, `,"min":`...))
	dst = f.max.appendJSON(append(dst, `,"max":`...))
	if dst, ok = f.squares.appendJSON(append(dst, `,"sumsqr":`...)); !ok {
		return dst, false
	}
	return append(dst, '}'), true
}

// finalStats shows a state of _stats.
func finalStats(state []byte) ([]byte, error) {
	var s stats
	if err := s.addState(state); err != nil {
		return nil, err
	}
	if s.failed == "" {
		if out, ok := s.appendJSON(nil); ok {
			return out, nil
		}
		s.failed = sumRange
	}
	return nil, &model.Error{Kind: model.KindInternal, Name: "invalid_value", Reason: s.failed}
}
