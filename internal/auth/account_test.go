package auth

import (
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/divandb/divan/internal/model"
)

// people is a set of accounts that tests change while it is in use.
type people struct {
	mu     sync.Mutex
	byName map[string]*Account
	fail   error
}

func (p *people) Account(_ context.Context, name string) (*Account, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.byName[name], p.fail
}

func (p *people) set(t testing.TB, name, version, password string, roles ...string) {
	t.Helper()
	v, err := newVerifier(password, 10)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byName[name] = &Account{Name: name, Version: version, Verifier: v, Roles: roles}
}

// withKey adds an API key.
func (p *people) withKey(t testing.TB) (name, password string) {
	t.Helper()
	name, password, hash := NewAPIKey()
	v, err := ParseVerifier(hash)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.byName[name] = &Account{Name: name, Version: "1", Verifier: v, Key: true}
	return name, password
}

func newPeople() *people { return &people{byName: map[string]*Account{}} }

func TestAccounts(t *testing.T) {
	t.Parallel()
	p := newPeople()
	p.set(t, "ann", "1-a", "pw", "clerk")
	p.set(t, "root", "1-a", "user's", "clerk")
	p.byName["mute"] = &Account{Name: "mute", Version: "1"}
	key, keyPassword := p.withKey(t)
	s, _ := newService(t, Options{Accounts: p})
	check := func(credentials string, want Identity, hashes int64) {
		t.Helper()
		before := s.hashed.Load()
		got, err := s.Authenticate(request(basic(credentials)))
		if want.Name == "" && !errors.Is(err, ErrIncorrect) || want.Name != "" && err != nil {
			t.Errorf("%s: %v", credentials, err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v", credentials, got)
		}
		if n := s.hashed.Load() - before; n != hashes {
			t.Errorf("%s: %d hashes, want %d", credentials, n, hashes)
		}
	}
	ann := Identity{Name: "ann", Roles: []string{"clerk"}, Method: MethodBasic}
	check("ann:pw", ann, 1)
	check("ann:pw", ann, 0)
	check("ann:no", Identity{}, 1)
	check("mute:", Identity{}, 1)
	check("mute:pw", Identity{}, 1)
	check("root:secret", Identity{Name: "root", Admin: true, Method: MethodBasic}, 1)
	check("root:user's", Identity{}, 1) // an administrator's name is no user's
	check(key+":"+keyPassword, Identity{Name: key, Key: true, Method: MethodBasic}, 0)
	check(key+":"+keyPassword[1:], Identity{}, 0)

	p.set(t, "ann", "2-b", "pw", "boss") // new roles, the same password, another salt
	ann.Roles = []string{"boss"}
	check("ann:pw", ann, 1)
	p.set(t, "ann", "3-c", "new", "boss")
	check("ann:pw", Identity{}, 1)
	check("ann:new", ann, 1)
	delete(p.byName, "ann")
	check("ann:new", Identity{}, 1)

	p.fail = errors.New("no database")
	if _, err := s.Authenticate(request(basic("ann:pw"))); !errors.Is(err, p.fail) {
		t.Errorf("accounts that cannot be read: %v", err)
	}
	check("root:secret", Identity{Name: "root", Admin: true, Method: MethodBasic}, 0)
}

// countingHash counts the digests that are made.
type countingHash struct {
	hash.Hash
	sums *int
}

func (h countingHash) Sum(b []byte) []byte { *h.sums++; return h.Hash.Sum(b) }

// A record with few rounds takes as many digests to refuse as a name that nobody
// has: how long an answer takes tells nothing.
func TestFewRoundsAreNotVisible(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, Options{Rounds: 1000})
	sums := 0
	s.nobody.prf = func() hash.Hash { return countingHash{sha256.New(), &sums} }
	digests := func(v *Verifier) int {
		sums = 0
		if ok, err := s.hash(v, "wrong"); ok || err != nil {
			t.Errorf("%v %v", ok, err)
		}
		return sums
	}
	want := digests(nil)
	if want < 1000 {
		t.Fatalf("%d digests for 1000 rounds", want)
	}
	same := &Verifier{prf: s.nobody.prf, rounds: 1000, salt: []byte("salt"), key: make([]byte, 32)}
	few := &Verifier{prf: s.nobody.prf, rounds: 10, salt: []byte("salt"), key: make([]byte, 32)}
	simple := &Verifier{scheme: sha1Scheme, salt: []byte("salt"), key: make([]byte, 20)}
	for name, v := range map[string]*Verifier{"as many": same, "few": few, "simple": simple} {
		if n := digests(v); n < want || n > want+want/100 {
			t.Errorf("%s: %d digests, %d for nobody", name, n, want)
		}
	}
}

