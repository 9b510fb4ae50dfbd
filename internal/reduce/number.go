package reduce

import (
	"encoding/binary"
	"math"
	"math/big"
	"math/bits"
	"strconv"
	"strings"

	"github.com/divandb/divan/internal/rawjson"
)

// number is a sum of JSON numbers, without error: integers add up as integers of
// any length, floats in a floatSum. So a sum is the same whichever way its rows
// were divided and ordered, and is rounded once, when it is shown.
type number struct {
	integer
	floats  *floatSum // kept over a reset; counts only with isFloat
	isFloat bool      // some addend was a float, so the sum is one
}

// numberKind is what a JSON value is as an addend.
type numberKind uint8

const (
	notNumber  numberKind = iota // no number, or one beyond the range of floats
	smallInt                     // an integer of 64 bits
	bigInt                       // a longer integer
	floatValue                   // spelled with a point or an exponent
)

// maxDigits is how long the spelling of an integer may be: reading it costs the
// square of its length.
const maxDigits = 5000

// addend is a JSON number, read.
type addend struct {
	kind numberKind
	i    int64
	f    float64
	big  *big.Int
}

// readNumber reads a JSON value as an addend.
func readNumber(v []byte) addend {
	if i, ok := rawjson.Int(v); ok {
		return addend{kind: smallInt, i: i}
	}
	if rawjson.KindOf(v) != rawjson.KindNumber {
		return addend{}
	}
	for _, c := range v {
		if c == '.' || c == 'e' || c == 'E' {
			f, err := strconv.ParseFloat(string(v), 64)
			if err != nil {
				return addend{}
			}
			return addend{kind: floatValue, f: f}
		}
	}
	if len(v) > maxDigits {
		return addend{}
	}
	n, ok := new(big.Int).SetString(string(v), 10)
	if !ok {
		return addend{}
	}
	return addend{kind: bigInt, big: n}
}

// reset makes the sum 0.
func (n *number) reset() {
	n.integer = integer{}
	if n.isFloat {
		n.floats.reset()
		n.isFloat = false
	}
}

// add adds one number.
func (n *number) add(a addend) {
	switch a.kind {
	case smallInt:
		n.addInt(a.i)
	case bigInt:
		n.addBig(a.big)
	case floatValue:
		n.addFloat(a.f)
	}
}

// addFloat adds a finite float.
func (n *number) addFloat(f float64) {
	if n.floats == nil {
		n.floats = new(floatSum)
	}
	n.isFloat = true
	n.floats.add(f)
}

// addNumber adds another sum.
func (n *number) addNumber(o *number) {
	n.addInteger(&o.integer)
	if o.isFloat {
		if n.floats == nil {
			n.floats = new(floatSum)
		}
		n.isFloat = true
		n.floats.addSum(o.floats)
	}
}

// float gives the sum rounded to the nearest float; false if it is beyond them.
func (n *number) float() (float64, bool) {
	exact := n.floats.bigInt()
	whole := n.integer.bigInt()
	if whole.BitLen() > 2000 {
		return 0, false
	}
	exact.Add(exact, whole.Lsh(whole, floatUnit))
	f := new(big.Float).SetInt(exact)
	f.SetMantExp(f, -floatUnit)
	v, _ := f.Float64()
	return v, !math.IsInf(v, 0)
}

// appendJSON appends the sum as JSON; false if no float holds it.
func (n *number) appendJSON(dst []byte) ([]byte, bool) {
	if !n.isFloat {
		return n.integer.appendJSON(dst), true
	}
	v, ok := n.float()
	if !ok {
		return dst, false
	}
	return appendFloat(dst, v), true
}

// appendFloat spells a float the shortest way, as CouchDB does: always with a
// point unless it has an exponent, which it has from 1e21 on and below 1e-6.
func appendFloat(dst []byte, v float64) []byte {
	if v == 0 {
		return append(dst, "0.0"...)
	}
	start := len(dst)
	if a := math.Abs(v); a >= 1e-6 && a < 1e21 {
		dst = strconv.AppendFloat(dst, v, 'f', -1, 64)
		for _, c := range dst[start:] {
			if c == '.' {
				return dst
			}
		}
		return append(dst, '.', '0')
	}
	s := strconv.FormatFloat(v, 'e', -1, 64)
	// Go writes at least two digits of exponent, CouchDB no leading zero.
	return append(dst, strings.Replace(strings.Replace(s, "e-0", "e-", 1), "e+0", "e+", 1)...)
}

// What stands in the first byte of a number in a state.
const (
	numberFloat    = 1 << iota // a floatSum follows the integer
	numberBig                  // the integer is a length and a magnitude, not a varint
	numberNegative             // and it is below 0
)

