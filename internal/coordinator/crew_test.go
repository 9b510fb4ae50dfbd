package coordinator

import (
	"sync"
	"sync/atomic"
	"testing"
)

// Every function runs once, also when far more come than may wait, and functions
// that start others do not wait for one another.
func TestCrew(t *testing.T) {
	t.Parallel()
	c := newCrew(3)
	var ran atomic.Int64
	var all sync.WaitGroup
	var nest func(depth int)
	nest = func(depth int) {
		defer all.Done()
		ran.Add(1)
		if depth == 0 {
			return
		}
		var below sync.WaitGroup
		for range 3 {
			below.Add(1)
			all.Add(1)
			c.run(func() { defer below.Done(); nest(depth - 1) })
		}
		below.Wait()
	}
	for range 20 {
		all.Add(1)
		c.run(func() { nest(4) })
	}
	all.Wait()
	if want := int64(20 * (1 + 3 + 9 + 27 + 81)); ran.Load() != want {
		t.Errorf("%d functions ran, want %d", ran.Load(), want)
	}
	if len(c.idle) > 3 {
		t.Errorf("%d wait", len(c.idle))
	}
}