func TestNewAPIKey(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	letters := map[rune]bool{}
	for range 200 {
		name, password, hash := NewAPIKey()
		if len(name) < 20 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") != "" || len(password) < 40 {
			t.Fatalf("%q %q", name, password)
		}
		if seen[name] || seen[password] || strings.Contains(hash, password) {
			t.Fatal("made twice, or stored in clear")
		}
		seen[name], seen[password] = true, true
		for _, r := range name {
			letters[r] = true
		}
		v, err := ParseVerifier(hash)
		if err != nil || !v.fast() || v.String() != hash {
			t.Fatal(hash, err)
		}
		if ok, _ := v.matches(password); !ok {
			t.Error("its own password is wrong")
		}
		if ok, _ := v.matches(password + "0"); ok {
			t.Error("another password is right")
		}
	}
	if len(letters) != 26 {
		t.Errorf("%d letters", len(letters))
	}
	// An administrator's password is never stored with a fast hash.
	_, _, hash := NewAPIKey()
	if _, err := New(&memory{admins: map[string]Admin{"x": {"x", hash}}}, Options{}); !errors.Is(err, errHash) {
		t.Errorf("an administrator with a fast hash: %v", err)
	}
}

func TestRemoveAdmin(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, m := newService(t, Options{})
	if err := s.RemoveAdmin("root"); model.KindOf(err) != model.KindForbidden {
		t.Errorf("the last one: %v", err)
	}
	if err := s.SetAdmin("ann", "pw"); err != nil {
		t.Fatal(err)
	}
	_, cookie, err := s.Login(ctx, "ann", "pw", netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	if got := s.AdminNames(); !reflect.DeepEqual(got, []string{"ann", "root"}) {
		t.Errorf("names %v", got)
	}
	if err := s.RemoveAdmin("bob"); model.KindOf(err) != model.KindNotFound {
		t.Errorf("one that is none: %v", err)
	}
	m.fail = errors.New("disk")
	if err := s.RemoveAdmin("ann"); !errors.Is(err, m.fail) || s.Admins() != 2 {
		t.Errorf("a failing store: %v", err)
	}
	m.fail = nil
	if err := s.RemoveAdmin("ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(ctx, "ann", "pw", netip.Addr{}); !errors.Is(err, ErrIncorrect) {
		t.Errorf("removed: %v", err)
	}
	if id, err := s.Authenticate(withCookie(cookie)); err != nil || id.Name != "" {
		t.Errorf("a session of one who was removed: %+v %v", id, err)
	}
	again, err := New(m, Options{})
	if err != nil || again.Admins() != 1 {
		t.Errorf("after a restart: %v", err)
	}
}

func TestRememberedAccountsAreBounded(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, Options{})
	for i := range rememberedAccounts * 5 / 4 {
		who := subject{id: Identity{Name: strings.Repeat("x", i%7) + string(rune(i))}, verifier: s.nobody, version: "1"}
		s.remember(&who, s.mac(who.id.Name, "x"))
	}
	if n := s.known.len(); n > rememberedAccounts+lruShards {
		t.Errorf("%d remembered", n)
	}
}

func BenchmarkAccountRemembered(b *testing.B) {
	p := newPeople()
	p.set(b, "ann", "1-a", "a password of some length", "clerk")
	s, _ := newService(b, Options{Accounts: p})
	r := request(basic("ann:a password of some length"))
	b.ReportAllocs()
	for b.Loop() {
		if id, err := s.Authenticate(r); err != nil || id.Name != "ann" {
			b.Fatal(id, err)
		}
	}
}

func BenchmarkAPIKey(b *testing.B) {
	p := newPeople()
	name, password := p.withKey(b)
	s, _ := newService(b, Options{Accounts: p})
	r := request(basic(name + ":" + password))
	b.ReportAllocs()
	for b.Loop() {
		if id, err := s.Authenticate(r); err != nil || !id.Key {
			b.Fatal(id, err)
		}
	}
}
