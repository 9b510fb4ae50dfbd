package auth

import (
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"math"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// JWTOptions says whose bearer tokens are believed, and what is read of them.
type JWTOptions struct {
	Keys []JWTKey
	// NameClaim is the claim with the name. Default `sub`.
	NameClaim string
	// RolesClaim is the claim with the roles. Default `_couchdb.roles`. The role
	// `_admin` in a token makes its owner a server administrator.
	RolesClaim string
	// Issuer and Audience, where set, must be those of the token.
	Issuer, Audience string
}

const (
	maxToken     = 16 << 10
	maxTokenName = 1024
	tokenDepth   = 32
	tokenLeeway  = time.Minute // between the clocks of the provider and ours
	adminRole    = "_admin"
)

// tokenText is strict, so that a token has one spelling only.
var tokenText = base64.RawURLEncoding.Strict()

var errToken = model.BadRequest("Malformed token")

// tokenError is the answer to a token that is one and is not believed.
func tokenError(reason string) error {
	return &model.Error{Kind: model.KindUnauthorized, Name: "unauthorized", Reason: reason}
}

// tokenVerifier reads bearer tokens.
type tokenVerifier struct {
	keys map[string][]JWTKey // by id
	o    JWTOptions
	now  func() time.Time
	// read has what was read of tokens whose signature was right, by their digest: a
	// public key takes longer to verify one than the rest of a request.
	read *lru[[sha256.Size]byte, tokenClaims]
}

// tokenClaims is what a token says.
type tokenClaims struct {
	id       Identity
	from, to float64 // in seconds; the infinities where there is no limit
}

// rememberedTokens bounds the tokens in memory.
const rememberedTokens = 4096

// newTokenVerifier gives nil where there are no keys.
func newTokenVerifier(o JWTOptions, now func() time.Time) (*tokenVerifier, error) {
	if len(o.Keys) == 0 {
		return nil, nil
	}
	if o.NameClaim == "" {
		o.NameClaim = "sub"
	}
	if o.RolesClaim == "" {
		o.RolesClaim = "_couchdb.roles"
	}
	t := &tokenVerifier{keys: map[string][]JWTKey{}, o: o, now: now, read: newLRU[[sha256.Size]byte, tokenClaims](rememberedTokens)}
	for _, k := range o.Keys {
		if k.ID == "" {
			k.ID = DefaultKeyID
		}
		if err := k.check(); err != nil {
			return nil, err
		}
		if slices.ContainsFunc(t.keys[k.ID], func(other JWTKey) bool { return other.Alg == k.Alg }) {
			return nil, fmt.Errorf("there are two keys %q for %s", k.ID, k.Alg)
		}
		t.keys[k.ID] = append(t.keys[k.ID], k)
	}
	return t, nil
}

// identity says whose token it is.
func (t *tokenVerifier) identity(token string) (Identity, error) {
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return Identity{}, errToken
	}
	digest := sha256.Sum256([]byte(token))
	c, known := t.read.get(digest)
	if !known {
		var err error
		if c, err = t.verify(token); err != nil {
			return Identity{}, err
		}
	}
	now := float64(t.now().UnixMilli()) / 1000
	if c.to <= now-tokenLeeway.Seconds() {
		return Identity{}, tokenError("exp not in future")
	}
	if c.from > now+tokenLeeway.Seconds() {
		return Identity{}, tokenError("nbf not in past")
	}
	if !known {
		t.read.put(digest, c)
	}
	return c.id, nil
}

// verify reads a token. Nothing in it is looked at before the signature is found
// right, but the header that names the key.
func (t *tokenVerifier) verify(token string) (tokenClaims, error) {
	head, rest, _ := strings.Cut(token, ".")
	body, encoded, _ := strings.Cut(rest, ".")
	header, err := tokenObject(head)
	if err != nil {
		return tokenClaims{}, err
	}
	signature, err := tokenText.DecodeString(encoded)
	if err != nil {
		return tokenClaims{}, errToken
	}
	key, err := t.key(header)
	if err != nil {
		return tokenClaims{}, err
	}
	if !key.verify(token[:len(head)+1+len(body)], signature) {
		return tokenClaims{}, tokenError("Bad signature")
	}
	claims, err := tokenObject(body)
	if err != nil {
		return tokenClaims{}, err
	}
	return t.claims(claims)
}

// tokenObject decodes a part of a token.
func tokenObject(encoded string) ([]byte, error) {
	decoded, err := tokenText.DecodeString(encoded)
	if err != nil {
		return nil, errToken
	}
	obj, err := rawjson.Normalize(nil, decoded, tokenDepth)
	if err != nil || rawjson.KindOf(obj) != rawjson.KindObject {
		return nil, errToken
	}
	return obj, nil
}

// key gives the key that a header names. What the header calls the algorithm only
// chooses among the keys of that name: each key has one algorithm.
func (t *tokenVerifier) key(header []byte) (*JWTKey, error) {
	alg, ok := rawjson.Get(header, "alg")
	if !ok {
		return nil, model.BadRequest("Missing alg header parameter")
	}
	name, _ := rawjson.String(alg)
	if _, ok := algorithms[name]; !ok {
		return nil, tokenError("Invalid alg header parameter")
	}
	if _, ok := rawjson.Get(header, "crit"); ok {
		return nil, tokenError("The token needs an extension that is not known") // RFC 7515, 4.1.11
	}
	id := DefaultKeyID
	if kid, ok := rawjson.Get(header, "kid"); ok {
		if id, ok = rawjson.String(kid); !ok {
			return nil, errToken
		}
	}
	keys := t.keys[id]
	if len(keys) == 0 {
		return nil, tokenError("Unknown kid")
	}
	at := slices.IndexFunc(keys, func(k JWTKey) bool { return k.Alg == name })
	if at < 0 {
		return nil, tokenError("The key is for another alg")
	}
	return &keys[at], nil
}

