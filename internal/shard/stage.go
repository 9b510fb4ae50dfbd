package shard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// stageBuffer is half of what an upload has in memory at a time: much, so that system
// calls are rare, and a multiple of hashPiece, so that the hash gets whole ones.
const stageBuffer = 256 << 10

var stageBuffers = sync.Pool{New: func() any { return new([stageBuffer]byte) }}

// TempDir is the directory, below BlobDir, of bytes no batch has named yet.
const TempDir = "tmp"

// blobs is the part of a copy that looks after attachment bytes outside the
// store. Its lock is taken last.
type blobs struct {
	mu      sync.Mutex
	tickets map[string]*stagedBlob
	pins    map[model.BlobID]int // blobs a batch on its way names, or names no more: their file stays
	ready   bool                 // the copy's directory exists
}

// stagedBlob is bytes that wait for the write that names them.
type stagedBlob struct {
	id     model.BlobID
	digest [16]byte
	length int64
	inline []byte // not nil for a small one
	path   string // temporary file of a large one, until it is placed
	placed bool   // its file has its final name
	at     time.Time
}

// stagedSet is what one write has claimed, by ticket.
type stagedSet map[string]*stagedBlob

// byBlob gives the way to find claimed bytes by their hash.
func (s stagedSet) byBlob() func(id model.BlobID) *stagedBlob {
	var index map[model.BlobID]*stagedBlob // made at the first question
	return func(id model.BlobID) *stagedBlob {
		if index == nil {
			index = make(map[model.BlobID]*stagedBlob, len(s))
			for _, b := range s {
				index[b.id] = b
			}
		}
		return index[id]
	}
}

// staged tells whether bytes wait for a write.
func (b *blobs) staged() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.tickets) > 0 || len(b.pins) > 0
}

// pinLocked keeps the file of a blob from being removed. The caller holds mu.
func (b *blobs) pinLocked(id model.BlobID) {
	if b.pins == nil {
		b.pins = make(map[model.BlobID]int)
	}
	b.pins[id]++
}

// unpin ends it. Whoever ends it looks whether the file must go.
func (b *blobs) unpin(id model.BlobID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pins[id]--; b.pins[id] == 0 {
		delete(b.pins, id)
	}
}

// Stage takes the bytes of an attachment in constant memory: small ones stay in
// memory, larger ones go to a temporary file, which is on disk on return.
func (c *Copy) Stage(ctx context.Context, r io.Reader) (*shardapi.Staged, error) {
	if err := c.alive(); err != nil {
		return nil, err
	}
	if c.store.Full() {
		return nil, model.ErrStorageFull
	}
	s := &stagedBlob{at: c.opts.Now()}
	hash := newBlobHash()
	// Two buffers in turn: the bytes of one are hashed, together with those of other
	// uploads, at any time until it is needed again.
	var bufs [2]*[stageBuffer]byte
	defer func() {
		hash.wait()
		for _, buf := range bufs {
			if buf != nil {
				stageBuffers.Put(buf)
			}
		}
	}()
	var file *os.File
	ticket := newTicket()
	for turn := 0; ; turn ^= 1 {
		if bufs[turn] == nil {
			bufs[turn] = stageBuffers.Get().(*[stageBuffer]byte)
		}
		buf := bufs[turn]
		if err := ctx.Err(); err != nil {
			return nil, discard(file, context.Cause(ctx))
		}
		n, err := readFull(r, buf[:])
		last := err == io.EOF
		if err != nil && !last {
			return nil, discard(file, fmt.Errorf("stage attachment: %w", err))
		}
		hash.add(buf, n)
		s.length += int64(n)
		if last && file == nil && (n <= c.opts.InlineMax || c.opts.BlobDir == "") {
			s.inline = append(make([]byte, 0, n), buf[:n]...)
			break
		}
		if file == nil {
			if c.opts.BlobDir == "" {
				return nil, errors.New("stage attachment: no directory for large attachments")
			}
			s.path = filepath.Join(c.opts.BlobDir, TempDir, ticket)
			if file, err = os.OpenFile(s.path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
				return nil, diskError("stage attachment", err)
			}
		}
		// The disk may fill up while a large one comes.
		if err := c.store.Wrote(int64(n)); err != nil {
			return nil, discard(file, fmt.Errorf("stage attachment: %w", err))
		}
		if _, err := file.Write(buf[:n]); err != nil {
			return nil, discard(file, diskError("stage attachment", err))
		}
		if last {
			break
		}
	}
	if file != nil {
		if err := file.Sync(); err != nil {
			return nil, discard(file, diskError("stage attachment", err))
		}
		if err := file.Close(); err != nil {
			return nil, diskError("stage attachment", err)
		}
	}
	hash.finish(&s.id, &s.digest)
	c.blobs.mu.Lock()
	if c.blobs.tickets == nil {
		c.blobs.tickets = make(map[string]*stagedBlob)
	}
	c.blobs.tickets[ticket] = s
	c.blobs.mu.Unlock()
	if err := c.alive(); err != nil { // closed meanwhile: Close may not have seen it
		c.dropStaged()
		return nil, err
	}
	return &shardapi.Staged{Ticket: ticket, Blob: s.id, Digest: s.digest, Length: s.length}, nil
}

