package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/divandb/divan/internal/model"
)

// SessionCookie is the name of the cookie that stands for a login.
const SessionCookie = "AuthSession"

// SessionLife is how long a login lasts when nobody uses it.
const SessionLife = 10 * time.Minute

// renewAfter is the age from which a session that is used gets a new cookie.
const renewAfter = SessionLife / 10

var errCookie = model.BadRequest("Malformed AuthSession cookie. Please clear your cookies.")

// Login checks a name and a password and opens a session: the value of its cookie.
func (s *Service) Login(ctx context.Context, name, password string) (Identity, string, error) {
	id, err := s.Check(ctx, name, password)
	if err != nil {
		return Identity{}, "", err
	}
	return id, s.cookie(id.Name), nil
}

// cookie makes the value of a session cookie: name, end, and a MAC over both and
// the salt of the password, so that a new password ends every session.
func (s *Service) cookie(name string) string {
	a := (*s.admins.Load())[name]
	if a == nil {
		return "" // removed since it was checked
	}
	end := strconv.FormatInt(s.o.Now().Add(SessionLife).Unix(), 16)
	text := name + ":" + end
	return base64.RawURLEncoding.EncodeToString(append([]byte(text+":"), s.sign(text, a)...))
}

func (s *Service) sign(text string, a *admin) []byte {
	h := hmac.New(sha256.New, s.o.SessionKey)
	h.Write([]byte(text))
	h.Write([]byte{0})
	h.Write(a.hash.salt)
	return h.Sum(nil)
}

// session says whose session the request's cookie is; the zero Identity when it has
// none, or one that is over.
func (s *Service) session(r *http.Request) (Identity, error) {
	if len(r.Header["Cookie"]) == 0 {
		return Identity{}, nil
	}
	c, err := r.Cookie(SessionCookie)
	if err != nil || c.Value == "" {
		return Identity{}, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(c.Value)
	if err != nil || len(raw) <= sha256.Size {
		return Identity{}, errCookie
	}
	text, mac := raw[:len(raw)-sha256.Size-1], raw[len(raw)-sha256.Size:]
	name, end, ok := strings.Cut(string(text), ":")
	until, perr := strconv.ParseInt(end, 16, 64)
	if !ok || perr != nil || raw[len(text)] != ':' {
		return Identity{}, errCookie
	}
	a := (*s.admins.Load())[name]
	if a == nil || !hmac.Equal(mac, s.sign(string(text), a)) {
		return Identity{}, nil
	}
	left := time.Unix(until, 0).Sub(s.o.Now())
	if left <= 0 {
		return Identity{}, nil
	}
	id := Identity{Name: name, Admin: true, Session: true}
	if left < SessionLife-renewAfter {
		id.Renew = s.cookie(name)
	}
	return id, nil
}
