package shardhost_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divandb/divan/internal/index/view"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
	"github.com/divandb/divan/internal/shardhost"
)

// current tells whether an index has all that its copy has.
func (v *viewHost) current(id shardapi.CopyID, def shardapi.ViewDef) bool {
	info := v.info(id, def)
	return info.CopySeq > 0 && info.Seq == info.CopySeq && !info.Updating
}

func TestIndexesAreKeptWarm(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, func(v *viewHost) { v.opts.IndexDelay = 10 * time.Millisecond })
	a, b, asleep := define("_design/d", "a", emitN, "_count"), define("_design/e", "b", emitN, ""), define("_design/f", "c", emitN, "")
	still := auto(asleep)
	still.AutoUpdate = false
	v.designs(auto(a), still, auto(b))
	v.fill(1, 50)
	v.until("the indexes are built", func() bool { return v.current(1, a) && v.current(1, b) })
	v.put(1, "x", `{"n":-1}`)
	v.until("the indexes follow", func() bool { return v.current(1, a) && v.current(1, b) })
	if rows := v.must(1, b, shardapi.UpdateNever); len(rows) != 51 {
		t.Errorf("%d rows", len(rows))
	}
	if info := v.info(1, asleep); info.Seq != 0 {
		t.Errorf("autoupdate is false, and the index is at %d", info.Seq)
	}
}

// A new design document does not wait for the delay, and after a restart nothing
// is opened before it is used.
func TestNewDesignIsBuiltAtOnce(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, nil) // an hour's delay
	def := define("_design/d", "a", emitN, "")
	v.fill(1, 50)
	v.fill(2, 10)
	v.designs(auto(def))
	v.host.DesignsChanged(1)
	v.until("the index is built", func() bool { return v.current(1, def) })
	if info := v.info(2, def); info.Seq != 0 {
		t.Errorf("a copy nobody named is at %d", info.Seq)
	}
	v.stop()
	v.start()
	v.put(1, "x", `{"n":-1}`)
	if v.current(1, def) {
		t.Error("the index does not wait for the delay")
	}
}

func TestLazyUpdate(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, nil)
	def := define("_design/d", "a", emitN, "")
	still := auto(def)
	still.AutoUpdate = false // says nothing of those who ask
	v.designs(still)
	v.fill(1, 50)
	if rows := v.must(1, def, shardapi.UpdateAfter); len(rows) != 0 {
		t.Errorf("%d rows before the index is there", len(rows))
	}
	v.until("the index is built", func() bool { return v.current(1, def) })
	if rows := v.must(1, def, shardapi.UpdateAfter); len(rows) != 50 {
		t.Errorf("%d rows", len(rows))
	}
	v.put(1, "x", `{"n":-1}`)
	if v.current(1, def) {
		t.Error("nobody asked, and the index was updated")
	}
}

// countingDefs counts who asks for which copy.
type countingDefs struct {
	defs
	mu    sync.Mutex
	asked map[shardapi.CopyID]int
}

func (c *countingDefs) Of(ctx context.Context, id shardapi.CopyID) (*shardhost.Defined, error) {
	c.mu.Lock()
	c.asked[id]++
	c.mu.Unlock()
	return c.defs.Of(ctx, id)
}

