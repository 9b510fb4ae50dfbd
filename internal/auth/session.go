package auth

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/divandb/divan/internal/model"
)

// SessionCookie is the name of the cookie that stands for a login.
const SessionCookie = "AuthSession"

// maxCookie bounds the value of a session cookie.
const maxCookie = 4096

var errCookie = model.BadRequest("Malformed AuthSession cookie. Please clear your cookies.")

// cookieText is strict, so that a session has one value only.
var cookieText = base64.RawURLEncoding.Strict()

// SessionLife tells how long a login lasts when nobody uses it.
func (s *Service) SessionLife() time.Duration { return s.o.SessionLife }

// Login checks a name and a password, as Check does, and opens a session: the value
// of its cookie.
func (s *Service) Login(ctx context.Context, name, password string, from netip.Addr) (Identity, string, error) {
	// The cookie is sealed for the password that was checked: should it change
	// meanwhile, the session is over before it begins.
	who, err := s.check(ctx, name, password, from)
	if err != nil {
		return Identity{}, "", err
	}
	return who.id, s.cookie(&who), nil
}

// cookie makes the value of a session cookie: name, time of issue, and a MAC over
// both and over what is stored of the password, so that a new one ends every
// session.
func (s *Service) cookie(who *subject) string {
	text := who.id.Name + ":" + strconv.FormatInt(s.o.Now().Unix(), 16)
	seal := s.seal(text, who.verifier)
	return cookieText.EncodeToString(append([]byte(text+":"), seal[:]...))
}

func (s *Service) seal(text string, v *Verifier) [sha256.Size]byte {
	r := s.seals.room()
	r.text = append(append(r.text, text...), 0)
	r.text = append(strconv.AppendInt(r.text, int64(len(v.salt)), 10), 0)
	r.text = append(append(r.text, v.salt...), v.key...)
	return s.seals.sum(r)
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
	if len(c.Value) > maxCookie {
		return Identity{}, errCookie
	}
	raw, err := cookieText.DecodeString(c.Value)
	if err != nil || len(raw) <= sha256.Size {
		return Identity{}, errCookie
	}
	split := len(raw) - sha256.Size - 1
	text, mac := string(raw[:split]), raw[split+1:]
	at := strings.LastIndexByte(text, ':') // a name may have colons
	if at < 1 || raw[split] != ':' {
		return Identity{}, errCookie
	}
	issued, err := strconv.ParseInt(text[at+1:], 16, 64)
	if err != nil {
		return Identity{}, errCookie
	}
	who, err := s.find(r.Context(), text[:at])
	if err != nil {
		return Identity{}, err
	}
	verifier := who.verifier
	if verifier == nil {
		verifier = s.nobody // as much work as for a name that exists
	}
	seal := s.seal(text, verifier)
	if !hmac.Equal(mac, seal[:]) || who.verifier == nil {
		return Identity{}, nil
	}
	age := s.o.Now().Sub(time.Unix(issued, 0))
	if age >= s.o.SessionLife || age < -s.o.SessionLife { // a clock that was set back gives no endless session
		return Identity{}, nil
	}
	id := who.id
	id.Method, id.Session = MethodCookie, true
	if age > s.o.SessionLife/10 {
		id.Renew = s.cookie(&who)
	}
	return id, nil
}
