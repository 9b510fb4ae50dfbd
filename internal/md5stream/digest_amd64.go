package md5stream

import (
	"crypto/md5"
	"encoding/binary"
	"hash"

	"golang.org/x/sys/cpu"
)

// haveAVX512 tells whether processor and system have the 128-bit forms of AVX-512.
var haveAVX512 = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL

// blocksAVX512 takes the whole blocks of p into the state.
//
//go:noescape
func blocksAVX512(state *[4]uint32, p []byte)

// longestRun is what goes to blocksAVX512 at once: the scheduler cannot interrupt it,
// so it must be done within some tens of microseconds.
const longestRun = 64 << 10

// digest is MD5 on blocksAVX512.
type digest struct {
	state  [4]uint32
	rest   [md5.BlockSize]byte // the first length%BlockSize bytes wait for more
	length uint64
}

// newFast gives a digest, or nil if this processor cannot run it.
func newFast() hash.Hash {
	if !haveAVX512 {
		return nil
	}
	d := &digest{}
	d.Reset()
	return d
}

// Reset implements hash.Hash.
func (d *digest) Reset() {
	*d = digest{state: [4]uint32{0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476}}
}

// Size implements hash.Hash.
func (d *digest) Size() int { return md5.Size }

// BlockSize implements hash.Hash.
func (d *digest) BlockSize() int { return md5.BlockSize }

// Write implements hash.Hash; it never fails.
func (d *digest) Write(p []byte) (int, error) {
	n := len(p)
	waiting := int(d.length % md5.BlockSize)
	d.length += uint64(n)
	if waiting > 0 {
		k := copy(d.rest[waiting:], p)
		p = p[k:]
		if waiting+k < md5.BlockSize {
			return n, nil
		}
		blocksAVX512(&d.state, d.rest[:])
	}
	for len(p) >= md5.BlockSize {
		run := min(len(p)&^(md5.BlockSize-1), longestRun)
		blocksAVX512(&d.state, p[:run])
		p = p[run:]
	}
	copy(d.rest[:], p)
	return n, nil
}

// Sum implements hash.Hash: writing may go on after it.
func (d *digest) Sum(b []byte) []byte {
	end := *d
	// A one bit, zeros up to 8 bytes before the end of a block, the length in bits.
	var pad [md5.BlockSize + 8]byte
	pad[0] = 0x80
	n := (md5.BlockSize+55-int(d.length%md5.BlockSize))%md5.BlockSize + 1
	binary.LittleEndian.PutUint64(pad[n:], d.length<<3)
	_, _ = end.Write(pad[:n+8])
	for _, v := range end.state {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}
