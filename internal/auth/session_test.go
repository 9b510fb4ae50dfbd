package auth

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"net/netip"
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
