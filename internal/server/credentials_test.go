package server_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/testserver"
)

// signer signs the text of a token.
type signer func(t *testing.T, text string) []byte

// token makes a bearer token.
func token(t *testing.T, kid, alg string, claims map[string]any, sign signer) string {
	t.Helper()
	part := func(v any) string {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return base64.RawURLEncoding.EncodeToString(data)
	}
	header := map[string]string{"alg": alg, "typ": "JWT"}
	if kid != "" {
		header["kid"] = kid
	}
	text := part(header) + "." + part(claims)
	return "Bearer " + text + "." + base64.RawURLEncoding.EncodeToString(sign(t, text))
}

func hs256(secret []byte) signer {
	return func(_ *testing.T, text string) []byte {
		h := hmac.New(sha256.New, secret)
		h.Write([]byte(text))
		return h.Sum(nil)
	}
}

func rs256(key *rsa.PrivateKey) signer {
	return func(t *testing.T, text string) []byte {
		sum := sha256.Sum256([]byte(text))
		sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return sig
	}
}

func es256(key *ecdsa.PrivateKey) signer {
	return func(t *testing.T, text string) []byte {
		sum := sha256.Sum256([]byte(text))
		r, s, err := ecdsa.Sign(rand.Reader, key, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		return append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	}
}

// keyFile writes the public key, or the secret, of tokens.
func keyFile(t *testing.T, key any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "key")
	data := []byte{}
	if secret, ok := key.([]byte); ok {
		data = []byte(base64.StdEncoding.EncodeToString(secret) + "\n")
	} else {
		der, err := x509.MarshalPKIXPublicKey(key)
		if err != nil {
			t.Fatal(err)
		}
		data = pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Tokens of every sort say who asks; their roles count in a security object; what is
// not signed, not meant for us or over is refused.
func TestTokens(t *testing.T) {
	t.Parallel()
	secret := []byte("a secret of at least 32 bytes, as it is")
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	ecKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	otherKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	s := testserver.Start(t, testserver.Config(func(c *config.Config) {
		c.JWTKeys = []string{"h:HS256:" + keyFile(t, secret), "r:1:RS256:" + keyFile(t, &rsaKey.PublicKey), ":ES256:" + keyFile(t, &ecKey.PublicKey)}
		c.JWTRolesClaim, c.JWTAudience = "groups", "divan"
	}))
	db := s.DB(t)
	s.Do(t, "PUT", "/"+db+"/_security", `{"members":{"names":["anna"],"roles":["crew"]},"admins":{"names":[],"roles":["boss"]}}`).Want(200)
	s.Do(t, "PUT", "/"+db+"/doc", `{}`).Want(201)

	in := func(d time.Duration) int64 { return time.Now().Add(d).Unix() }
	claims := func(name string, roles ...string) map[string]any {
		return map[string]any{"sub": name, "groups": append([]string{}, roles...), "aud": "divan", "exp": in(time.Hour)}
	}
	with := func(c map[string]any, name string, value any) map[string]any { c[name] = value; return c }
	ecPublic, err := x509.MarshalPKIXPublicKey(&ecKey.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name       string
		token      string
		read       int // status of reading a document
		design     int // of writing a design document
		sessionFor string
	}{
		{"HS256, by name", token(t, "h", "HS256", claims("anna"), hs256(secret)), 200, 403, "anna"},
		{"RS256, by role", token(t, "r:1", "RS256", claims("ben", "x", "crew"), rs256(rsaKey)), 200, 403, "ben"},
		{"ES256 without kid, by the role of an admin", token(t, "", "ES256", claims("carl", "boss"), es256(ecKey)), 200, 201, "carl"},
		{"no role that counts", token(t, "h", "HS256", claims("dora", "crew2"), hs256(secret)), 403, 403, "dora"},
		{"a server admin", token(t, "h", "HS256", claims("eva", "_admin"), hs256(secret)), 200, 201, "eva"},
		{"the default claim of roles", token(t, "h", "HS256", with(claims("ben"), "_couchdb.roles", []string{"crew"}), hs256(secret)), 403, 403, "ben"},
		{"expired", token(t, "h", "HS256", with(claims("anna"), "exp", in(-2*time.Minute)), hs256(secret)), 401, 401, ""},
		{"too early", token(t, "h", "HS256", with(claims("anna"), "nbf", in(2*time.Minute)), hs256(secret)), 401, 401, ""},
		{"for somebody else", token(t, "h", "HS256", with(claims("anna"), "aud", "other"), hs256(secret)), 401, 401, ""},
		{"another secret", token(t, "h", "HS256", claims("anna"), hs256([]byte("another secret of at least 32 bytes"))), 401, 401, ""},
		{"another key", token(t, "", "ES256", claims("anna"), es256(otherKey)), 401, 401, ""},
		{"unknown kid", token(t, "z", "ES256", claims("anna"), es256(ecKey)), 401, 401, ""},
		{"a public key as secret", token(t, "", "HS256", claims("anna"), hs256(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: ecPublic}))), 401, 401, ""},
		{"none", token(t, "h", "none", claims("anna"), func(*testing.T, string) []byte { return nil }), 401, 401, ""},
		{"no name", token(t, "h", "HS256", with(claims(""), "sub", nil), hs256(secret)), 401, 401, ""},
		{"garbage", "Bearer garbage", 400, 400, ""},
	} {
		if r := s.Do(t, "GET", "/"+db+"/doc", nil, "Authorization", c.token); r.Status != c.read {
			t.Errorf("%s: reading gives %d, want %d: %s", c.name, r.Status, c.read, r.Body)
		}
		ddoc := "/" + db + "/_design/" + strconv.Itoa(len(c.name)) + c.name[:2]
		if r := s.Do(t, "PUT", strings.ReplaceAll(ddoc, " ", "-"), `{}`, "Authorization", c.token); r.Status != c.design {
			t.Errorf("%s: a design document gives %d, want %d: %s", c.name, r.Status, c.design, r.Body)
		}
		if c.sessionFor != "" {
			session := fmt.Sprint(s.Do(t, "GET", "/_session", nil, "Authorization", c.token).Want(200).Object())
			if !strings.Contains(session, "name:"+c.sessionFor+" ") || !strings.Contains(session, "authenticated:jwt") {
				t.Errorf("%s: session %s", c.name, session)
			}
		}
	}
	if log := s.Log(); !strings.Contains(log, `action="token refused"`) {
		t.Errorf("log: %s", log)
	}
}