// readFull reads until buf is full. Unlike io.ReadFull it hands on the reader's own
// error: io.EOF alone is the end of the bytes, while io.ErrUnexpectedEOF is an
// upload that was cut, and storing what came of it would lose the rest unnoticed.
func readFull(r io.Reader, buf []byte) (n int, err error) {
	for n < len(buf) && err == nil {
		var k int
		k, err = r.Read(buf[n:])
		n += k
	}
	return n, err
}

// newTicket names staged bytes; it must not be guessable, as it is a claim.
func newTicket() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, says its documentation
	return hex.EncodeToString(b[:])
}

// discard removes a half-written file and gives back the error that ended it.
func discard(file *os.File, err error) error {
	if file != nil {
		// Whatever cannot be removed now is removed at the next start.
		_ = file.Close()
		_ = os.Remove(file.Name())
	}
	return err
}

// diskError gives a full disk its own name.
func diskError(op string, err error) error {
	if errors.Is(err, syscall.ENOSPC) {
		full := *model.ErrStorageFull
		full.Err = err
		return fmt.Errorf("%s: %w", op, &full)
	}
	return fmt.Errorf("%s: %w", op, err)
}

// Unstage gives up a ticket.
func (c *Copy) Unstage(_ context.Context, ticket string) error {
	c.blobs.mu.Lock()
	s := c.blobs.tickets[ticket]
	delete(c.blobs.tickets, ticket)
	c.blobs.mu.Unlock()
	return s.remove()
}

// remove deletes the temporary file, if there is one.
func (s *stagedBlob) remove() error {
	if s == nil || s.path == "" {
		return nil
	}
	if err := os.Remove(s.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove staged attachment: %w", err)
	}
	return nil
}

// ExpireStaged gives up what was staged before a time.
func (c *Copy) ExpireStaged(before time.Time) error {
	c.blobs.mu.Lock()
	var old []*stagedBlob
	for ticket, s := range c.blobs.tickets {
		if s.at.Before(before) {
			old = append(old, s)
			delete(c.blobs.tickets, ticket)
		}
	}
	c.blobs.mu.Unlock()
	var err error
	for _, s := range old {
		err = errors.Join(err, s.remove())
	}
	return err
}

// dropStaged gives up everything staged.
func (c *Copy) dropStaged() {
	c.blobs.mu.Lock()
	all := c.blobs.tickets
	c.blobs.tickets = nil
	c.blobs.mu.Unlock()
	for _, s := range all {
		_ = s.remove() // the next start empties the directory
	}
}

