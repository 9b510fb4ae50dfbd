package changes

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// TestFollowersMissNothing runs writers and followers of every kind at once: each
// follower must end with every document's last revision, also one that leaves in
// the middle and resumes from the token of any row, and one that is slow.
func TestFollowersMissNothing(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ q, ring, bytes int }{{1, 1000, 0}, {2, 1000, 0}, {3, 4, 0}, {2, 1, 0}, {2, 1000, 500}} {
		t.Run(fmt.Sprintf("q%d ring %d bytes %d", c.q, c.ring, c.bytes), func(t *testing.T) {
			t.Parallel()
			n := newNode(t, Options{Ring: c.ring, RingBytes: c.bytes})
			d := n.create(t, cluster.CreateSpec{Name: "a", Q: c.q})
			const writers, docs, rounds = 3, 15, 8
			var want sync.Map // id to last revision
			var writing, following sync.WaitGroup
			for w := range writers {
				writing.Go(func() {
					revs := map[string]model.Rev{}
					for r := range rounds * docs {
						e := doc(fmt.Sprintf("w%d-%d", w, r%docs))
						e.Parent = revs[e.ID]
						revs[e.ID] = n.put(t, d, e)[0]
						want.Store(e.ID, revs[e.ID].String())
					}
				})
			}
			written := make(chan struct{})
			followers := []FeedOptions{{}, {}, {IncludeDocs: true}, {Selector: []byte(`{}`)}, {}, {}}
			for kind, o := range followers {
				o.Limit = -1
				following.Go(func() { n.followUntil(t, d, o, kind, written, &want, writers*docs) })
			}
			writing.Wait()
			close(written)
			following.Wait()
			n.feeds.mu.Lock()
			defer n.feeds.mu.Unlock()
			if len(n.feeds.hubs) != 0 {
				t.Errorf("%d hubs are left", len(n.feeds.hubs))
			}
		})
	}
}