// A name is locked after a few wrong passwords, for the address they came from, also
// against the right one; other names of the address are not.
func TestLockout(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(func(c *config.Config) { c.Lockout = 3 }))
	for _, name := range []string{"anna", "ben"} {
		s.Do(t, "PUT", "/_users/org.couchdb.user:"+name, map[string]any{"name": name, "type": "user", "roles": []string{}, "password": "right-s3cret"}).Want(201)
	}
	try := func(name, password string) int {
		t.Helper()
		return s.Do(t, "GET", "/_session", nil, "Authorization", basic(name+":"+password)).Status
	}
	for _, wrong := range []int{1, 2} {
		if got := try("anna", "wrong-s3cret"); got != 401 {
			t.Errorf("wrong password %d: %d", wrong, got)
		}
	}
	if got := try("anna", "right-s3cret"); got != 200 {
		t.Fatalf("before the lock: %d", got)
	}
	for range 3 { // the right one has reset the count
		if got := try("anna", "wrong-s3cret"); got != 401 {
			t.Errorf("a wrong password: %d", got)
		}
	}
	for _, password := range []string{"right-s3cret", "wrong-s3cret"} {
		r := s.Do(t, "GET", "/_session", nil, "Authorization", basic("anna:"+password)).Want(403)
		if !strings.Contains(r.Str("reason"), "locked") {
			t.Errorf("%s", r.Body)
		}
		s.Do(t, "POST", "/_session", map[string]string{"name": "anna", "password": password}, "Authorization", "").Want(403)
	}
	if got := try("ben", "right-s3cret"); got != 200 {
		t.Errorf("another name: %d", got)
	}
	s.Do(t, "GET", "/_all_dbs", nil).Want(200)
	log := s.Log()
	if n := strings.Count(log, `action="login failed"`); n != 5 {
		t.Errorf("%d failed logins in the log, want 5: %s", n, log)
	}
	if n := strings.Count(log, `action="login locked"`); n != 1 {
		t.Errorf("%d locks in the log, want 1: %s", n, log)
	}
	if !strings.Contains(log, "name=anna") || strings.Contains(log, "s3cret") {
		t.Errorf("log: %s", log)
	}

	// An address that tries many names is told to come back later.
	never := testserver.Start(t, testserver.Config(func(c *config.Config) { c.Lockout = 0 }))
	slowed := false
	for n := 0; n < 100 && !slowed; n++ {
		r := never.Do(t, "GET", "/", nil, "Authorization", basic("stranger:wrong-s3cret"))
		if slowed = r.Status == 429; slowed && r.Header.Get("Retry-After") != "60" {
			t.Errorf("Retry-After: %s", r.Header.Get("Retry-After"))
		} else if !slowed {
			r.Want(401)
		}
	}
	if !slowed {
		t.Error("a hundred wrong passwords were all checked")
	}
	if log := never.Log(); strings.Contains(log, "stranger") || !strings.Contains(log, "name=(unknown)") {
		t.Errorf("a name that nobody has may be a password: %s", log)
	}
}

