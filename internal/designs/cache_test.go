package designs

import (
	"context"
	"encoding/binary"
	"errors"
	"testing"
)

func instance(n int) (id [8]byte) {
	binary.BigEndian.PutUint64(id[:], uint64(n))
	return id
}

// TestCacheBounds fills a cache beyond its bounds in entries and in bytes.
func TestCacheBounds(t *testing.T) {
	t.Parallel()
	for _, c := range []*cache{
		{entries: map[[8]byte]*entry{}, maxEntries: 100, maxBytes: 1 << 40},
		{entries: map[[8]byte]*entry{}, maxEntries: 1000, maxBytes: 100 * 10},
	} {
		for i := range 1000 {
			made := &Set{size: 10}
			set, err := c.load(context.Background(), instance(i), func() (*Set, error) { return made, nil })
			if err != nil || set != made {
				t.Fatal(set, err)
			}
			if c.get(instance(i)) != made {
				t.Fatalf("set %d is not kept", i)
			}
			if len(c.entries) > c.maxEntries || c.bytes > c.maxBytes {
				t.Fatalf("%d entries of %d bytes", len(c.entries), c.bytes)
			}
		}
		if len(c.entries) < 80 {
			t.Errorf("only %d entries are left", len(c.entries))
		}
		var sum int64
		for id, e := range c.entries {
			sum += e.set.size
			c.forget(id)
		}
		if sum < 800 || c.bytes != 0 {
			t.Errorf("%d bytes, of which %d stay counted", sum, c.bytes)
		}
	}
	// One that is larger than the bound is kept nevertheless: reading it at every write
	// would be worse.
	c := &cache{entries: map[[8]byte]*entry{}, maxEntries: 10, maxBytes: 10}
	big := &Set{size: 1000}
	if _, err := c.load(context.Background(), instance(1), func() (*Set, error) { return big, nil }); err != nil || c.get(instance(1)) != big {
		t.Errorf("a large set is not kept: %v", err)
	}
}

// TestCacheErrors keeps no failure, and survives a panic.
func TestCacheErrors(t *testing.T) {
	t.Parallel()
	c := &cache{entries: map[[8]byte]*entry{}, maxEntries: 10, maxBytes: 10}
	broken := errors.New("broken")
	if _, err := c.load(context.Background(), instance(1), func() (*Set, error) { return nil, broken }); err != broken {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_, _ = c.load(context.Background(), instance(1), func() (*Set, error) { panic("x") })
	}()
	set := &Set{}
	if got, err := c.load(context.Background(), instance(1), func() (*Set, error) { return set, nil }); err != nil || got != set {
		t.Fatal(got, err)
	}
}
