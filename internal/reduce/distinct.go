package reduce

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
)

// distinct is _approx_count_distinct: about how many different keys there are, by
// HyperLogLog with 2048 registers, as many as CouchDB has. Keys are different when
// their JSON is, as CouchDB documents it, even where the view holds them for equal.
type distinct struct {
	registers [registers]uint8
	used      []uint16 // the registers that are not 0, unordered
}

// registerBits is how many bits of a hash choose the register.
const registerBits = 11

// registers is how many there are.
const registers = 1 << registerBits

// maxRun is the most that a register can hold: all other bits zero, and one more.
const maxRun = 64 - registerBits + 1

// A state with few registers lists them, three bytes each: the number and the
// content; one with many has them all, a byte each. The length tells which.
const (
	sparseSize = 3
	maxSparse  = 600
)

func (d *distinct) reset() {
	for _, i := range d.used {
		d.registers[i] = 0
	}
	d.used = d.used[:0]
}

func (d *distinct) addRows(rows []Row) {
	for i := range rows {
		h := hashKey(rows[i].Key)
		// The bit set below the rest ends the run of zeros at its greatest length.
		run := bits.LeadingZeros64(h<<registerBits|1<<(registerBits-1)) + 1
		d.set(int(h>>(64-registerBits)), uint8(run))
	}
}

// set raises a register.
func (d *distinct) set(i int, run uint8) {
	if d.registers[i] == 0 {
		d.used = append(d.used, uint16(i))
	}
	d.registers[i] = max(d.registers[i], run)
}

func (d *distinct) addState(s []byte) error {
	if len(s) == registers {
		for i, run := range s {
			if run > maxRun {
				return errState
			}
			if run > 0 {
				d.set(i, run)
			}
		}
		return nil
	}
	if len(s)%sparseSize != 0 || len(s) > maxSparse*sparseSize {
		return errState
	}
	for ; len(s) > 0; s = s[sparseSize:] {
		i, run := int(binary.BigEndian.Uint16(s)), s[2]
		if i >= registers || run == 0 || run > maxRun {
			return errState
		}
		d.set(i, run)
	}
	return nil
}

func (d *distinct) appendState(dst []byte) []byte {
	if len(d.used) > maxSparse {
		return append(dst, d.registers[:]...)
	}
	for _, i := range d.used {
		dst = append(binary.BigEndian.AppendUint16(dst, i), d.registers[i])
	}
	return dst
}

// smallCount is up to where the share of empty registers estimates better than
// their contents, for this number of registers.
const smallCount = 1800

// estimate computes the count. Few keys are counted by the registers that are
// still empty, many by Ertl's improved estimator, which needs no tables of errors.
func (d *distinct) estimate() uint64 {
	empty := registers - len(d.used)
	if empty > 0 {
		if n := registers * math.Log(float64(registers)/float64(empty)); n <= smallCount {
			return uint64(math.Round(n))
		}
	}
	var histogram [maxRun + 1]int
	for _, run := range d.registers {
		histogram[run]++
	}
	const m = float64(registers)
	z := m * tau(1-float64(histogram[maxRun])/m)
	for k := maxRun - 1; k >= 1; k-- {
		z = (z + float64(histogram[k])) / 2
	}
	z += m * sigma(float64(empty)/m)
	return uint64(math.Round(m * m / (2 * math.Ln2 * z)))
}

// sigma corrects for empty registers.
func sigma(x float64) float64 {
	if x == 1 {
		return math.Inf(1)
	}
	z, y := x, 1.0
	for {
		x *= x
		before := z
		z += x * y
		y += y
		if z == before {
			return z
		}
	}
}

// tau corrects for full registers.
func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	z, y := 1-x, 1.0
	for {
		x = math.Sqrt(x)
		before := z
		y /= 2
		z -= (1 - x) * (1 - x) * y
		if z == before {
			return z / 3
		}
	}
}

// hashKey is a hash of 64 good bits, the same on every node and for ever: states
// are stored. It folds the product of two words, as wyhash does.
func hashKey(b []byte) uint64 {
	const k0, k1, k2 = 0xa0761d6478bd642f, 0xe7037ed1a0b428db, 0x8ebc6af09c88c6e3
	h := uint64(len(b)) ^ k0
	for len(b) >= 16 {
		h = fold(binary.LittleEndian.Uint64(b)^k1, binary.LittleEndian.Uint64(b[8:])^h)
		b = b[16:]
	}
	var tail [16]byte
	copy(tail[:], b)
	h = fold(binary.LittleEndian.Uint64(tail[:])^k1, binary.LittleEndian.Uint64(tail[8:])^h)
	return fold(h^k2, k1)
}

// fold multiplies to 128 bits and folds the halves.
func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

// finalDistinct shows a state of _approx_count_distinct.
func finalDistinct(state []byte) ([]byte, error) {
	var d distinct
	if err := d.addState(state); err != nil {
		return nil, err
	}
	return strconv.AppendUint(nil, d.estimate(), 10), nil
}
