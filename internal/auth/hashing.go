package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"hash"
	"sync"
)

// enter waits for a slot to run a slow hash in.
func (s *Service) enter(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	default:
	}
	if s.waiting.Add(1) > int64(s.o.Waiters) {
		s.waiting.Add(-1)
		return ErrBusy
	}
	defer s.waiting.Add(-1)
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Service) leave() { <-s.slots }

// keyedHash makes HMAC-SHA256 digests under one key. Its rooms are kept, so that a
// digest allocates nothing.
type keyedHash struct{ rooms sync.Pool }

// hashRoom is what one digest needs: the text to be digested is appended to text.
type hashRoom struct {
	hash hash.Hash
	text []byte
	out  []byte
}

func newKeyedHash(key []byte) *keyedHash {
	k := &keyedHash{}
	k.rooms.New = func() any { return &hashRoom{hash: hmac.New(sha256.New, key)} }
	return k
}

// room gives one with an empty text.
func (k *keyedHash) room() *hashRoom { return k.rooms.Get().(*hashRoom) }

// sum digests the text of a room and takes the room back.
func (k *keyedHash) sum(r *hashRoom) (sum [sha256.Size]byte) {
	r.hash.Reset()
	_, _ = r.hash.Write(r.text) // a hash never fails
	r.out = r.hash.Sum(r.out[:0])
	copy(sum[:], r.out)
	clear(r.text) // a password is not left lying about
	r.text = r.text[:0]
	k.rooms.Put(r)
	return sum
}
