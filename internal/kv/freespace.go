package kv

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// freeMark watches the free space of the disk. Below the mark the store takes
// only batches that free space, while there is still room for the log and for
// the compactions that give space back: Pebble does not survive a full disk.
type freeMark struct {
	min   int64 // 0: no mark
	space func() (int64, error)
	full  atomic.Bool

	sinceCheck atomic.Int64 // bytes written since the last look
	mu         sync.Mutex   // one look at a time

	quit chan struct{}
	done chan struct{}
}

// newFreeMark works out the mark from the options.
func newFreeMark(dir string, o Options) (*freeMark, error) {
	m := &freeMark{min: o.MinFree, space: o.FreeSpace}
	if m.min < 0 {
		m.min = 0
		return m, nil
	}
	if m.space == nil {
		m.space = func() (int64, error) {
			u, err := o.FS.GetDiskUsage(dir)
			return int64(u.AvailBytes), err
		}
		// The directory may not be there yet, and a memory file system has no size.
		if err := o.FS.MkdirAll(dir, 0o755); err != nil {
			return nil, fmt.Errorf("kv: make %s: %w", dir, err)
		}
		u, err := o.FS.GetDiskUsage(dir)
		if errors.Is(err, vfs.ErrUnsupported) {
			m.min = 0
			return m, nil
		}
		if err != nil {
			return nil, fmt.Errorf("kv: free space of %s: %w", dir, err)
		}
		if m.min == 0 {
			m.min = min(DefaultMinFree, int64(u.TotalBytes/20))
		}
	}
	if m.min == 0 {
		m.min = DefaultMinFree
	}
	return m, nil
}

// start begins looking every o.FreeEvery.
func (m *freeMark) start(o Options) {
	if m.min == 0 {
		return
	}
	m.quit, m.done = make(chan struct{}), make(chan struct{})
	go func() {
		defer close(m.done)
		tick := time.NewTicker(o.FreeEvery)
		defer tick.Stop()
		for {
			select {
			case <-m.quit:
				return
			case <-tick.C:
				m.check(o.Logger)
			}
		}
	}()
}

// stop ends start.
func (m *freeMark) stop() {
	if m.quit != nil {
		close(m.quit)
		<-m.done
	}
}

// wrote counts written bytes and looks at the disk when enough have come
// together.
func (m *freeMark) wrote(n int64, log *slog.Logger) {
	if m.min != 0 && m.sinceCheck.Add(n) >= freeCheckBytes {
		m.check(log)
	}
}

// check looks at the disk. If the disk cannot be asked the answer stays as it
// was: stopping all writes for that would be worse.
func (m *freeMark) check(log *slog.Logger) {
	if m.min == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sinceCheck.Store(0)
	free, err := m.space()
	if err != nil {
		log.Error("the free space of the disk cannot be read", "error", err)
		return
	}
	full := free < m.min
	if m.full.Swap(full) == full {
		return
	}
	if full {
		log.Warn("the disk is nearly full: no writes until space is freed", "free", free, "mark", m.min)
	} else {
		log.Info("the disk has room again: writes are taken", "free", free, "mark", m.min)
	}
}