// A database without views costs one question when it was written.
func TestWarmCostsNothingWithoutViews(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, nil)
	known := &countingDefs{asked: make(map[shardapi.CopyID]int)}
	known.defined.Store(&shardhost.Defined{})
	h, err := shardhost.New(v.store, v.dir, shardhost.Options{Index: v.index, JS: v.pool, Definitions: known, IndexDelay: 20 * time.Millisecond, MaxOpen: 10})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	const copies = 100
	for i := range copies {
		if _, err := h.Shard(shardapi.CopyID(i+100)).WriteLocal(t.Context(), &shardapi.LocalEdit{ID: "_local/a", Body: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range copies / 2 {
		if _, err := h.Shard(shardapi.CopyID(i+100)).Write(t.Context(), &shardapi.WriteRequest{Edits: []model.Edit{{ID: "a", Body: []byte(`{}`)}}}); err != nil {
			t.Fatal(err)
		}
	}
	v.until("all that were written were looked at", func() bool {
		known.mu.Lock()
		defer known.mu.Unlock()
		for i := range copies / 2 {
			if known.asked[shardapi.CopyID(i+100)] < 2 { // the write itself asked once
				return false
			}
		}
		return true
	})
	known.mu.Lock()
	defer known.mu.Unlock()
	for i := range copies {
		id := shardapi.CopyID(i + 100)
		if n := known.asked[id]; n > 2 || (i >= copies/2 && n > 0) {
			t.Errorf("copy %d: %d questions", id, n)
		}
	}
	if ids, err := view.Copies(v.index); err != nil || len(ids) != 0 {
		t.Errorf("indexes of %v: %v", ids, err)
	}
}

// Indexes that nobody defines any more are removed, those of earlier processes too;
// those that are defined stay.
func TestUnusedIndexesAreRemoved(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, func(v *viewHost) { v.opts.IndexGrace = 10 * time.Millisecond })
	a, b := define("_design/d", "a", emitN, ""), define("_design/d", "b", emitN, "")
	v.designs(auto(a, b))
	v.fill(1, 20)
	v.fill(2, 20)
	v.must(1, a, shardapi.UpdateFirst)
	v.must(2, b, shardapi.UpdateFirst)
	left, err := view.Open(view.Options{Store: v.index, Copy: 1, Sig: "left over"})
	if err != nil {
		t.Fatal(err)
	}
	row := view.Row{Key: []byte("1"), Value: []byte("null")}
	if err := left.Apply(t.Context(), []view.DocRows{{ID: "x", Rows: []view.Row{row}}}, 7); err != nil {
		t.Fatal(err)
	}
	v.designs(auto(b))
	v.host.DesignsChanged(1)
	v.host.DesignsChanged(2)
	v.until("they are removed", func() bool { return slices.Equal(v.stored(1), []string{b.Sig}) })
	if rows := v.must(1, b, shardapi.UpdateNever); len(rows) != 20 {
		t.Errorf("the one that stays has %d rows", len(rows))
	}
	if sigs := v.stored(2); !slices.Equal(sigs, []string{b.Sig}) && len(sigs) != 2 {
		t.Errorf("the other copy has %q", sigs)
	}
	// Whoever asks for it still gets it, built anew.
	if rows := v.must(1, a, shardapi.UpdateFirst); len(rows) != 20 {
		t.Errorf("built anew it has %d rows", len(rows))
	}
	v.designs()
	v.host.DesignsChanged(1)
	v.until("all are removed", func() bool { return len(v.stored(1)) == 0 })
}

// An index is not removed under a query or a pass.
func TestIndexInUseIsNotRemoved(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, func(v *viewHost) { v.opts.IndexGrace = time.Millisecond })
	read, built := define("_design/d", "read", `function(doc) { for (var i = 0; i < 20; i++) emit(doc.n, i); }`, ""), define("_design/e", "built", slowly, "")
	v.designs(auto(read), auto(built))
	v.fill(1, 500)
	_, st, err := v.host.Shard(1).View(t.Context(), everything(read, shardapi.UpdateFirst))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := st.Next(); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() {
		rows, err := v.rows(t.Context(), 1, built, shardapi.UpdateFirst)
		if err == nil && len(rows) != 500 {
			err = fmt.Errorf("%d rows", len(rows))
		}
		done <- err
	}()
	v.until("the pass runs", func() bool { return v.info(1, built).Waiting == 1 })
	unused := define("_design/f", "unused", emitN, "")
	v.must(1, unused, shardapi.UpdateFirst)
	v.designs()
	v.host.DesignsChanged(1)
	v.until("the look comes", func() bool { return !slices.Contains(v.stored(1), unused.Sig) })
	if !slices.Contains(v.stored(1), read.Sig) {
		t.Error("an index was removed under a query")
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
	rows, err := readRows(st)
	if err != nil || len(rows) < 500*20-1000 {
		t.Errorf("%d rows: %v", len(rows), err)
	}
	v.until("they are removed", func() bool { return len(v.stored(1)) == 0 })
}

// A pass in the background for views that are gone is stopped.
func TestPassForNobodyIsStopped(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, func(v *viewHost) { v.opts.IndexGrace = time.Millisecond })
	def := define("_design/d", "a", slowly, "")
	v.designs(auto(def))
	v.fill(1, 20_000) // minutes
	v.host.DesignsChanged(1)
	v.until("the pass runs", func() bool { return len(v.tasks()) == 1 })
	v.designs()
	v.host.DesignsChanged(1)
	v.until("the pass ends", func() bool { return len(v.tasks()) == 0 })
	v.until("the index is removed", func() bool { return len(v.stored(1)) == 0 })
}

// A dropped copy takes its indexes with it, and nothing brings them back.
func TestDropTakesTheIndexes(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, nil)
	read, built := define("_design/d", "read", `function(doc) { for (var i = 0; i < 20; i++) emit(doc.n, i); }`, ""), define("_design/e", "built", slowly, "")
	v.fill(1, 500)
	v.fill(2, 10)
	v.must(2, read, shardapi.UpdateFirst)
	_, st, err := v.host.Shard(1).View(t.Context(), everything(read, shardapi.UpdateFirst))
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	done := make(chan error)
	go func() { _, err := v.rows(t.Context(), 1, built, shardapi.UpdateFirst); done <- err }()
	v.until("the pass runs", func() bool { return v.info(1, built).Waiting == 1 })
	if err := v.host.Drop(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if err := <-done; !errors.Is(err, model.ErrCopyClosed) {
		t.Errorf("who waited got %v", err)
	}
	if _, err := readRows(st); !errors.Is(err, model.ErrCopyClosed) {
		t.Errorf("who read got %v", err)
	}
	if _, err := v.rows(t.Context(), 1, read, shardapi.UpdateNever); !errors.Is(err, model.ErrCopyClosed) {
		t.Errorf("who comes later gets %v", err)
	}
	v.until("the indexes are removed", func() bool { return len(v.stored(1)) == 0 })
	v.host.DesignsChanged(1)
	if err := v.host.Close(); err != nil {
		t.Fatal(err)
	}
	if ids, err := view.Copies(v.index); err != nil || !slices.Equal(ids, []uint64{2}) {
		t.Errorf("copies %v: %v", ids, err)
	}
}

