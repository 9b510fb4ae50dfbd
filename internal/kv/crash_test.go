package kv

import (
	"fmt"
	"strings"
	"sync"
	"testing"
)

// crashRun writes with several goroutines, cuts the power while they write, and
// reopens what the disk held. It returns the number of acknowledged writes and
// how many of them are lost: it reports and does not fail, so that a test can
// show that it would notice. Each writer stops after limit writes.
func crashRun(o Options, limit int, cut func(*CrashFS) *CrashFS) (acked, lost int, err error) {
	const dir, writers = "data", 8
	disk := NewCrashFS()
	o.FS, o.Logger = disk.FS(), quiet
	s, err := Open(dir, o)
	if err != nil {
		return 0, 0, err
	}
	var (
		mu   sync.Mutex
		keys []string
		wg   sync.WaitGroup
		stop = make(chan struct{})
		many = make(chan struct{})
	)
	for w := range writers {
		wg.Go(func() {
			for i := range limit {
				select {
				case <-stop:
					return
				default:
				}
				key := fmt.Sprintf("w%d-%d", w, i)
				if err := put(s, key, key+strings.Repeat("x", 700)); err != nil {
					return
				}
				mu.Lock()
				if keys = append(keys, key); len(keys) == min(600, writers*limit) {
					close(many)
				}
				mu.Unlock()
			}
		})
	}
	<-many
	mu.Lock()
	known := append([]string(nil), keys...) // acknowledged before the cut
	mu.Unlock()
	after := cut(disk)
	close(stop)
	wg.Wait()
	if err := s.Close(); err != nil {
		return 0, 0, err
	}

	o.FS = after.FS()
	if s, err = Open(dir, o); err != nil {
		return 0, 0, fmt.Errorf("reopen: %w", err)
	}
	for _, key := range known {
		v, ok, err := s.Get([]byte(key))
		if err != nil {
			return 0, 0, err
		}
		if !ok || !strings.HasPrefix(string(v.Bytes()), key) {
			lost++
		}
		v.Release()
	}
	return len(known), lost, s.Close()
}

func TestAcknowledgedWritesSurviveAPowerCut(t *testing.T) {
	t.Parallel()
	cuts := map[string]func(*CrashFS) *CrashFS{"nothing unsynced survives": (*CrashFS).Crash}
	for seed := range uint64(6) {
		cuts[fmt.Sprintf("some survives, seed %d", seed)] = func(c *CrashFS) *CrashFS {
			return c.CrashKeeping(int(10+15*seed), seed)
		}
	}
	for name, cut := range cuts {
		for _, mem := range []int{64 << 10, DefaultMemTableBytes} { // with many flushes, with none
			acked, lost, err := crashRun(Options{MemTableBytes: mem}, 1<<30, cut)
			if err != nil || lost != 0 {
				t.Errorf("%s, memtable %d: %d of %d lost, %v", name, mem, lost, acked, err)
			}
		}
	}
}

func TestPowerCutIsNoticedWithoutSync(t *testing.T) {
	t.Parallel()
	// So few that the first memtable takes them: ending a log syncs it.
	acked, lost, err := crashRun(Options{NoSync: true}, 20, (*CrashFS).Crash)
	if err != nil {
		t.Fatal(err)
	}
	if lost != acked {
		t.Fatalf("%d of %d unsynced writes lost, want all: the crash test proves nothing", lost, acked)
	}
}
