// Package md5stream gives MD5 sums of long streams, such as attachments, for less CPU
// than crypto/md5 where the processor has AVX-512: MD5 is the largest part of the
// cost of an upload, and clients want it. A step of MD5 waits for the step before, so
// one stream leaves most of a processor idle; streams that are hashed at the same
// time share its registers, and eight of them cost what one does.
package md5stream

import (
	"crypto/md5"
	"encoding/binary"
	"hash"
)

// Hash computes the MD5 of one stream. It is used by one goroutine.
type Hash struct {
	portable hash.Hash // instead of all that follows, where the processor has nothing better
	state    [4]uint32
	rest     [md5.BlockSize]byte // the first length%BlockSize bytes wait for more
	length   uint64
	begun    bool
	job      job
}

// New gives the hash of a stream.
func New() *Hash {
	if !haveFast {
		return &Hash{portable: md5.New()}
	}
	return &Hash{state: [4]uint32{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}}
}

// Start takes the next bytes, which must not change before Wait returns. What the
// caller does in between costs no time: it lets other streams join.
func (h *Hash) Start(p []byte) {
	h.Wait()
	if h.portable != nil {
		h.portable.Write(p) // never fails, says hash.Hash
		return
	}
	waiting := int(h.length % md5.BlockSize)
	h.length += uint64(len(p))
	if waiting > 0 {
		k := copy(h.rest[waiting:], p)
		p = p[k:]
		if waiting+k < md5.BlockSize {
			return
		}
		blocks(&h.state, h.rest[:])
	}
	whole := len(p) &^ (md5.BlockSize - 1)
	copy(h.rest[:], p[whole:])
	switch {
	case whole >= sharedFrom:
		h.begun = true
		shared.start(&h.job, &h.state, p[:whole])
	case whole > 0:
		blocks(&h.state, p[:whole])
	}
}

// Wait returns when the bytes of Start are in the sum.
func (h *Hash) Wait() {
	if h.begun {
		shared.finish(&h.job)
		h.begun = false
	}
}

// Sum gives the MD5 of all bytes so far. More may follow.
func (h *Hash) Sum() (sum [md5.Size]byte) {
	h.Wait()
	if h.portable != nil {
		h.portable.Sum(sum[:0])
		return sum
	}
	// A one bit, zeros up to 8 bytes before the end of a block, the length in bits.
	waiting := int(h.length % md5.BlockSize)
	var end [2 * md5.BlockSize]byte
	copy(end[:], h.rest[:waiting])
	end[waiting] = 0x80
	n := (waiting + 8 + md5.BlockSize) &^ (md5.BlockSize - 1)
	binary.LittleEndian.PutUint64(end[n-8:], h.length<<3)
	state := h.state
	blocks(&state, end[:n])
	for i, v := range state {
		binary.LittleEndian.PutUint32(sum[4*i:], v)
	}
	return sum
}
