package crash_test

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/server"
)

// TestBrokenDiskEndsWrites breaks the log under a server with writers. Nothing is
// acknowledged from then on, the owner of the process is told, and what was
// acknowledged is there on the disk as it is and as a power cut leaves it.
func TestBrokenDiskEndsWrites(t *testing.T) {
	t.Parallel()
	for name, inject := range map[string]func(*kv.Faults){
		"sync EIO":     func(f *kv.Faults) { f.FailSyncs(kv.LogFiles, syscall.EIO) },
		"write EIO":    func(f *kv.Faults) { f.FailWrites(kv.LogFiles, syscall.EIO) },
		"write ENOSPC": func(f *kv.Faults) { f.FailWrites(kv.LogFiles, syscall.ENOSPC) },
	} {
		for _, cut := range []bool{false, true} {
			t.Run(name+map[bool]string{true: " and power cut"}[cut], func(t *testing.T) {
				t.Parallel()
				breakDisk(t, inject, cut)
			})
		}
	}
}

// breakDisk is one case of TestBrokenDiskEndsWrites.
func breakDisk(t *testing.T, inject func(*kv.Faults), cut bool) {
	disk := kv.NewCrashFS()
	fs, faults := kv.FailingFS(disk.FS())
	fatal := make(chan error, 2)
	data := t.TempDir()
	w := newWorld(writers)
	crew := newCrew(w, uint64(time.Now().UnixNano()), false)
	for _, c := range crew.writers {
		c.broken = true
	}
	s := startOnDisk(t, data, fs, func(o *server.Options) { o.OnFatal = func(err error) { fatal <- err } })
	createShared(t, w, s)
	enough := w.beginRound(200)
	crew.start(s)
	select {
	case <-enough:
	case <-crew.ended:
		crew.wait(t)
		t.Fatal("the writers ended by themselves")
	}
	inject(faults)
	crew.wait(t) // every one of them is refused in the end
	select {
	case err := <-fatal:
		t.Logf("told: %v", err)
	case <-time.After(patience):
		t.Fatal("OnFatal was not called")
	}
	for _, c := range []struct{ method, path, body string }{
		{"PUT", "/shared/later", `{}`},
		{"POST", "/shared", `{}`},
		{"POST", "/shared/_bulk_docs", `{"docs":[{"_id":"later"}]}`},
		{"PUT", "/shared/_local/later", `{}`},
		{"PUT", "/later", `{}`},
		{"DELETE", "/shared", `{}`},
	} {
		r, err := s.Try(context.Background(), c.method, c.path, c.body)
		if err != nil || r.Status < 500 {
			t.Errorf("%s %s behind the failure: %v %+v", c.method, c.path, err, r)
		}
	}
	left := disk
	if cut {
		left = disk.Crash()
	}
	s.Stop(t)
	if len(fatal) != 0 {
		t.Errorf("OnFatal was called again: %v", <-fatal)
	}
	report(t, 0, w.inspect(startOnDisk(t, data, left.FS(), nil), true))
}
