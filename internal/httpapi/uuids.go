package httpapi

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"sync"
	"time"
)

// uuidSource makes document ids: 48 bits of milliseconds, then randomness, so that
// ids made one after the other are near each other in the store (UUID version 7).
type uuidSource struct {
	mu   sync.Mutex
	pool [1024]byte
	left int
}

func newUUIDSource() *uuidSource { return &uuidSource{} }

// next gives 32 hex digits.
func (u *uuidSource) next() string {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli())<<16)
	u.mu.Lock()
	if u.left == 0 {
		_, _ = rand.Read(u.pool[:]) // never fails: crypto/rand ends the process instead
		u.left = len(u.pool)
	}
	copy(b[6:], u.pool[u.left-10:u.left])
	u.left -= 10
	if u.left < 10 {
		u.left = 0
	}
	u.mu.Unlock()
	b[6] = 0x70 | b[6]&0x0f
	b[8] = 0x80 | b[8]&0x3f
	return hex.EncodeToString(b[:])
}