// A rate holds for a user, by class, and for the address of those without credentials;
// administrators have none.
func TestRateLimits(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(func(c *config.Config) { c.RateLookup, c.RateWrite, c.RateQuery = 0.02, 0.02, 0.01 }))
	db := "/" + s.DB(t)
	s.Do(t, "PUT", db+"/_security", `{"members":{"names":["anna","ben"],"roles":[]}}`).Want(200)
	who := map[string]string{"nobody": ""}
	for _, name := range []string{"anna", "ben"} {
		s.Do(t, "PUT", "/_users/org.couchdb.user:"+name, map[string]any{"name": name, "type": "user", "roles": []string{}, "password": "x"}).Want(201)
		who[name] = basic(name + ":x")
	}
	for range 5 {
		s.Do(t, "GET", db, nil).Want(200)
		s.Do(t, "GET", db+"/_all_docs", nil).Want(200)
		s.Do(t, "PUT", db+"/"+strconv.FormatInt(time.Now().UnixNano(), 36), `{}`).Want(201)
	}
	for _, c := range []struct {
		who, method, path, body string
		status, most            int
	}{
		{"anna", "GET", db, "", 200, 50},
		{"anna", "GET", db + "/x", "", 429, 50},
		{"anna", "GET", db + "/_all_docs", "", 200, 0},
		{"anna", "POST", db + "/_bulk_get", `{"docs":[]}`, 429, 100},
		{"anna", "POST", db, `{}`, 201, 0},
		{"anna", "PUT", db + "/y", `{}`, 429, 50},
		{"ben", "GET", db, "", 200, 0},
		{"ben", "GET", db + "/_changes", "", 200, 0},
		{"nobody", "GET", "/", "", 200, 0},
		{"nobody", "GET", "/", "", 429, 50},
		{"nobody", "GET", "/_up", "", 200, 0},
		{"nobody", "GET", "/_up", "", 200, 0},
		{"nobody", "GET", db, "", 401, 0}, // what is refused anyway costs nothing
	} {
		var body any
		if c.body != "" {
			body = c.body
		}
		r := s.Do(t, c.method, c.path, body, "Authorization", who[c.who]).Want(c.status)
		if c.status != 429 {
			continue
		}
		after, err := strconv.Atoi(r.Header.Get("Retry-After"))
		if err != nil || after < 1 || after > c.most || r.Str("error") != "too_many_requests" {
			t.Errorf("%v: Retry-After %q, %s", c, r.Header.Get("Retry-After"), r.Body)
		}
	}

	// A burst of one second's worth passes, and no more: ten at a time never exceed it.
	burst := testserver.Start(t, testserver.Config(func(c *config.Config) { c.RateLookup = 5 }))
	var mu sync.Mutex
	count, begin := map[int]int{}, time.Now()
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() {
			r, err := burst.Try(t.Context(), "GET", "/", nil, "Authorization", "")
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				t.Error(err)
				return
			}
			count[r.Status]++
		})
	}
	all.Wait()
	if most := 5 + 1 + int(5*time.Since(begin).Seconds()); count[200] < 5 || count[200] > most || count[200]+count[429] != 20 {
		t.Errorf("answers %v in %s", count, time.Since(begin))
	}
}