func TestTidyIndexes(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, nil)
	def := define("_design/d", "a", emitN, "")
	for id := range shardapi.CopyID(4) {
		v.fill(id+1, 5)
		v.must(id+1, def, shardapi.UpdateFirst)
	}
	v.stop()
	v.start()
	if err := v.host.TidyIndexes(func(id shardapi.CopyID) bool { return id%2 == 0 }); err != nil {
		t.Fatal(err)
	}
	if ids, err := view.Copies(v.index); err != nil || !slices.Equal(ids, []uint64{2, 4}) {
		t.Errorf("copies %v: %v", ids, err)
	}
	if rows := v.must(2, def, shardapi.UpdateNever); len(rows) != 5 {
		t.Errorf("%d rows", len(rows))
	}
}

// Without room on the disk an index is not updated: who wants it fresh is told so,
// who takes it as it is gets it, and the background goes on when there is room.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	var free atomic.Int64
	free.Store(1 << 30)
	v := newViewHost(t, func(v *viewHost) {
		v.opts.IndexDelay = 10 * time.Millisecond
		v.space = func() (int64, error) { return free.Load(), nil }
	})
	def := define("_design/d", "a", emitN, "")
	v.designs(auto(def))
	v.fill(1, 10)
	v.until("the index is built", func() bool { return v.current(1, def) })
	free.Store(10)
	v.until("the disk is full", v.index.Full)
	v.put(1, "x", `{"n":-1}`)
	if _, err := v.rows(t.Context(), 1, def, shardapi.UpdateFirst); !errors.Is(err, model.ErrStorageFull) {
		t.Errorf("the view gave %v", err)
	}
	if rows := v.must(1, def, shardapi.UpdateNever); len(rows) != 10 {
		t.Errorf("%d rows", len(rows))
	}
	if rows := v.must(1, def, shardapi.UpdateAfter); len(rows) != 10 {
		t.Errorf("%d rows", len(rows))
	}
	free.Store(1 << 30)
	v.until("the index goes on by itself", func() bool { return v.current(1, def) })
	if n := v.log.count("could not be brought up to date"); n != 0 {
		t.Errorf("a full disk is no fault:\n%s", v.log.text())
	}
}

// cutPass has a pass for a view that is ahead of many changes cut short.
func (v *viewHost) cutPass(id shardapi.CopyID, def shardapi.ViewDef) {
	v.t.Helper()
	v.put(id, "first", `{"n":-1}`)
	v.must(id, def, shardapi.UpdateFirst)
	v.fill(id, 6000)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { _, err := v.rows(ctx, id, def, shardapi.UpdateFirst); done <- err }()
	v.until("the pass runs", func() bool { return v.info(id, def).Updating })
	cancel()
	<-done
	v.until("the pass ends", func() bool { return !v.info(id, def).Updating })
}

// Copies that are closed because others are needed lose nothing, and what a pass
// that was cut short held of the store is given back.
func TestEvictedCopiesAndCutPasses(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, func(v *viewHost) { v.opts.MaxOpen = 4 })
	slow, quick := define("_design/d", "slow", slowly, ""), define("_design/e", "quick", emitN, "")
	v.cutPass(1, slow)
	if rows := v.must(1, slow, shardapi.UpdateNever); len(rows) != 1 {
		t.Errorf("the copy whose pass was cut has %d rows", len(rows))
	}
	for id := range shardapi.CopyID(30) {
		v.fill(id+10, 10)
		v.must(id+10, quick, shardapi.UpdateFirst)
		if err := v.store.Flush(); err != nil { // what is not flushed is not idle
			t.Fatal(err)
		}
	}
	for id := range shardapi.CopyID(30) {
		if rows := v.must(id+10, quick, shardapi.UpdateNever); len(rows) != 10 {
			t.Errorf("copy %d has %d rows", id+10, len(rows))
		}
	}
	v.cutPass(2, slow)
	v.stop() // a snapshot that is left would be an error of the store
}

// A pass that its client left is finished in the background after a while: until
// then the store keeps what the index showed before.
func TestCutPassIsFinishedLater(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, func(v *viewHost) { v.opts.IndexGrace = 50 * time.Millisecond })
	// It takes its time only for what comes in the middle.
	def := define("_design/d", "a", `function(doc) { var end = Date.now() + (doc.n > 5800 ? 2 : 0); while (Date.now() < end); emit(doc.n, 1); }`, "")
	still := auto(def)
	still.AutoUpdate = false
	v.designs(still)
	v.cutPass(1, def)
	v.until("the index is finished", func() bool { return v.current(1, def) })
	if rows := v.must(1, def, shardapi.UpdateNever); len(rows) != 6001 {
		t.Errorf("%d rows", len(rows))
	}
}
