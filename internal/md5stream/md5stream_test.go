package md5stream

import (
	"bytes"
	"crypto/md5"
	"hash"
	"math/rand/v2"
	"testing"
)

// TestSizes compares with crypto/md5 at every length around the edges of blocks, with
// a sum in the middle, which must not disturb.
func TestSizes(t *testing.T) {
	t.Parallel()
	data := make([]byte, 200<<10)
	_, _ = rand.NewChaCha8([32]byte{3}).Read(data)
	sizes := []int{4095, 4096, 65535, 65536, 65537, 131072, 131073, len(data)}
	for i := range 300 {
		sizes = append(sizes, i)
	}
	h := New()
	for _, size := range sizes {
		h.Reset()
		_, _ = h.Write(data[:size/3])
		first := md5.Sum(data[:size/3])
		if got := h.Sum([]byte("x")); !bytes.Equal(got, append([]byte("x"), first[:]...)) {
			t.Errorf("%d bytes: %x, want %x", size/3, got[1:], first)
		}
		_, _ = h.Write(data[size/3 : size])
		want := md5.Sum(data[:size])
		if got := h.Sum(nil); !bytes.Equal(got, want[:]) {
			t.Errorf("%d bytes: %x, want %x", size, got, want)
		}
	}
	if h.Size() != md5.Size || h.BlockSize() != md5.BlockSize {
		t.Errorf("size %d, block size %d", h.Size(), h.BlockSize())
	}
}

// FuzzWrites cuts data into writes and compares with crypto/md5.
func FuzzWrites(f *testing.F) {
	f.Add([]byte("some bytes"), uint64(1))
	f.Add(bytes.Repeat([]byte("0123456789"), 100), uint64(2))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		h := New()
		for rest := data; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			if k, err := h.Write(rest[:n]); k != n || err != nil {
				t.Fatalf("wrote %d of %d: %v", k, n, err)
			}
			rest = rest[n:]
		}
		if got, want := h.Sum(nil), md5.Sum(data); !bytes.Equal(got, want[:]) {
			t.Fatalf("%x, want %x", got, want)
		}
	})
}

// BenchmarkMD5 sets the hash beside crypto/md5, in the pieces that uploads come in.
func BenchmarkMD5(b *testing.B) {
	piece := make([]byte, 16<<10)
	for _, c := range []struct {
		name string
		hash hash.Hash
	}{{"here", New()}, {"crypto", md5.New()}} {
		b.Run(c.name, func(b *testing.B) {
			b.SetBytes(int64(len(piece)))
			for b.Loop() {
				_, _ = c.hash.Write(piece)
			}
		})
	}
}
