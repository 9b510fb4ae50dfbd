// Package index is the life of an index of any kind: it follows the sequence of one
// copy. A pass reads what changed since the index's checkpoint, has several batches
// worked on at a time, and puts the results in strictly in the order of the
// sequence, a checkpoint with each commit. So a pass can end anywhere, by a kill -9
// too, and the next one goes on from the last commit.
//
// What an index makes of documents is its kind's: Views is the one for map
// functions. Who runs a pass when, and who waits for it, is shardhost's.
//
// Rules that the code keeps and tests hold:
//
//	I1 A pass reads one sight of the log, to its end. An index that has gone through
//	   the whole of it misses no document: reading on in newer sights would let one
//	   that is changed meanwhile run away from the reader.
//	I2 Commits follow the sequence, and each carries the sequence it ends at.
//	I3 Memory is bounded: by batches under way in one pass, and by Room over all of
//	   them.
package index

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/divandb/divan/internal/shardapi"
)

// Source is the copy that an index follows. The stream must be a steady one (I1).
type Source interface {
	Changes(ctx context.Context, req *shardapi.ChangesRequest) (shardapi.ChangeStream, error)
}

// Doc is a changed document.
type Doc struct {
	ID   string
	Text []byte // normalised JSON as functions see it; nil: deleted
}

// Work is what a kind of index does with documents.
type Work[R any] interface {
	// Process makes of a batch what Commit puts in, and tells its size in bytes.
	// Several batches are processed at the same time.
	Process(ctx context.Context, docs []Doc) (result R, size int, err error)
	// Commit puts in the results of consecutive batches and moves the index to seq.
	Commit(ctx context.Context, results []R, seq uint64) error
}

// Progress is how far a pass is. It may be read at any time.
type Progress struct {
	done, total, updated atomic.Int64
}

// Expect tells how many changes are ahead.
func (p *Progress) Expect(total int64) {
	p.total.Store(total)
	p.updated.Store(time.Now().Unix())
}

// add counts changes that are in the index now.
func (p *Progress) add(n int64) {
	p.done.Add(n)
	p.updated.Store(time.Now().Unix())
}

// Task fills in what a row of _active_tasks says of progress.
func (p *Progress) Task(t *shardapi.Task) {
	t.ChangesDone, t.UpdatedOn = p.done.Load(), p.updated.Load()
	// What is written meanwhile may add to what was expected.
	t.TotalChanges = max(p.total.Load(), t.ChangesDone)
}
