package kv

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// CrashFS is a file system in memory that knows which bytes were synced. It
// stands in for a disk whose power can be cut.
type CrashFS struct {
	mem *vfs.MemFS
}

// NewCrashFS gives an empty one.
func NewCrashFS() *CrashFS { return &CrashFS{mem: vfs.NewCrashableMem()} }

// FS gives the file system for Options.FS.
func (c *CrashFS) FS() FS { return c.mem }

// Crash gives a copy of what the disk holds if the power is cut now and nothing
// unsynced survives. The original is not changed and may be in use.
func (c *CrashFS) Crash() *CrashFS {
	return &CrashFS{mem: c.mem.CrashClone(vfs.CrashCloneCfg{})}
}

// CrashKeeping is Crash with each unsynced block and directory entry surviving
// with the given probability, drawn from seed.
func (c *CrashFS) CrashKeeping(percent int, seed uint64) *CrashFS {
	return &CrashFS{mem: c.mem.CrashClone(vfs.CrashCloneCfg{
		UnsyncedDataPercent: percent,
		RNG:                 rand.New(rand.NewPCG(seed, seed)),
	})}
}

// writeFS lets wrap stand before every file that is opened for writing.
type writeFS struct {
	vfs.FS
	wrap func(name string, f vfs.File) vfs.File
}

// Create implements vfs.FS.
func (w *writeFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.Create(name, c)
	if err != nil {
		return nil, err
	}
	return w.wrap(name, f), nil
}

// ReuseForWrite implements vfs.FS.
func (w *writeFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := w.FS.ReuseForWrite(oldname, newname, c)
	if err != nil {
		return nil, err
	}
	return w.wrap(newname, f), nil
}

// Unwrap implements vfs.FS.
func (w *writeFS) Unwrap() vfs.FS { return w.FS }

// SyncCounter counts the syncs of log files.
type SyncCounter struct{ n atomic.Int64 }

// Syncs is the number so far.
func (c *SyncCounter) Syncs() int64 { return c.n.Load() }

// SlowSync is fs as a disk on which each sync of a log file takes d.
func SlowSync(fs FS, d time.Duration) (FS, *SyncCounter) {
	c := &SyncCounter{}
	return &writeFS{FS: fs, wrap: func(name string, f vfs.File) vfs.File {
		if !isLog(name) {
			return f
		}
		return &slowFile{File: f, d: d, c: c}
	}}, c
}

// slowFile is a log file under SlowSync.
type slowFile struct {
	vfs.File
	d time.Duration
	c *SyncCounter
}

// wait takes the time of one sync.
func (f *slowFile) wait() {
	f.c.n.Add(1)
	time.Sleep(f.d) // this is the disk, not a wait for something
}

// Sync implements vfs.File.
func (f *slowFile) Sync() error {
	f.wait()
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f *slowFile) SyncData() error {
	f.wait()
	return f.File.SyncData()
}

// SyncTo implements vfs.File.
func (f *slowFile) SyncTo(n int64) (bool, error) {
	f.wait()
	return f.File.SyncTo(n)
}

// FileKind names the files that Faults can break.
type FileKind int

// The kinds of files.
const (
	LogFiles      FileKind = iota // the write-ahead log
	TableFiles                    // flushed and compacted data
	ManifestFiles                 // the list of tables
)

// kindOf sorts a file by its name.
func kindOf(fs FS, name string) (FileKind, bool) {
	base := fs.PathBase(name)
	switch {
	case isLog(base):
		return LogFiles, true
	case isTable(base):
		return TableFiles, true
	case len(base) > 9 && base[:9] == "MANIFEST-":
		return ManifestFiles, true
	}
	return 0, false
}

// Faults breaks the files of a FailingFS on command.
type Faults struct {
	mu     sync.Mutex
	writes map[FileKind]error
	syncs  map[FileKind]error
	seen   atomic.Int64
}

// FailingFS is fs as a disk that refuses writes and syncs when told to; at first
// it does not.
func FailingFS(fs FS) (FS, *Faults) {
	ft := &Faults{writes: map[FileKind]error{}, syncs: map[FileKind]error{}}
	return &writeFS{FS: fs, wrap: func(name string, f vfs.File) vfs.File {
		kind, ok := kindOf(fs, name)
		if !ok {
			return f
		}
		return &failingFile{File: f, kind: kind, ft: ft}
	}}, ft
}

// FailWrites makes writes to files of a kind fail with err (syscall.ENOSPC, say)
// after having written half of their bytes. nil heals.
func (t *Faults) FailWrites(kind FileKind, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.writes[kind] = err
}

// FailSyncs makes syncs of files of a kind fail with err. nil heals.
func (t *Faults) FailSyncs(kind FileKind, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.syncs[kind] = err
}

// Injected is the number of operations that were made to fail.
func (t *Faults) Injected() int64 { return t.seen.Load() }

// fault gives the error planned for an operation.
func (t *Faults) fault(plan map[FileKind]error, kind FileKind) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	err := plan[kind]
	if err != nil {
		t.seen.Add(1)
	}
	return err
}

// failingFile is a file under FailingFS.
type failingFile struct {
	vfs.File
	kind FileKind
	ft   *Faults
}

// Write implements vfs.File.
func (f *failingFile) Write(p []byte) (int, error) {
	if err := f.ft.fault(f.ft.writes, f.kind); err != nil {
		n, werr := f.File.Write(p[:len(p)/2])
		if werr != nil {
			return n, werr
		}
		return n, err
	}
	return f.File.Write(p)
}

// Sync implements vfs.File.
func (f *failingFile) Sync() error {
	if err := f.ft.fault(f.ft.syncs, f.kind); err != nil {
		return err
	}
	return f.File.Sync()
}

// SyncData implements vfs.File.
func (f *failingFile) SyncData() error {
	if err := f.ft.fault(f.ft.syncs, f.kind); err != nil {
		return err
	}
	return f.File.SyncData()
}

// SyncTo implements vfs.File.
func (f *failingFile) SyncTo(n int64) (bool, error) {
	if err := f.ft.fault(f.ft.syncs, f.kind); err != nil {
		return false, err
	}
	return f.File.SyncTo(n)
}