// claimStaged takes the tickets of a write and pins their blobs.
func (c *Copy) claimStaged(edits []model.Edit) (stagedSet, error) {
	var set stagedSet
	for i := range edits {
		for k := range edits[i].Atts {
			ticket := edits[i].Atts[k].Staged
			if ticket == "" || set[ticket] != nil {
				continue
			}
			c.blobs.mu.Lock()
			s := c.blobs.tickets[ticket]
			if s != nil {
				delete(c.blobs.tickets, ticket)
				c.blobs.pinLocked(s.id)
			}
			c.blobs.mu.Unlock()
			if s == nil {
				c.releaseStaged(set)
				return nil, &model.Error{Kind: model.KindBadRequest, Name: "bad_request", Reason: "Unknown or expired attachment upload."}
			}
			if set == nil {
				set = make(stagedSet)
			}
			set[ticket] = s
		}
	}
	return set, nil
}

// blobDir is the directory of the copy's attachment files.
func (c *Copy) blobDir() string { return BlobPath(c.opts.BlobDir, c.id) }

// BlobPath is the directory of a copy's attachment files.
func BlobPath(dir string, id uint64) string {
	return filepath.Join(dir, strconv.FormatUint(id, 10))
}

// blobPath is the file of a blob.
func (c *Copy) blobPath(id *model.BlobID) string {
	return filepath.Join(c.blobDir(), hex.EncodeToString(id[:]))
}

// placeStaged moves the files of a write to their final names, on disk before
// the batch names them (I6). A blob that is here already is not moved again; its
// pin keeps it.
func (c *Copy) placeStaged(set stagedSet) error {
	moved := false
	for _, s := range set {
		if s.path == "" {
			continue
		}
		_, found, err := c.readBlobRow(&s.id)
		if err != nil {
			return err
		}
		if found {
			continue
		}
		if err := c.makeBlobDir(); err != nil {
			return err
		}
		if err := os.Rename(s.path, c.blobPath(&s.id)); err != nil {
			return diskError("place attachment", err)
		}
		s.path, s.placed = "", true
		moved = true
	}
	if moved {
		return syncDir(c.blobDir())
	}
	return nil
}

// makeBlobDir makes the copy's directory, once.
func (c *Copy) makeBlobDir() error {
	c.blobs.mu.Lock()
	defer c.blobs.mu.Unlock()
	if c.blobs.ready {
		return nil
	}
	if err := os.MkdirAll(c.blobDir(), 0o700); err != nil {
		return diskError("make attachment directory", err)
	}
	if err := syncDir(c.opts.BlobDir); err != nil {
		return err
	}
	c.blobs.ready = true
	return nil
}

// syncDir makes the names in a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	err = d.Sync()
	if cerr := d.Close(); err == nil {
		err = cerr
	}
	if err != nil {
		return diskError("sync directory", err)
	}
	return nil
}

// pinGone keeps the files of blobs whose last reference a batch takes until the
// batch is durable: a write that fails meanwhile on the same bytes finds no row and
// would remove a file that the row names again after a crash.
func (c *Copy) pinGone(gone []model.BlobID) {
	c.blobs.mu.Lock()
	defer c.blobs.mu.Unlock()
	for _, id := range gone {
		c.blobs.pinLocked(id)
	}
}

// unlinkGone removes those files, now that the batch is durable.
func (c *Copy) unlinkGone(gone []model.BlobID) {
	for _, id := range gone {
		c.blobs.unpin(id)
	}
	c.unlinkUnnamed(gone)
}

// releaseStaged ends the claim of a write, whatever its outcome: bytes that no
// row names go.
func (c *Copy) releaseStaged(set stagedSet) {
	for _, s := range set {
		_ = s.remove() // not moved: the next start empties the directory
		c.blobs.unpin(s.id)
		if s.path != "" || s.placed {
			c.unlinkUnnamed([]model.BlobID{s.id})
		}
	}
}

// unlinkUnnamed removes files of blobs that have no row. A pinned one stays: the
// write that pinned it looks again when it is done. Holding the lock over the
// look and the removal is what makes pinning safe.
func (c *Copy) unlinkUnnamed(ids []model.BlobID) {
	for i := range ids {
		c.blobs.mu.Lock()
		if c.blobs.pins[ids[i]] == 0 {
			if _, found, err := c.readBlobRow(&ids[i]); err == nil && !found {
				_ = os.Remove(c.blobPath(&ids[i])) // the next start tries again
			}
		}
		c.blobs.mu.Unlock()
	}
}
