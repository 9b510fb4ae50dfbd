package shard

import (
	"context"
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// appendLocalKey appends the key of a local document.
func (c *Copy) appendLocalKey(dst []byte, id string) []byte {
	return append(c.appendTable(dst, tableLocal), id...)
}

// localRev is the revision of a local document: 0-<number of its writes>.
func localRev(n uint64) model.Rev { return model.Rev{Hash: strconv.FormatUint(n, 10)} }

// WriteLocal writes a local document: no history, no sequence.
func (c *Copy) WriteLocal(ctx context.Context, e *shardapi.LocalEdit) (model.Rev, error) {
	if err := ctx.Err(); err != nil {
		return model.Rev{}, context.Cause(ctx)
	}
	rev, p, refused, err := c.applyLocal(e)
	if err != nil {
		if refused {
			// The refusal speaks of a document that must be durable first.
			if werr := c.settle(ctx); werr != nil {
				return model.Rev{}, werr
			}
		}
		return model.Rev{}, err
	}
	err = c.finish(p)
	c.mu.Lock()
	if c.locals[e.ID] == p.ticket {
		delete(c.locals, e.ID)
	}
	c.mu.Unlock()
	if err != nil {
		return model.Rev{}, fmt.Errorf("write local document: %w", err)
	}
	return rev, nil
}

// applyLocal does what needs the sequencer.
func (c *Copy) applyLocal(e *shardapi.LocalEdit) (rev model.Rev, p pending, refused bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return rev, p, false, c.closed
	}
	key := c.appendLocalKey(nil, e.ID)
	val, found, err := c.store.Get(key)
	if err != nil {
		return rev, p, false, err
	}
	var n uint64
	if found {
		n, _, err = parseLocal(val.Bytes())
		val.Release()
		if err != nil {
			return rev, p, false, err
		}
	}
	if e.Deleted && !found {
		return rev, p, true, model.ErrMissing
	}
	// The peer never checks: a writer who names no revision overwrites. One who names
	// the wrong one has missed a write and is told so.
	if !e.Replicated && !e.Rev.IsZero() && e.Rev != localRev(n) {
		return rev, p, true, model.ErrConflict
	}
	b := c.store.NewBatch()
	if e.Deleted {
		b.Delete(key)
		n = 0
	} else {
		n++
		b.Set(key, append(binary.AppendUvarint(nil, n), e.Body...))
	}
	next := c.count
	p, err = c.apply(b, &next)
	if err != nil {
		_ = b.Close() // nothing of it was applied
		return rev, p, false, err
	}
	if c.locals == nil {
		c.locals = make(map[string]uint64)
	}
	c.locals[e.ID] = p.ticket
	return localRev(n), p, false, nil
}

// parseLocal reads the row of a local document; body points into b.
func parseLocal(b []byte) (n uint64, body []byte, err error) {
	n, k := binary.Uvarint(b)
	if k <= 0 {
		return 0, nil, corrupt("local document")
	}
	return n, b[k:], nil
}

// ReadLocal reads a local document; model.ErrMissing if there is none.
func (c *Copy) ReadLocal(ctx context.Context, id string) (*model.Doc, error) {
	if err := c.alive(); err != nil {
		return nil, err
	}
	val, found, err := c.store.Get(c.appendLocalKey(nil, id))
	if err != nil {
		return nil, err
	}
	var doc *model.Doc
	if found {
		n, body, err := parseLocal(val.Bytes())
		if err != nil {
			val.Release()
			return nil, err
		}
		doc = &model.Doc{ID: id, Rev: localRev(n), Body: append([]byte(nil), body...)}
		val.Release()
	}
	// Whatever was read, or found gone, may be on its way to the disk (I3). The
	// entry is made under the lock that covers Apply, so it is seen here.
	c.mu.Lock()
	ticket := c.locals[id]
	c.mu.Unlock()
	if err := c.mark.waitTicket(ctx, ticket); err != nil {
		return nil, err
	}
	if doc == nil {
		return nil, model.ErrMissing
	}
	return doc, nil
}
