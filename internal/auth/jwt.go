package auth

import (
	"crypto/ecdsa"
	"crypto/hmac"
	"crypto/rsa"
	"encoding/base64"
	"fmt"
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
}

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
	t := &tokenVerifier{keys: map[string][]JWTKey{}, o: o, now: now}
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

// identity says whose token it is. Nothing in it is looked at before the signature
// is found right, but the header that names the key.
func (t *tokenVerifier) identity(token string) (Identity, error) {
	if len(token) > maxToken || strings.Count(token, ".") != 2 {
		return Identity{}, errToken
	}
	head, rest, _ := strings.Cut(token, ".")
	body, encoded, _ := strings.Cut(rest, ".")
	header, err := tokenObject(head)
	if err != nil {
		return Identity{}, err
	}
	signature, err := tokenText.DecodeString(encoded)
	if err != nil {
		return Identity{}, errToken
	}
	key, err := t.key(header)
	if err != nil {
		return Identity{}, err
	}
	if !key.verify(token[:len(head)+1+len(body)], signature) {
		return Identity{}, tokenError("Bad signature")
	}
	claims, err := tokenObject(body)
	if err != nil {
		return Identity{}, err
	}
	if err := t.valid(claims); err != nil {
		return Identity{}, err
	}
	return t.read(claims)
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

// valid checks the claims that limit a token. `iat` is not one of them: RFC 7519
// gives it no rule, and `nbf` says from when a token counts.
func (t *tokenVerifier) valid(claims []byte) error {
	now := float64(t.now().UnixMilli()) / 1000
	exp, has, err := tokenTime(claims, "exp")
	if err != nil {
		return err
	}
	if has && exp <= now-tokenLeeway.Seconds() {
		return tokenError("exp not in future")
	}
	nbf, has, err := tokenTime(claims, "nbf")
	if err != nil {
		return err
	}
	if has && nbf > now+tokenLeeway.Seconds() {
		return tokenError("nbf not in past")
	}
	if t.o.Issuer != "" && memberText(claims, "iss") != t.o.Issuer {
		return tokenError("Invalid iss claim")
	}
	if t.o.Audience != "" {
		// One text, or an array of texts.
		aud, _ := rawjson.Get(claims, "aud")
		list, err := tokenStrings(aud)
		if err != nil || !slices.Contains(list, t.o.Audience) {
			return tokenError("Invalid aud claim")
		}
	}
	return nil
}

// tokenTime reads a claim that is a time in seconds.
func tokenTime(claims []byte, name string) (seconds float64, has bool, err error) {
	v, has := rawjson.Get(claims, name)
	if !has {
		return 0, false, nil
	}
	seconds, ok := rawjson.Float(v)
	if rawjson.KindOf(v) != rawjson.KindNumber || !ok {
		return 0, false, model.BadRequest("Invalid " + name + " claim")
	}
	return seconds, true, nil
}

// read takes name and roles from the claims.
func (t *tokenVerifier) read(claims []byte) (Identity, error) {
	v, ok := claim(claims, t.o.NameClaim)
	if !ok {
		return Identity{}, tokenError("Token missing " + t.o.NameClaim + " claim.")
	}
	id := Identity{Method: MethodJWT}
	if id.Name, ok = rawjson.String(v); !ok || id.Name == "" || len(id.Name) > maxTokenName {
		return Identity{}, tokenError("Invalid " + t.o.NameClaim + " claim")
	}
	if v, ok = claim(claims, t.o.RolesClaim); !ok {
		return id, nil
	}
	roles, err := tokenStrings(v)
	if err != nil {
		return Identity{}, err
	}
	if rawjson.KindOf(v) == rawjson.KindString {
		// CouchDB reads a text as roles with commas between them.
		roles = strings.FieldsFunc(roles[0], func(r rune) bool { return r == ',' })
		for i := range roles {
			roles[i] = strings.TrimSpace(roles[i])
		}
	}
	id.Admin = slices.Contains(roles, adminRole)
	id.Roles = slices.DeleteFunc(roles, func(r string) bool { return r == adminRole || r == "" })
	return id, nil
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
