// Package kv is the ordered key-value store under a node: Pebble behind a gate.
// It is the only package that imports Pebble. What it adds: a write is readable
// at once and durable when its Commit says so; the first write error closes a
// gate behind which nothing is acknowledged any more and nothing on the disk
// changes; below a mark of free space only batches that free space are taken;
// and file systems for tests that lose, delay or refuse writes.
package kv

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"

	"github.com/divandb/divan/internal/model"
)

// Store is one ordered map of bytes to bytes on a directory. All its methods may
// be called concurrently.
type Store struct {
	db   *pebble.DB
	o    Options
	dir  string
	gate *gate
	free *freeMark
	disk *gateFS

	cache *pebble.Cache

	// life is held shared by every call into Pebble and exclusively by Close:
	// Pebble panics when it is used after its Close.
	life   sync.RWMutex
	closed bool

	commits   atomic.Int64
	bytesIn   atomic.Int64
	rotations atomic.Uint64 // logs created, one for each memtable
	flushes   atomic.Uint64 // flushes ended; with rotations it dates flushed
	flushed   struct {
		sync.Mutex
		at  [2]uint64 // rotations and flushes when gen was computed
		gen uint64
	}
}

// Open opens the store in dir, which is created if it is not there. A directory
// that another store has open is refused with KindUnavailable.
func Open(dir string, o Options) (*Store, error) {
	return openTuned(dir, o, func(*pebble.Options) {})
}

// openTuned is Open with Pebble's options changed by tune: the benchmarks compare
// what Options does not offer.
func openTuned(dir string, o Options, tune func(*pebble.Options)) (*Store, error) {
	o = o.withDefaults()
	free, err := newFreeMark(dir, o)
	if err != nil {
		return nil, err
	}
	if o.MemTableBytes <= 0 {
		o.MemTableBytes = memTableBytes(free.min)
	}
	s := &Store{o: o, dir: dir, free: free, gate: newGate(o.Logger, o.OnFatal)}

	p := pebbleOptions(o)
	if o.CacheOf != nil {
		p.Cache = o.CacheOf.cache
	} else {
		p.Cache = pebble.NewCache(o.CacheBytes)
		defer p.Cache.Unref() // the store holds it from then on
	}
	s.cache = p.Cache
	tune(p)
	s.disk = &gateFS{FS: o.FS, gate: s.gate}
	p.FS = s.disk
	p.Logger = &pebbleLogger{log: o.Logger, gate: s.gate}
	p.EventListener = &pebble.EventListener{
		BackgroundError: s.backgroundError,
		DataCorruption: func(i pebble.DataCorruptionInfo) {
			o.Logger.Error("stored data is damaged", "detail", i.String())
		},
		WALCreated: func(i pebble.WALCreateInfo) {
			if i.Err == nil {
				s.rotations.Add(1)
			}
		},
		FlushEnd: func(pebble.FlushInfo) { s.flushes.Add(1) },
	}
	db, err := pebble.Open(dir, p)
	if err != nil {
		return nil, openError(dir, err)
	}
	s.db = db
	if err := s.gate.arm(); err != nil {
		return nil, errors.Join(openError(dir, err), db.Close())
	}
	s.free.check(o.Logger)
	s.free.start(o)
	return s, nil
}

// openError puts a failed Open into words.
func openError(dir string, err error) error {
	// The second form is Pebble's for a store open in this very process.
	if errors.Is(err, syscall.EAGAIN) || strings.Contains(err.Error(), "lock held by current process") {
		return &model.Error{
			Kind:   model.KindUnavailable,
			Name:   "service_unavailable",
			Reason: "The data directory " + dir + " is in use by another process.",
			Err:    err,
		}
	}
	return fmt.Errorf("kv: open %s: %w", dir, readError(err))
}

// backgroundError logs a failed flush or compaction. A failed write has closed
// the gate in gateFS already, and Pebble then tries again without a pause: those
// repetitions are not worth a line each.
func (s *Store) backgroundError(err error) {
	if s.gate.failure() == nil {
		s.o.Logger.Error("background work of the store failed", "error", err)
	}
}

// Close syncs what was applied and closes the store. Iterators, snapshots and
// values must have been released. Closing twice is an error of ErrClosed.
func (s *Store) Close() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.closed {
		return model.ErrClosed
	}
	s.closed = true
	s.free.stop()
	if err := s.db.Close(); err != nil {
		return fmt.Errorf("kv: close %s: %w", s.dir, err)
	}
	return nil
}

// enter holds the store open for one call; every nil answer needs a leave.
func (s *Store) enter() error {
	s.life.RLock()
	if s.closed {
		s.life.RUnlock()
		return model.ErrClosed
	}
	return nil
}

// leave ends what enter began.
func (s *Store) leave() { s.life.RUnlock() }

// Full tells whether the store is below its free-space mark.
func (s *Store) Full() bool { return s.free.full.Load() }

// Wrote counts bytes that somebody else puts on the store's disk, attachment files
// say, and looks at the free space when enough have come together: below the mark
// it is ErrStorageFull, and the writer must stop, as what is left is kept for the
// store's own log and compactions.
func (s *Store) Wrote(n int64) error {
	s.free.wrote(n, s.o.Logger)
	if s.free.full.Load() {
		return model.ErrStorageFull
	}
	return nil
}

// Failed gives the error that closed the gate, nil while it is open.
func (s *Store) Failed() error { return s.gate.failure() }

// readError marks damaged data, which must never look like absent data.
func readError(err error) error {
	if err != nil && pebble.IsCorruptionError(err) {
		return &model.Error{Kind: model.KindCorruption, Name: "internal_server_error", Reason: "Stored data is damaged.", Err: err}
	}
	return err
}
