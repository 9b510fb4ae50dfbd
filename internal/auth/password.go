package auth

import (
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
)

// The shape of a hash: scheme$rounds$salt$key, the last two in base64. It carries
// its own rounds, so that the default may rise without locking anybody out.
const (
	hashScheme = "pbkdf2-sha256"
	saltBytes  = 16
	keyBytes   = sha256.Size
	maxRounds  = 100_000_000
)

// passwordHash is a salted, slow hash of a password.
type passwordHash struct {
	rounds int
	salt   []byte
	key    []byte
}

// HashPassword gives the text of a new hash.
func HashPassword(password string, rounds int) (string, error) {
	h, err := newHash(password, rounds)
	return h.String(), err
}

func newHash(password string, rounds int) (passwordHash, error) {
	h := passwordHash{rounds: rounds, salt: make([]byte, saltBytes)}
	_, _ = rand.Read(h.salt) // never fails: crypto/rand ends the process instead
	var err error
	h.key, err = pbkdf2.Key(sha256.New, password, h.salt, rounds, keyBytes)
	return h, err
}

// matches tells whether password is the one. It takes the same time either way.
func (h passwordHash) matches(password string) (bool, error) {
	key, err := pbkdf2.Key(sha256.New, password, h.salt, h.rounds, keyBytes)
	return err == nil && subtle.ConstantTimeCompare(key, h.key) == 1, err
}

// String gives the stored form.
func (h passwordHash) String() string {
	return strings.Join([]string{hashScheme, strconv.Itoa(h.rounds),
		base64.RawStdEncoding.EncodeToString(h.salt), base64.RawStdEncoding.EncodeToString(h.key)}, "$")
}

var errHash = errors.New("the stored hash of a password cannot be read")

// parseHash reads the stored form.
func parseHash(s string) (passwordHash, error) {
	parts := strings.Split(s, "$")
	if len(parts) != 4 || parts[0] != hashScheme {
		return passwordHash{}, errHash
	}
	rounds, err := strconv.Atoi(parts[1])
	if err != nil || rounds < 1 || rounds > maxRounds {
		return passwordHash{}, errHash
	}
	salt, err1 := base64.RawStdEncoding.DecodeString(parts[2])
	key, err2 := base64.RawStdEncoding.DecodeString(parts[3])
	if err1 != nil || err2 != nil || len(salt) < 8 || len(key) != keyBytes {
		return passwordHash{}, errHash
	}
	return passwordHash{rounds: rounds, salt: salt, key: key}, nil
}
