package kv

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divandb/divan/internal/model"
)

func TestFreeSpaceMark(t *testing.T) {
	t.Parallel()
	var free atomic.Int64
	free.Store(1000)
	s := open(t, "data", Options{
		FS: NewCrashFS().FS(), MinFree: 100, FreeEvery: time.Hour,
		FreeSpace: func() (int64, error) { return free.Load(), nil },
	})
	look := func() { s.free.check(quiet) }
	if err := put(s, "a", "1"); err != nil {
		t.Fatal(err)
	}
	free.Store(99)
	look()
	if !s.Full() {
		t.Fatal("not full below the mark")
	}
	b := s.NewBatch()
	b.Delete([]byte("a"))
	if _, err := s.Apply(b); !errors.Is(err, model.ErrStorageFull) {
		t.Fatalf("below the mark: %v", err)
	}
	if _, ok := get(t, s, "a"); !ok {
		t.Fatal("a refused batch was applied, or reads stopped")
	}
	b.Frees = true // the refused batch is as it was
	c, err := s.Apply(b)
	if err != nil {
		t.Fatalf("a batch that frees space: %v", err)
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	free.Store(100)
	look()
	if err := put(s, "b", "2"); err != nil || s.Full() {
		t.Fatalf("with room again: %v", err)
	}
}

// TestFastWriterCannotPassTheMark writes without the clock ever ticking.
func TestFastWriterCannotPassTheMark(t *testing.T) {
	t.Parallel()
	var free atomic.Int64
	free.Store(1 << 30)
	s := open(t, "data", Options{
		FS: NewCrashFS().FS(), MinFree: 100, FreeEvery: time.Hour, NoSync: true,
		FreeSpace: func() (int64, error) { return free.Load(), nil },
	})
	free.Store(0)
	value := string(make([]byte, 1<<20))
	for i := range 2 * freeCheckBytes >> 20 {
		err := put(s, "k", value)
		if errors.Is(err, model.ErrStorageFull) {
			return
		}
		if err != nil {
			t.Fatal(i, err)
		}
	}
	t.Error("the mark was never looked at")
}

func TestFreeSpaceTicker(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{})
	s := open(t, "data", Options{
		FS: NewCrashFS().FS(), MinFree: 100, FreeEvery: time.Millisecond,
		FreeSpace: func() (int64, error) {
			select {
			case asked <- struct{}{}:
			default:
			}
			return 1, nil
		},
	})
	<-asked // by the clock: Open's own look had no listener
	if !s.Full() {
		t.Error("not full")
	}
}

func TestFreeSpaceErrorChangesNothing(t *testing.T) {
	t.Parallel()
	s := open(t, "data", Options{
		FS: NewCrashFS().FS(), FreeEvery: time.Hour,
		FreeSpace: func() (int64, error) { return 0, errors.New("no answer") },
	})
	if s.Full() {
		t.Error("full because the disk gave no answer")
	}
}

func TestDefaultMarkOnDisk(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), Options{})
	if s.free.min <= 0 || s.free.min > DefaultMinFree {
		t.Errorf("mark %d", s.free.min)
	}
	off := open(t, t.TempDir(), Options{MinFree: -1})
	if off.free.min != 0 || off.Full() {
		t.Errorf("mark %d although switched off", off.free.min)
	}
}

func TestMemTablesFitTheMark(t *testing.T) {
	t.Parallel()
	for mark, want := range map[int64]int{
		0:              DefaultMemTableBytes,
		1:              minMemTableBytes,
		40 << 20:       5 << 20,
		DefaultMinFree: DefaultMemTableBytes,
		1 << 40:        DefaultMemTableBytes,
	} {
		if got := memTableBytes(mark); got != want {
			t.Errorf("mark %d: %d, want %d", mark, got, want)
		}
	}
	s := open(t, "data", Options{FS: NewCrashFS().FS(), MinFree: 40 << 20, FreeSpace: func() (int64, error) { return 1 << 40, nil }})
	if s.o.MemTableBytes != 5<<20 {
		t.Errorf("the store has memtables of %d bytes", s.o.MemTableBytes)
	}
}
