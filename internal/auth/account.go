package auth

import (
	"context"
	"crypto/rand"
	"encoding/hex"
)

// Account is a user of the `_users` database, or an API key. It does not change
// once it was given.
type Account struct {
	Name     string
	Roles    []string
	Verifier *Verifier // nil: no password opens it
	Key      bool      // an API key
	// Version differs with every change of the stored record. A password that was
	// right is remembered for one version only, so that a change counts at once.
	Version string
}

// Accounts finds users and keys. It is asked for every request that carries
// credentials of somebody who is no administrator, so it should answer from memory.
type Accounts interface {
	// Account gives the account of that name; nil and no error where there is none.
	Account(ctx context.Context, name string) (*Account, error)
}

const (
	keyNameLetters   = 24 // 112 bits
	keyPasswordBytes = 20 // 160 bits: nobody tries these out, so a fast hash is enough
)

// NewAPIKey makes up an API key: its name, its password, which is shown once, and
// the form of the password to be stored (see ParseVerifier).
func NewAPIKey() (name, password, hash string) {
	b := make([]byte, 0, keyNameLetters)
	for random := make([]byte, 64); len(b) < keyNameLetters; {
		_, _ = rand.Read(random) // never fails: crypto/rand ends the process instead
		for _, r := range random {
			// 234 is the last multiple of 26 in a byte: beyond it some letters would come oftener.
			if r < 234 && len(b) < keyNameLetters {
				b = append(b, 'a'+r%26)
			}
		}
	}
	secret := make([]byte, keyPasswordBytes)
	_, _ = rand.Read(secret)
	password = hex.EncodeToString(secret)
	v := &Verifier{scheme: hmacScheme, salt: make([]byte, saltBytes)}
	_, _ = rand.Read(v.salt)
	v.key = fastHash(v.salt, password)
	return string(b), password, v.String()
}
