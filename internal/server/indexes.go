package server

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
)

// indexMemTable is the size of the index store's memtables: an index that loses
// its tail is built again, so there is no point in keeping much of it in memory.
const indexMemTable = 16 << 20

// openIndexes opens the store of indexes. What is in it can be built again, so one
// that is damaged is begun anew.
func (s *Server) openIndexes(o Options, documents *kv.Store) (*kv.Store, error) {
	dir := filepath.Join(s.cfg.Data, "index")
	options := kv.Options{
		FS:            o.FS,
		CacheOf:       documents,
		MemTableBytes: indexMemTable,
		MinFree:       s.cfg.MinFree,
		FreeSpace:     o.FreeSpace,
		NoSync:        true,
		Logger:        s.log,
		OnFatal:       s.fatal(o, "the store of indexes failed and takes no more writes"),
	}
	store, err := kv.Open(dir, options)
	if model.KindOf(err) == model.KindCorruption {
		s.log.Error("the store of indexes is damaged; indexes are built anew", "error", err)
		fs := options.FS
		if fs == nil {
			fs = kv.DiskFS()
		}
		if err := fs.RemoveAll(dir); err != nil {
			return nil, fmt.Errorf("cannot remove the damaged store of indexes: %w", err)
		}
		store, err = kv.Open(dir, options)
	}
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, store.Close)
	return store, nil
}

// openScripts makes the processes that run JavaScript; they start when they are
// needed.
func (s *Server) openScripts(o Options) (*jsvm.Pool, error) {
	command := o.JSCommand
	if command == nil {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("cannot find this program to run JavaScript with: %w", err)
		}
		command = []string{self, "js-worker"}
	}
	pool := jsvm.New(jsvm.Options{
		Command:  command,
		Workers:  s.cfg.JSWorkers,
		CallTime: s.cfg.JSCallTime,
		Memory:   s.cfg.JSMemory,
		Log:      s.log,
	})
	s.closers = append(s.closers, pool.Close)
	return pool, nil
}