// followUntil follows until it has every document's last revision as it is once
// written is closed. Kinds 4 and 5 leave and resume at random rows.
func (n *oneNode) followUntil(t *testing.T, d *cluster.Database, o FeedOptions, kind int, written <-chan struct{}, want *sync.Map, docs int) {
	rnd := rand.New(rand.NewPCG(uint64(kind), 9))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	have := map[string]string{}
	complete := func() bool {
		select {
		case <-written:
		default:
			return false
		}
		if len(have) != docs {
			return false
		}
		for id, rev := range have {
			if w, _ := want.Load(id); w != rev {
				return false
			}
		}
		return true
	}
	f := n.feeds.Follow(ctx, d, o)
	defer func() { f.Close() }()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !complete() {
		rows, err := f.Next(ctx, tick.C)
		if errors.Is(err, ErrTick) {
			continue
		}
		if err != nil {
			t.Errorf("kind %d: %v with %d documents", kind, err, len(have))
			return
		}
		stop := len(rows)
		if kind >= 4 && rnd.IntN(5) == 0 && len(rows) > 0 {
			stop = 1 + rnd.IntN(len(rows))
		}
		var token string
		for i := range rows[:stop] {
			r := &rows[i]
			have[strings.Clone(r.Change.ID)] = r.Change.Leaves[0].Rev.String()
			token = string(f.AppendRowSeq(nil, r))
			if line := string(f.AppendRow(nil, r, MainOnly)); !strings.HasPrefix(line, `{"seq":"`+token+`","id":"`) {
				t.Errorf("kind %d: line %s of token %s", kind, line, token)
			}
			if o.IncludeDocs && r.Change.Doc != nil && string(r.Change.Doc.Body) != fmt.Sprintf(`{"is":%q}`, r.Change.ID) {
				t.Errorf("kind %d: document %s", kind, r.Change.Doc.Body)
			}
		}
		if stop < len(rows) || kind == 5 && rnd.IntN(10) == 0 && token != "" {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			o.Since = since(t, d, token)
			f = n.feeds.Follow(ctx, d, o)
		}
		if kind == 1 { // slow: others go on meanwhile
			for range 3 {
				if _, err := n.coord.Info(ctx, d); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

// next waits for rows and gives their ids.
func next(t *testing.T, f *Follower) []string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for {
		rows, err := f.Next(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, r := range rows {
			out = append(out, strings.Clone(r.Change.ID))
		}
		if len(out) > 0 {
			return out
		}
	}
}

func TestFollowFilters(t *testing.T) {
	t.Parallel()
	n := newNode(t, Options{})
	d := n.create(t, cluster.CreateSpec{Name: "a", Q: 3})
	n.put(t, d, doc("x"), doc("y"), doc("_design/z"))
	for name, c := range map[string]struct {
		o    FeedOptions
		want string
	}{
		"ids":      {FeedOptions{DocIDs: []string{"y"}}, "y"},
		"design":   {FeedOptions{Design: true}, "_design/z"},
		"selector": {FeedOptions{Selector: []byte(`{"is":"y"}`)}, "y"},
	} {
		c.o.Limit = 2
		f := n.feeds.Follow(t.Context(), d, c.o)
		if got := next(t, f); !slices.Equal(got, []string{c.want}) {
			t.Fatalf("%s: %v", name, got)
		}
		ans, err := n.coord.ReadOne(t.Context(), d, shardapi.DocQuery{ID: c.want}, 0)
		if err != nil {
			t.Fatal(err)
		}
		e := doc(c.want)
		e.Parent = ans.Docs[0].Rev
		n.put(t, d, doc(name+"1"), e, doc(name+"2"))
		if got := next(t, f); !slices.Equal(got, []string{c.want}) {
			t.Fatalf("%s: %v", name, got)
		}
		if _, err := f.Next(t.Context(), nil); !errors.Is(err, io.EOF) {
			t.Fatalf("%s after the limit: %v", name, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestFollowEnds checks the ways a wait ends without rows, and that the feed can
// go on after a tick.
func TestFollowEnds(t *testing.T) {
	t.Parallel()
	n := newNode(t, Options{})
	d := n.create(t, cluster.CreateSpec{Name: "a", Q: 2})
	f := n.feeds.Follow(t.Context(), d, FeedOptions{Limit: -1})
	defer f.Close()
	tick := make(chan time.Time, 1)
	tick <- time.Time{}
	if _, err := f.Next(t.Context(), tick); !errors.Is(err, ErrTick) {
		t.Fatalf("tick: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := f.Next(ended, nil); !errors.Is(err, context.Canceled) {
		t.Fatalf("the end of the call's context: %v", err)
	}
	n.put(t, d, doc("x"))
	if got := next(t, f); !slices.Equal(got, []string{"x"}) {
		t.Fatalf("after a tick: %v", got)
	}

	own, cancelOwn := context.WithCancel(t.Context())
	g := n.feeds.Follow(own, d, FeedOptions{Limit: -1})
	defer g.Close()
	next(t, g)
	over := make(chan error, 8)
	go func() { _, err := g.Next(t.Context(), nil); over <- err }()
	cancelOwn()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Fatalf("the end of the feed's context: %v", err)
	}

	// All kinds of followers end when the database goes.
	kinds := []FeedOptions{{}, {IncludeDocs: true}, {Selector: []byte("{}")}, {DocIDs: []string{"q"}}}
	for _, o := range kinds {
		o.Limit = -1
		o.Since = f.Vector()
		h := n.feeds.Follow(t.Context(), d, o)
		go func() {
			defer h.Close()
			for {
				if _, err := h.Next(t.Context(), nil); err != nil {
					over <- err
					return
				}
			}
		}()
	}
	if _, err := n.registry.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for range kinds {
		if err := <-over; !errors.Is(err, model.ErrDBNotFound) {
			t.Errorf("deleted under a follower: %v", err)
		}
	}
	if _, err := f.Next(t.Context(), nil); !errors.Is(err, model.ErrDBNotFound) {
		t.Errorf("after the deletion: %v", err)
	}
}

// TestSharedLines finds that followers who are up to date use the hub's lines.
func TestSharedLines(t *testing.T) {
	t.Parallel()
	n := newNode(t, Options{})
	d := n.create(t, cluster.CreateSpec{Name: "a", Q: 3})
	n.put(t, d, doc("a"), doc("b"), doc("c"))
	now, err := n.feeds.Now(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	f := n.feeds.Follow(t.Context(), d, FeedOptions{Limit: -1, Since: now})
	defer f.Close()
	g := n.feeds.Follow(t.Context(), d, FeedOptions{Limit: -1})
	defer g.Close()
	for got := 0; got < 3; {
		got += len(next(t, g))
	}
	// The first wait makes f take its place in the log.
	tick := make(chan time.Time, 1)
	tick <- time.Time{}
	if _, err := f.Next(t.Context(), tick); !errors.Is(err, ErrTick) {
		t.Fatal(err)
	}
	tick <- time.Time{}
	if _, err := g.Next(t.Context(), tick); !errors.Is(err, ErrTick) {
		t.Fatal(err)
	}
	for i := range 20 {
		n.put(t, d, doc(fmt.Sprint("n", i)))
		if a, b := next(t, f), next(t, g); !slices.Equal(a, b) || !f.shared || !g.shared {
			t.Fatalf("write %d: %v %v, shared %v %v", i, a, b, f.shared, g.shared)
		}
	}
}

// BenchmarkFanOut is one write delivered to 100 followers, rendered into a buffer.
func BenchmarkFanOut(b *testing.B) {
	n := newNode(b, Options{})
	d := n.create(b, cluster.CreateSpec{Name: "a", Q: 2})
	const followers = 100
	ctx, cancel := context.WithCancel(b.Context())
	var wg, got sync.WaitGroup
	for range followers {
		f := n.feeds.Follow(ctx, d, FeedOptions{Limit: -1})
		wg.Go(func() {
			defer f.Close()
			var buf []byte
			for {
				rows, err := f.Next(ctx, nil)
				if err != nil {
					return
				}
				for i := range rows {
					buf = f.AppendRow(buf[:0], &rows[i], MainOnly)
					got.Done()
				}
			}
		})
	}
	i := 0
	for b.Loop() {
		got.Add(followers)
		i++
		n.put(b, d, doc(fmt.Sprint("d", i)))
		got.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*followers), "ns/event")
	cancel()
	wg.Wait()
}

// TestRingIsBoundedInBytes updates a document with many conflicts under a follower:
// a row of it is large, and the hub must not keep a thousand.
func TestRingIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	n := newNode(t, Options{RingBytes: 256 << 10})
	d := n.create(t, cluster.CreateSpec{Name: "a", Q: 1})
	edits := make([]model.Edit, 500)
	for i := range edits {
		edits[i] = doc("d")
		edits[i].Replicated, edits[i].Path = true, []model.Rev{{Pos: 1, Hash: fmt.Sprintf("%032x", i)}}
	}
	n.put(t, d, edits...)
	f := n.feeds.Follow(t.Context(), d, FeedOptions{Limit: -1})
	defer f.Close()
	seen := model.Rev{}
	for i := range 50 {
		e := doc("d")
		e.Replicated, e.Path = true, []model.Rev{{Pos: uint64(i) + 2, Hash: "x"}}
		n.put(t, d, e)
		for seen != e.Path[0] {
			rows, err := f.Next(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range rows {
				seen = r.Change.Leaves[0].Rev
			}
		}
	}
	f.hub.mu.Lock()
	defer f.hub.mu.Unlock()
	sum := 0
	for _, node := range f.hub.nodes {
		sum += node.bytes
	}
	if sum != f.hub.bytes || sum > 256<<10 || len(f.hub.nodes) == 0 {
		t.Errorf("the hub keeps %d bytes in %d nodes and counts %d", sum, len(f.hub.nodes), f.hub.bytes)
	}
}
