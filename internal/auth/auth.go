// Package auth says who asks. It knows the server administrators, kept in a Store
// with salted PBKDF2-SHA256 hashes of their passwords; users and API keys, found
// through Accounts; and tokens of identity providers. It reads the credentials of a
// request: a session cookie, basic credentials, a bearer token. What a caller may do
// is decided above, by the column of the route table and a database's Security.
//
// A hash costs some hundred milliseconds of CPU on purpose. So that this is paid
// neither per request nor by everybody else:
//   - A password that was right is remembered for a while as a MAC under a key
//     that only this process has: a later request costs one HMAC.
//   - Few hashes run at one time and few callers wait for one; the rest is told
//     to come back. A flood of wrong passwords takes a bounded share of the CPU,
//     and callers whose credentials are remembered never queue behind it.
//   - Who fails again and again is refused without a hash (lockout.go).
//
// DESIGN.md says what was decided and why.
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divandb/divan/internal/model"
)

// Options sets up a Service. The zero value is good.
type Options struct {
	Rounds  int              // of PBKDF2 for new hashes; default 600,000
	Keep    time.Duration    // how long a right password is remembered; default 5 minutes
	Hashers int              // hashes that may run at one time; default half of the cores
	Waiters int              // callers that may wait for a hash; default 256
	Now     func() time.Time // default time.Now
	// Accounts finds users and API keys. Default: there are none.
	Accounts Accounts
	// SessionKey signs session cookies. Default: one of this process, whose sessions
	// end with it.
	SessionKey []byte
	// SessionLife is how long a login lasts when nobody uses it. Default 10 minutes.
	SessionLife time.Duration
	// LockAfter is how many wrong passwords for one name from one address lock the
	// name for that address. Default 5; negative: never.
	LockAfter int
	// LockFor is how long it stays locked since the last wrong password. Default 5
	// minutes.
	LockFor time.Duration
	// AddressFailures is how many wrong passwords per minute one address may send,
	// whatever the names. Default 50; negative: any number.
	AddressFailures int
	// JWT says whose bearer tokens are believed. Without keys they are not looked at.
	JWT JWTOptions
}

// DefaultRounds is what OWASP recommends for PBKDF2 with SHA-256.
const DefaultRounds = 600_000

// rememberedAccounts bounds the right passwords that are remembered.
const rememberedAccounts = 10_000