// appendBytes appends the number as a part of a state.
func (n *number) appendBytes(dst []byte) []byte {
	flags := byte(0)
	if n.isFloat {
		flags |= numberFloat
	}
	if v, ok := n.int64(); ok {
		dst = binary.AppendVarint(append(dst, flags), v)
	} else {
		v := n.integer.bigInt()
		flags |= numberBig
		if v.Sign() < 0 {
			flags |= numberNegative
		}
		magnitude := v.Bytes()
		dst = binary.AppendUvarint(append(dst, flags), uint64(len(magnitude)))
		dst = append(dst, magnitude...)
	}
	if n.isFloat {
		dst = n.floats.appendBytes(dst)
	}
	return dst
}

// addBytes adds the number at the beginning of s and gives what follows it.
func (n *number) addBytes(s []byte) ([]byte, bool) {
	if len(s) == 0 || s[0] > numberFloat|numberBig|numberNegative {
		return nil, false
	}
	flags := s[0]
	s = s[1:]
	if flags&numberBig == 0 {
		v, size := binary.Varint(s)
		if size <= 0 {
			return nil, false
		}
		n.addInt(v)
		s = s[size:]
	} else {
		magnitude, rest, ok := cutBytes(s)
		if !ok || len(magnitude) > maxDigits {
			return nil, false
		}
		v := new(big.Int).SetBytes(magnitude)
		if flags&numberNegative != 0 {
			v.Neg(v)
		}
		n.addBig(v)
		s = rest
	}
	if flags&numberFloat == 0 {
		return s, true
	}
	if n.floats == nil {
		n.floats = new(floatSum)
	}
	n.isFloat = true
	return n.floats.addBytes(s)
}

// cutBytes reads a length and as many bytes.
func cutBytes(s []byte) (piece, rest []byte, ok bool) {
	size, used := binary.Uvarint(s)
	if used <= 0 || size > uint64(len(s)-used) {
		return nil, nil, false
	}
	s = s[used:]
	return s[:size:size], s[size:], true
}

// appendPiece appends a length and as many bytes.
func appendPiece[T string | []byte](dst []byte, piece T) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(piece)))
	return append(dst, piece...)
}

// integer is an exact integer: 128 bits in two's complement, plus big when those
// did not suffice. Squares of 53 bits, of which JavaScript's integers are, add up
// without ever needing big.
type integer struct {
	hi  int64
	lo  uint64
	big *big.Int
}

// addInt adds 64 bits.
func (n *integer) addInt(v int64) { n.add128(v>>63, uint64(v)) }

// addSquare adds the square of v.
func (n *integer) addSquare(v int64) {
	u := uint64(v)
	if v < 0 {
		u = -u
	}
	hi, lo := bits.Mul64(u, u)
	n.add128(int64(hi), lo)
}

// add128 adds 128 bits.
func (n *integer) add128(hi int64, lo uint64) {
	sum, carry := bits.Add64(n.lo, lo, 0)
	high := n.hi + hi + int64(carry)
	if (n.hi < 0) == (hi < 0) && (high < 0) != (hi < 0) {
		n.spill()
		n.hi, n.lo = hi, lo
		return
	}
	n.hi, n.lo = high, sum
}

// addBig adds an integer of any length.
func (n *integer) addBig(v *big.Int) {
	if n.big == nil {
		n.big = new(big.Int)
	}
	n.big.Add(n.big, v)
}

// addInteger adds another integer.
func (n *integer) addInteger(o *integer) {
	n.add128(o.hi, o.lo)
	if o.big != nil {
		n.addBig(o.big)
	}
}

// spill moves the 128 bits to big.
func (n *integer) spill() {
	n.big = n.bigInt()
	n.hi, n.lo = 0, 0
}

// bigInt gives the value.
func (n *integer) bigInt() *big.Int {
	v := new(big.Int).Lsh(big.NewInt(n.hi), 64)
	v.Add(v, new(big.Int).SetUint64(n.lo))
	if n.big != nil {
		v.Add(v, n.big)
	}
	return v
}

// int64 gives the value if it has at most 64 bits.
func (n *integer) int64() (int64, bool) {
	if n.big != nil {
		v := n.bigInt()
		return v.Int64(), v.IsInt64()
	}
	return int64(n.lo), n.hi == int64(n.lo)>>63
}

// appendJSON appends the digits.
func (n *integer) appendJSON(dst []byte) []byte {
	if v, ok := n.int64(); ok {
		return strconv.AppendInt(dst, v, 10)
	}
	return n.bigInt().Append(dst, 10)
}
