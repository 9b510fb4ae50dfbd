package shard

import (
	"crypto/md5"
	"encoding/binary"

	"lukechampine.com/blake3/guts"

	"github.com/divandb/divan/internal/md5stream"
	"github.com/divandb/divan/internal/model"
)

// hashPiece is what the hash takes at once: 16 chunks of BLAKE3, side by side in
// the widest registers there are.
const hashPiece = guts.MaxSIMD * guts.ChunkSize

// pieceHeight is the height of a whole piece in BLAKE3's tree.
const pieceHeight = 4

// blobHash finds the two names of an attachment while its bytes pass: BLAKE3 is the
// blob's id, MD5 the digest that clients see. The tree of BLAKE3 is built here, on
// the library's compression: the library's own Hasher starts goroutines for every
// write and cuts whole buffers into small unaligned trees, which costs more than
// twice as much CPU.
type blobHash struct {
	sum   *md5stream.Hash
	begun bool
	last  guts.Node // the newest piece, not yet in the tree: it may be the root
	// subtrees[i] holds the root of 2^i pieces where bit i of pieces is set.
	subtrees [40][8]uint32
	pieces   uint64
}

func newBlobHash() *blobHash { return &blobHash{sum: md5stream.New()} }

// add takes the first n bytes of buf, which must not change before the next add or wait
// returns. In all calls but the last, n must be a multiple of hashPiece: a part of a
// piece can only be the end of the tree.
func (h *blobHash) add(buf *[stageBuffer]byte, n int) {
	h.sum.Start(buf[:n])
	for off := 0; off < n; off += hashPiece {
		size := min(n-off, hashPiece)
		if h.begun {
			h.push(guts.ChainingValue(h.last))
		}
		h.begun = true
		// The array has room behind a short piece; what is there does not count.
		h.last = guts.CompressBuffer((*[hashPiece]byte)(buf[off:]), size, &guts.IV, h.pieces<<pieceHeight, 0)
	}
}

// wait returns when no buffer is read any more.
func (h *blobHash) wait() { h.sum.Wait() }

// push puts a whole piece, after which more bytes come, into the tree.
func (h *blobHash) push(cv [8]uint32) {
	i := 0
	for ; h.pieces&(1<<i) != 0; i++ {
		cv = guts.ChainingValue(guts.ParentNode(h.subtrees[i], cv, &guts.IV, 0))
	}
	h.subtrees[i] = cv
	h.pieces++
}

// finish gives both names.
func (h *blobHash) finish(id *model.BlobID, digest *[md5.Size]byte) {
	*digest = h.sum.Sum()
	n := h.last
	if !h.begun {
		n = guts.CompressChunk(nil, &guts.IV, 0, 0)
	}
	for i := range h.subtrees {
		if h.pieces&(1<<i) != 0 {
			n = guts.ParentNode(h.subtrees[i], guts.ChainingValue(n), &guts.IV, 0)
		}
	}
	n.Flags |= guts.FlagRoot
	words := guts.CompressNode(n)
	for i := range len(id) / 4 {
		binary.LittleEndian.PutUint32(id[4*i:], words[i])
	}
}
