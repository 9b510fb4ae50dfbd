package auth

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divandb/divan/internal/model"
)

// locker is a service with a clock, asked from addresses.
type locker struct {
	*Service
	t   *testing.T
	now time.Time
}

func newLocker(t *testing.T, o Options) *locker {
	l := &locker{t: t, now: time.Unix(1_800_000_000, 0)}
	o.Now = func() time.Time { return l.now }
	l.Service, _ = newService(t, o)
	return l
}

// try checks credentials and tells how it ended.
func (l *locker) try(from, name, password string, want error, hashes int64) {
	l.t.Helper()
	before := l.hashed.Load()
	_, err := l.Check(context.Background(), name, password, netip.MustParseAddr(from))
	if !errors.Is(err, want) {
		l.t.Errorf("%s from %s: %v, want %v", name, from, err, want)
	}
	if n := l.hashed.Load() - before; n != hashes {
		l.t.Errorf("%s from %s: %d hashes, want %d", name, from, n, hashes)
	}
}

const (
	home = "192.0.2.1"
	away = "192.0.2.2"
)

func TestLockout(t *testing.T) {
	t.Parallel()
	if ErrLocked.Kind != model.KindForbidden || ErrTooMany.Kind != model.KindTooMany {
		t.Error("kinds")
	}
	l := newLocker(t, Options{Keep: time.Hour})
	// The name may exist or not, its password be remembered or not: all are the same.
	for _, name := range []string{"ghost", "root", "known"} {
		if err := l.SetAdmin("known", "secret"); err != nil {
			t.Fatal(err)
		}
		if name == "known" {
			l.try(home, name, "secret", nil, 1)
		}
		for range 5 {
			l.try(home, name, "wrong", ErrIncorrect, 1)
		}
		l.try(home, name, "wrong", ErrLocked, 0)
		l.try(home, name, "secret", ErrLocked, 0)
		l.now = l.now.Add(5*time.Minute - time.Second)
		l.try(home, name, "secret", ErrLocked, 0) // not a failure, so it does not prolong
	}
	// Others are not locked.
	l.try(away, "root", "secret", nil, 1)
	l.try(away, "known", "secret", nil, 0)
	l.now = l.now.Add(time.Second)
	l.try(home, "known", "secret", nil, 0)
	l.try(home, "known", "wrong", ErrIncorrect, 1) // the count began anew
	// A right password resets, remembered or not.
	for _, password := range []string{"secret", "secret"} {
		for range 3 {
			l.try(home, "root", "wrong", ErrIncorrect, 1)
		}
		l.try(home, "root", password, nil, 0)
	}
	// Failures that are far apart do not add up.
	for range 20 {
		l.now = l.now.Add(5 * time.Minute)
		l.try(home, "root", "wrong", ErrIncorrect, 1)
	}
	// Callers inside the server are never locked.
	for range 20 {
		if _, err := l.Check(context.Background(), "root", "wrong", netip.Addr{}); !errors.Is(err, ErrIncorrect) {
			t.Error(err)
		}
	}
}

func TestLockoutOptions(t *testing.T) {
	t.Parallel()
	l := newLocker(t, Options{LockAfter: 2, LockFor: time.Minute})
	l.try(home, "root", "wrong", ErrIncorrect, 1)
	l.try(home, "root", "wrong", ErrIncorrect, 1)
	l.try(home, "root", "wrong", ErrLocked, 0)
	l.now = l.now.Add(time.Minute)
	l.try(home, "root", "secret", nil, 1)
	l = newLocker(t, Options{LockAfter: -1, AddressFailures: -1})
	for range 200 {
		l.try(home, "root", "wrong", ErrIncorrect, 1)
	}
}

func TestSpray(t *testing.T) {
	t.Parallel()
	p := newPeople()
	p.set(t, "ann", "1", "pw")
	key, keyPassword := p.withKey(t)
	l := newLocker(t, Options{Keep: time.Hour, Accounts: p})
	l.try(home, "ann", "pw", nil, 1)
	for i := range 50 {
		l.try(home, fmt.Sprint("name", i), "password1", ErrIncorrect, 1)
	}
	l.try(home, "one more", "password1", ErrTooMany, 0)
	l.try(home, "root", "secret", ErrTooMany, 0) // not remembered: it is not looked at
	l.try(away, "root", "secret", nil, 1)
	l.try(home, "root", "secret", nil, 0) // now it is
	l.try(home, "ann", "pw", nil, 0)
	l.try(home, key, keyPassword, nil, 0)
	// A slowed address cannot ask the memory for ever which guess is right.
	for range 5 {
		l.try(home, "ann", "guess", ErrTooMany, 0)
	}
	l.try(home, "ann", "guess", ErrLocked, 0)
	l.try(home, "ann", "pw", ErrLocked, 0)
	l.try(away, "ann", "pw", nil, 0)
	// It slowly gets better: 50 in a minute.
	l.now = l.now.Add(12 * time.Second)
	allowed := 0
	for i := range 50 {
		_, err := l.Check(context.Background(), fmt.Sprint("later", i), "x", netip.MustParseAddr(home))
		if errors.Is(err, ErrIncorrect) {
			allowed++
		}
	}
	if allowed < 4 || allowed > 10 {
		t.Errorf("%d attempts after 12 seconds", allowed)
	}
}