func (o Options) withDefaults() Options {
	if o.Rounds <= 0 {
		o.Rounds = DefaultRounds
	}
	o.Rounds = min(o.Rounds, maxRounds)
	if o.Keep <= 0 {
		o.Keep = 5 * time.Minute
	}
	if o.Hashers <= 0 {
		// Half of the cores: the other half keeps serving whoever is known.
		o.Hashers = max(1, runtime.GOMAXPROCS(0)/2)
	}
	if o.Waiters <= 0 {
		o.Waiters = 256
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if len(o.SessionKey) == 0 {
		o.SessionKey = []byte(rand.Text())
	}
	if o.SessionLife <= 0 {
		o.SessionLife = 10 * time.Minute
	}
	return o
}

// The ways to be known: the names that GET /_session shows.
const (
	MethodCookie = "cookie"
	MethodBasic  = "default"
	MethodJWT    = "jwt"
)

// Identity is who asks. The zero value is anonymous.
type Identity struct {
	Name  string
	Admin bool // a server administrator
	// Roles are those of the account or token, without `_admin`, which Admin says.
	// They are shared: not to be changed.
	Roles   []string
	Key     bool   // an API key
	Method  string // how it is known; empty for anonymous
	Session bool   // known by a session cookie
	Renew   string // the value of a new session cookie to be sent; usually empty
}

// ErrIncorrect is the answer to wrong credentials. It does not tell whether the
// name exists.
var ErrIncorrect = &model.Error{Kind: model.KindUnauthorized, Name: "unauthorized", Reason: "Name or password is incorrect."}

// ErrBusy is the answer to credentials that cannot be checked now.
var ErrBusy = &model.Error{Kind: model.KindUnavailable, Name: "service_unavailable", Reason: "Too many passwords are being checked; try again."}

var errBase64 = model.BadRequest("Authorization header has invalid base64 value")

// Service checks credentials. Its methods may be called concurrently.
type Service struct {
	o       Options
	store   Store
	admins  atomic.Pointer[map[string]*admin]
	change  sync.Mutex // one change of the administrators at a time
	nobody  *Verifier
	macs    *keyedHash // of passwords, to remember them
	seals   *keyedHash // of session cookies
	known   *lru[rememberKey, *remembered]
	guard   *guard
	tokens  *tokenVerifier // nil: bearer tokens are not looked at
	slots   chan struct{}
	waiting atomic.Int64
	hashed  atomic.Int64 // hashes run, for tests
}

// rememberKey is one state of one account.
type rememberKey struct{ name, version string }

// remembered is the MAC of a password that was right.
type remembered struct {
	mac   [sha256.Size]byte
	until time.Time
}

// New loads the administrators.
func New(store Store, o Options) (*Service, error) {
	o = o.withDefaults()
	s := &Service{o: o, store: store, slots: make(chan struct{}, o.Hashers),
		known: newLRU[rememberKey, *remembered](rememberedAccounts), guard: newGuard(o), seals: newKeyedHash(o.SessionKey)}
	if err := s.loadAdmins(); err != nil {
		return nil, err
	}
	var err error
	if s.tokens, err = newTokenVerifier(o.JWT, o.Now); err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	// A name that nobody has is checked against this, so that it takes as long.
	s.nobody = &Verifier{prf: sha256.New, rounds: o.Rounds, salt: []byte(rand.Text()), key: []byte(rand.Text())}
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails: crypto/rand ends the process instead
	s.macs = newKeyedHash(key[:])
	return s, nil
}

// Authenticate reads the credentials of a request: a session cookie, basic
// credentials or a bearer token, in this order. None, or a scheme that is not known
// (`Basic:` with a colon is none), is anonymous and no error.
func (s *Service) Authenticate(r *http.Request) (Identity, error) {
	if id, err := s.session(r); err != nil || id.Name != "" {
		return id, err
	}
	header := r.Header["Authorization"]
	if len(header) == 0 {
		return Identity{}, nil
	}
	scheme, credentials, ok := strings.Cut(header[0], " ")
	switch {
	case !ok:
		return Identity{}, nil
	case strings.EqualFold(scheme, "Basic"):
		return s.basic(r, strings.TrimSpace(credentials))
	case strings.EqualFold(scheme, "Bearer") && s.tokens != nil:
		return s.tokens.identity(strings.TrimSpace(credentials))
	}
	return Identity{}, nil
}

// basic reads basic credentials.
func (s *Service) basic(r *http.Request, encoded string) (Identity, error) {
	decoded, err := base64.StdEncoding.DecodeString(encoded)
	if err != nil {
		return Identity{}, errBase64
	}
	name, password, ok := strings.Cut(string(decoded), ":")
	if !ok || name == "_" && password == "_" {
		return Identity{}, nil // "_:_" is how a browser is made to forget credentials
	}
	return s.Check(r.Context(), name, password, ClientAddr(r.RemoteAddr))
}

// subject is whoever has a name. The zero value is nobody.
type subject struct {
	id       Identity
	verifier *Verifier
	admin    *admin // set for an administrator
	version  string // of an account
}

// find gives whoever has a name. Administrators come first: no user can take the
// name of one.
func (s *Service) find(ctx context.Context, name string) (subject, error) {
	if a := (*s.admins.Load())[name]; a != nil {
		return subject{id: Identity{Name: a.name, Admin: true}, verifier: a.verifier, admin: a}, nil
	}
	if s.o.Accounts == nil || name == "" {
		return subject{}, nil
	}
	a, err := s.o.Accounts.Account(ctx, name)
	if err != nil {
		return subject{}, fmt.Errorf("auth: find an account: %w", err)
	}
	if a == nil || a.Verifier == nil {
		return subject{}, nil
	}
	return subject{id: Identity{Name: a.Name, Roles: a.Roles, Key: a.Key}, verifier: a.Verifier, version: a.Version}, nil
}

// Known tells whether somebody with a password has this name.
func (s *Service) Known(ctx context.Context, name string) bool {
	who, err := s.find(ctx, name)
	return err == nil && who.verifier != nil
}

// Check says who has this name and password; ErrIncorrect if nobody. from is the
// address of the client, as ClientAddr gives it; the zero address is never locked.
func (s *Service) Check(ctx context.Context, name, password string, from netip.Addr) (Identity, error) {
	who, err := s.check(ctx, name, password, from)
	return who.id, err
}

// check gives the subject as it was when the password was checked.
func (s *Service) check(ctx context.Context, name, password string, from netip.Addr) (subject, error) {
	if s.guard.locked(name, from, 0) {
		return subject{}, ErrLocked
	}
	who, err := s.find(ctx, name)
	if err != nil {
		return subject{}, err
	}
	who.id.Method = MethodBasic
	if who.verifier.fast() {
		ok, err := who.verifier.matches(password)
		if err != nil || !ok {
			s.guard.failed(name, from)
			return subject{}, incorrect(err)
		}
		s.guard.passed(name, from)
		return who, nil
	}
	mac := s.mac(name, password)
	right, wrong := s.recall(&who, &mac)
	if right {
		s.guard.passed(name, from)
		return who, nil
	}
	// A password that differs from the remembered one counts as a failure at once,
	// whatever comes of it below. Otherwise somebody who keeps the queue full, or goes
	// away while waiting, could try passwords against the memory without end.
	own := 0
	if wrong {
		s.guard.failed(name, from)
		own = 1
	}
	if s.guard.throttled(from, own) {
		return subject{}, ErrTooMany
	}
	if err := s.enter(ctx); err != nil {
		return subject{}, err
	}
	defer s.leave()
	// While this one waited, others have failed, or done the same work.
	if s.guard.locked(name, from, own) {
		return subject{}, ErrLocked
	}
	if right, _ = s.recall(&who, &mac); !right {
		ok, err := s.hash(who.verifier, password)
		if err != nil || !ok {
			if own == 0 {
				s.guard.failed(name, from)
			}
			return subject{}, incorrect(err)
		}
		s.remember(&who, mac)
	}
	s.guard.passed(name, from)
	return who, nil
}

// incorrect is ErrIncorrect, unless the check itself went wrong.
func incorrect(err error) error {
	if err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	return ErrIncorrect
}

// hash checks a password in the slot of the caller. A wrong one takes as long as one
// for a name that nobody has, even where an old record has few rounds.
func (s *Service) hash(v *Verifier, password string) (bool, error) {
	s.hashed.Add(1)
	rest := *s.nobody
	if v != nil {
		ok, err := v.matches(password)
		if ok || err != nil {
			return ok, err
		}
		rest.rounds -= v.rounds
	}
	if rest.rounds > 0 {
		if _, err := rest.matches(password); err != nil {
			return false, err
		}
	}
	return false, nil
}

// recall compares mac with that of the password that was right a while ago. Neither
// right nor wrong: none is remembered.
func (s *Service) recall(who *subject, mac *[sha256.Size]byte) (right, wrong bool) {
	var k *remembered
	switch {
	case who.admin != nil:
		k = who.admin.known.Load()
	case who.verifier != nil:
		k, _ = s.known.get(rememberKey{who.id.Name, who.version})
	}
	if k == nil || !s.o.Now().Before(k.until) {
		return false, false
	}
	right = subtle.ConstantTimeCompare(k.mac[:], mac[:]) == 1
	return right, !right
}

// remember keeps the MAC of a right password.
func (s *Service) remember(who *subject, mac [sha256.Size]byte) {
	k := &remembered{mac: mac, until: s.o.Now().Add(s.o.Keep)}
	if who.admin != nil {
		who.admin.known.Store(k)
		return
	}
	s.known.put(rememberKey{who.id.Name, who.version}, k)
}

// mac is the keyed digest of a name and a password. It is compared only with one of
// the same name, so a colon in a name does no harm.
func (s *Service) mac(name, password string) [sha256.Size]byte {
	r := s.macs.room()
	r.text = append(append(append(r.text, name...), ':'), password...)
	return s.macs.sum(r)
}
