// Package auth says who asks. It knows the server administrators: names with
// salted PBKDF2-SHA256 hashes of their passwords, kept in a Store; and it reads
// the credentials of a request. What a caller may do is decided above, by the
// column of the route table.
//
// A hash costs some hundred milliseconds of CPU on purpose. So that this is paid
// neither per request nor by everybody else:
//   - A password that was right is remembered for a while as a MAC under a key
//     that only this process has: a later request costs one HMAC.
//   - Few hashes run at one time and few callers wait for one; the rest is told
//     to come back. A flood of wrong passwords takes a bounded share of the CPU,
//     and callers whose credentials are remembered never queue behind it.
package auth

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"hash"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divandb/divan/internal/model"
)

// Admin is a server administrator as it is stored.
type Admin struct {
	Name string
	Hash string // as HashPassword makes it
}

// Store keeps the administrators.
type Store interface {
	LoadAdmins() ([]Admin, error)
	// SaveAdmin adds one, or replaces the one of that name, durably.
	SaveAdmin(Admin) error
}

// Options sets up a Service. The zero value is good.
type Options struct {
	Rounds  int              // of PBKDF2 for new hashes; default 600,000
	Keep    time.Duration    // how long a right password is remembered; default 5 minutes
	Hashers int              // hashes that may run at one time; default half of the cores
	Waiters int              // callers that may wait for a hash; default 256
	Now     func() time.Time // default time.Now
	// SessionKey signs session cookies. Default: one of this process, whose sessions
	// end with it.
	SessionKey []byte
}

// DefaultRounds is what OWASP recommends for PBKDF2 with SHA-256.
const DefaultRounds = 600_000

func (o Options) withDefaults() Options {
	if o.Rounds <= 0 {
		o.Rounds = DefaultRounds
	}
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
	return o
}

// Identity is who asks. The zero value is anonymous.
type Identity struct {
	Name    string
	Admin   bool   // a server administrator
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
	change  sync.Mutex // one SetAdmin at a time
	nobody  passwordHash
	macs    sync.Pool // of *macRoom
	slots   chan struct{}
	waiting atomic.Int64
	hashed  atomic.Int64 // hashes run, for tests
}

// admin is an administrator in memory. A new password makes a new one, so what
// was remembered of the old password goes with it.
type admin struct {
	name  string
	hash  passwordHash
	known atomic.Pointer[remembered]
}

// remembered is the MAC of a password that was right.
type remembered struct {
	mac   [sha256.Size]byte
	until time.Time
}

// New loads the administrators.
func New(store Store, o Options) (*Service, error) {
	o = o.withDefaults()
	s := &Service{o: o, store: store, slots: make(chan struct{}, o.Hashers)}
	list, err := store.LoadAdmins()
	if err != nil {
		return nil, fmt.Errorf("auth: load the administrators: %w", err)
	}
	admins := make(map[string]*admin, len(list))
	for _, a := range list {
		h, err := parseHash(a.Hash)
		if err != nil {
			return nil, fmt.Errorf("auth: administrator %q: %w", a.Name, err)
		}
		admins[a.Name] = &admin{name: a.Name, hash: h}
	}
	s.admins.Store(&admins)
	// A name that nobody has is checked against this, so that it takes as long.
	s.nobody = passwordHash{rounds: o.Rounds, salt: []byte(rand.Text()), key: []byte(rand.Text())}
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails: crypto/rand ends the process instead
	s.macs.New = func() any { return &macRoom{hash: hmac.New(sha256.New, key[:])} }
	return s, nil
}

// Admins tells how many administrators there are.
func (s *Service) Admins() int { return len(*s.admins.Load()) }

// SetAdmin stores an administrator, or gives one a new password. A password that
// is the stored one already is left alone: a server started with the same flags
// every day writes nothing.
func (s *Service) SetAdmin(name, password string) error {
	if name == "" || password == "" || strings.Contains(name, ":") {
		return model.BadRequest("An administrator has a name without a colon and a password.")
	}
	s.change.Lock()
	defer s.change.Unlock()
	old := *s.admins.Load()
	if a := old[name]; a != nil && a.hash.rounds == s.o.Rounds {
		if ok, err := a.hash.matches(password); err != nil || ok {
			return err
		}
	}
	h, err := newHash(password, s.o.Rounds)
	if err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	if err := s.store.SaveAdmin(Admin{Name: name, Hash: h.String()}); err != nil {
		return fmt.Errorf("auth: save an administrator: %w", err)
	}
	next := make(map[string]*admin, len(old)+1)
	for n, a := range old {
		next[n] = a
	}
	next[name] = &admin{name: name, hash: h}
	s.admins.Store(&next)
	return nil
}

