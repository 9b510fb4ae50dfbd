package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/model"
)

// memory is a Store that counts.
type memory struct {
	admins map[string]Admin
	saves  int
	fail   error
}

func (m *memory) LoadAdmins() ([]Admin, error) {
	var list []Admin
	for _, a := range m.admins {
		list = append(list, a)
	}
	return list, m.fail
}

func (m *memory) SaveAdmin(a Admin) error {
	if m.fail != nil {
		return m.fail
	}
	m.saves++
	m.admins[a.Name] = a
	return nil
}

func (m *memory) DeleteAdmin(name string) error {
	if m.fail != nil {
		return m.fail
	}
	delete(m.admins, name)
	return nil
}

// newService makes one with the administrator root:secret.
func newService(t testing.TB, o Options) (*Service, *memory) {
	t.Helper()
	if o.Rounds == 0 {
		o.Rounds = 10
	}
	m := &memory{admins: map[string]Admin{}}
	s, err := New(m, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetAdmin("root", "secret"); err != nil {
		t.Fatal(err)
	}
	return s, m
}

func request(header string) *http.Request {
	r := httptest.NewRequest("GET", "/", nil)
	if header != "" {
		r.Header.Set("Authorization", header)
	}
	return r
}

func basic(s string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(s)) }

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, Options{})
	root := Identity{Name: "root", Admin: true, Method: MethodBasic}
	for _, c := range []struct {
		name, header string
		want         Identity
		kind         model.Kind
		reason       string
	}{
		{"none", "", Identity{}, 0, ""},
		{"right", basic("root:secret"), root, 0, ""},
		{"right again, remembered", basic("root:secret"), root, 0, ""},
		{"scheme in small letters", "basic " + strings.TrimPrefix(basic("root:secret"), "Basic "), root, 0, ""},
		{"wrong password", basic("root:Secret"), Identity{}, model.KindUnauthorized, "Name or password is incorrect."},
		{"longer password", basic("root:secret "), Identity{}, model.KindUnauthorized, "Name or password is incorrect."},
		{"empty password", basic("root:"), Identity{}, model.KindUnauthorized, "Name or password is incorrect."},
		{"unknown name", basic("toor:secret"), Identity{}, model.KindUnauthorized, "Name or password is incorrect."},
		{"name in capitals", basic("Root:secret"), Identity{}, model.KindUnauthorized, "Name or password is incorrect."},
		{"empty both", basic(":"), Identity{}, model.KindUnauthorized, "Name or password is incorrect."},
		{"scheme with a colon", "Basic: xxx", Identity{}, 0, ""},
		{"other scheme", "Bearer abc", Identity{}, 0, ""},
		{"only a word", "Basic", Identity{}, 0, ""},
		{"no base64", "Basic %%%", Identity{}, model.KindBadRequest, "Authorization header has invalid base64 value"},
		{"cut base64", "Basic cm9vd", Identity{}, model.KindBadRequest, "Authorization header has invalid base64 value"},
		{"no colon", basic("root"), Identity{}, 0, ""},
		{"logged out", basic("_:_"), Identity{}, 0, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := s.Authenticate(request(c.header))
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("identity %+v, want %+v", got, c.want)
			}
			if c.kind == 0 {
				if err != nil {
					t.Errorf("error %v", err)
				}
				return
			}
			var e *model.Error
			if !errors.As(err, &e) || e.Kind != c.kind || e.Reason != c.reason {
				t.Errorf("error %v, want kind %d %q", err, c.kind, c.reason)
			}
		})
	}
}

func TestRememberedForAWhile(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	s, _ := newService(t, Options{Keep: time.Minute, Now: func() time.Time { return now }})
	check := func(password string, hashes int64) {
		t.Helper()
		before := s.hashed.Load()
		_, err := s.Check(context.Background(), "root", password, netip.Addr{})
		if (err == nil) != (password == "secret") {
			t.Errorf("%s: %v", password, err)
		}
		if n := s.hashed.Load() - before; n != hashes {
			t.Errorf("%s: %d hashes, want %d", password, n, hashes)
		}
	}
	check("secret", 1)
	check("secret", 0)
	check("wrong", 1) // does not make the server forget the right one
	check("wrong", 1)
	check("secret", 0)
	now = now.Add(59 * time.Second)
	check("secret", 0)
	now = now.Add(time.Second)
	check("secret", 1)
}

