package kv

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/divandb/divan/internal/model"
)

// TestWriteErrorClosesTheGate breaks the disk under concurrent writers in every
// way there is. Whoever writes must come back with an error, OnFatal must be
// called once, and a store reopened on the same disk, with and without a power
// cut, must have every write that was acknowledged.
func TestWriteErrorClosesTheGate(t *testing.T) {
	t.Parallel()
	faults := map[string]func(*Faults){
		"log write ENOSPC":   func(f *Faults) { f.FailWrites(LogFiles, syscall.ENOSPC) },
		"log sync EIO":       func(f *Faults) { f.FailSyncs(LogFiles, syscall.EIO) },
		"table write ENOSPC": func(f *Faults) { f.FailWrites(TableFiles, syscall.ENOSPC) },
		"table sync EIO":     func(f *Faults) { f.FailSyncs(TableFiles, syscall.EIO) },
		"manifest ENOSPC":    func(f *Faults) { f.FailWrites(ManifestFiles, syscall.ENOSPC) },
		"manifest sync EIO":  func(f *Faults) { f.FailSyncs(ManifestFiles, syscall.EIO) },
		"everything ENOSPC": func(f *Faults) {
			f.FailWrites(TableFiles, syscall.ENOSPC)
			f.FailWrites(ManifestFiles, syscall.ENOSPC)
			f.FailWrites(LogFiles, syscall.ENOSPC)
		},
	}
	for name, inject := range faults {
		for _, mem := range []int{64 << 10, 1 << 20} { // small: rotations in flight when it happens
			t.Run(fmt.Sprintf("%s/%d", name, mem), func(t *testing.T) {
				t.Parallel()
				breakDisk(t, inject, mem)
			})
		}
	}
}

// breakDisk is one case of TestWriteErrorClosesTheGate.
func breakDisk(t *testing.T, inject func(*Faults), mem int) {
	disk := NewCrashFS()
	fs, faults := FailingFS(disk.FS())
	var called atomic.Int64
	fatal := make(chan error, 1)
	s, err := Open("data", Options{FS: fs, Logger: quiet, MemTableBytes: mem, OnFatal: func(err error) {
		called.Add(1)
		fatal <- err
	}})
	if err != nil {
		t.Fatal(err)
	}
	var (
		mu    sync.Mutex
		acked []string
		wg    sync.WaitGroup
		many  = make(chan struct{})
	)
	for w := range 16 {
		wg.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("w%d-%d", w, i)
				err := put(s, key, key+strings.Repeat("x", 1000))
				if err != nil {
					if !errors.Is(err, model.ErrClosed) {
						t.Errorf("a writer got %v", err)
					}
					return
				}
				mu.Lock()
				if acked = append(acked, key); len(acked) == 300 {
					close(many)
				}
				mu.Unlock()
			}
		})
	}
	<-many
	inject(faults)
	wg.Wait() // a writer that hangs shows here, by the test's time limit
	cause := <-fatal
	if !errors.Is(cause, syscall.ENOSPC) && !errors.Is(cause, syscall.EIO) {
		t.Errorf("OnFatal got %v", cause)
	}
	if err := put(s, "late", "x"); !errors.Is(err, model.ErrClosed) {
		t.Errorf("a write behind the gate: %v", err)
	}
	if err := s.Failed(); !errors.Is(err, cause) {
		t.Errorf("Failed: %v", err)
	}
	for _, key := range acked { // reads go on
		if _, ok := get(t, s, key); !ok {
			t.Fatalf("%s cannot be read behind the gate", key)
		}
	}
	cut := disk.Crash() // the process ends without a Close
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	if n := called.Load(); n != 1 {
		t.Errorf("OnFatal called %d times", n)
	}
	for name, fs := range map[string]FS{"after a power cut": cut.FS(), "on the same disk": disk.FS()} {
		s := open(t, "data", Options{FS: fs})
		lost := 0
		for _, key := range acked {
			if v, ok := get(t, s, key); !ok || !strings.HasPrefix(v, key) {
				lost++
			}
		}
		if lost != 0 {
			t.Errorf("%s: %d of %d acknowledged writes lost", name, lost, len(acked))
		}
		if _, ok := get(t, s, "late"); ok {
			t.Errorf("%s: a refused write is there", name)
		}
		if err := put(s, "again", "x"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestFaultWhileOpeningIsReturned(t *testing.T) {
	t.Parallel()
	for _, kind := range []FileKind{LogFiles, ManifestFiles} {
		fs, faults := FailingFS(NewCrashFS().FS())
		faults.FailWrites(kind, syscall.ENOSPC)
		faults.FailSyncs(kind, syscall.ENOSPC)
		s, err := Open("data", Options{FS: fs, Logger: quiet, OnFatal: func(error) { t.Error("OnFatal while opening") }})
		if err == nil {
			// Pebble writes its log at the first batch only.
			if kind != LogFiles {
				t.Errorf("kind %d: opened on a full disk", kind)
			}
			s.gate.onFatal = func(error) {}
			if err := put(s, "a", "b"); !errors.Is(err, model.ErrClosed) {
				t.Errorf("kind %d: %v", kind, err)
			}
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		} else if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("kind %d: %v", kind, err)
		}
	}
}

func TestPanicInsidePebbleClosesTheGate(t *testing.T) {
	t.Parallel()
	fatal := make(chan error, 1)
	s := open(t, "data", Options{FS: NewCrashFS().FS(), OnFatal: func(err error) { fatal <- err }})
	b := s.NewBatch()
	b.Set([]byte("a"), nil)
	inner := b.b
	if _, err := s.Apply(b); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(&Batch{b: inner}); !errors.Is(err, model.ErrClosed) { // twice: Pebble panics
		t.Fatalf("got %v", err)
	}
	if err := <-fatal; !strings.Contains(err.Error(), "panic") {
		t.Fatal(err)
	}
}
