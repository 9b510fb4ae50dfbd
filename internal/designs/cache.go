package designs

import (
	"context"
	"errors"
	"sync"
)

// What the cache holds at most. A database without design documents takes some
// hundred bytes.
const (
	maxEntries = 20_000
	maxBytes   = 256 << 20
)

// cache keeps the sets of databases by their instance: a database created again
// under its name is another one.
type cache struct {
	mu      sync.RWMutex
	entries map[[8]byte]*entry
	bytes   int64 // of all sets

	maxEntries int
	maxBytes   int64
}

// entry is a database: its set, or a load of it under way, or neither.
type entry struct {
	set     *Set
	loading *loading
}

// loading is a load under way. Its result counts for whoever waits for it, and is
// kept if nothing was forgotten since.
type loading struct {
	done chan struct{}
	set  *Set
	err  error
}

// get gives a set that is there. Every write asks.
func (c *cache) get(id [8]byte) *Set {
	c.mu.RLock()
	e := c.entries[id]
	var set *Set
	if e != nil {
		set = e.set
	}
	c.mu.RUnlock()
	return set
}

// load gives a set that was read after the call began or is there by now. Those
// who ask at the same time read once; it is one of them who reads, so a reader who
// goes away leaves the work to the next.
func (c *cache) load(ctx context.Context, id [8]byte, read func() (*Set, error)) (*Set, error) {
	for {
		c.mu.Lock()
		e := c.entries[id]
		if e == nil {
			e = &entry{}
			c.makeRoom(e)
			c.entries[id] = e
		}
		if set := e.set; set != nil {
			c.mu.Unlock()
			return set, nil
		}
		l := e.loading
		if l == nil {
			l = &loading{done: make(chan struct{})}
			e.loading = l
			c.mu.Unlock()
			return c.run(id, e, l, read)
		}
		c.mu.Unlock()
		select {
		case <-l.done:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		if l.err == nil {
			return l.set, nil
		}
		if !cancelled(l.err) {
			return nil, l.err
		}
	}
}

// cancelled tells whether a load failed only because its reader went away.
func cancelled(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || errors.Is(err, errAbandoned)
}

// errAbandoned is the result of a load whose reader did not come back from it.
var errAbandoned = errors.New("the reading of design documents was given up")

// run reads and keeps what was read, unless the database was forgotten meanwhile.
func (c *cache) run(id [8]byte, e *entry, l *loading, read func() (*Set, error)) (*Set, error) {
	l.err = errAbandoned // of a panic, for those who wait
	defer func() {
		c.mu.Lock()
		if e.loading == l {
			e.loading = nil
			if l.err == nil && c.entries[id] == e {
				e.set = l.set
				c.bytes += l.set.size
				c.makeRoom(e)
			}
		}
		c.mu.Unlock()
		close(l.done)
	}()
	l.set, l.err = read()
	return l.set, l.err
}

// forget drops what is known; a load under way is not kept, and nobody who asks
// from now on waits for it.
func (c *cache) forget(id [8]byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.entries[id]
	if e == nil {
		return
	}
	if e.set != nil {
		c.bytes -= e.set.size
	}
	e.set, e.loading = nil, nil
}

// makeRoom drops databases other than keep, whichever come first, until there is
// room for one more. The caller holds mu.
func (c *cache) makeRoom(keep *entry) {
	if len(c.entries) < c.maxEntries && c.bytes <= c.maxBytes {
		return
	}
	for id, e := range c.entries {
		if len(c.entries) <= c.maxEntries*9/10 && c.bytes <= c.maxBytes*9/10 {
			return
		}
		if e == keep || e.loading != nil {
			continue
		}
		if e.set != nil {
			c.bytes -= e.set.size
		}
		delete(c.entries, id)
	}
}
