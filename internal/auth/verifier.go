package auth

import (
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"hash"
	"strconv"
	"strings"
)

// The shapes of a stored verifier: scheme$rounds$salt$key for passwords that people
// choose, scheme$salt$key for those that we make; salt and key in base64. The first
// carries its own rounds, so that the default may rise without locking anybody out.
const (
	slowScheme = "pbkdf2-sha256"
	fastScheme = "hmac-sha256"
	saltBytes  = 16
	keyBytes   = sha256.Size
	maxRounds  = 10_000_000 // some seconds: no stored record may cost more
)

// scheme is a way to hash a password.
type scheme uint8

const (
	pbkdf2Scheme scheme = iota
	// hmacScheme is one HMAC-SHA256 under the salt. It is only for passwords of so
	// much randomness that nobody can try them out.
	hmacScheme
	// sha1Scheme is SHA-1 of password and salt: what CouchDB before 1.3 stored.
	sha1Scheme
)

// Verifier tells whether a password is the right one. It does not change.
type Verifier struct {
	scheme scheme
	prf    func() hash.Hash // of pbkdf2Scheme
	rounds int              // of pbkdf2Scheme
	salt   []byte
	key    []byte
}

// HashPassword gives the stored form of a new verifier.
func HashPassword(password string, rounds int) (string, error) {
	v, err := newVerifier(password, rounds)
	if err != nil {
		return "", err
	}
	return v.String(), nil
}

func newVerifier(password string, rounds int) (*Verifier, error) {
	v := &Verifier{prf: sha256.New, rounds: rounds, salt: make([]byte, saltBytes)}
	_, _ = rand.Read(v.salt) // never fails: crypto/rand ends the process instead
	var err error
	v.key, err = pbkdf2.Key(v.prf, password, v.salt, rounds, keyBytes)
	return v, err
}

// matches tells whether password is the one. It takes the same time either way.
func (v *Verifier) matches(password string) (bool, error) {
	var key []byte
	switch v.scheme {
	case hmacScheme:
		key = fastHash(v.salt, password)
	case sha1Scheme:
		sum := sha1.Sum(append([]byte(password), v.salt...))
		key = sum[:]
	default:
		var err error
		if key, err = pbkdf2.Key(v.prf, password, v.salt, v.rounds, len(v.key)); err != nil {
			return false, err
		}
	}
	return subtle.ConstantTimeCompare(key, v.key) == 1, nil
}

// fast tells whether a check costs next to nothing.
func (v *Verifier) fast() bool { return v != nil && v.scheme == hmacScheme }

func fastHash(salt []byte, password string) []byte {
	h := hmac.New(sha256.New, salt)
	h.Write([]byte(password))
	return h.Sum(nil)
}

// String gives the stored form. A verifier read from a user document has none: the
// document is its form.
func (v *Verifier) String() string {
	parts := []string{slowScheme, strconv.Itoa(v.rounds)}
	if v.scheme == hmacScheme {
		parts = []string{fastScheme}
	}
	return strings.Join(append(parts, base64.RawStdEncoding.EncodeToString(v.salt), base64.RawStdEncoding.EncodeToString(v.key)), "$")
}

var errHash = errors.New("the stored hash of a password cannot be read")

// ParseVerifier reads the stored form.
func ParseVerifier(s string) (*Verifier, error) {
	parts := strings.Split(s, "$")
	v := &Verifier{}
	switch {
	case len(parts) == 4 && parts[0] == slowScheme:
		var err error
		v.prf = sha256.New
		if v.rounds, err = strconv.Atoi(parts[1]); err != nil || v.rounds < 1 || v.rounds > maxRounds {
			return nil, errHash
		}
	case len(parts) == 3 && parts[0] == fastScheme:
		v.scheme = hmacScheme
	default:
		return nil, errHash
	}
	var err1, err2 error
	v.salt, err1 = base64.RawStdEncoding.DecodeString(parts[len(parts)-2])
	v.key, err2 = base64.RawStdEncoding.DecodeString(parts[len(parts)-1])
	if err1 != nil || err2 != nil || len(v.salt) < 8 || len(v.key) != keyBytes {
		return nil, errHash
	}
	return v, nil
}
