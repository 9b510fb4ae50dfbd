package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/model"
)

var (
	testSecret = []byte("a secret of thirty-two bytes ...")
	testRSA    = sync.OnceValue(func() *rsa.PrivateKey {
		k, err := rsa.GenerateKey(rand.Reader, 2048)
		if err != nil {
			panic(err)
		}
		return k
	})
)

func newEC(t testing.TB, c elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	k, err := ecdsa.GenerateKey(c, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// sign makes a token as an identity provider does.
func sign(t testing.TB, key any, alg, header, claims string) string {
	t.Helper()
	text := tokenText.EncodeToString([]byte(header)) + "." + tokenText.EncodeToString([]byte(claims))
	hash := algorithms[alg].hash
	var digest []byte
	if hash != 0 {
		h := hash.New()
		h.Write([]byte(text))
		digest = h.Sum(nil)
	}
	var sig []byte
	var err error
	switch key := key.(type) {
	case []byte:
		h := hmac.New(hash.New, key)
		h.Write([]byte(text))
		sig = h.Sum(nil)
	case *rsa.PrivateKey:
		sig, err = rsa.SignPKCS1v15(nil, key, hash, digest)
	case *ecdsa.PrivateKey:
		r, s, e := ecdsa.Sign(rand.Reader, key, digest)
		size := (key.Curve.Params().BitSize + 7) / 8
		sig, err = append(r.FillBytes(make([]byte, size)), s.FillBytes(make([]byte, size))...), e
	}
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + tokenText.EncodeToString(sig)
}

func bearer(s *Service, token string) (Identity, error) {
	return s.Authenticate(request("Bearer " + token))
}

// A token that another implementation made: RFC 7515, appendix A.1.
func TestTokenOfRFC7515(t *testing.T) {
	t.Parallel()
	secret, err := tokenText.DecodeString("AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow")
	if err != nil {
		t.Fatal(err)
	}
	const token = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9." +
		"eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ." +
		"dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
	now := time.Unix(1300819380, 0)
	s, _ := newService(t, Options{Now: func() time.Time { return now }, JWT: JWTOptions{Keys: []JWTKey{{Alg: "HS256", Key: secret}}, NameClaim: "iss"}})
	if id, err := bearer(s, token); err != nil || id.Name != "joe" || id.Method != MethodJWT {
		t.Errorf("%+v %v", id, err)
	}
	now = now.Add(time.Hour)
	if _, err := bearer(s, token); model.KindOf(err) != model.KindUnauthorized {
		t.Errorf("expired: %v", err)
	}
}

func TestTokenAlgorithms(t *testing.T) {
	t.Parallel()
	public := func(k any) any {
		switch k := k.(type) {
		case *rsa.PrivateKey:
			return &k.PublicKey
		case *ecdsa.PrivateKey:
			return &k.PublicKey
		}
		return k
	}
	private := map[string]any{}
	var keys []JWTKey
	for alg, a := range algorithms {
		switch a.kind {
		case "HS":
			private[alg] = append([]byte(alg), testSecret...)
		case "RS":
			private[alg] = testRSA()
		case "ES":
			private[alg] = newEC(t, map[int]elliptic.Curve{256: elliptic.P256(), 384: elliptic.P384(), 521: elliptic.P521()}[a.curve])
		}
		keys = append(keys, JWTKey{ID: "key", Alg: alg, Key: public(private[alg])})
	}
	s, _ := newService(t, Options{JWT: JWTOptions{Keys: keys}})
	const claims = `{"sub":"ann"}`
	for alg := range algorithms {
		header := fmt.Sprintf(`{"alg":%q,"kid":"key"}`, alg)
		token := sign(t, private[alg], alg, header, claims)
		if id, err := bearer(s, token); err != nil || id.Name != "ann" {
			t.Errorf("%s: %+v %v", alg, id, err)
		}
		// Every changed character makes it nobody's.
		for i := range token {
			if i%31 != 0 && algorithms[alg].kind != "HS" {
				continue // public keys are slow
			}
			bad := []byte(token)
			if bad[i] == 'A' {
				bad[i] = 'B'
			} else {
				bad[i] = 'A'
			}
			if id, err := bearer(s, string(bad)); err == nil || id.Name != "" {
				t.Fatalf("%s: a token changed at %d is %+v", alg, i, id)
			}
		}
		// Signed by one key, said to be of another.
		for other := range algorithms {
			if other == alg {
				continue
			}
			header := fmt.Sprintf(`{"alg":%q,"kid":"key"}`, other)
			if id, err := bearer(s, sign(t, private[alg], alg, header, claims)); model.KindOf(err) != model.KindUnauthorized {
				t.Errorf("%s said to be %s: %+v %v", alg, other, id, err)
			}
		}
	}
}

// The public key as a secret, and other classic forgeries.
func TestForgedTokens(t *testing.T) {
	t.Parallel()
	key := testRSA()
	s, _ := newService(t, Options{JWT: JWTOptions{Keys: []JWTKey{{ID: "key", Alg: "RS256", Key: &key.PublicKey}}}})
	const claims = `{"sub":"root","_couchdb.roles":["_admin"]}`
	none := tokenText.EncodeToString([]byte(`{"alg":"none","kid":"key"}`)) + "." + tokenText.EncodeToString([]byte(claims)) + "."
	good := sign(t, key, "RS256", `{"alg":"RS256","kid":"key"}`, claims)
	if id, err := bearer(s, good); err != nil || !id.Admin {
		t.Fatalf("%+v %v", id, err)
	}
	head, rest, _ := strings.Cut(good, ".")
	body, sig, _ := strings.Cut(rest, ".")
	for name, token := range map[string]string{
		"none":            none,
		"None":            strings.Replace(none, head, tokenText.EncodeToString([]byte(`{"alg":"None","kid":"key"}`)), 1),
		"public key":      sign(t, key.PublicKey.N.Bytes(), "HS256", `{"alg":"HS256","kid":"key"}`, claims),
		"no signature":    head + "." + body + ".",
		"other key":       sign(t, key, "RS256", `{"alg":"RS256","kid":"other"}`, claims),
		"no kid":          sign(t, key, "RS256", `{"alg":"RS256"}`, claims),
		"alg in capitals": sign(t, key, "RS256", `{"ALG":"RS256","alg":"rs256","kid":"key"}`, claims),
		"alg a number":    sign(t, key, "RS256", `{"alg":1,"kid":"key"}`, claims),
		"extension":       sign(t, key, "RS256", `{"alg":"RS256","kid":"key","crit":["b64"],"b64":false}`, claims),
		"key inside":      sign(t, key, "RS256", `{"alg":"RS256","kid":"../key","jwk":{},"jku":"http://x/"}`, claims),
	} {
		if id, err := bearer(s, token); model.KindOf(err) != model.KindUnauthorized || id.Name != "" {
			t.Errorf("%s: %+v %v", name, id, err)
		}
	}
	for name, token := range map[string]string{
		"two parts":       head + "." + body,
		"four parts":      good + ".x",
		"padded":          head + "." + body + "." + sig + "==",
		"other base64":    head + "." + body + "." + sig + "+",
		"header no json":  tokenText.EncodeToString([]byte(`{alg`)) + "." + body + "." + sig,
		"header an array": tokenText.EncodeToString([]byte(`["alg"]`)) + "." + body + "." + sig,
		"no alg":          sign(t, key, "RS256", `{"kid":"key"}`, claims),
		"kid a number":    sign(t, key, "RS256", `{"alg":"RS256","kid":1}`, claims),
		"claims no json":  sign(t, key, "RS256", `{"alg":"RS256","kid":"key"}`, `sub`),
		"claims a text":   sign(t, key, "RS256", `{"alg":"RS256","kid":"key"}`, `"sub"`),
		"deep":            sign(t, key, "RS256", `{"alg":"RS256","kid":"key"}`, `{"sub":"x","a":`+strings.Repeat("[", 100)+strings.Repeat("]", 100)+`}`),
		"long":            sign(t, key, "RS256", `{"alg":"RS256","kid":"key"}`, `{"sub":"x","a":"`+strings.Repeat("x", maxToken)+`"}`),
		"word":            "abc",
	} {
		if id, err := bearer(s, token); model.KindOf(err) != model.KindBadRequest || id.Name != "" {
			t.Errorf("%s: %+v %v", name, id, err)
		}
	}
	// Without keys the scheme is not known.
	without, _ := newService(t, Options{})
	if id, err := bearer(without, good); err != nil || id.Name != "" {
		t.Errorf("no keys: %+v %v", id, err)
	}
}

func TestTokenClaims(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	plain := JWTOptions{Keys: []JWTKey{{Key: testSecret, Alg: "HS256"}}}
	named := JWTOptions{Keys: plain.Keys, NameClaim: "email", RolesClaim: `realm\.x.roles`}
	strict := JWTOptions{Keys: plain.Keys, Issuer: "idp", Audience: "divan"}
	id := func(name string, roles ...string) Identity {
		return Identity{Name: name, Roles: roles, Method: MethodJWT}
	}
	admin := id("ann", "x")
	admin.Admin = true
	for _, c := range []struct {
		o      JWTOptions
		claims string
		want   Identity
		reason string
	}{
		{plain, `{"sub":"ann"}`, id("ann"), ""},
		{plain, `{"sub":"ann","_couchdb.roles":["x","y"]}`, id("ann", "x", "y"), ""},
		{plain, `{"sub":"ann","_couchdb.roles":["_admin","x"]}`, admin, ""},
		{plain, `{"sub":"ann","_couchdb.roles":"x, _admin ,"}`, admin, ""},
		{plain, `{"sub":"ann","_couchdb":{"roles":["x"]}}`, id("ann", "x"), ""},
		{plain, `{"sub":"ann","_couchdb":{"roles":["_admin"]},"_couchdb.roles":["x"]}`, id("ann", "x"), ""},
		{plain, `{"sub":"ann","_couchdb":["roles"]}`, id("ann"), ""},
		{plain, `{"sub":"ann","_COUCHDB.ROLES":["_admin"],"Sub":"bob"}`, id("ann"), ""},
		{plain, `{"sub":"bob","sub":"ann"}`, id("ann"), ""},
		{plain, `{"sub":"root"}`, id("root"), ""}, // the name of an administrator, and none
		{plain, `{"sub":"ann","_couchdb.roles":["x",1]}`, Identity{}, "Malformed token"},
		{plain, `{"sub":"ann","_couchdb.roles":null}`, Identity{}, "Malformed token"},
		{plain, `{"sub":"ann","_couchdb.roles":{"_admin":true}}`, Identity{}, "Malformed token"},
		{plain, `{"Sub":"ann"}`, Identity{}, "Token missing sub claim."},
		{plain, `{"sub":""}`, Identity{}, "Invalid sub claim"},
		{plain, `{"sub":null}`, Identity{}, "Invalid sub claim"},
		{plain, `{"sub":["ann"]}`, Identity{}, "Invalid sub claim"},
		{plain, `{"sub":"` + strings.Repeat("x", maxTokenName+1) + `"}`, Identity{}, "Invalid sub claim"},
		{plain, `{"sub":"ann","exp":1800000001,"nbf":1799999999,"iat":1800000000}`, id("ann"), ""},
		{plain, `{"sub":"ann","exp":1799999941}`, id("ann"), ""},
		{plain, `{"sub":"ann","exp":1799999940}`, Identity{}, "exp not in future"},
		{plain, `{"sub":"ann","exp":1.79999994e9}`, Identity{}, "exp not in future"},
		{plain, `{"sub":"ann","exp":1799999940.5}`, id("ann"), ""},
		{plain, `{"sub":"ann","exp":0}`, Identity{}, "exp not in future"},
		{plain, `{"sub":"ann","exp":-1}`, Identity{}, "exp not in future"},
		{plain, `{"sub":"ann","exp":"1800000001"}`, Identity{}, "Invalid exp claim"},
		{plain, `{"sub":"ann","exp":null}`, Identity{}, "Invalid exp claim"},
		{plain, `{"sub":"ann","exp":1e999}`, Identity{}, "Invalid exp claim"},
		{plain, `{"sub":"ann","nbf":1800000060}`, id("ann"), ""},
		{plain, `{"sub":"ann","nbf":1800000061}`, Identity{}, "nbf not in past"},
		{plain, `{"sub":"ann","nbf":true}`, Identity{}, "Invalid nbf claim"},
		{named, `{"sub":"bob","email":"ann","realm.x":{"roles":["x"]}}`, id("ann", "x"), ""},
		{named, `{"sub":"bob"}`, Identity{}, "Token missing email claim."},
		{strict, `{"sub":"ann","iss":"idp","aud":"divan"}`, id("ann"), ""},
		{strict, `{"sub":"ann","iss":"idp","aud":["other","divan"]}`, id("ann"), ""},
		{strict, `{"sub":"ann","aud":"divan"}`, Identity{}, "Invalid iss claim"},
		{strict, `{"sub":"ann","iss":"idp","aud":["other"]}`, Identity{}, "Invalid aud claim"},
		{strict, `{"sub":"ann","iss":"idp"}`, Identity{}, "Invalid aud claim"},
	} {
		s, _ := newService(t, Options{JWT: c.o, Now: func() time.Time { return now }})
		got, err := bearer(s, sign(t, testSecret, "HS256", `{"alg":"HS256"}`, c.claims))
		if len(got.Roles) == 0 {
			got.Roles = nil
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, want %+v", c.claims, got, c.want)
		}
		var e *model.Error
		if c.reason != "" && (!errors.As(err, &e) || e.Reason != c.reason) || c.reason == "" && err != nil {
			t.Errorf("%s: %v, want %q", c.claims, err, c.reason)
		}
	}
}

// A token that was read before is still over at its end, and not before its time.
func TestRememberedTokens(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	s, _ := newService(t, Options{Now: func() time.Time { return now }, JWT: JWTOptions{Keys: []JWTKey{{Alg: "HS256", Key: testSecret}}}})
	token := sign(t, testSecret, "HS256", `{"alg":"HS256"}`, `{"sub":"ann","nbf":1800000100,"exp":1800000200}`)
	for _, step := range []struct {
		at   int64
		good bool
	}{{1800000000, false}, {1800000040, true}, {1800000041, true}, {1800000259, true}, {1800000260, false}, {1800000100, true}, {1800000000, false}} {
		now = time.Unix(step.at, 0)
		if id, err := bearer(s, token); (err == nil) != step.good || (id.Name == "ann") != step.good {
			t.Errorf("at %d: %+v %v", step.at, id, err)
		}
	}
	if n := s.tokens.read.len(); n != 1 {
		t.Errorf("%d tokens remembered", n)
	}
	for i := range 10 {
		_, _ = bearer(s, token[:len(token)-i-1])
		_, _ = bearer(s, sign(t, testSecret, "HS256", `{"alg":"HS256"}`, fmt.Sprintf(`{"sub":"x%d","exp":1}`, i)))
	}
	if n := s.tokens.read.len(); n != 1 {
		t.Errorf("%d tokens remembered, some of them bad", n)
	}
}

// Tokens without kid are for the default key only, under both its names.
func TestDefaultTokenKey(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"", DefaultKeyID} {
		s, _ := newService(t, Options{JWT: JWTOptions{Keys: []JWTKey{{ID: id, Alg: "HS256", Key: testSecret}}}})
		for _, header := range []string{`{"alg":"HS256"}`, `{"alg":"HS256","kid":"_default"}`} {
			if _, err := bearer(s, sign(t, testSecret, "HS256", header, `{"sub":"x"}`)); err != nil {
				t.Errorf("%q %s: %v", id, header, err)
			}
		}
		if _, err := bearer(s, sign(t, testSecret, "HS256", `{"alg":"HS256","kid":""}`, `{"sub":"x"}`)); err == nil {
			t.Error("an empty kid is a name that no key has")
		}
	}
}

// No token that was not signed is somebody's.
func FuzzToken(f *testing.F) {
	now := time.Unix(1_800_000_000, 0)
	ec := newEC(f, elliptic.P256())
	s, _ := newService(f, Options{Now: func() time.Time { return now }, JWT: JWTOptions{Keys: []JWTKey{
		{Alg: "HS256", Key: testSecret}, {ID: "e", Alg: "ES256", Key: &ec.PublicKey}, {ID: "r", Alg: "RS256", Key: &testRSA().PublicKey}}}})
	f.Add(`{"alg":"HS256"}`, `{"sub":"ann","exp":1800000001,"_couchdb.roles":["x"]}`, []byte("signature"))
	f.Add(`{"alg":"ES256","kid":"e"}`, `{"sub":"ann"}`, make([]byte, 64))
	f.Add(`{"alg":"RS256","kid":"r"}`, `{"sub":"ann"}`, make([]byte, 256))
	f.Add(`{"alg":"none"}`, `{"sub":1,"nbf":-1e9}`, []byte{})
	f.Fuzz(func(t *testing.T, header, claims string, sig []byte) {
		token := tokenText.EncodeToString([]byte(header)) + "." + tokenText.EncodeToString([]byte(claims)) + "." + tokenText.EncodeToString(sig)
		for _, tok := range []string{token, header} {
			id, err := bearer(s, tok)
			if k := model.KindOf(err); err == nil || id.Name != "" || k != model.KindUnauthorized && k != model.KindBadRequest {
				t.Fatalf("%q: %+v %v", tok, id, err)
			}
		}
		// The same claims, signed: read or refused, and never more than they say.
		id, err := bearer(s, sign(t, testSecret, "HS256", `{"alg":"HS256"}`, claims))
		if err != nil {
			if k := model.KindOf(err); k != model.KindUnauthorized && k != model.KindBadRequest {
				t.Fatal(err)
			}
			return
		}
		if id.Name == "" || id.Session || id.Key {
			t.Fatalf("%q: %+v", claims, id)
		}
		for _, r := range id.Roles {
			if r == adminRole || r == "" {
				t.Fatalf("%q: %+v", claims, id)
			}
		}
	})
}

// Whatever a header holds, it is read without a fault of ours, and admits nobody.
func FuzzAuthorization(f *testing.F) {
	p := newPeople()
	s, _ := newService(f, Options{Rounds: 1, Accounts: p, LockAfter: -1, AddressFailures: -1,
		JWT: JWTOptions{Keys: []JWTKey{{Alg: "HS256", Key: testSecret}}}})
	if err := s.SetAdmin("root", rand.Text()); err != nil {
		f.Fatal(err)
	}
	for _, h := range []string{"", "Basic", "Basic:", basic("root:x"), basic("_:_"), basic("a:b:c"), "basic  cm9vdDp4", "Bearer a.b.c", "Bearer ", "Digest x", "Basic =", " Basic cm9vdDp4"} {
		f.Add(h)
	}
	f.Fuzz(func(t *testing.T, header string) {
		r := request("")
		r.Header["Authorization"] = []string{header}
		id, err := s.Authenticate(r)
		if id.Name != "" || id.Admin {
			t.Fatalf("%q is %+v", header, id)
		}
		if k := model.KindOf(err); err != nil && k != model.KindUnauthorized && k != model.KindBadRequest {
			t.Fatalf("%q: %v", header, err)
		}
	})
}

func BenchmarkToken(b *testing.B) {
	ec := newEC(b, elliptic.P256())
	for _, c := range []struct {
		alg     string
		sign    any
		believe any
	}{{"HS256", testSecret, testSecret}, {"RS256", testRSA(), &testRSA().PublicKey}, {"ES256", ec, &ec.PublicKey}} {
		b.Run(c.alg, func(b *testing.B) {
			s, _ := newService(b, Options{JWT: JWTOptions{Keys: []JWTKey{{Alg: c.alg, Key: c.believe}}}})
			b.Run("first", func(b *testing.B) {
				token := sign(b, c.sign, c.alg, `{"alg":"`+c.alg+`"}`, `{"sub":"ann"}`)
				for b.Loop() {
					if _, err := s.tokens.verify(token); err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("again", func(b *testing.B) {
				r := request("Bearer " + sign(b, c.sign, c.alg, `{"alg":"`+c.alg+`"}`, `{"sub":"ann","exp":99999999999,"_couchdb.roles":["x"]}`))
				b.ReportAllocs()
				for b.Loop() {
					if id, err := s.Authenticate(r); err != nil || id.Name != "ann" {
						b.Fatal(id, err)
					}
				}
			})
		})
	}
}
