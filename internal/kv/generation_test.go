package kv

import (
	"fmt"
	"math/rand/v2"
	"testing"
)

// TestGenerationsTellWhatIsInTables follows single batches, some too large for a
// memtable: none may be called flushed before DiskUsage sees it, and after a
// flush all must be.
func TestGenerationsTellWhatIsInTables(t *testing.T) {
	t.Parallel()
	s := open(t, "data", Options{FS: NewCrashFS().FS(), MemTableBytes: 128 << 10})
	rng := rand.New(rand.NewPCG(1, 1))
	type written struct {
		key string
		gen uint64
	}
	var all []written
	for i := range 400 {
		size := 1000
		if i%40 == 7 {
			size = 200 << 10
		}
		value := make([]byte, size)
		for j := range value {
			value[j] = byte(rng.Uint32())
		}
		key := fmt.Sprintf("k%05d", i)
		if err := put(s, key, string(value)); err != nil {
			t.Fatal(err)
		}
		all = append(all, written{key, s.Unflushed()})
		if i%20 == 0 {
			flushed := s.FlushedGen()
			if flushed > s.Unflushed() {
				t.Fatalf("flushed %d, present %d", flushed, s.Unflushed())
			}
			for _, w := range all {
				if w.gen < flushed {
					if n, err := s.DiskUsage([]byte(w.key), []byte(w.key+"\x00")); err != nil || n == 0 {
						t.Fatalf("%s of generation %d below %d is in no table: %d %v", w.key, w.gen, flushed, n, err)
					}
				}
			}
		}
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	if last := all[len(all)-1].gen; s.FlushedGen() <= last {
		t.Errorf("after a flush of everything: flushed %d, last written in %d", s.FlushedGen(), last)
	}
	n, err := s.DiskUsage([]byte("k"), []byte("l"))
	if err != nil || n < 400_000 {
		t.Errorf("disk usage %d, %v", n, err)
	}
}
