package rawjson

import (
	"math/bits"
	"unicode/utf8"
)

// hexDigits spells the escapes of control characters.
const hexDigits = "0123456789abcdef"

// AppendString appends s to dst as a JSON string. It escapes the quote, the
// backslash and control characters only, in the short form where there is one;
// bytes that are no UTF-8 become U+FFFD, and everything else stays as it is.
func AppendString(dst []byte, s string) []byte {
	dst = append(dst, '"')
	if !utf8.ValidString(s) {
		return append(appendRepaired(dst, s), '"')
	}
	return append(appendEscaped(dst, s), '"')
}

// appendEscaped appends valid UTF-8 with the necessary escapes.
func appendEscaped(dst []byte, s string) []byte {
	start, i := 0, 0
	for i < len(s) {
		if i+8 <= len(s) {
			stops := stringStops(load64String(s[i:]))
			if stops == 0 {
				i += 8
				continue
			}
			i += bits.TrailingZeros64(stops) / 8
		}
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\b':
			dst = append(dst, '\\', 'b')
		case '\f':
			dst = append(dst, '\\', 'f')
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		}
		i++
		start = i
	}
	return append(dst, s[start:]...)
}

// appendRepaired is appendEscaped for text with bytes that are no UTF-8.
func appendRepaired(dst []byte, s string) []byte {
	start, i := 0, 0
	for i < len(s) {
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 {
			dst = appendEscaped(dst, s[start:i])
			dst = append(dst, "\uFFFD"...)
			start = i + 1
		}
		i += size
	}
	return appendEscaped(dst, s[start:])
}
