package reduce

import (
	"encoding/binary"
	"math"
	"math/big"
)

// floatUnit says what a floatSum counts: multiples of 2 to the power -floatUnit,
// the smallest float. Every finite float is such a multiple.
const floatUnit = 1074

// floatChunks is how many pieces of 32 bits a floatSum has: those of the largest
// float, and room for as many addends as there can be rows.
const floatChunks = 68

// carryAfter is how many addends fit before the pieces must be brought in order:
// an addend changes a piece by less than 2 to the power 53.
const carryAfter = 512

// floatSum is an exact sum of floats: one long fixed-point number, in pieces of 32
// bits that may run over for a while. Adding costs a shift and two additions,
// wherever the point lies; there is nothing to round.
type floatSum struct {
	chunks  [floatChunks]int64
	pending int
	lo, hi  int // the pieces in use are lo up to and without hi
}

// reset makes the sum 0.
func (s *floatSum) reset() {
	clear(s.chunks[s.lo:s.hi])
	s.pending, s.lo, s.hi = 0, 0, 0
}

// use widens the range of pieces in use.
func (s *floatSum) use(lo, hi int) {
	if s.hi == 0 {
		s.lo, s.hi = lo, hi
		return
	}
	s.lo, s.hi = min(s.lo, lo), max(s.hi, hi)
}

// add adds a finite float.
func (s *floatSum) add(v float64) {
	b := math.Float64bits(v)
	exponent := int(b >> 52 & 0x7ff)
	mantissa := b & (1<<52 - 1)
	if exponent == 0 {
		if mantissa == 0 {
			return
		}
		exponent = 1
	} else {
		mantissa |= 1 << 52
	}
	k, shift := (exponent-1)>>5, uint(exponent-1)&31
	low := int64(mantissa << shift & math.MaxUint32)
	high := int64(mantissa >> (32 - shift))
	if b>>63 != 0 {
		low, high = -low, -high
	}
	s.use(k, k+2)
	s.chunks[k] += low
	s.chunks[k+1] += high
	if s.pending++; s.pending >= carryAfter {
		s.carry()
	}
}

// addSum adds another sum.
func (s *floatSum) addSum(o *floatSum) {
	o.carry()
	if o.hi == 0 {
		return
	}
	s.use(o.lo, o.hi)
	for i := o.lo; i < o.hi; i++ {
		s.chunks[i] += o.chunks[i]
	}
	if s.pending++; s.pending >= carryAfter {
		s.carry()
	}
}

// carry brings all pieces but the last in use to 32 bits.
func (s *floatSum) carry() {
	s.pending = 0
	for i := s.lo; i < s.hi; i++ {
		over := s.chunks[i] >> 32
		if over == 0 || i == floatChunks-1 {
			continue
		}
		// A last piece of -1 stays as it is: that is how a negative sum ends.
		if i == s.hi-1 {
			if over == -1 && s.chunks[i] >= -math.MaxUint32 {
				continue
			}
			s.hi++
		}
		s.chunks[i] -= over << 32
		s.chunks[i+1] += over
	}
}

// bigInt gives the sum in units.
func (s *floatSum) bigInt() *big.Int {
	negative := s.magnitude()
	v := new(big.Int)
	if s.hi == 0 {
		return v
	}
	digits := make([]byte, 0, 4*(s.hi-s.lo))
	for i := s.hi - 1; i >= s.lo; i-- {
		digits = binary.BigEndian.AppendUint32(digits, uint32(s.chunks[i]))
	}
	v.SetBytes(digits).Lsh(v, uint(32*s.lo))
	if negative {
		v.Neg(v)
		s.negate()
	}
	return v
}

// negate turns the sign.
func (s *floatSum) negate() {
	for i := s.lo; i < s.hi; i++ {
		s.chunks[i] = -s.chunks[i]
	}
}

// magnitude brings all pieces to 32 bits without sign, turning the sum if it is
// negative, trims the range and tells whether it turned.
func (s *floatSum) magnitude() (negative bool) {
	s.carry()
	if s.hi > 0 && s.chunks[s.hi-1] < 0 {
		s.negate()
		s.carry()
		negative = true
	}
	for s.hi > s.lo && s.chunks[s.hi-1] == 0 {
		s.hi--
	}
	for s.lo < s.hi && s.chunks[s.lo] == 0 {
		s.lo++
	}
	if s.lo == s.hi {
		s.lo, s.hi = 0, 0
	}
	return negative
}

// appendBytes appends the sum as a part of a state: the first piece and the sign
// in a byte, the number of pieces in another, the pieces.
func (s *floatSum) appendBytes(dst []byte) []byte {
	negative := s.magnitude()
	head := byte(s.lo)
	if negative {
		head |= 1 << 7
	}
	dst = append(dst, head, byte(s.hi-s.lo))
	for i := s.lo; i < s.hi; i++ {
		dst = binary.LittleEndian.AppendUint32(dst, uint32(s.chunks[i]))
	}
	if negative {
		s.negate()
	}
	return dst
}

// addBytes adds the sum at the beginning of b and gives what follows it.
func (s *floatSum) addBytes(b []byte) ([]byte, bool) {
	if len(b) < 2 {
		return nil, false
	}
	lo, n := int(b[0]&^(1<<7)), int(b[1])
	negative := b[0]>>7 != 0
	b = b[2:]
	if lo+n > floatChunks-1 || len(b) < 4*n {
		return nil, false
	}
	if n == 0 {
		return b, true
	}
	s.use(lo, lo+n)
	for i := range n {
		c := int64(binary.LittleEndian.Uint32(b[4*i:]))
		if negative {
			c = -c
		}
		s.chunks[lo+i] += c
	}
	if s.pending++; s.pending >= carryAfter {
		s.carry()
	}
	return b[4*n:], true
}
