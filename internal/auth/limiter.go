package auth

import "time"

// Class is a sort of request, as rate limits know them.
type Class uint8

// The classes.
const (
	ClassLookup Class = iota // reads of one document or of database information
	ClassWrite
	ClassQuery // views, finds, searches, feeds
	classes    = iota
)

// Limits is how many requests per second one user may make, by class. Zero or less:
// any number.
type Limits struct{ Lookup, Write, Query float64 }

// limitedUsers bounds the users in memory. One that was idle for a second has its
// full burst again, so a limit is inexact only when more are active in one second.
const limitedUsers = 100_000

// Limiter holds users to their rates. A nil one limits nobody and costs nothing. Its
// methods may be called concurrently.
type Limiter struct {
	now   func() time.Time
	start time.Time
	// every is the time that one request takes of a user's rate; zero: no limit.
	every [classes]time.Duration
	// users has, by class, when the user will have paid for all requests so far,
	// counted from start. With one such time the bucket needs no tokens (GCRA).
	users *lru[string, [classes]time.Duration]
}

// NewLimiter makes one; nil where nothing is limited.
func NewLimiter(limits Limits, now func() time.Time) *Limiter {
	if now == nil {
		now = time.Now
	}
	l := &Limiter{now: now, start: now()}
	limited := false
	for c, rate := range [classes]float64{ClassLookup: limits.Lookup, ClassWrite: limits.Write, ClassQuery: limits.Query} {
		if rate > 0 {
			// At least a nanosecond, at most a day: no rate overflows.
			l.every[c] = time.Duration(max(1, min(float64(time.Second)/rate, float64(24*time.Hour))))
			limited = true
		}
	}
	if !limited {
		return nil
	}
	l.users = newLRU[string, [classes]time.Duration](limitedUsers)
	return l
}

// Allow takes a request of a user from its rate. It may come in bursts of one
// second's worth, and of one request at the least. Where it is refused, retryAfter
// says when the next one will be let through; a refused one costs nothing.
func (l *Limiter) Allow(user string, class Class) (ok bool, retryAfter time.Duration) {
	if l == nil || class >= classes || l.every[class] == 0 {
		return true, 0
	}
	every := l.every[class]
	burst := max(0, time.Second-every)
	now := l.now().Sub(l.start)
	l.users.update(user, func(paid *[classes]time.Duration) {
		at := max(paid[class], now)
		if at-now > burst {
			retryAfter = at - now - burst
			return
		}
		paid[class] = at + every
		ok = true
	})
	return ok, retryAfter
}
