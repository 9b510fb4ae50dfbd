package collate

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"math/big"
	"strconv"
)

// number is the value of a JSON number: the nearest float64, and for integers
// that no float64 hits, how far they lie from it. Numbers spelled with a point
// or an exponent are the float64 they round to, as in CouchDB; integers are
// exact at any length.
type number struct {
	near float64
	off  *big.Int // nil for nothing
	huge []byte   // the digits of an integer with more than floatDigits of them
}

// floatDigits is how many digits the largest float64 has. Longer integers lie
// beyond it and are ordered by their digits: computing with them would cost the
// square of their length, which a client chooses.
const floatDigits = 309

// smallDigits is how many characters surely fit into both int64 and float64.
const smallDigits = 15

// parseNumber reads the number at v.
func parseNumber(v []byte) number {
	if !isInteger(v) {
		f, _ := strconv.ParseFloat(string(v), 64) // out of range gives the infinity, which is what we want
		return number{near: f + 0}                // -0 becomes 0
	}
	if len(v) <= smallDigits {
		return number{near: float64(parseSmall(v))}
	}
	if digits := bytes.TrimPrefix(v, []byte("-")); len(digits) > floatDigits {
		if v[0] == '-' {
			return number{near: -math.MaxFloat64, huge: digits}
		}
		return number{near: math.MaxFloat64, huge: digits}
	}
	n, ok := new(big.Int).SetString(string(v), 10)
	if !ok {
		return number{}
	}
	f, _ := new(big.Float).SetInt(n).Float64()
	if math.IsInf(f, 0) {
		// Integers stay below the infinity, whatever their length.
		f = math.Copysign(math.MaxFloat64, f)
	}
	at, _ := new(big.Float).SetFloat64(f).Int(nil)
	if n.Sub(n, at).Sign() == 0 {
		return number{near: f}
	}
	return number{near: f, off: n}
}

// parseSmall reads an integer of at most smallDigits characters.
func parseSmall(v []byte) int64 {
	var n int64
	digits := bytes.TrimPrefix(v, []byte("-"))
	for _, c := range digits {
		n = n*10 + int64(c-'0')
	}
	if len(digits) != len(v) {
		return -n
	}
	return n
}

// isInteger tells whether a number is spelled as an integer.
func isInteger(v []byte) bool {
	for _, c := range v {
		if c == '.' || c == 'e' || c == 'E' {
			return false
		}
	}
	return true
}

// compareNumbers orders two JSON numbers by value.
func compareNumbers(a, b []byte) int {
	if len(a) <= smallDigits && len(b) <= smallDigits && isInteger(a) && isInteger(b) {
		return cmp.Compare(parseSmall(a), parseSmall(b))
	}
	x, y := parseNumber(a), parseNumber(b)
	if x.near != y.near {
		return cmp.Compare(x.near, y.near)
	}
	cx, cy := x.class(), y.class()
	if cx != cy {
		return cmp.Compare(cx, cy)
	}
	switch cx {
	case offNone:
		return 0
	case offBelow, offAbove:
		return x.off.Cmp(y.off)
	}
	c := cmp.Or(cmp.Compare(len(x.huge), len(y.huge)), bytes.Compare(x.huge, y.huge))
	if cx == offFarBelow {
		return -c
	}
	return c
}

// class tells what follows the float in a number's key.
func (n number) class() byte {
	switch {
	case n.huge != nil && n.near < 0:
		return offFarBelow
	case n.huge != nil:
		return offFarAbove
	case n.off == nil:
		return offNone
	case n.off.Sign() < 0:
		return offBelow
	}
	return offAbove
}

// What follows the eight bytes of the float in a number's key. The lengths have
// four bytes; those below are complemented, so that the farther is lower.
const (
	offFarBelow = 0x01 // complemented length and digits
	offBelow    = 0x02 // complemented length and distance
	offNone     = 0x03
	offAbove    = 0x04 // length and distance
	offFarAbove = 0x05 // length and digits
)

// appendNumber appends the sort key of a number: the float64 with its sign bit
// flipped (all bits, when negative), then how it lies to that float.
func appendNumber(dst, v []byte) []byte {
	n := parseNumber(v)
	bits := math.Float64bits(n.near)
	if bits>>63 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	dst = binary.BigEndian.AppendUint64(dst, bits)
	class := n.class()
	dst = append(dst, class)
	if class == offNone {
		return dst
	}
	far := n.huge
	if far == nil {
		far = n.off.Bytes()
	}
	start := len(dst)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(far)))
	dst = append(dst, far...)
	if class < offNone {
		for i := start; i < len(dst); i++ {
			dst[i] = ^dst[i]
		}
	}
	return dst
}
