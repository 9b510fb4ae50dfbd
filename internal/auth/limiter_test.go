package auth

import (
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestLimiter(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	l := NewLimiter(Limits{Lookup: 10, Query: 0.5}, func() time.Time { return now })
	burst := func(user string, class Class, want int) time.Duration {
		t.Helper()
		for i := range want {
			if ok, after := l.Allow(user, class); !ok || after != 0 {
				t.Fatalf("%s: number %d of %d is refused", user, i+1, want)
			}
		}
		ok, after := l.Allow(user, class)
		if ok || after <= 0 {
			t.Fatalf("%s: number %d is let through", user, want+1)
		}
		if again, same := l.Allow(user, class); again || same != after {
			t.Errorf("%s: a refusal costs: %v, then %v", user, after, same)
		}
		return after
	}
	if after := burst("ann", ClassLookup, 10); after != 100*time.Millisecond {
		t.Errorf("retry after %v", after)
	}
	burst("bob", ClassLookup, 10) // has a rate of his own
	if after := burst("ann", ClassQuery, 1); after != 2*time.Second {
		t.Errorf("retry after %v", after)
	}
	for range 1000 {
		if ok, _ := l.Allow("ann", ClassWrite); !ok {
			t.Fatal("a class without limit is limited")
		}
	}
	now = now.Add(100*time.Millisecond - 1)
	if ok, after := l.Allow("ann", ClassLookup); ok || after != 1 {
		t.Errorf("too early: %v %v", ok, after)
	}
	now = now.Add(1)
	burst("ann", ClassLookup, 1) // exactly when it was told
	now = now.Add(time.Hour)
	burst("ann", ClassLookup, 10) // no more than a second's worth is saved up
	// A steady second: the rate, and nothing beyond.
	allowed := 0
	for range 1000 {
		now = now.Add(time.Millisecond)
		if ok, _ := l.Allow("ann", ClassLookup); ok {
			allowed++
		}
	}
	if allowed != 10 {
		t.Errorf("%d in a second", allowed)
	}
}

func TestNoLimiter(t *testing.T) { // allocations cannot be counted beside other tests
	if l := NewLimiter(Limits{Write: -1}, nil); l != nil {
		t.Error("no limits make a limiter")
	}
	var none *Limiter
	if n := testing.AllocsPerRun(100, func() {
		if ok, _ := none.Allow("ann", ClassWrite); !ok {
			t.Error("refused")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	for _, rate := range []float64{math.Inf(1), 1e300, 1e-300, math.SmallestNonzeroFloat64} {
		l := NewLimiter(Limits{Write: rate}, nil)
		if ok, _ := l.Allow("ann", ClassWrite); !ok {
			t.Errorf("%v: the first is refused", rate)
		}
		if ok, _ := l.Allow("ann", ClassWrite); ok != (rate > 1) {
			t.Errorf("%v: the second: %v", rate, ok)
		}
	}
	if ok, _ := NewLimiter(Limits{Write: 1}, nil).Allow("x", 99); !ok {
		t.Error("an unknown class is limited")
	}
}

func TestLimiterConcurrently(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	l := NewLimiter(Limits{Write: 100}, func() time.Time { return now })
	var allowed [4]atomic.Int64
	var wait sync.WaitGroup
	for range 8 {
		wait.Go(func() {
			for i := range 1000 {
				if ok, _ := l.Allow(fmt.Sprint("user", i%4), ClassWrite); ok {
					allowed[i%4].Add(1)
				}
			}
		})
	}
	wait.Wait()
	for i := range allowed {
		if n := allowed[i].Load(); n != 100 {
			t.Errorf("%d let through, want 100", n)
		}
	}
}

func BenchmarkLimiter(b *testing.B) {
	l := NewLimiter(Limits{Write: 1e9}, nil)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			l.Allow("ann", ClassWrite)
		}
	})
}