func TestSetAdmin(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	s, m := newService(t, Options{})
	if _, err := s.Check(ctx, "root", "secret", netip.Addr{}); err != nil {
		t.Fatal(err)
	}
	if err := s.SetAdmin("root", "secret"); err != nil || m.saves != 1 {
		t.Errorf("the same password again: %v, %d saves", err, m.saves)
	}
	if err := s.SetAdmin("root", "other"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Check(ctx, "root", "secret", netip.Addr{}); !errors.Is(err, ErrIncorrect) {
		t.Errorf("the old password, remembered before: %v", err)
	}
	if _, err := s.Check(ctx, "root", "other", netip.Addr{}); err != nil {
		t.Errorf("the new password: %v", err)
	}
	if err := s.SetAdmin("second", "x"); err != nil || s.Admins() != 2 {
		t.Errorf("a second one: %v, %d", err, s.Admins())
	}
	for _, h := range m.admins {
		if strings.Contains(h.Hash, "other") || !strings.HasPrefix(h.Hash, "pbkdf2-sha256$10$") {
			t.Errorf("stored as %s", h.Hash)
		}
	}
	again, err := New(m, Options{Rounds: 20})
	if err != nil {
		t.Fatal(err)
	}
	if id, err := again.Check(ctx, "root", "other", netip.Addr{}); err != nil || !id.Admin {
		t.Errorf("after a restart: %+v %v", id, err)
	}
	for _, bad := range [][2]string{{"", "x"}, {"x", ""}, {"a:b", "x"}} {
		if err := s.SetAdmin(bad[0], bad[1]); model.KindOf(err) != model.KindBadRequest {
			t.Errorf("SetAdmin(%q, %q): %v", bad[0], bad[1], err)
		}
	}
	m.fail = errors.New("disk")
	if err := s.SetAdmin("root", "third"); !errors.Is(err, m.fail) {
		t.Errorf("a failing store: %v", err)
	}
	if _, err := s.Check(ctx, "root", "other", netip.Addr{}); err != nil {
		t.Errorf("after a failed change the old password must stay: %v", err)
	}
	if _, err := New(m, Options{}); !errors.Is(err, m.fail) {
		t.Errorf("load from a failing store: %v", err)
	}
	if _, err := New(&memory{admins: map[string]Admin{"x": {"x", "plain"}}}, Options{}); !errors.Is(err, errHash) {
		t.Errorf("a hash that is none: %v", err)
	}
}

// A flood of wrong passwords runs few hashes at a time, lets few wait, and never
// stands in the way of credentials that are remembered.
func TestFlood(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, Options{Hashers: 1, Waiters: 3})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if _, err := s.Check(ctx, "root", "secret", netip.Addr{}); err != nil {
		t.Fatal(err)
	}
	s.slots <- struct{}{} // a hash that takes for ever
	var wait sync.WaitGroup
	results := make(chan error, 3)
	for range 3 {
		wait.Go(func() { _, err := s.Check(ctx, "root", "wrong", netip.Addr{}); results <- err })
	}
	for s.waiting.Load() < 3 {
		time.Sleep(time.Millisecond) // the goroutines say nothing when they begin to wait
	}
	if _, err := s.Check(ctx, "nobody", "wrong", netip.Addr{}); !errors.Is(err, ErrBusy) {
		t.Errorf("one more than may wait: %v", err)
	}
	if _, err := s.Check(ctx, "root", "secret", netip.Addr{}); err != nil {
		t.Errorf("remembered credentials during a flood: %v", err)
	}
	cancel() // the clients go away
	wait.Wait()
	for range 3 {
		if err := <-results; !errors.Is(err, context.Canceled) {
			t.Errorf("a waiter whose client left: %v", err)
		}
	}
	<-s.slots
	if _, err := s.Check(context.Background(), "root", "wrong", netip.Addr{}); !errors.Is(err, ErrIncorrect) {
		t.Errorf("after the flood: %v", err)
	}
	if n := s.waiting.Load(); n != 0 {
		t.Errorf("%d still wait", n)
	}
}

// Many first requests with the same right credentials cost one hash per slot at
// the most, not one each.
func TestFirstRequestsShareAHash(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, Options{Hashers: 1, Rounds: 1000})
	var wait sync.WaitGroup
	for range 50 {
		wait.Go(func() {
			if _, err := s.Authenticate(request(basic("root:secret"))); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	if n := s.hashed.Load(); n != 1 {
		t.Errorf("%d hashes", n)
	}
}

func FuzzParseVerifier(f *testing.F) {
	good, err := HashPassword("x", 1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add("pbkdf2-sha256$1$$")
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseVerifier(s)
		if err != nil {
			return
		}
		if again, err := ParseVerifier(h.String()); err != nil || again.String() != h.String() {
			t.Errorf("%q: %v", s, err)
		}
	})
}

func BenchmarkRemembered(b *testing.B) {
	s, _ := newService(b, Options{})
	r := request(basic("admin-name:a password of some length"))
	if err := s.SetAdmin("admin-name", "a password of some length"); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if id, err := s.Authenticate(r); err != nil || !id.Admin {
			b.Fatal(id, err)
		}
	}
}

func BenchmarkHash(b *testing.B) {
	for b.Loop() {
		if _, err := newVerifier("secret", DefaultRounds); err != nil {
			b.Fatal(err)
		}
	}
}
