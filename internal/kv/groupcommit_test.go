package kv

import (
	"fmt"
	"sync"
	"testing"
	"time"
)

// TestConcurrentCommitsShareFsyncs counts: with 64 writers on a disk whose fsync
// takes its time, each fsync must carry many commits, with no delay of our own.
func TestConcurrentCommitsShareFsyncs(t *testing.T) {
	t.Parallel()
	fs, counter := SlowSync(NewCrashFS().FS(), 5*time.Millisecond)
	s := open(t, "data", Options{FS: fs})
	before := counter.Syncs()
	const writers, each = 64, 20
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				if err := put(s, fmt.Sprintf("%d-%d", w, i), "value"); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	syncs := counter.Syncs() - before
	m := s.Metrics()
	if m.Commits != writers*each || m.Fsyncs < syncs {
		t.Errorf("metrics count %d commits and %d fsyncs, want %d and at least %d", m.Commits, m.Fsyncs, writers*each, syncs)
	}
	per := float64(writers*each) / float64(syncs)
	t.Logf("%d commits, %d fsyncs: %.1f commits per fsync", writers*each, syncs, per)
	if per <= 16 {
		t.Errorf("%.1f commits per fsync, want over 16", per)
	}
}
