package auth

import (
	"bytes"
	"context"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"fmt"
	"hash"
	"strconv"
	"strings"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// PasswordMembers are the members of a user document that hold a password, in clear
// or hashed. A new password replaces all of them.
var PasswordMembers = []string{"password", "password_scheme", "pbkdf2_prf", "salt", "iterations", "derived_key", "password_sha"}

const (
	maxPassword  = 4096 // bytes; no header carries many more
	maxSalt      = 1024
	maxKeyBytes  = 64
	minKeyBytes  = 16
	couchRounds  = 10_000 // what CouchDB takes where a document names none
	couchPRF     = "sha"
	userSaltSize = 16
)

// prfs are CouchDB's names of hash functions.
var prfs = map[string]func() hash.Hash{
	"sha":    sha1.New,
	"sha224": sha256.New224,
	"sha256": sha256.New,
	"sha384": sha512.New384,
	"sha512": sha512.New,
}

// UserSecrets is what a user document keeps of a password.
type UserSecrets struct {
	Salt       string // its text is the salt, as in CouchDB, not the bytes that it spells
	Iterations int
	DerivedKey string // hex
}

// UserSecrets hashes a password for a user document. It takes its turn with the
// passwords that are checked, and answers ErrBusy when too many wait.
func (s *Service) UserSecrets(ctx context.Context, password string) (UserSecrets, error) {
	if password == "" || len(password) > maxPassword {
		return UserSecrets{}, model.BadRequest(fmt.Sprintf("A password has between 1 and %d bytes.", maxPassword))
	}
	if err := s.enter(ctx); err != nil {
		return UserSecrets{}, err
	}
	defer s.leave()
	s.hashed.Add(1)
	random := make([]byte, userSaltSize)
	_, _ = rand.Read(random) // never fails: crypto/rand ends the process instead
	u := UserSecrets{Salt: hex.EncodeToString(random), Iterations: s.o.Rounds}
	key, err := pbkdf2.Key(sha256.New, password, []byte(u.Salt), u.Iterations, keyBytes)
	if err != nil {
		return UserSecrets{}, fmt.Errorf("auth: %w", err)
	}
	u.DerivedKey = hex.EncodeToString(key)
	return u, nil
}

// AppendMembers appends the members of the document, without braces.
func (u UserSecrets) AppendMembers(dst []byte) []byte {
	dst = append(dst, `"password_scheme":"pbkdf2","pbkdf2_prf":"sha256","salt":`...)
	dst = rawjson.AppendString(dst, u.Salt)
	dst = append(dst, `,"iterations":`...)
	dst = strconv.AppendInt(dst, int64(u.Iterations), 10)
	dst = append(dst, `,"derived_key":`...)
	return rawjson.AppendString(dst, u.DerivedKey)
}

// ReadUser makes the account that a user document (normalised JSON) describes. name
// is that of the document's id. It is nil for a document that is no user of that
// name. One whose secrets cannot be read, as ReadSecrets says, is an account that no
// password opens.
func ReadUser(name, version string, doc []byte) *Account {
	if rawjson.KindOf(doc) != rawjson.KindObject || name == "" || memberText(doc, "name") != name || memberText(doc, "type") != "user" {
		return nil
	}
	v, _ := ReadSecrets(doc)
	return &Account{Name: name, Roles: readRoles(doc), Verifier: v, Version: version}
}

// readRoles gives the roles of a user document: none unless they are an array of
// strings. Those with an underscore are the server's to give; a document that was
// replicated may still name some.
func readRoles(doc []byte) []string {
	list, _ := rawjson.Get(doc, "roles")
	if rawjson.KindOf(list) != rawjson.KindArray {
		return nil
	}
	var roles []string
	for v := range rawjson.Elements(list) {
		role, ok := rawjson.String(v)
		if !ok {
			return nil
		}
		if !strings.HasPrefix(role, "_") {
			roles = append(roles, role)
		}
	}
	return roles
}

// memberText gives a member that is a string; empty otherwise.
func memberText(obj []byte, name string) string {
	v, _ := rawjson.Get(obj, name)
	s, _ := rawjson.String(v)
	return s
}

// secretsError is the answer to secrets that cannot be used.
func secretsError(reason string) error { return model.BadRequest(reason) }

// ReadSecrets reads what a user document (normalised JSON) keeps of its password, in
// every form that CouchDB ever wrote; nil and no error where it keeps nothing.
func ReadSecrets(doc []byte) (*Verifier, error) {
	salt := memberText(doc, "salt")
	if len(salt) > maxSalt {
		return nil, secretsError("The salt is too long.")
	}
	scheme := "simple" // as CouchDB has it: the member is younger than the scheme
	if v, ok := rawjson.Get(doc, "password_scheme"); ok && rawjson.KindOf(v) != rawjson.KindNull {
		if scheme, ok = rawjson.String(v); !ok {
			return nil, secretsError("password_scheme must be a string.")
		}
	}
	switch scheme {
	case "pbkdf2":
		return readPBKDF2(doc, salt)
	case "simple":
		key, err := readKey(doc, "password_sha")
		if key == nil || err != nil {
			return nil, err
		}
		if len(key) != sha1.Size {
			return nil, secretsError("password_sha has the wrong length.")
		}
		return &Verifier{scheme: sha1Scheme, salt: []byte(salt), key: key}, nil
	}
	return nil, secretsError("password_scheme must be pbkdf2 or simple.")
}

func readPBKDF2(doc []byte, salt string) (*Verifier, error) {
	prf, rounds := couchPRF, int64(couchRounds)
	if v, ok := rawjson.Get(doc, "pbkdf2_prf"); ok {
		prf, _ = rawjson.String(v)
	}
	if v, ok := rawjson.Get(doc, "iterations"); ok {
		if rounds, ok = rawjson.Int(v); !ok {
			return nil, secretsError("iterations must be an integer.")
		}
	}
	if prfs[prf] == nil {
		return nil, secretsError("pbkdf2_prf must be sha, sha224, sha256, sha384 or sha512.")
	}
	key, err := readKey(doc, "derived_key")
	if key == nil || err != nil {
		return nil, err
	}
	if len(key) < minKeyBytes || len(key) > maxKeyBytes {
		return nil, secretsError("derived_key has the wrong length.")
	}
	// Each block of the key costs all the rounds.
	size := prfs[prf]().Size()
	blocks := int64((len(key) + size - 1) / size)
	if rounds < 1 || rounds > maxRounds/blocks {
		return nil, secretsError(fmt.Sprintf("iterations must be between 1 and %d.", maxRounds/blocks))
	}
	return &Verifier{prf: prfs[prf], rounds: int(rounds), salt: []byte(salt), key: key}, nil
}

// readKey reads a digest in hex; nil where there is none.
func readKey(doc []byte, member string) ([]byte, error) {
	v, ok := rawjson.Get(doc, member)
	if !ok || bytes.Equal(v, []byte("null")) {
		return nil, nil
	}
	s, ok := rawjson.String(v)
	key, err := hex.DecodeString(s)
	if !ok || err != nil {
		return nil, secretsError(member + " must be a string of hexadecimal digits.")
	}
	return key, nil
}
