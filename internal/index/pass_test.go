package index

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// recorder is a Work that notes what happens. Batches take different times, so that
// they end out of order.
type recorder struct {
	process func(docs []Doc) error
	commit  func(seq uint64) error

	mu      sync.Mutex
	flying  int // batches processed and not committed
	most    int
	ids     []string
	seqs    []uint64
	largest int // documents of one commit
}

func (r *recorder) Process(ctx context.Context, docs []Doc) ([]Doc, int, error) {
	r.mu.Lock()
	r.flying++
	r.most = max(r.most, r.flying)
	r.mu.Unlock()
	select {
	case <-time.After(time.Duration(rand.IntN(3)) * time.Millisecond):
	case <-ctx.Done():
		return nil, 0, ctx.Err()
	}
	if r.process != nil {
		if err := r.process(docs); err != nil {
			return nil, 0, err
		}
	}
	size := 0
	for i := range docs {
		size += len(docs[i].Text)
	}
	return docs, size, nil
}

func (r *recorder) Commit(_ context.Context, results [][]Doc, seq uint64) error {
	if r.commit != nil {
		if err := r.commit(seq); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, docs := range results {
		r.flying--
		n += len(docs)
		for i := range docs {
			r.ids = append(r.ids, docs[i].ID)
		}
	}
	r.largest = max(r.largest, n)
	r.seqs = append(r.seqs, seq)
	return nil
}

func TestPassKeepsTheOrder(t *testing.T) {
	t.Parallel()
	src := newSource(t)
	const docs = 9500
	src.fill(t, docs, 100)
	w := &recorder{}
	p := &Pass[[]Doc]{Source: src, Work: w, Workers: 4, Room: NewRoom(2), Progress: &Progress{}}
	p.Progress.Expect(docs)
	seq, err := p.Run(t.Context())
	if err != nil || seq != docs {
		t.Fatalf("came to %d: %v", seq, err)
	}
	if len(w.ids) != docs {
		t.Fatalf("%d documents", len(w.ids))
	}
	for i, id := range w.ids {
		if want := fmt.Sprintf("d%06d", i); id != want {
			t.Fatalf("document %d is %s", i, id)
		}
	}
	for i := 1; i < len(w.seqs); i++ {
		if w.seqs[i] <= w.seqs[i-1] {
			t.Fatalf("checkpoints %v", w.seqs)
		}
	}
	if w.largest > stretchDocs || len(w.seqs) > docs/stretchDocs+1 {
		t.Errorf("%d commits of up to %d documents", len(w.seqs), w.largest)
	}
	// A stretch under way, what is queued, what is being worked on.
	if bound := stretchDocs/batchDocs + 2*p.Workers + p.Workers + 1; w.most > bound {
		t.Errorf("%d batches at a time, over %d", w.most, bound)
	}
	var task shardapi.Task
	p.Progress.Task(&task)
	if task.ChangesDone != docs || task.TotalChanges != docs || task.UpdatedOn == 0 {
		t.Errorf("progress %+v", task)
	}
	if p.Room.free != 2 {
		t.Errorf("room for %d left", p.Room.free)
	}
}

// Large documents make small batches and small stretches.
func TestPassBoundsBytes(t *testing.T) {
	t.Parallel()
	src := newSource(t)
	const docs = 60
	src.fill(t, docs, 300_000)
	w := &recorder{}
	var largest atomic.Int64
	w.process = func(docs []Doc) error {
		n := 0
		for i := range docs {
			n += len(docs[i].Text)
		}
		largest.Store(max(largest.Load(), int64(n)))
		return nil
	}
	if _, err := (&Pass[[]Doc]{Source: src, Work: w, Workers: 1}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if len(w.ids) != docs || largest.Load() > batchBytes+400_000 || w.largest*300_000 > stretchBytes+batchBytes+800_000 {
		t.Errorf("%d documents, %d bytes in a batch, %d documents in a commit", len(w.ids), largest.Load(), w.largest)
	}
}

// errTest is a fault of the test's making.
var errTest = errors.New("made by the test")

// Whatever goes wrong ends the pass with that error, gives its room back, and
// leaves a checkpoint from which the next pass goes on to the same end.
func TestPassFaults(t *testing.T) {
	t.Parallel()
	src := newSource(t)
	const docs = 7000
	src.fill(t, docs, 10)
	count := 0
	var mu sync.Mutex
	third := func(err func() error) error {
		mu.Lock()
		count++
		n := count
		mu.Unlock()
		if n == 3 {
			return err()
		}
		return nil
	}
	for name, fault := range map[string]func(r *recorder, cancel context.CancelCauseFunc) Source{
		"process": func(r *recorder, _ context.CancelCauseFunc) Source {
			r.process = func([]Doc) error { return third(func() error { return errTest }) }
			return src
		},
		"process panics": func(r *recorder, _ context.CancelCauseFunc) Source {
			r.process = func([]Doc) error { return third(func() error { panic(errTest.Error()) }) }
			return src
		},
		"commit": func(r *recorder, _ context.CancelCauseFunc) Source {
			r.commit = func(uint64) error { return third(func() error { return errTest }) }
			return src
		},
		"cancel": func(r *recorder, cancel context.CancelCauseFunc) Source {
			r.process = func([]Doc) error { return third(func() error { cancel(errTest); return nil }) }
			return src
		},
		"read": func(*recorder, context.CancelCauseFunc) Source {
			return brokenSource{src, func() error { return third(func() error { return errTest }) }}
		},
		"read panics": func(*recorder, context.CancelCauseFunc) Source {
			return brokenSource{src, func() error { return third(func() error { panic(errTest.Error()) }) }}
		},
	} {
		count = 0
		w := &recorder{}
		ctx, cancel := context.WithCancelCause(t.Context())
		room := NewRoom(2)
		p := &Pass[[]Doc]{Source: fault(w, cancel), Work: w, Workers: 3, Room: room}
		seq, err := p.Run(ctx)
		cancel(nil)
		if err == nil || !strings.Contains(err.Error(), errTest.Error()) {
			t.Errorf("%s: came to %d with %v", name, seq, err)
		}
		if room.free != 2 {
			t.Errorf("%s: room for %d left", name, room.free)
		}
		if uint64(len(w.ids)) != seq {
			t.Errorf("%s: %d documents, but the pass says %d", name, len(w.ids), seq)
		}
		w.process, w.commit = nil, nil
		if seq, err := (&Pass[[]Doc]{Source: src, Work: w, Since: seq}).Run(t.Context()); err != nil || seq != docs || len(w.ids) != docs {
			t.Errorf("%s: the next pass came to %d with %d documents: %v", name, seq, len(w.ids), err)
		}
	}
}

// brokenSource fails to read.
type brokenSource struct {
	source
	next func() error
}

func (b brokenSource) Changes(ctx context.Context, req *shardapi.ChangesRequest) (shardapi.ChangeStream, error) {
	st, err := b.source.Changes(ctx, req)
	return brokenStream{st, b.next}, err
}

type brokenStream struct {
	shardapi.ChangeStream
	next func() error
}

func (b brokenStream) Next() ([]shardapi.Change, error) {
	if err := b.next(); err != nil {
		return nil, err
	}
	return b.ChangeStream.Next()
}

// A pass may end at a sequence; the next one begins there.
func TestPassUpTo(t *testing.T) {
	t.Parallel()
	src := newSource(t)
	src.fill(t, 1000, 10)
	w := &recorder{}
	for _, upTo := range []uint64{1, 300, 999, 0} {
		p := &Pass[[]Doc]{Source: src, Work: w, UpTo: upTo}
		if n := len(w.seqs); n > 0 {
			p.Since = w.seqs[n-1]
		}
		seq, err := p.Run(t.Context())
		want := upTo
		if want == 0 {
			want = 1000
		}
		if err != nil || seq != want || len(w.ids) != int(want) {
			t.Fatalf("up to %d: came to %d with %d documents: %v", upTo, seq, len(w.ids), err)
		}
	}
	before := len(w.seqs)
	if seq, err := (&Pass[[]Doc]{Source: src, Work: w, Since: 1000}).Run(t.Context()); err != nil || seq != 1000 || len(w.seqs) != before {
		t.Errorf("a pass over nothing came to %d with %d commits: %v", seq, len(w.seqs)-before, err)
	}
}

// A document that changes while the pass runs does not run away from it: the pass
// ends with one sight of the log.
func TestPassSeesAllThatWasThere(t *testing.T) {
	t.Parallel()
	src := newSource(t)
	const docs = 3000
	src.fill(t, docs, 10)
	var once sync.Once
	w := &recorder{process: func([]Doc) error {
		once.Do(func() { // all of them move behind the end
			var edits []model.Edit
			resp, err := src.Read(t.Context(), &shardapi.ReadRequest{Queries: queries(docs)})
			if err != nil {
				t.Error(err)
				return
			}
			for i := range resp.Answers {
				d := &resp.Answers[i].Docs[0]
				edits = append(edits, model.Edit{ID: d.ID, Parent: d.Rev, Body: []byte(`{"moved":true}`)})
			}
			src.write(t, edits...)
		})
		return nil
	}}
	seq, err := (&Pass[[]Doc]{Source: src, Work: w, Workers: 2}).Run(t.Context())
	if err != nil || seq != docs || len(w.ids) != docs {
		t.Fatalf("came to %d with %d documents: %v", seq, len(w.ids), err)
	}
}

func queries(n int) []shardapi.DocQuery {
	out := make([]shardapi.DocQuery, n)
	for i := range out {
		out[i].ID = fmt.Sprintf("d%06d", i)
	}
	return out
}

func TestRoomPrefersTheUrgent(t *testing.T) {
	t.Parallel()
	r := NewRoom(1)
	if err := r.take(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	got := make(chan string)
	enter := func(ctx context.Context, name string, urgent bool) {
		waiting := func() int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.waiting) }
		n := waiting()
		go func() {
			if err := r.take(ctx, func() bool { return urgent }); err != nil {
				name += " left"
			}
			got <- name
		}()
		for waiting() == n {
			time.Sleep(time.Millisecond)
		}
	}
	ctx, leave := context.WithCancel(t.Context())
	enter(t.Context(), "first", false)
	enter(ctx, "gone", true)
	enter(t.Context(), "second", false)
	enter(t.Context(), "urgent", true)
	leave()
	for _, want := range []string{"gone left", "urgent", "first", "second"} {
		if name := <-got; name != want {
			t.Fatalf("%s came before %s", name, want)
		}
		r.give()
	}
	if r.free != 1 {
		t.Errorf("room for %d left", r.free)
	}
}
