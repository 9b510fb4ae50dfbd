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
}

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
	switch {
	case x.off == nil && y.off == nil:
		return 0
	case x.off == nil:
		return -y.off.Sign()
	case y.off == nil:
		return x.off.Sign()
	}
	return x.off.Cmp(y.off)
}

// What follows the eight bytes of the float in a number's key.
const (
	offBelow = 0x01 // complemented length (4 bytes), complemented distance
	offNone  = 0x02
	offAbove = 0x03 // length (4 bytes), distance
)

// appendNumber appends the sort key of a number: the float64 with its sign bit
// flipped (all bits, when negative), then the distance from it.
func appendNumber(dst, v []byte) []byte {
	n := parseNumber(v)
	bits := math.Float64bits(n.near)
	if bits>>63 != 0 {
		bits = ^bits
	} else {
		bits |= 1 << 63
	}
	dst = binary.BigEndian.AppendUint64(dst, bits)
	if n.off == nil {
		return append(dst, offNone)
	}
	distance := n.off.Bytes()
	if n.off.Sign() > 0 {
		dst = binary.BigEndian.AppendUint32(append(dst, offAbove), uint32(len(distance)))
		return append(dst, distance...)
	}
	dst = binary.BigEndian.AppendUint32(append(dst, offBelow), ^uint32(len(distance)))
	for _, b := range distance {
		dst = append(dst, ^b)
	}
	return dst
}
