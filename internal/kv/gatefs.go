package kv

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// gateFS stands between Pebble and the disk. The first failed write closes the
// gate before Pebble hears of it, and from then on the disk stays as it is, as at
// a power cut. Pebble is told that all is well, because what it does with an
// error of its log is to panic with locks held, while kv no longer lets anyone
// believe it. Nothing is removed either: Pebble would drop a log whose contents
// the manifest no longer got to know. New tables go to memory, so that a write
// that waits in Pebble for a flush or a compaction comes back and hears of the
// gate. A reopened store is then an ordinary recovery.
type gateFS struct {
	vfs.FS
	gate  *gate
	syncs atomic.Int64 // fsyncs of the log

	spillOnce sync.Once
	spill     *vfs.MemFS // tables written behind the closed gate
}

// isLog tells a file of the write-ahead log by its name.
func isLog(name string) bool { return strings.HasSuffix(name, ".log") }

// isTable tells a file of immutable data by its name.
func isTable(name string) bool {
	return strings.HasSuffix(name, ".sst") || strings.HasSuffix(name, ".blob")
}

// failed closes the gate for an error of an operation on name. It tells whether
// Pebble shall see success. It shall see that a table failed: it tries again, and
// then the table goes to memory.
func (g *gateFS) failed(op, name string, err error) (hide bool) {
	_ = g.gate.fail(fmt.Errorf("kv: %s %s: %w", op, filepath.Base(name), err)) // the gate keeps it
	// Not while opening: Open returns its errors.
	return g.gate.frozen() && !isTable(name)
}

// memory gives the file system for tables behind the closed gate.
func (g *gateFS) memory() *vfs.MemFS {
	g.spillOnce.Do(func() { g.spill = vfs.NewMem() })
	return g.spill
}

// createFrozen is Create behind the closed gate.
func (g *gateFS) createFrozen(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if !isTable(name) {
		return newNullFile(), nil
	}
	if err := g.memory().MkdirAll(g.PathDir(name), 0o755); err != nil {
		return nil, err
	}
	return g.memory().Create(name, c)
}

// file wraps a file that Pebble will write.
func (g *gateFS) file(name string, f vfs.File, err error) (vfs.File, error) {
	if err != nil {
		if g.failed("create", name, err) {
			return newNullFile(), nil
		}
		return nil, err
	}
	return &gateFile{File: f, fs: g, name: name, log: isLog(name), table: isTable(name)}, nil
}

// Create implements vfs.FS.
func (g *gateFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if g.gate.frozen() {
		return g.createFrozen(name, c)
	}
	f, err := g.FS.Create(name, c)
	return g.file(name, f, err)
}

// OpenReadWrite implements vfs.FS.
func (g *gateFS) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if g.gate.frozen() {
		return g.createFrozen(name, c)
	}
	f, err := g.FS.OpenReadWrite(name, c, opts...)
	return g.file(name, f, err)
}

// Open implements vfs.FS.
func (g *gateFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if g.gate.frozen() && isTable(name) {
		if f, err := g.memory().Open(name, opts...); err == nil {
			return f, nil
		}
	}
	return g.FS.Open(name, opts...)
}

// Stat implements vfs.FS.
func (g *gateFS) Stat(name string) (vfs.FileInfo, error) {
	if g.gate.frozen() && isTable(name) {
		if info, err := g.memory().Stat(name); err == nil {
			return info, nil
		}
	}
	return g.FS.Stat(name)
}

// ReuseForWrite implements vfs.FS.
func (g *gateFS) ReuseForWrite(oldname, newname string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if g.gate.frozen() {
		return newNullFile(), nil
	}
	f, err := g.FS.ReuseForWrite(oldname, newname, c)
	return g.file(newname, f, err)
}

// OpenDir implements vfs.FS: directories are opened to be synced.
func (g *gateFS) OpenDir(name string) (vfs.File, error) {
	f, err := g.FS.OpenDir(name)
	if err != nil {
		return nil, err
	}
	return &gateFile{File: f, fs: g, name: name}, nil
}

