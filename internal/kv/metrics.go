package kv

import (
	"fmt"

	"github.com/divandb/divan/internal/model"
)

// Metrics are the store's figures. Counters count from Open.
type Metrics struct {
	Commits         int64 // batches applied
	Fsyncs          int64 // fsyncs of the log
	BytesIn         int64 // bytes of the batches applied
	LogBytes        int64 // bytes written to the log
	CacheBytes      int64 // present size of the block cache
	CacheHits       int64
	CacheMisses     int64
	MemTableBytes   int64 // present size of the memtables
	Flushes         int64
	FlushBytes      int64 // bytes written to tables by flushes
	Compactions     int64
	CompactionBytes int64 // bytes written to tables by compactions
	CompactionDebt  int64 // bytes that compactions still have to work off, estimated
	TableFiles      int64
	TableBytes      int64 // bytes of the tables
	DiskBytes       int64 // bytes of all files
	ReadAmp         int64 // tables a read may have to look into
	FilterHits      int64 // reads a bloom filter has spared
	FilterMisses    int64
}

// Metrics gives the present figures; the zero Metrics after Close.
func (s *Store) Metrics() Metrics {
	if s.enter() != nil {
		return Metrics{}
	}
	defer s.leave()
	p := s.db.Metrics()
	m := Metrics{
		Commits:        s.commits.Load(),
		Fsyncs:         s.disk.syncs.Load(),
		BytesIn:        s.bytesIn.Load(),
		LogBytes:       int64(p.WAL.BytesWritten),
		CacheBytes:     p.BlockCache.Size,
		CacheHits:      p.BlockCache.Hits,
		CacheMisses:    p.BlockCache.Misses,
		MemTableBytes:  int64(p.MemTable.Size),
		Flushes:        p.Flush.Count,
		Compactions:    p.Compact.Count,
		CompactionDebt: int64(p.Compact.EstimatedDebt),
		DiskBytes:      int64(p.DiskSpaceUsage()),
		ReadAmp:        int64(p.ReadAmp()),
		FilterHits:     p.Filter.Hits,
		FilterMisses:   p.Filter.Misses,
	}
	for i := range p.Levels {
		l := &p.Levels[i]
		m.TableFiles += l.TablesCount
		m.TableBytes += l.TablesSize
		m.FlushBytes += int64(l.TableBytesFlushed)
		m.CompactionBytes += int64(l.TableBytesCompacted)
	}
	return m
}

// DiskUsage estimates the bytes that the keys from from (included) to to
// (excluded) take in tables. What is still in memtables is not in it.
func (s *Store) DiskUsage(from, to []byte) (int64, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.leave()
	n, err := s.db.EstimateDiskUsage(from, to)
	if err != nil {
		return 0, fmt.Errorf("kv: disk usage: %w", readError(err))
	}
	return int64(n), nil
}

// Unflushed is the generation of the present memtable; it grows with each new
// one. A batch whose Apply has returned is in this generation or an earlier one.
func (s *Store) Unflushed() (gen uint64) { return s.rotations.Load() }

// FlushedGen is the generation below which everything is in tables and so in
// DiskUsage.
func (s *Store) FlushedGen() uint64 {
	f := &s.flushed
	f.Lock()
	defer f.Unlock()
	// The figure moves only with these two, and Pebble's metrics are not free.
	at := [2]uint64{s.rotations.Load(), s.flushes.Load()}
	if at == f.at || s.enter() != nil {
		return f.gen
	}
	defer s.leave()
	// One log per memtable that is not in tables yet, the present one included.
	// Pebble lists a new log before the rotation is counted, so the figure read
	// after at[0] can only make the answer smaller.
	logs := uint64(s.db.Metrics().WAL.Files)
	if logs == 0 || logs > at[0] {
		return f.gen
	}
	f.gen = max(f.gen, at[0]-(logs-1))
	// Right after a flush its log may still be listed; ask again then.
	if logs == 1 {
		f.at = at
	}
	return f.gen
}

// Flush writes the memtables to tables and waits for it. For tests and for
// figures that must show everything.
func (s *Store) Flush() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if err := s.gate.failure(); err != nil {
		return err
	}
	if s.free.full.Load() {
		return model.ErrStorageFull
	}
	if err := s.db.Flush(); err != nil {
		return fmt.Errorf("kv: flush: %w", err)
	}
	return nil
}
