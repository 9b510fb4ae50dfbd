package cluster

import (
	"context"
	"fmt"
	"strings"

	"github.com/divandb/divan/internal/kv"
)

// Settings are the server settings in a store whose registry is not open: tools that
// change one while no server runs need not open databases, nor finish what a server
// left to do. It is for one caller at a time.
type Settings struct {
	store  *kv.Store
	values map[string][]byte
}

// OpenSettings reads the settings of a store.
func OpenSettings(store *kv.Store) (*Settings, error) {
	s := &Settings{store: store, values: map[string][]byte{}}
	err := scan(store, tableMeta, func(key, val []byte) error {
		if name, ok := strings.CutPrefix(string(key), metaSetting); ok {
			s.values[name] = append([]byte{}, val...)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("cluster: read the settings: %w", err)
	}
	return s, nil
}

// Setting gives a setting, as Local does.
func (s *Settings) Setting(name string) ([]byte, bool) {
	v, ok := s.values[name]
	return v, ok
}

// SetSetting keeps a setting durably, as Local does.
func (s *Settings) SetSetting(_ context.Context, name string, value []byte) error {
	b := s.store.NewBatch()
	defer b.Close() // only one that was not applied has anything to close
	setSetting(b, name, value)
	commit, err := s.store.Apply(b)
	if err == nil {
		err = commit.Wait()
	}
	if err != nil {
		return fmt.Errorf("cluster: set %s: %w", name, err)
	}
	s.values[name] = append([]byte{}, value...)
	if value == nil {
		delete(s.values, name)
	}
	return nil
}

// setSetting puts a change of a setting into a batch; nil removes it.
func setSetting(b *kv.Batch, name string, value []byte) {
	if value == nil {
		b.Delete(metaKey(metaSetting + name))
		return
	}
	b.Set(metaKey(metaSetting+name), value)
}
