package shard

import (
	"crypto/md5"
	"math/rand/v2"
	"testing"

	"lukechampine.com/blake3"

	"github.com/divandb/divan/internal/model"
)

// hashBlob gives the names of data the way Stage finds them: buffer by buffer.
func hashBlob(data []byte) (id model.BlobID, digest [md5.Size]byte) {
	var bufs [2][stageBuffer]byte
	for i := range bufs {
		for k := range bufs[i] {
			bufs[i][k] = 0xa5 // what is behind a short piece must not count
		}
	}
	h := newBlobHash()
	for turn := 0; ; turn ^= 1 {
		n := copy(bufs[turn][:], data)
		data = data[n:]
		h.add(&bufs[turn], n)
		if n < stageBuffer {
			break
		}
	}
	h.finish(&id, &digest)
	return id, digest
}

// TestBlobHash compares with the libraries at every edge of a block, chunk, piece,
// buffer and tree.
func TestBlobHash(t *testing.T) {
	t.Parallel()
	data := make([]byte, 5*stageBuffer+1)
	random := rand.NewChaCha8([32]byte{7})
	_, _ = random.Read(data)
	sizes := []int{0, 1}
	for _, unit := range []int{64, 1 << 10, hashPiece, stageBuffer} {
		for k := range 6 {
			sizes = append(sizes, k*unit+unit-1, k*unit+unit, k*unit+unit+1)
		}
	}
	for range 50 {
		sizes = append(sizes, rand.IntN(len(data)))
	}
	for _, size := range sizes {
		size = min(size, len(data))
		id, digest := hashBlob(data[:size])
		if want := blake3.Sum256(data[:size]); id != want {
			t.Errorf("%d bytes: BLAKE3 is %x, want %x", size, id, want)
		}
		if want := md5.Sum(data[:size]); digest != want {
			t.Errorf("%d bytes: MD5 is %x, want %x", size, digest, want)
		}
	}
}