// verify tells whether a signature is that of the key.
func (k *JWTKey) verify(signed string, signature []byte) bool {
	alg := algorithms[k.Alg]
	if secret, ok := k.Key.([]byte); ok {
		h := hmac.New(alg.hash.New, secret)
		h.Write([]byte(signed))
		return hmac.Equal(h.Sum(nil), signature)
	}
	h := alg.hash.New()
	h.Write([]byte(signed))
	digest := h.Sum(nil)
	switch key := k.Key.(type) {
	case *rsa.PublicKey:
		return rsa.VerifyPKCS1v15(key, alg.hash, digest, signature) == nil
	case *ecdsa.PublicKey:
		size := (key.Curve.Params().BitSize + 7) / 8
		if len(signature) != 2*size {
			return false
		}
		r, s := new(big.Int).SetBytes(signature[:size]), new(big.Int).SetBytes(signature[size:])
		return ecdsa.Verify(key, digest, r, s)
	}
	return false
}

// claims reads those that count. `iat` is not one of them: RFC 7519 gives it no rule,
// and `nbf` says from when a token counts.
func (t *tokenVerifier) claims(obj []byte) (c tokenClaims, err error) {
	if c.to, err = tokenTime(obj, "exp", math.Inf(1)); err != nil {
		return c, err
	}
	if c.from, err = tokenTime(obj, "nbf", math.Inf(-1)); err != nil {
		return c, err
	}
	if t.o.Issuer != "" && memberText(obj, "iss") != t.o.Issuer {
		return c, tokenError("Invalid iss claim")
	}
	if t.o.Audience != "" {
		aud, _ := rawjson.Get(obj, "aud")
		list, err := tokenStrings(aud)
		if err != nil || !slices.Contains(list, t.o.Audience) {
			return c, tokenError("Invalid aud claim")
		}
	}
	c.id.Method = MethodJWT
	v, ok := claim(obj, t.o.NameClaim)
	if !ok {
		return c, tokenError("Token missing " + t.o.NameClaim + " claim.")
	}
	if c.id.Name, ok = rawjson.String(v); !ok || c.id.Name == "" || len(c.id.Name) > maxTokenName {
		return c, tokenError("Invalid " + t.o.NameClaim + " claim")
	}
	if v, ok = claim(obj, t.o.RolesClaim); ok {
		c.id.Roles, c.id.Admin, err = tokenRoles(v)
	}
	return c, err
}

// tokenTime reads a claim that is a time in seconds.
func tokenTime(claims []byte, name string, otherwise float64) (float64, error) {
	v, has := rawjson.Get(claims, name)
	if !has {
		return otherwise, nil
	}
	seconds, ok := rawjson.Float(v)
	if rawjson.KindOf(v) != rawjson.KindNumber || !ok {
		return 0, model.BadRequest("Invalid " + name + " claim")
	}
	return seconds, nil
}

// tokenRoles reads roles; that of an administrator is told apart.
func tokenRoles(v []byte) (roles []string, admin bool, err error) {
	if roles, err = tokenStrings(v); err != nil {
		return nil, false, err
	}
	if rawjson.KindOf(v) == rawjson.KindString {
		// CouchDB reads a text as roles with commas between them.
		roles = strings.Split(roles[0], ",")
		for i := range roles {
			roles[i] = strings.TrimSpace(roles[i])
		}
	}
	admin = slices.Contains(roles, adminRole)
	return slices.DeleteFunc(roles, func(r string) bool { return r == adminRole || r == "" }), admin, nil
}

// claim finds a claim by its name, or else, where the name has dots, as a path into
// the claims; a backslash keeps a dot in a name.
func claim(claims []byte, name string) ([]byte, bool) {
	if v, ok := rawjson.Get(claims, name); ok {
		return v, true
	}
	if !strings.Contains(name, ".") {
		return nil, false
	}
	const kept = "\x00" // in no flag
	for part := range strings.SplitSeq(strings.ReplaceAll(name, `\.`, kept), ".") {
		if rawjson.KindOf(claims) != rawjson.KindObject {
			return nil, false
		}
		var ok bool
		if claims, ok = rawjson.Get(claims, strings.ReplaceAll(part, kept, ".")); !ok {
			return nil, false
		}
	}
	return claims, true
}

// tokenStrings reads a text or an array of texts.
func tokenStrings(v []byte) ([]string, error) {
	switch rawjson.KindOf(v) {
	case rawjson.KindString:
		s, _ := rawjson.String(v)
		return []string{s}, nil
	case rawjson.KindArray:
		list := make([]string, 0, rawjson.Len(v))
		for e := range rawjson.Elements(v) {
			s, ok := rawjson.String(e)
			if !ok {
				return nil, errToken
			}
			list = append(list, s)
		}
		return list, nil
	}
	return nil, errToken
}
