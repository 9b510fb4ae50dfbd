package auth

import (
	"bytes"
	"context"
	"crypto/pbkdf2"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// Documents as CouchDB stored them, with their passwords. The first three are
// published examples of CouchDB installations; the fourth is a vector of RFC 6070 that
// CouchDB tests itself with; the last two were made with OpenSSL.
func TestSecretsOfCouchDB(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ password, doc string }{
		{"12345", `{"password_scheme":"pbkdf2","iterations":10,"derived_key":"d2061cb98f85b5e14eda97da556c1625906e5c2b","salt":"60604061640065389e9e90ca12c83b8d"}`},
		{"admin", `{"password_scheme":"pbkdf2","iterations":10,"derived_key":"9ff4bc1c1846181d303971b08b65122a45174d04","salt":"2653c80aabd3889c3dfd6e198d3dca93"}`},
		{"local", `{"password_scheme":"pbkdf2","pbkdf2_prf":"sha","iterations":10,"derived_key":"3cfbf59bba56c7f364973c11c5bd7f78e6879e23","salt":"2bec993281f3252dc8f56780428121c9"}`},
		{"passwordPASSWORDpassword", `{"password_scheme":"pbkdf2","iterations":4096,"derived_key":"3d2eec4fe41c849b80c8d83662c0e44a8b291a964cf2f07038","salt":"saltSALTsaltSALTsaltSALTsaltSALTsalt"}`},
		{"password", `{"password_scheme":"pbkdf2","pbkdf2_prf":"sha256","iterations":23,"derived_key":"8263cc1c1ccad9780c8ad66df3cd6cbae517bbd6f99d27c0512e3383ed045229","salt":"secret"}`},
		{"password", `{"password_scheme":"pbkdf2","pbkdf2_prf":"sha512","iterations":23,"derived_key":"c531d63b548f380b15cc3fa7ad9f961b8c0574f556c5fe361459f7f216fc568a","salt":"secret"}`},
	} {
		v, err := ReadSecrets([]byte(c.doc))
		if err != nil || v == nil {
			t.Errorf("%s: %v", c.doc, err)
			continue
		}
		if ok, err := v.matches(c.password); !ok || err != nil {
			t.Errorf("%s: %q is wrong: %v", c.doc, c.password, err)
		}
		if ok, _ := v.matches(c.password + "x"); ok {
			t.Errorf("%s: another password is right", c.doc)
		}
	}
}

// Every function and the defaults, against the standard library.
func TestReadSecrets(t *testing.T) {
	t.Parallel()
	for prf, h := range prfs {
		for _, size := range []int{16, 20, h().Size(), 64} {
			key, err := pbkdf2.Key(h, "pässword", []byte("sält"), 7, size)
			if err != nil {
				t.Fatal(err)
			}
			doc := fmt.Sprintf(`{"salt":"sält","derived_key":"%x","iterations":7,"pbkdf2_prf":%q,"password_scheme":"pbkdf2"}`, key, prf)
			v, err := ReadSecrets([]byte(doc))
			if err != nil {
				t.Fatal(doc, err)
			}
			if ok, err := v.matches("pässword"); !ok || err != nil {
				t.Errorf("%s: %v", doc, err)
			}
		}
	}
	key, err := pbkdf2.Key(sha1.New, "pw", []byte("s"), 10_000, 20)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha1.Sum([]byte("pw" + "s"))
	for _, doc := range []string{
		fmt.Sprintf(`{"salt":"s","derived_key":"%X","password_scheme":"pbkdf2"}`, key), // defaults of CouchDB
		fmt.Sprintf(`{"salt":"s","password_sha":"%x","password_scheme":"simple"}`, sum),
		fmt.Sprintf(`{"salt":"s","password_sha":"%x"}`, sum),
		fmt.Sprintf(`{"salt":"s","password_sha":"%x","password_scheme":null}`, sum),
	} {
		v, err := ReadSecrets([]byte(doc))
		if err != nil || v == nil {
			t.Fatal(doc, err)
		}
		if ok, _ := v.matches("pw"); !ok {
			t.Errorf("%s: the password is wrong", doc)
		}
		if ok, _ := v.matches("pws"); ok {
			t.Errorf("%s: another password is right", doc)
		}
	}
	for _, doc := range []string{`{}`, `{"password_scheme":"pbkdf2","iterations":5}`, `{"derived_key":"00","Password_sha":"00"}`, `{"password_sha":null}`} {
		if v, err := ReadSecrets([]byte(doc)); v != nil || err != nil {
			t.Errorf("%s: %v %v", doc, v, err)
		}
	}
	k := strings.Repeat("ab", 20)
	for _, doc := range []string{
		`{"password_scheme":"bcrypt"}`, `{"password_scheme":1}`, `{"password_scheme":"PBKDF2"}`,
		`{"password_sha":"zz"}`, `{"password_sha":"abcd"}`, `{"password_sha":5}`,
		`{"password_scheme":"pbkdf2","derived_key":"` + k + `","iterations":0}`,
		`{"password_scheme":"pbkdf2","derived_key":"` + k + `","iterations":-1}`,
		`{"password_scheme":"pbkdf2","derived_key":"` + k + `","iterations":10000001}`,
		`{"password_scheme":"pbkdf2","derived_key":"` + k + `","iterations":9223372036854775808}`,
		`{"password_scheme":"pbkdf2","derived_key":"` + k + `","iterations":1.5}`,
		`{"password_scheme":"pbkdf2","derived_key":"` + k + `","iterations":"10"}`,
		`{"password_scheme":"pbkdf2","derived_key":"` + k + k + k + `","iterations":5000000}`, // three blocks
		`{"password_scheme":"pbkdf2","derived_key":"` + k + k + k + k + `"}`,
		`{"password_scheme":"pbkdf2","derived_key":"abcd"}`, `{"password_scheme":"pbkdf2","derived_key":""}`,
		`{"password_scheme":"pbkdf2","derived_key":"` + k + `","pbkdf2_prf":"md5"}`,
		`{"password_scheme":"pbkdf2","derived_key":"` + k + `","pbkdf2_prf":1}`,
		`{"password_scheme":"pbkdf2","derived_key":"` + k + `","salt":"` + strings.Repeat("x", 2000) + `"}`,
	} {
		if v, err := ReadSecrets([]byte(doc)); v != nil || model.KindOf(err) != model.KindBadRequest {
			t.Errorf("%s: %v %v", doc, v, err)
		}
	}
}

