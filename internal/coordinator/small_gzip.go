package coordinator

import (
	"encoding/binary"
	"hash/crc32"
	"math/bits"
)

// smallText is the size up to which appendSmallGzip makes the gzip form of a text.
// Up to here codes that fit the text cost more than they save.
const smallText = 64

// appendSmallGzip appends the gzip form of a short text, byte for byte the one that
// zlib makes. The digest of an attachment is that of its stored bytes: so the short
// texts that clients and their tests know by digest have it here as well, and they
// take fewer bytes than the compressor for long ones, which stores them as they are,
// would need.
func appendSmallGzip(dst, text []byte) []byte {
	dst = append(dst, 0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3)
	w := bitWriter{out: dst}
	tokens := smallTokens(text)
	size := 3 + 7 // the head of the block and its end mark
	for _, t := range tokens {
		size += t.bits()
	}
	if len(text)+4 <= (size+7)/8 {
		dst = append(dst, 1, byte(len(text)), 0, ^byte(len(text)), 0xff)
		dst = append(dst, text...)
	} else {
		w.put(3, 3) // the last block, with the fixed codes
		for _, t := range tokens {
			t.write(&w)
		}
		w.put(0, 7)
		dst = w.finish()
	}
	dst = binary.LittleEndian.AppendUint32(dst, crc32.ChecksumIEEE(text))
	return binary.LittleEndian.AppendUint32(dst, uint32(len(text)))
}

// token is a byte of the text, or (length > 0) a repetition of what stands distance
// before.
type token struct {
	literal          byte
	length, distance int
}

// minMatch is the shortest repetition that deflate knows.
const minMatch = 3

// smallTokens finds the repetitions as zlib does at its higher levels: a repetition
// is taken unless the next byte begins a longer one; of equally long ones the
// nearest counts, and none may begin at the first byte.
func smallTokens(text []byte) []token {
	tokens := make([]token, 0, len(text))
	length, from := minMatch-1, 0
	pending := false // the byte before has not become a token yet
	for at := 0; at < len(text); {
		before, beforeFrom := length, from
		length = minMatch - 1
		if len(text)-at >= minMatch {
			length, from = longestMatch(text, at, before)
		}
		switch {
		case before >= minMatch && length <= before:
			tokens = append(tokens, token{length: before, distance: at - 1 - beforeFrom})
			at += before - 1
			length, pending = minMatch-1, false
			continue
		case pending:
			tokens = append(tokens, token{literal: text[at-1]})
		}
		pending = true
		at++
	}
	if pending {
		tokens = append(tokens, token{literal: text[len(text)-1]})
	}
	return tokens
}

// longestMatch gives the longest repetition at a position that is longer than best,
// or best itself.
func longestMatch(text []byte, at, best int) (length, from int) {
	length = best
	for c := at - 1; c > 0; c-- {
		n := 0
		for at+n < len(text) && text[c+n] == text[at+n] {
			n++
		}
		if n >= minMatch && n > length {
			length, from = n, c
		}
	}
	if length == best && from == 0 {
		return min(best, len(text)-at), 0
	}
	return length, from
}

// bits is how long the token is with the fixed codes.
func (t token) bits() int {
	if t.length == 0 {
		if t.literal < 144 {
			return 8
		}
		return 9
	}
	_, _, extra := lengthCode(t.length)
	_, _, far := distanceCode(t.distance)
	return 7 + extra + 5 + far
}

// write writes the token with the fixed codes.
func (t token) write(w *bitWriter) {
	if t.length == 0 {
		if t.literal < 144 {
			w.code(0x30+uint32(t.literal), 8)
		} else {
			w.code(0x190+uint32(t.literal)-144, 9)
		}
		return
	}
	code, rest, extra := lengthCode(t.length)
	w.code(code, 7)
	w.put(rest, extra)
	code, rest, extra = distanceCode(t.distance)
	w.code(code, 5)
	w.put(rest, extra)
}

// lengthCode gives the code of a length below 115, counted from 256, and what
// follows it.
func lengthCode(length int) (code, rest uint32, extra int) {
	n := uint32(length - minMatch)
	if n < 8 {
		return n + 1, 0, 0
	}
	extra = bits.Len32(n) - 3
	return uint32(4*extra) + n>>extra + 1, n & (1<<extra - 1), extra
}

// distanceCode gives the code of a distance and what follows it.
func distanceCode(distance int) (code, rest uint32, extra int) {
	n := uint32(distance - 1)
	if n < 4 {
		return n, 0, 0
	}
	extra = bits.Len32(n) - 2
	return uint32(2*extra) + n>>extra, n & (1<<extra - 1), extra
}

// bitWriter writes numbers of any number of bits, the lowest first.
type bitWriter struct {
	out  []byte
	acc  uint32
	have int
}

func (w *bitWriter) put(v uint32, n int) {
	w.acc |= v << w.have
	for w.have += n; w.have >= 8; w.have -= 8 {
		w.out = append(w.out, byte(w.acc))
		w.acc >>= 8
	}
}

// code writes a Huffman code, whose highest bit comes first.
func (w *bitWriter) code(v uint32, n int) {
	w.put(bits.Reverse32(v)>>(32-n), n)
}

// finish fills up the last byte.
func (w *bitWriter) finish() []byte {
	if w.have > 0 {
		w.out = append(w.out, byte(w.acc))
	}
	return w.out
}
