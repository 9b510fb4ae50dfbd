package kv

import (
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/sstable/block"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// FS is the file system a Store lives on. It is an alias, so that packages above
// can pass one on without importing Pebble.
type FS = vfs.FS

// DiskFS is the operating system's file system.
func DiskFS() FS { return vfs.Default }

// The defaults of Options.
const (
	DefaultCacheBytes    = 256 << 20
	DefaultMemTableBytes = 64 << 20
	DefaultMinFree       = 512 << 20
	DefaultFreeEvery     = time.Second
)

// freeCheckBytes is how much may be written between two looks at the free space.
// The clock alone would let a fast writer run past the mark.
const freeCheckBytes = 8 << 20

// Options configure a Store. The zero value is usable.
type Options struct {
	// FS is where the files are. Default: DiskFS.
	FS FS
	// CacheBytes bounds the block cache, which fills as blocks are read.
	// Default: DefaultCacheBytes.
	CacheBytes int64
	// CacheOf shares the block cache of another store, which then is for both as
	// large as that store's CacheBytes. That store must be closed after this one.
	CacheOf *Store
	// MemTableBytes is the size a memtable grows to; the first one has 256 KiB
	// and each further one is twice as large, so an idle store stays small.
	// Default: DefaultMemTableBytes, but at most an eighth of the free-space mark.
	MemTableBytes int
	// MinFree is the free-space mark: with less than this many bytes free, only
	// batches that free space are taken. 0: DefaultMinFree, but at most 5 % of the
	// file system. Below 0: no mark.
	MinFree int64
	// FreeSpace tells the free bytes. Default: asks the file system of dir.
	FreeSpace func() (int64, error)
	// FreeEvery is how often the free space is looked at; it is also looked at
	// after every few MiB written. Default: DefaultFreeEvery.
	FreeEvery time.Duration
	// NoSync makes Commit.Wait return without an fsync. For what can be rebuilt.
	NoSync bool
	// Logger gets what the store has to say. Default: slog.Default.
	Logger *slog.Logger
	// OnFatal is called once, in a goroutine of its own, after the first write
	// error has closed the gate. The store takes no more writes; the process
	// should end. nil: panic.
	OnFatal func(error)
}

// withDefaults fills the fields left zero.
func (o Options) withDefaults() Options {
	if o.FS == nil {
		o.FS = DiskFS()
	}
	if o.CacheBytes <= 0 {
		o.CacheBytes = DefaultCacheBytes
	}
	if o.FreeEvery <= 0 {
		o.FreeEvery = DefaultFreeEvery
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	return o
}

// memTableBytes gives the size of memtables for a free-space mark (0: none). Each
// of them has a log file that Pebble reserves whole when it begins it, and becomes
// a table while that log is still there, and up to five logs are kept for reuse:
// below the mark there must be room for all that, or the disk fills up although
// no writes are taken, and no deletion brings the space back.
func memTableBytes(mark int64) int {
	if mark == 0 {
		return DefaultMemTableBytes
	}
	return int(min(DefaultMemTableBytes, max(minMemTableBytes, mark/8)))
}

// minMemTableBytes keeps a tiny mark from making the store useless.
const minMemTableBytes = 2 << 20

// blockBytes is the size of a data block before compression; see
// docs/decisions/0002-pebble-options.md for the figures behind it and behind the
// compression.
const blockBytes = 16 << 10

// pebbleOptions gives Pebble's options for o. The gate, the logger and the events
// are set by Open.
func pebbleOptions(o Options) *pebble.Options {
	p := &pebble.Options{
		FormatMajorVersion:          pebble.FormatNewest,
		MemTableSize:                uint64(o.MemTableBytes),
		MemTableStopWritesThreshold: 3,
		L0CompactionThreshold:       4,
		L0StopWritesThreshold:       36,
		LBaseMaxBytes:               64 << 20,
		MaxOpenFiles:                1000,
		// A dropped database gives its space back although nothing else is written.
		FlushDelayDeleteRange:      10 * time.Second,
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
	}
	p.Experimental.L0CompactionConcurrency = 2
	p.TargetFileSizes[0] = 4 << 20
	for i := range p.Levels {
		p.Levels[i].BlockSize = blockBytes
		p.Levels[i].IndexBlockSize = 64 << 10
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	// What is in L0 is rewritten soon: to compress it is to do it twice. At most a
	// few memtables' worth of disk is what that costs.
	compression := pebble.DBCompressionFastest
	compression.Name = "FastestBelowL0"
	compression.Levels[0] = block.NoCompression
	p.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return compression })
	return p
}
