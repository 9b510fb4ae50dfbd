package kv

import (
	"errors"
	"fmt"
	"io"

	"github.com/cockroachdb/pebble/v2"

	"github.com/divandb/divan/internal/model"
)

// Value is a value found by Get. Its bytes are Pebble's: not to be changed, and
// valid until Release.
type Value struct {
	bytes  []byte
	closer io.Closer
}

// Bytes gives the value.
func (v Value) Bytes() []byte { return v.bytes }

// Release gives the bytes back. On the zero Value it does nothing.
func (v Value) Release() {
	if v.closer != nil {
		// The error of the closer is one of the read, which has succeeded.
		_ = v.closer.Close()
	}
}

// Get finds the value of key. It returns true exactly if there is one; only then
// the Value needs a Release.
func (s *Store) Get(key []byte) (Value, bool, error) {
	if err := s.enter(); err != nil {
		return Value{}, false, err
	}
	defer s.leave()
	return found(s.db.Get(key))
}

// found translates the answer of Pebble's Get.
func found(val []byte, closer io.Closer, err error) (Value, bool, error) {
	switch {
	case err == nil:
		return Value{bytes: val, closer: closer}, true, nil
	case errors.Is(err, pebble.ErrNotFound):
		return Value{}, false, nil
	}
	return Value{}, false, fmt.Errorf("kv: get: %w", readError(err))
}

// Iter walks keys in the order of their bytes. It sees the store as it was when
// the iterator was made, and keeps files from being removed for as long as it is
// open. One goroutine at a time.
type Iter struct {
	it *pebble.Iterator
}

// NewIter gives an iterator over the keys from lower (included) to upper
// (excluded); nil means no bound. It must be closed before the store is.
func (s *Store) NewIter(lower, upper []byte) (*Iter, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.leave()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, fmt.Errorf("kv: iterate: %w", readError(err))
	}
	return &Iter{it: it}, nil
}

// First goes to the first key.
func (i *Iter) First() bool { return i.it.First() }

// Last goes to the last key.
func (i *Iter) Last() bool { return i.it.Last() }

// SeekGE goes to the first key that is not below key.
func (i *Iter) SeekGE(key []byte) bool { return i.it.SeekGE(key) }

// SeekLT goes to the last key below key.
func (i *Iter) SeekLT(key []byte) bool { return i.it.SeekLT(key) }

// Next goes to the next key.
func (i *Iter) Next() bool { return i.it.Next() }

// Prev goes to the key before.
func (i *Iter) Prev() bool { return i.it.Prev() }

// Valid tells whether the iterator stands on a key.
func (i *Iter) Valid() bool { return i.it.Valid() }

// Key is the present key, valid until the iterator moves.
func (i *Iter) Key() []byte { return i.it.Key() }

// Value fetches the present value, valid until the iterator moves. If it cannot
// be read it is nil, Valid turns false and Error tells why.
func (i *Iter) Value() []byte { return i.it.Value() }

// Error tells why the iterator stopped, nil at the end of the range.
func (i *Iter) Error() error {
	if err := i.it.Error(); err != nil {
		return fmt.Errorf("kv: iterate: %w", readError(err))
	}
	return nil
}

// Close ends the iterator and reports its Error, if any.
func (i *Iter) Close() error {
	if err := i.it.Close(); err != nil {
		return fmt.Errorf("kv: iterate: %w", readError(err))
	}
	return nil
}

// Snapshot is the store as it was at one moment. While it is open, overwritten
// values are kept: it should be short.
type Snapshot struct {
	s    *Store
	snap *pebble.Snapshot // nil if the store was closed
}

// NewSnapshot gives the store as it is now. It must be closed before the store
// is. On a closed store its reads answer ErrClosed.
func (s *Store) NewSnapshot() *Snapshot {
	if s.enter() != nil {
		return &Snapshot{s: s}
	}
	defer s.leave()
	return &Snapshot{s: s, snap: s.db.NewSnapshot()}
}

// Get is Store.Get at the moment of the snapshot.
func (n *Snapshot) Get(key []byte) (Value, bool, error) {
	if n.snap == nil {
		return Value{}, false, model.ErrClosed
	}
	return found(n.snap.Get(key))
}

// NewIter is Store.NewIter at the moment of the snapshot.
func (n *Snapshot) NewIter(lower, upper []byte) (*Iter, error) {
	if n.snap == nil {
		return nil, model.ErrClosed
	}
	it, err := n.snap.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return nil, fmt.Errorf("kv: iterate: %w", readError(err))
	}
	return &Iter{it: it}, nil
}

// Close ends the snapshot.
func (n *Snapshot) Close() error {
	if n.snap == nil {
		return nil
	}
	return n.snap.Close()
}