// Whoever fills the queue, or hangs up while waiting, cannot use the memory to find
// out which guess is right.
func TestGuessesWithoutAHash(t *testing.T) {
	t.Parallel()
	l := newLocker(t, Options{Keep: time.Hour, Hashers: 1, Waiters: 1})
	l.try(away, "root", "secret", nil, 1)
	l.slots <- struct{}{} // a hash that takes for ever
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for range 3 {
		if _, err := l.Check(ctx, "root", "guess", netip.MustParseAddr(home)); !errors.Is(err, context.Canceled) {
			t.Errorf("hung up: %v", err)
		}
	}
	waiting, stop := context.WithCancel(context.Background())
	defer stop()
	var wait sync.WaitGroup
	wait.Go(func() { _, _ = l.Check(waiting, "other", "x", netip.MustParseAddr(home)) })
	for l.waiting.Load() < 1 {
		time.Sleep(time.Millisecond) // the goroutine says nothing when it begins to wait
	}
	l.try(home, "root", "guess", ErrBusy, 0)
	l.try(home, "root", "guess", ErrBusy, 0)
	l.try(home, "root", "secret", ErrLocked, 0)
	l.try(away, "root", "secret", nil, 0)
	stop()
	wait.Wait()
	<-l.slots
}

// Many guesses at one time are no way around the lock: those that waited while
// others failed are not tried any more.
func TestLockoutOfParallelGuesses(t *testing.T) {
	t.Parallel()
	const hashers, guesses = 3, 100
	s, _ := newService(t, Options{Hashers: hashers, Waiters: guesses})
	for range hashers {
		s.slots <- struct{}{} // hold them all until everybody waits
	}
	var wait sync.WaitGroup
	var tried, locked atomic.Int64
	for i := range guesses {
		wait.Go(func() {
			_, err := s.Check(context.Background(), "root", fmt.Sprint(i), netip.MustParseAddr(home))
			switch {
			case errors.Is(err, ErrIncorrect):
				tried.Add(1)
			case errors.Is(err, ErrLocked):
				locked.Add(1)
			default:
				t.Error(err)
			}
		})
	}
	for s.waiting.Load() < guesses {
		time.Sleep(time.Millisecond) // the goroutines say nothing when they begin to wait
	}
	for range hashers {
		<-s.slots
	}
	wait.Wait()
	if n := tried.Load(); n < 5 || n > 5+hashers-1 || n+locked.Load() != guesses {
		t.Errorf("%d tried, %d locked", n, locked.Load())
	}
}

// However many failures, an address is let in again within two minutes.
func TestSprayIsForgotten(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	g := newGuard(Options{Now: func() time.Time { return now }})
	from := netip.MustParseAddr(home)
	for i := range 1000 {
		g.failed(fmt.Sprint(i), from)
	}
	now = now.Add(59 * time.Second)
	if !g.throttled(from, 0) {
		t.Error("forgotten too early")
	}
	now = now.Add(2 * time.Second)
	if g.throttled(from, 0) {
		t.Error("not forgotten")
	}
}

func TestGuardIsBounded(t *testing.T) {
	t.Parallel()
	g := newGuard(Options{Now: time.Now})
	long := strings.Repeat("n", 100)
	for i := range guardedNames * 5 / 4 {
		from := netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})
		g.failed(fmt.Sprint(long, i), from)
	}
	if n := g.names.len(); n > guardedNames+lruShards {
		t.Errorf("%d names", n)
	}
	if n := g.from.len(); n > guardedAddresses+lruShards {
		t.Errorf("%d addresses", n)
	}
	for i := range g.names.shards {
		for k := range g.names.shards[i].entries {
			if len(k.name) > 64 {
				t.Fatalf("a name of %d bytes is kept", len(k.name))
			}
		}
	}
}

func TestClientAddr(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"192.0.2.1:80":                "192.0.2.1",
		"[::ffff:192.0.2.1]:80":       "192.0.2.1",
		"[2001:db8:1:2:3:4:5:6]:80":   "2001:db8:1:2::",
		"[2001:db8:1:2:ffff::1]:9999": "2001:db8:1:2::",
		"[fe80::1%eth0]:80":           "fe80::",
		"[::1]:80":                    "::",
	} {
		if got := ClientAddr(remote); got.String() != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
	for _, remote := range []string{"", "@", "192.0.2.1", "/run/x.sock"} {
		if got := ClientAddr(remote); got.IsValid() {
			t.Errorf("%q: %s", remote, got)
		}
	}
}

// The lock goes by the connection, not by what the client says of itself.
func TestForwardedForIsNotBelieved(t *testing.T) {
	t.Parallel()
	s, _ := newService(t, Options{})
	var err error
	for i := range 6 {
		r := request(basic("root:wrong"))
		r.Header.Set("X-Forwarded-For", fmt.Sprintf("203.0.113.%d", i))
		r.Header.Set("Forwarded", fmt.Sprintf("for=203.0.113.%d", i))
		_, err = s.Authenticate(r)
	}
	if !errors.Is(err, ErrLocked) {
		t.Error(err)
	}
}
