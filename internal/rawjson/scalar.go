package rawjson

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// String decodes a string value; ok is false when v is none.
func String(v []byte) (s string, ok bool) {
	raw, ok := content(v)
	if !ok {
		return "", false
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw), true
	}
	return string(appendDecoded(make([]byte, 0, len(raw)), raw)), true
}

// AppendUnquoted appends the decoded bytes of a string value to dst; when v is no
// string it returns dst as it was, and false.
func AppendUnquoted(dst, v []byte) ([]byte, bool) {
	raw, ok := content(v)
	if !ok {
		return dst, false
	}
	return appendDecoded(dst, raw), true
}

// content returns what stands between the quotes of a string value.
func content(v []byte) ([]byte, bool) {
	if len(v) < 2 || v[0] != '"' || v[len(v)-1] != '"' {
		return nil, false
	}
	return v[1 : len(v)-1], true
}

// appendDecoded appends the content of a string to dst with its escapes replaced.
// A surrogate without its partner, which normalised text does not have, becomes
// U+FFFD.
func appendDecoded(dst, raw []byte) []byte {
	for {
		k := bytes.IndexByte(raw, '\\')
		if k < 0 || k+1 >= len(raw) {
			return append(dst, raw...)
		}
		dst = append(dst, raw[:k]...)
		c := raw[k+1]
		if c == 'u' {
			unit := hexUnit(raw, k)
			if unit < 0 {
				return append(dst, raw[k:]...)
			}
			k += 6
			if utf16.IsSurrogate(unit) {
				if r := utf16.DecodeRune(unit, hexUnit(raw, k)); r != utf8.RuneError {
					unit = r
					k += 6
				}
			}
			dst = utf8.AppendRune(dst, unit)
			raw = raw[k:]
			continue
		}
		switch c {
		case 'b':
			c = '\b'
		case 'f':
			c = '\f'
		case 'n':
			c = '\n'
		case 'r':
			c = '\r'
		case 't':
			c = '\t'
		}
		dst = append(dst, c)
		raw = raw[k+2:]
	}
}

// Bool decodes true and false; ok is false for everything else.
func Bool(v []byte) (val, ok bool) {
	switch string(v) {
	case "true":
		return true, true
	case "false":
		return false, true
	}
	return false, false
}

// Int decodes a number that is spelled as an integer (no fraction, no exponent)
// and fits into an int64; ok is false for everything else.
func Int(v []byte) (val int64, ok bool) {
	digits := v
	if len(v) > 0 && v[0] == '-' {
		digits = v[1:]
	}
	// Nineteen digits cannot overflow the unsigned word; normalised text has no
	// leading zeros, so more digits are always too many.
	if len(digits) == 0 || len(digits) > 19 {
		return 0, false
	}
	var u uint64
	for _, c := range digits {
		if c -= '0'; c > 9 {
			return 0, false
		}
		u = u*10 + uint64(c)
	}
	if len(digits) < len(v) {
		if u > 1<<63 {
			return 0, false
		}
		return -int64(u), true
	}
	if u > math.MaxInt64 {
		return 0, false
	}
	return int64(u), true
}

// Float decodes a number to the nearest double. ok is false when v is no number,
// and also when it is beyond the range of doubles; val is an infinity then.
func Float(v []byte) (val float64, ok bool) {
	if end, valid := numberEnd(v, 0); !valid || end != len(v) {
		return 0, false
	}
	val, err := strconv.ParseFloat(string(v), 64)
	return val, err == nil
}