// Authenticate reads the credentials of a request: a session cookie, or basic
// credentials. None, or a scheme that is not known (`Basic:` with a colon is none),
// is anonymous and no error.
func (s *Service) Authenticate(r *http.Request) (Identity, error) {
	if id, err := s.session(r); err != nil || id.Name != "" {
		return id, err
	}
	header := r.Header["Authorization"]
	if len(header) == 0 {
		return Identity{}, nil
	}
	scheme, encoded, ok := strings.Cut(header[0], " ")
	if !ok || !strings.EqualFold(scheme, "Basic") {
		return Identity{}, nil
	}
	decoded, err := base64.StdEncoding.DecodeString(strings.TrimSpace(encoded))
	if err != nil {
		return Identity{}, errBase64
	}
	name, password, ok := strings.Cut(string(decoded), ":")
	if !ok || name == "_" && password == "_" {
		return Identity{}, nil // "_:_" is how a browser is made to forget credentials
	}
	return s.Check(r.Context(), name, password)
}

// Check says who has this name and password; ErrIncorrect if nobody.
func (s *Service) Check(ctx context.Context, name, password string) (Identity, error) {
	a := (*s.admins.Load())[name]
	var mac [sha256.Size]byte
	if a != nil {
		mac = s.mac(name, password)
		if s.remembers(a, &mac) {
			return Identity{Name: a.name, Admin: true}, nil
		}
	}
	if err := s.enter(ctx); err != nil {
		return Identity{}, err
	}
	defer s.leave()
	if a == nil {
		s.hashed.Add(1)
		if _, err := s.nobody.matches(password); err != nil {
			return Identity{}, fmt.Errorf("auth: %w", err)
		}
		return Identity{}, ErrIncorrect
	}
	// Whoever came first with the same credentials has done the work meanwhile.
	if s.remembers(a, &mac) {
		return Identity{Name: a.name, Admin: true}, nil
	}
	s.hashed.Add(1)
	ok, err := a.hash.matches(password)
	if err != nil {
		return Identity{}, fmt.Errorf("auth: %w", err)
	}
	if !ok {
		return Identity{}, ErrIncorrect
	}
	a.known.Store(&remembered{mac: mac, until: s.o.Now().Add(s.o.Keep)})
	return Identity{Name: a.name, Admin: true}, nil
}

// remembers tells whether mac is that of the password that was right a while ago.
func (s *Service) remembers(a *admin, mac *[sha256.Size]byte) bool {
	k := a.known.Load()
	return k != nil && subtle.ConstantTimeCompare(k.mac[:], mac[:]) == 1 && s.o.Now().Before(k.until)
}

// macRoom is what one mac needs: kept together, so that a check allocates nothing.
type macRoom struct {
	hash hash.Hash
	text []byte
	sum  []byte
}

// mac is the keyed digest of a name and a password.
func (s *Service) mac(name, password string) (sum [sha256.Size]byte) {
	m := s.macs.Get().(*macRoom)
	m.hash.Reset()
	// A name has no colon, so no two pairs make the same text.
	m.text = append(append(append(m.text[:0], name...), ':'), password...)
	_, _ = m.hash.Write(m.text) // a hash never fails
	m.sum = m.hash.Sum(m.sum[:0])
	copy(sum[:], m.sum)
	clear(m.text) // the password is not left lying about
	s.macs.Put(m)
	return sum
}

// enter waits for a slot to run a hash in.
func (s *Service) enter(ctx context.Context) error {
	select {
	case s.slots <- struct{}{}:
		return nil
	default:
	}
	if s.waiting.Add(1) > int64(s.o.Waiters) {
		s.waiting.Add(-1)
		return ErrBusy
	}
	defer s.waiting.Add(-1)
	select {
	case s.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *Service) leave() { <-s.slots }