// Remove implements vfs.FS. That a file could not be removed loses nothing and
// leaves the gate open.
func (g *gateFS) Remove(name string) error {
	if g.gate.frozen() {
		return nil
	}
	return g.FS.Remove(name)
}

// RemoveAll implements vfs.FS.
func (g *gateFS) RemoveAll(name string) error {
	if g.gate.frozen() {
		return nil
	}
	return g.FS.RemoveAll(name)
}

// Rename implements vfs.FS.
func (g *gateFS) Rename(oldname, newname string) error {
	if g.gate.frozen() {
		return nil
	}
	err := g.FS.Rename(oldname, newname)
	if err != nil && g.failed("rename", newname, err) {
		return nil
	}
	return err
}

// Link implements vfs.FS.
func (g *gateFS) Link(oldname, newname string) error {
	if g.gate.frozen() {
		return nil
	}
	return g.FS.Link(oldname, newname)
}

// Unwrap implements vfs.FS.
func (g *gateFS) Unwrap() vfs.FS { return g.FS }

// gateFile is a file under gateFS.
type gateFile struct {
	vfs.File
	fs         *gateFS
	name       string
	log, table bool
}

// frozen tells whether the file must stay as it is.
func (f *gateFile) frozen() bool { return !f.table && f.fs.gate.frozen() }

// done passes the outcome of an operation to the gate.
func (f *gateFile) done(op string, err error) error {
	if err != nil && f.fs.failed(op, f.name, err) {
		return nil
	}
	return err
}

// Write implements vfs.File.
func (f *gateFile) Write(p []byte) (int, error) {
	if f.frozen() {
		return len(p), nil
	}
	n, err := f.File.Write(p)
	if err != nil && f.done("write", err) == nil {
		return len(p), nil
	}
	return n, err
}

// WriteAt implements vfs.File.
func (f *gateFile) WriteAt(p []byte, off int64) (int, error) {
	if f.frozen() {
		return len(p), nil
	}
	n, err := f.File.WriteAt(p, off)
	if err != nil && f.done("write", err) == nil {
		return len(p), nil
	}
	return n, err
}

// Sync implements vfs.File.
func (f *gateFile) Sync() error {
	if f.frozen() {
		return nil
	}
	if f.log {
		f.fs.syncs.Add(1)
	}
	return f.done("sync", f.File.Sync())
}

// SyncData implements vfs.File.
func (f *gateFile) SyncData() error {
	if f.frozen() {
		return nil
	}
	if f.log {
		f.fs.syncs.Add(1)
	}
	return f.done("sync", f.File.SyncData())
}

// SyncTo implements vfs.File.
func (f *gateFile) SyncTo(length int64) (bool, error) {
	if f.frozen() {
		return true, nil
	}
	full, err := f.File.SyncTo(length)
	return full, f.done("sync", err)
}

// Close implements vfs.File.
func (f *gateFile) Close() error {
	return f.done("close", f.File.Close())
}

// nullFile takes the place of a file that is created behind the closed gate.
type nullFile struct {
	vfs.File // an empty file in memory: it answers Stat and Close
}

// newNullFile gives a file that takes everything and keeps nothing.
func newNullFile() vfs.File { return nullFile{vfs.NewMemFile(nil)} }

// Write implements vfs.File.
func (nullFile) Write(p []byte) (int, error) { return len(p), nil }

// WriteAt implements vfs.File.
func (nullFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }

// Preallocate implements vfs.File.
func (nullFile) Preallocate(_, _ int64) error { return nil }

// Sync implements vfs.File.
func (nullFile) Sync() error { return nil }

// SyncData implements vfs.File.
func (nullFile) SyncData() error { return nil }

// SyncTo implements vfs.File.
func (nullFile) SyncTo(int64) (bool, error) { return true, nil }
