package rawjson

import (
	"bytes"
	"slices"
	"strconv"
)

// equalNumber compares two numbers exactly and in linear time: no spelling, not
// even a huge exponent, makes it expand a number.
func equalNumber(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	x, y := parseDecimal(a), parseDecimal(b)
	if x.isZero() || y.isZero() {
		return x.isZero() && y.isZero()
	}
	return x.negative == y.negative && x.equalDigits(&y) && bytes.Equal(x.exponent(), y.exponent())
}

// decimal is a number in parts: the digits whole and fraction, without zeros at
// the outer ends, times ten to the power of expDigits plus shift.
type decimal struct {
	negative        bool
	whole, fraction []byte
	expNegative     bool
	expDigits       []byte // without leading zeros
	shift           int    // what stripping the digits added to the exponent
}

// parseDecimal takes a number apart and strips its digits to a form that is the
// same for all spellings of one value: the digits are read as an integer that
// does not end in zero.
func parseDecimal(v []byte) decimal {
	var d decimal
	if len(v) > 0 && v[0] == '-' {
		d.negative = true
		v = v[1:]
	}
	if e := bytes.IndexAny(v, "eE"); e >= 0 {
		exp := v[e+1:]
		v = v[:e]
		if len(exp) > 0 && (exp[0] == '+' || exp[0] == '-') {
			d.expNegative = exp[0] == '-'
			exp = exp[1:]
		}
		d.expDigits = bytes.TrimLeft(exp, "0")
	}
	d.whole = v
	if dot := bytes.IndexByte(v, '.'); dot >= 0 {
		d.whole = v[:dot]
		d.fraction = bytes.TrimRight(v[dot+1:], "0")
	}
	d.shift = -len(d.fraction)
	if len(d.fraction) == 0 {
		stripped := bytes.TrimRight(d.whole, "0")
		d.shift = len(d.whole) - len(stripped)
		d.whole = stripped
	}
	d.whole = bytes.TrimLeft(d.whole, "0")
	if len(d.whole) == 0 {
		d.fraction = bytes.TrimLeft(d.fraction, "0")
	}
	return d
}

// isZero tells whether all digits are zeros, whatever the exponent.
func (d *decimal) isZero() bool { return len(d.whole)+len(d.fraction) == 0 }

// equalDigits compares the digits, which the point may divide differently.
func (d *decimal) equalDigits(o *decimal) bool {
	if len(d.whole)+len(d.fraction) != len(o.whole)+len(o.fraction) {
		return false
	}
	if len(d.whole) < len(o.whole) {
		d, o = o, d
	}
	split := len(o.whole)
	middle := len(d.whole) - split
	return bytes.Equal(d.whole[:split], o.whole) &&
		bytes.Equal(d.whole[split:], o.fraction[:middle]) &&
		bytes.Equal(d.fraction, o.fraction[middle:])
}

// exponent spells the exponent plus shift in decimal. Exponents of more than 18
// digits exceed every shift, so adding to them keeps their sign; it is done on the
// digits.
func (d *decimal) exponent() []byte {
	if len(d.expDigits) <= 18 {
		var e int64
		for _, c := range d.expDigits {
			e = e*10 + int64(c-'0')
		}
		if d.expNegative {
			e = -e
		}
		return strconv.AppendInt(nil, e+int64(d.shift), 10)
	}
	digits := slices.Clone(d.expDigits)
	carry := d.shift
	if d.expNegative {
		carry = -carry
	}
	for k := len(digits) - 1; k >= 0 && carry != 0; k-- {
		sum := int(digits[k]-'0') + carry
		digit := sum % 10
		if digit < 0 {
			digit += 10
		}
		digits[k] = byte('0' + digit)
		carry = (sum - digit) / 10
	}
	var spelled []byte
	if d.expNegative {
		spelled = append(spelled, '-')
	}
	if carry > 0 {
		spelled = strconv.AppendInt(spelled, int64(carry), 10)
		return append(spelled, digits...)
	}
	return append(spelled, bytes.TrimLeft(digits, "0")...)
}
