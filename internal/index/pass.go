package index

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"time"
)

// A stretch is what one commit puts in at most, and what Room counts.
const (
	stretchDocs  = 2000
	stretchBytes = 4 << 20
	// commitBytes of results are put in though the stretch goes on, and whatever
	// there is after commitEvery: a crash need not cost more than that, and whoever
	// watches the progress sees some.
	commitBytes = 8 << 20
	commitEvery = 500 * time.Millisecond
)

// Pass brings the indexes behind a Work from one sequence to another.
type Pass[R any] struct {
	Source Source
	Work   Work[R]
	Since  uint64
	// UpTo ends the pass at a sequence that the copy has; 0: at the end of the log.
	UpTo uint64

	IncludeDesign bool // design documents are documents too
	LocalSeq      bool // documents have _local_seq

	// Workers is how many batches are processed at a time; default: one per core.
	Workers int
	// Room is shared by all passes of a node; nil: no bound but the pass's own.
	Room *Room
	// Urgent tells whether somebody waits; asked whenever room is scarce.
	Urgent   func() bool
	Progress *Progress
}

// job is a batch on its way through the pass.
type job[R any] struct {
	*batch
	room   bool // its stretch ends with it and gives room back
	ends   bool // a stretch ends with it
	done   chan struct{}
	result R
	size   int
	err    error
}

// run is a pass under way.
type run[R any] struct {
	*Pass[R]
	ctx     context.Context
	cancel  context.CancelCauseFunc
	todo    chan *job[R] // to the workers
	order   chan *job[R] // to the committer, in the order of the sequence
	running sync.WaitGroup
}

// Run runs the pass and gives the sequence it came to.
func (p *Pass[R]) Run(ctx context.Context) (uint64, error) {
	if p.Workers <= 0 {
		p.Workers = runtime.GOMAXPROCS(0)
	}
	if p.Room == nil {
		p.Room = NewRoom(2)
	}
	if p.Progress == nil {
		p.Progress = new(Progress)
	}
	rd, err := open(ctx, p.Source, p.Since, p.UpTo, p.IncludeDesign, p.LocalSeq)
	if err != nil {
		return p.Since, err
	}
	// Most passes are short: nothing needs to run beside them.
	first, err := rd.next()
	if err == nil && first.last {
		defer rd.close()
		return p.short(ctx, first)
	}
	if err != nil {
		return p.Since, errors.Join(err, rd.close())
	}
	r := &run[R]{Pass: p, todo: make(chan *job[R]), order: make(chan *job[R], 2*p.Workers)}
	r.ctx, r.cancel = context.WithCancelCause(ctx)
	r.running.Go(func() { r.read(rd, first) })
	for range p.Workers {
		r.running.Go(r.work)
	}
	seq, err := r.commit()
	r.cancel(err)
	r.drain()
	r.running.Wait()
	return seq, err
}

// short is a pass of one batch.
func (p *Pass[R]) short(ctx context.Context, b *batch) (uint64, error) {
	if b.seq == p.Since {
		return b.seq, nil // nothing changed, so nothing is written
	}
	result, _, err := p.process(ctx, b)
	if err == nil {
		err = p.Work.Commit(ctx, []R{result}, b.seq)
	}
	if err != nil {
		return p.Since, err
	}
	p.Progress.add(b.changes)
	return b.seq, nil
}

// process is Process without its panics: it runs in goroutines of ours, where one
// would end the server.
func (p *Pass[R]) process(ctx context.Context, b *batch) (result R, size int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return p.Work.Process(ctx, b.docs)
}

// read hands out the batches. Every stretch takes its room before its first batch
// is read (I3), but for the first batch of all, which was read to see whether the
// pass is a short one.
func (r *run[R]) read(rd *reader, b *batch) {
	defer close(r.order)
	defer close(r.todo)
	err := r.readAll(rd, b)
	if cerr := rd.close(); err == nil {
		err = cerr
	}
	if err != nil {
		r.cancel(err)
	}
}

func (r *run[R]) readAll(rd *reader, b *batch) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	room, docs, bytes := false, 0, 0
	defer func() {
		if room {
			r.Room.give()
		}
	}()
	for {
		j := &job[R]{batch: b, done: make(chan struct{})}
		docs, bytes = docs+len(b.docs), bytes+b.bytes
		if b.last || docs >= stretchDocs || bytes >= stretchBytes {
			j.ends, j.room = true, room
			room, docs, bytes = false, 0, 0
		}
		if !r.hand(j) {
			if j.room {
				r.Room.give()
			}
			return nil // whoever cancelled knows why
		}
		if b.last {
			return nil
		}
		if !room {
			if err := r.Room.take(r.ctx, r.Urgent); err != nil {
				return err
			}
			room = true
		}
		if b, err = rd.next(); err != nil {
			return err
		}
	}
}

// hand gives a job to the committer and to a worker.
func (r *run[R]) hand(j *job[R]) bool {
	select {
	case r.order <- j:
	case <-r.ctx.Done():
		return false
	}
	select {
	case r.todo <- j:
	case <-r.ctx.Done():
		j.err = context.Cause(r.ctx)
		close(j.done) // the committer has it, and gives its room back
	}
	return true
}

// work processes jobs.
func (r *run[R]) work() {
	for j := range r.todo {
		j.result, j.size, j.err = r.process(r.ctx, j.batch)
		j.docs = nil // texts are large, and a commit may be some way off
		close(j.done)
	}
}

// commit puts in what the workers made, in order, until the end (I2).
func (r *run[R]) commit() (seq uint64, err error) {
	seq = r.Since
	var (
		results []R
		size    int
		changes int64
	)
	last := time.Now()
	for j := range r.order {
		<-j.done
		if j.err != nil {
			r.giveBack(j)
			if r.ctx.Err() != nil {
				j.err = context.Cause(r.ctx) // why the batch could not be processed
			}
			return seq, j.err
		}
		results, size, changes = append(results, j.result), size+j.size, changes+j.changes
		if j.ends || size >= commitBytes || time.Since(last) >= commitEvery {
			if err = r.Work.Commit(r.ctx, results, j.seq); err == nil {
				seq = j.seq
				r.Progress.add(changes)
			}
			clear(results)
			results, size, changes, last = results[:0], 0, 0, time.Now()
		}
		r.giveBack(j)
		if err != nil || j.last {
			return seq, err
		}
	}
	return seq, context.Cause(r.ctx) // the reader stopped before the end
}

// giveBack ends a stretch with its last batch.
func (r *run[R]) giveBack(j *job[R]) {
	if j.room {
		r.Room.give()
	}
}

// drain takes what is still on its way when the committer has ended.
func (r *run[R]) drain() {
	for j := range r.order {
		<-j.done
		r.giveBack(j)
	}
}
