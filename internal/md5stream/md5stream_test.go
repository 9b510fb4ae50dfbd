package md5stream

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
)

// randomBytes gives the same bytes for the same seed.
func randomBytes(n int, seed byte) []byte {
	data := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{seed}).Read(data)
	return data
}

// TestSizes compares with crypto/md5 at every length around the edges of blocks, with
// a sum in the middle, which must not disturb. It does so also the way processors
// without AVX-512 go.
func TestSizes(t *testing.T) {
	t.Parallel()
	data := randomBytes(200<<10, 3)
	sizes := []int{4095, 4096, 65535, 65536, 65537, 131072, 131073, len(data)}
	for i := range 300 {
		sizes = append(sizes, i)
	}
	for _, size := range sizes {
		for _, h := range []*Hash{New(), {portable: md5.New()}} {
			h.Start(data[:size/3])
			if got, want := h.Sum(), md5.Sum(data[:size/3]); got != want {
				t.Errorf("%d bytes: %x, want %x", size/3, got, want)
			}
			h.Start(data[size/3 : size])
			if got, want := h.Sum(), md5.Sum(data[:size]); got != want {
				t.Errorf("%d bytes: %x, want %x", size, got, want)
			}
		}
	}
}

// TestManyStreams hashes more streams at once than a group has lanes, in pieces of
// all sizes, some of which wait for company and some not.
func TestManyStreams(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for s := range 3*laneCount + 1 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(uint64(s), 1))
			data := randomBytes(1<<20+random.IntN(1<<20), byte(s))
			h := New()
			for rest := data; len(rest) > 0; {
				n := min(len(rest), 1+random.IntN(128<<10))
				h.Start(rest[:n])
				if random.IntN(2) == 0 {
					h.Wait()
				}
				rest = rest[n:]
			}
			if got, want := h.Sum(), md5.Sum(data); got != want {
				t.Errorf("stream %d: %x, want %x", s, got, want)
			}
		})
	}
	all.Wait()
}

// TestTogether hashes every number of jobs side by side that a group may have.
func TestTogether(t *testing.T) {
	t.Parallel()
	if !haveFast {
		t.Skip("this processor hashes one stream at a time")
	}
	for n := 1; n <= laneCount; n++ {
		jobs := make([]*job, n)
		hashes := make([]*Hash, n)
		for i := range jobs {
			hashes[i] = New()
			data := randomBytes(turn, byte(10*n+i))
			hashes[i].length = turn
			jobs[i] = &job{state: &hashes[i].state, rest: data}
		}
		hashTogether(jobs, turn/2)
		hashTogether(jobs, turn/2)
		for i := range jobs {
			if got, want := hashes[i].Sum(), md5.Sum(randomBytes(turn, byte(10*n+i))); got != want {
				t.Errorf("%d of %d: %x, want %x", i, n, got, want)
			}
		}
	}
}

// TestOwnerIsAway has an owner that started and does not come back for long: others
// must not wait for it, and nothing is left over in the end.
func TestOwnerIsAway(t *testing.T) {
	t.Parallel()
	var own lanes
	if !haveFast {
		t.Skip("this processor hashes one stream at a time")
	}
	away, here := New(), New()
	data := randomBytes(1<<20, 1)
	own.start(&away.job, &away.state, data)
	own.start(&here.job, &here.state, data[:64<<10])
	own.finish(&here.job)
	own.start(&here.job, &here.state, data[64<<10:])
	own.finish(&here.job)
	own.finish(&away.job)
	if here.state != away.state {
		t.Errorf("one stream gave %x, the other %x", here.state, away.state)
	}
	if len(own.groups) != 1 || len(own.groups[0].jobs) != 0 {
		t.Errorf("%d groups, the first with %d jobs", len(own.groups), len(own.groups[0].jobs))
	}
}

// FuzzWrites cuts data into pieces and compares with crypto/md5.
func FuzzWrites(f *testing.F) {
	f.Add([]byte("some bytes"), uint64(1))
	f.Add(bytes.Repeat([]byte("0123456789"), 100), uint64(2))
	f.Add(bytes.Repeat([]byte("0123456789"), 10000), uint64(3))
	f.Fuzz(func(t *testing.T, data []byte, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 0))
		h := New()
		for rest := data; len(rest) > 0; {
			n := 1 + random.IntN(len(rest))
			h.Start(rest[:n])
			rest = rest[n:]
		}
		if got, want := h.Sum(), md5.Sum(data); got != want {
			t.Fatalf("%x, want %x", got, want)
		}
	})
}

// BenchmarkMD5 sets the hash beside crypto/md5: the time is that of all streams.
func BenchmarkMD5(b *testing.B) {
	const size = 64 << 10
	for _, n := range []int{1, 2, 4, laneCount} {
		b.Run(fmt.Sprintf("streams=%d", n), func(b *testing.B) {
			hashes := make([]*Hash, n)
			for i := range hashes {
				hashes[i] = New()
			}
			data := randomBytes(n*size, 1)
			b.SetBytes(int64(len(data)))
			for b.Loop() {
				for i, h := range hashes {
					h.Start(data[i*size : (i+1)*size])
				}
				for _, h := range hashes {
					h.Wait()
				}
			}
		})
	}
	b.Run("crypto", func(b *testing.B) {
		data := randomBytes(size, 1)
		h := md5.New()
		b.SetBytes(size)
		for b.Loop() {
			_, _ = h.Write(data)
		}
	})
}