func TestUserSecrets(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, _ := newService(t, Options{Rounds: 11})
	u, err := s.UserSecrets(ctx, "pw")
	if err != nil {
		t.Fatal(err)
	}
	other, err := s.UserSecrets(ctx, "pw")
	if err != nil || other.Salt == u.Salt {
		t.Errorf("the salt is the same again: %v", err)
	}
	key, err := pbkdf2.Key(sha256.New, "pw", []byte(u.Salt), 11, 32)
	if err != nil || u.DerivedKey != hex.EncodeToString(key) || len(u.Salt) != 32 {
		t.Errorf("%+v %v", u, err)
	}
	members := string(u.AppendMembers(nil))
	if want := `"password_scheme":"pbkdf2","pbkdf2_prf":"sha256","salt":"` + u.Salt + `","iterations":11,"derived_key":"` + u.DerivedKey + `"`; members != want {
		t.Errorf("%s\nwant %s", members, want)
	}
	a := ReadUser("ann", "1-a", []byte(`{`+members+`,"name":"ann","type":"user","roles":["x","_admin","y"]}`))
	if a == nil || a.Version != "1-a" || !reflect.DeepEqual(a.Roles, []string{"x", "y"}) {
		t.Fatalf("%+v", a)
	}
	if ok, _ := a.Verifier.matches("pw"); !ok {
		t.Error("the password is wrong")
	}
	for _, bad := range []string{"", strings.Repeat("x", maxPassword+1)} {
		if _, err := s.UserSecrets(ctx, bad); model.KindOf(err) != model.KindBadRequest {
			t.Errorf("a password of %d bytes: %v", len(bad), err)
		}
	}
	// It waits its turn with the others.
	for range cap(s.slots) {
		s.slots <- struct{}{}
	}
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := s.UserSecrets(ended, "pw"); !errors.Is(err, context.Canceled) {
		t.Errorf("no free slot: %v", err)
	}
}

func TestReadUser(t *testing.T) {
	t.Parallel()
	for _, doc := range []string{
		`[]`, `{}`, `{"name":"bob","type":"user"}`, `{"name":"ann","type":"other"}`, `{"name":"ann"}`,
		`{"Name":"ann","type":"user"}`, `{"name":"ann","TYPE":"user"}`, `{"name":["ann"],"type":"user"}`,
	} {
		if a := ReadUser("ann", "1", []byte(doc)); a != nil {
			t.Errorf("%s: %+v", doc, a)
		}
	}
	for doc, want := range map[string][]string{
		`{"name":"ann","type":"user"}`:                                                          nil,
		`{"name":"ann","type":"user","roles":"x"}`:                                              nil,
		`{"name":"ann","type":"user","roles":["x",1]}`:                                          nil,
		`{"name":"ann","type":"user","roles":{"x":1}}`:                                          nil,
		`{"name":"ann","type":"user","roles":["_admin"]}`:                                       nil,
		`{"name":"ann","type":"user","roles":["x"],"Roles":["y"]}`:                              {"x"},
		`{"name":"ann","type":"user","roles":["x"],"derived_key":1,"password_scheme":"pbkdf2"}`: {"x"},
	} {
		a := ReadUser("ann", "1", []byte(doc))
		if a == nil || !reflect.DeepEqual(a.Roles, want) || a.Verifier != nil {
			t.Errorf("%s: %+v", doc, a)
		}
	}
}

func FuzzReadSecrets(f *testing.F) {
	f.Add([]byte(`{"name":"ann","type":"user","roles":["x"],"password_scheme":"pbkdf2","pbkdf2_prf":"sha256","salt":"s","iterations":1,"derived_key":"` + strings.Repeat("ab", 32) + `"}`))
	f.Add([]byte(`{"name":"ann","type":"user","roles":null,"password_sha":"` + strings.Repeat("ab", 20) + `","salt":"s"}`))
	f.Add([]byte(`{"password_scheme":"pbkdf2","iterations":10000000,"derived_key":"` + strings.Repeat("ab", 20) + `"}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		doc, err := rawjson.Normalize(nil, in, 32)
		if err != nil || rawjson.KindOf(doc) != rawjson.KindObject {
			return
		}
		before := bytes.Clone(doc)
		a := ReadUser("ann", "1", doc)
		v, err := ReadSecrets(doc)
		if v != nil && err != nil || !bytes.Equal(before, doc) {
			t.Fatal("both a verifier and an error, or the document was changed")
		}
		if a != nil {
			for _, r := range a.Roles {
				if strings.HasPrefix(r, "_") {
					t.Errorf("role %q", r)
				}
			}
		}
		if v == nil {
			return
		}
		if v.rounds < 0 || v.rounds*max(1, len(v.key)/64) > maxRounds || len(v.key) < minKeyBytes {
			t.Fatalf("%d rounds, a key of %d bytes", v.rounds, len(v.key))
		}
		if v.rounds <= 100 {
			if _, err := v.matches("x"); err != nil {
				t.Error(err)
			}
		}
	})
}
