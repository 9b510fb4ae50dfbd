package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

func withCookie(value string) *http.Request {
	r, _ := http.NewRequest("GET", "/", nil)
	r.AddCookie(&http.Cookie{Name: SessionCookie, Value: value})
	return r
}

func TestSession(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	s, err := New(&memory{admins: map[string]Admin{}}, Options{Rounds: 1, SessionKey: []byte("key"), Now: func() time.Time { return now }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetAdmin("ann", "pw"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.Login(context.Background(), "ann", "no", netip.Addr{}); !errors.Is(err, ErrIncorrect) {
		t.Fatalf("a wrong password: %v", err)
	}
	_, value, err := s.Login(context.Background(), "ann", "pw", netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	who := func(v string) Identity {
		t.Helper()
		id, err := s.Authenticate(withCookie(v))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	if id := who(value); id.Name != "ann" || !id.Admin || !id.Session || id.Renew != "" {
		t.Errorf("fresh: %+v", id)
	}
	now = now.Add(2 * time.Minute)
	renewed := who(value).Renew
	if renewed == "" || renewed == value {
		t.Error("a used session is not renewed")
	}
	now = now.Add(9 * time.Minute)
	if id := who(value); id.Name != "" {
		t.Errorf("after its end: %+v", id)
	}
	if id := who(renewed); id.Name != "ann" {
		t.Errorf("renewed: %+v", id)
	}
	// Every changed character makes it nobody's or malformed, never somebody's.
	for i := range renewed {
		bad := []byte(renewed)
		bad[i] ^= 1
		if id, err := s.Authenticate(withCookie(string(bad))); err == nil && id.Name != "" {
			if dec, derr := base64.RawURLEncoding.DecodeString(string(bad)); derr == nil {
				orig, _ := base64.RawURLEncoding.DecodeString(renewed)
				if string(dec) == string(orig) {
					continue // unused bits at the end
				}
			}
			t.Fatalf("a forged cookie is %+v", id)
		}
	}
	for _, bad := range []string{"x", "%%%", strings.Repeat("A", 100)} {
		if _, err := s.Authenticate(withCookie(bad)); err == nil {
			t.Errorf("cookie %q was read", bad)
		}
	}
	if err := s.SetAdmin("ann", "new"); err != nil {
		t.Fatal(err)
	}
	if id := who(renewed); id.Name != "" {
		t.Error("a session outlives its password")
	}
}

func TestSessionsOfAccounts(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	now := time.Unix(1_800_000_000, 0)
	p := newPeople()
	p.set(t, "ann", "1-a", "pw", "clerk")
	p.set(t, "co:lon", "1-a", "pw")
	key, keyPassword := p.withKey(t)
	s, _ := newService(t, Options{Accounts: p, SessionLife: time.Hour, SessionKey: []byte("key"), Now: func() time.Time { return now }})
	login := func(name, password string) string {
		t.Helper()
		id, cookie, err := s.Login(ctx, name, password, netip.Addr{})
		if err != nil || id.Name != name {
			t.Fatalf("%s: %+v %v", name, id, err)
		}
		return cookie
	}
	who := func(cookie string) Identity {
		t.Helper()
		id, err := s.Authenticate(withCookie(cookie))
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	ann := login("ann", "pw")
	want := Identity{Name: "ann", Roles: []string{"clerk"}, Method: MethodCookie, Session: true}
	if id := who(ann); !reflect.DeepEqual(id, want) {
		t.Errorf("%+v", id)
	}
	if id := who(login("co:lon", "pw")); id.Name != "co:lon" || id.Admin {
		t.Errorf("a name with a colon: %+v", id)
	}
	if id, _, err := s.Login(ctx, key, keyPassword, netip.Addr{}); err != nil || !id.Key {
		t.Errorf("login of a key: %+v %v", id, err)
	}
	if id := who(login(key, keyPassword)); !id.Key || id.Name != key {
		t.Errorf("session of a key: %+v", id)
	}
	// The life is configured, renewal comes after a tenth.
	now = now.Add(6 * time.Minute)
	if id := who(ann); id.Renew != "" {
		t.Error("renewed within a tenth of its life")
	}
	now = now.Add(time.Second)
	if id := who(ann); id.Renew == "" || who(id.Renew).Name != "ann" {
		t.Error("not renewed after a tenth of its life")
	}
	now = now.Add(54*time.Minute - 2*time.Second)
	if who(ann).Name != "ann" {
		t.Error("over before its end")
	}
	now = now.Add(time.Second)
	if who(ann).Name != "" {
		t.Error("not over at its end")
	}
	// A clock that is set back a little does no harm, and far back gives no endless session.
	ann = login("ann", "pw")
	now = now.Add(-time.Hour)
	if who(ann).Name != "ann" {
		t.Error("a session of a clock ahead is not honoured")
	}
	now = now.Add(-time.Second)
	if who(ann).Name != "" {
		t.Error("a session from the far future")
	}
	// Roles are the present ones; a new record with the same secrets keeps the session.
	ann = login("ann", "pw")
	changed := *p.byName["ann"]
	changed.Roles, changed.Version = []string{"boss"}, "2-b"
	p.byName["ann"] = &changed
	if id := who(ann); !reflect.DeepEqual(id.Roles, []string{"boss"}) {
		t.Errorf("roles %v", id.Roles)
	}
	// A new password ends it, and an administrator of the name takes nothing over.
	p.set(t, "ann", "3-c", "new")
	if who(ann).Name != "" {
		t.Error("a session outlives its password")
	}
	ann = login("ann", "new")
	if err := s.SetAdmin("ann", "new"); err != nil {
		t.Fatal(err)
	}
	if id := who(ann); id.Name != "" {
		t.Errorf("a user's session became an administrator's: %+v", id)
	}
	p.fail = errors.New("no database")
	if _, err := s.Authenticate(withCookie(login("root", "secret"))); err != nil {
		t.Errorf("an administrator needs no accounts: %v", err)
	}
	if _, err := s.Authenticate(withCookie(s.cookie(&subject{id: Identity{Name: "x"}, verifier: s.nobody}))); !errors.Is(err, p.fail) {
		t.Errorf("accounts that cannot be read: %v", err)
	}
	p.fail = nil
	// What is stored for no name seals nothing.
	if id := who(s.cookie(&subject{id: Identity{Name: "ghost"}, verifier: s.nobody})); !reflect.DeepEqual(id, Identity{}) {
		t.Errorf("a session of nobody: %+v", id)
	}
}

// slowPeople changes a password while it is being checked.
type slowPeople struct {
	*people
	after func()
}

func (p *slowPeople) Account(ctx context.Context, name string) (*Account, error) {
	a, err := p.people.Account(ctx, name)
	if p.after != nil {
		p.after()
	}
	return a, err
}

// A login with the old password, while a new one is set, opens nothing.
func TestLoginDuringAChange(t *testing.T) {
	t.Parallel()
	p := &slowPeople{people: newPeople()}
	p.set(t, "ann", "1", "old")
	s, _ := newService(t, Options{Accounts: p})
	p.after = func() { p.set(t, "ann", "2", "new") }
	_, cookie, err := s.Login(context.Background(), "ann", "old", netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	p.after = nil
	if id, err := s.Authenticate(withCookie(cookie)); err != nil || id.Name != "" {
		t.Errorf("%+v %v", id, err)
	}
	if _, err := s.Check(context.Background(), "ann", "old", netip.Addr{}); !errors.Is(err, ErrIncorrect) {
		t.Errorf("the old password is remembered for the new record: %v", err)
	}
}

func TestMalformedCookies(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, Options{})
	seal := strings.Repeat("m", 32)
	for name, raw := range map[string]string{
		"only a seal": seal, "no colons": "root6543210" + seal, "no name": ":65432100:" + seal, "no time": "root::" + seal,
		"no hex": "root:xyz:" + seal, "too large": "root:ffffffffffffffffff:" + seal, "one colon": "root:" + seal, "long": strings.Repeat("x", 5000) + ":1:" + seal,
	} {
		r := withCookie(base64.RawURLEncoding.EncodeToString([]byte(raw)))
		r.Header.Set("Authorization", basic("root:secret")) // good credentials do not heal it
		if id, err := s.Authenticate(r); !errors.Is(err, errCookie) {
			t.Errorf("%s: %+v %v", name, id, err)
		}
	}
	for _, raw := range []string{"root:1:" + seal, "ghost:1:" + seal, "root:7fffffffffffffff:" + seal, "root:-7fffffffffffffff:" + seal} {
		r := withCookie(base64.RawURLEncoding.EncodeToString([]byte(raw)))
		if id, err := s.Authenticate(r); err != nil || id.Name != "" {
			t.Errorf("%q: %+v %v", raw, id, err)
		}
		r.Header.Set("Authorization", basic("root:secret"))
		if id, err := s.Authenticate(r); err != nil || id.Method != MethodBasic {
			t.Errorf("%q with good credentials: %+v %v", raw, id, err)
		}
	}
}

// No cookie that was not made by the service is somebody's.
func FuzzCookie(f *testing.F) {
	p := newPeople()
	p.set(f, "ann", "1", "pw")
	s, _ := newService(f, Options{Accounts: p, SessionKey: []byte("key")})
	_, good, err := s.Login(context.Background(), "ann", "pw", netip.Addr{})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(base64.RawURLEncoding.EncodeToString([]byte("root:1:" + strings.Repeat("m", 32))))
	f.Fuzz(func(t *testing.T, value string) {
		r, _ := http.NewRequest("GET", "/", nil)
		r.Header.Set("Cookie", SessionCookie+"="+value)
		id, err := s.Authenticate(r)
		if err != nil && !errors.Is(err, errCookie) {
			t.Fatal(err)
		}
		if id.Name != "" && (err != nil || strings.Trim(strings.Split(value, ";")[0], ` "`+"\t") != good) {
			t.Fatalf("%q is %+v", value, id)
		}
	})
}

func BenchmarkSession(b *testing.B) {
	p := newPeople()
	p.set(b, "ann", "1", "pw")
	s, _ := newService(b, Options{Accounts: p, SessionLife: time.Hour})
	_, cookie, err := s.Login(context.Background(), "ann", "pw", netip.Addr{})
	if err != nil {
		b.Fatal(err)
	}
	r := withCookie(cookie)
	b.ReportAllocs()
	for b.Loop() {
		if id, err := s.Authenticate(r); err != nil || id.Name != "ann" {
			b.Fatal(id, err)
		}
	}
}
