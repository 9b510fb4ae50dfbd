package auth

import (
	"crypto/sha256"
	"net/netip"
	"strings"
	"time"

	"github.com/divandb/divan/internal/model"
)

// ErrLocked is the answer to a name that failed too often from an address.
var ErrLocked = &model.Error{Kind: model.KindForbidden, Name: "forbidden",
	Reason: "Account is temporarily locked due to multiple authentication failures"}

// ErrTooMany is the answer to an address that failed too often with any names.
var ErrTooMany = &model.Error{Kind: model.KindTooMany, Name: "too_many_requests",
	Reason: "Too many wrong passwords from this address; try again in a minute."}

const (
	defaultLockAfter       = 5
	defaultLockFor         = 5 * time.Minute
	defaultAddressFailures = 50
	guardedNames           = 20_000 // pairs of name and address in memory
	guardedAddresses       = 20_000
)

// guard counts failures. A name is locked for one address, so that nobody can lock
// others out; an address that tries many names is slowed as a whole. A right
// password that is remembered passes a slowed address, but not a lock: otherwise
// the memory could be asked, at the cost of an HMAC, whether a guess is right.
type guard struct {
	now     func() time.Time
	after   int
	lockFor time.Duration
	names   *lru[guardKey, failures]      // nil: no locks
	rate    float64                       // failures that an address may make per minute
	from    *lru[netip.Addr, failureRate] // nil: no limit
}

// guardKey is a name at an address.
type guardKey struct {
	name string
	from netip.Addr
}

// failures of a name at an address.
type failures struct {
	count int
	last  time.Time
}

// failureRate of an address: a bucket that leaks rate per minute.
type failureRate struct {
	level float64
	at    time.Time
}

func newGuard(o Options) *guard {
	g := &guard{now: o.Now, after: o.LockAfter, lockFor: o.LockFor, rate: float64(o.AddressFailures)}
	if g.after == 0 {
		g.after = defaultLockAfter
	}
	if g.lockFor <= 0 {
		g.lockFor = defaultLockFor
	}
	if g.rate == 0 {
		g.rate = defaultAddressFailures
	}
	if g.after > 0 {
		g.names = newLRU[guardKey, failures](guardedNames)
	}
	if g.rate > 0 {
		g.from = newLRU[netip.Addr, failureRate](guardedAddresses)
	}
	return g
}

// ClientAddr gives the address of a client as failures are counted for it, from
// http.Request.RemoteAddr: whoever has an IPv6 address has its whole /64. It is the
// zero Addr where there is none, as on a Unix socket. What a header says of the
// client is never asked: the client writes it.
func ClientAddr(remote string) netip.Addr {
	ap, err := netip.ParseAddrPort(remote)
	if err != nil {
		return netip.Addr{}
	}
	addr := ap.Addr().Unmap().WithZone("")
	if addr.Is6() {
		addr = netip.PrefixFrom(addr, 64).Masked().Addr()
	}
	return addr
}

// key makes one of a bounded size, however long the name.
func (g *guard) key(name string, from netip.Addr) guardKey {
	if len(name) > 64 {
		sum := sha256.Sum256([]byte(name))
		name = string(sum[:])
	}
	return guardKey{name, from}
}

// locked tells whether the name failed too often. own failures of the caller's
// attempt are left out.
func (g *guard) locked(name string, from netip.Addr, own int) bool {
	if g.names == nil || !from.IsValid() || g.names.len() == 0 {
		return false
	}
	f, ok := g.names.get(g.key(name, from))
	return ok && f.count-own >= g.after && g.now().Sub(f.last) < g.lockFor
}

// throttled tells whether the address failed too often, own failures left out.
func (g *guard) throttled(from netip.Addr, own int) bool {
	if g.from == nil || !from.IsValid() || g.from.len() == 0 {
		return false
	}
	f, ok := g.from.get(from)
	return ok && f.leaked(g.now(), g.rate)-float64(own) >= g.rate
}

func (f failureRate) leaked(now time.Time, rate float64) float64 {
	return max(0, f.level-now.Sub(f.at).Minutes()*rate)
}

// failed counts a wrong password.
func (g *guard) failed(name string, from netip.Addr) {
	if !from.IsValid() {
		return
	}
	now := g.now()
	if g.names != nil {
		k := g.key(name, from)
		k.name = strings.Clone(k.name) // it may be a part of the header, with the password
		g.names.update(k, func(f *failures) {
			if now.Sub(f.last) >= g.lockFor {
				f.count = 0
			}
			f.count++
			f.last = now
		})
	}
	if g.from != nil {
		g.from.update(from, func(f *failureRate) {
			f.level = min(f.leaked(now, g.rate)+1, 2*g.rate) // never more than two minutes' worth
			f.at = now
		})
	}
}

// passed forgets the failures of a name: its owner may mistype now and then.
func (g *guard) passed(name string, from netip.Addr) {
	if g.names == nil || !from.IsValid() || g.names.len() == 0 {
		return
	}
	g.names.remove(g.key(name, from))
}
