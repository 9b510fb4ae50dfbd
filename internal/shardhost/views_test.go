package shardhost_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
	"github.com/divandb/divan/internal/shardhost"
)

func TestViewFollowsTheCopy(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, nil)
	def := define("_design/d", "v", emitN, "")
	v.put(1, "a", `{"n":2}`)
	v.put(1, "b", `{"n":1}`)
	v.put(1, "_design/d", `{"n":0}`)
	if rows := v.must(1, def, shardapi.UpdateNever); len(rows) != 0 {
		t.Errorf("never built: %q", rows)
	}
	check := func(want ...string) {
		t.Helper()
		if rows := v.must(1, def, shardapi.UpdateFirst); !slices.Equal(rows, want) {
			t.Errorf("rows %q, want %q", rows, want)
		}
		if info := v.info(1, def); info.Seq != info.CopySeq || info.Updating || info.Waiting != 0 {
			t.Errorf("info %+v", info)
		}
	}
	check("1 b null", "2 a null")
	v.put(1, "a", `{"n":0}`)
	if rows := v.must(1, def, shardapi.UpdateNever); !slices.Equal(rows, []string{"1 b null", "2 a null"}) {
		t.Errorf("not updated: %q", rows)
	}
	check("0 a null", "1 b null")
	v.edit(1, model.Edit{ID: "b", Body: []byte(`{}`), Deleted: true})
	v.put(1, "c", `{"n":[1,"x"]}`)
	v.put(1, "d", `{"m":1}`)
	check("0 a null", `[1,"x"] c null`)
	// The other copy has an index of its own.
	if rows := v.must(2, def, shardapi.UpdateFirst); len(rows) != 0 {
		t.Errorf("another copy: %q", rows)
	}
	v.stop()
	v.start()
	if rows := v.must(1, def, shardapi.UpdateNever); !slices.Equal(rows, []string{"0 a null", `[1,"x"] c null`}) {
		t.Errorf("after a restart: %q", rows)
	}
	v.put(1, "e", `{"n":7}`)
	check("0 a null", "7 e null", `[1,"x"] c null`)
}

func TestNoStoreOfIndexes(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, nil)
	h, err := shardhost.New(v.store, v.dir, shardhost.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	if _, _, err := h.Shard(1).View(t.Context(), everything(define("_design/d", "v", emitN, ""), shardapi.UpdateFirst)); model.KindOf(err) != model.KindUnavailable {
		t.Errorf("a view gave %v", err)
	}
	if _, err := h.Shard(1).ViewInfo(t.Context(), nil); model.KindOf(err) != model.KindUnavailable {
		t.Errorf("info gave %v", err)
	}
	h.DesignsChanged(1)
	if err := h.TidyIndexes(nil); err != nil {
		t.Error(err)
	}
}

// Requests that come while a pass is under way share it, and the views of a design
// document share one too.
func TestPassIsShared(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, nil)
	a, b := define("_design/d", "a", slowly, ""), define("_design/d", "b", emitN, "")
	v.designs(auto(a, b))
	v.fill(1, 300)
	before := time.Now().Unix()
	type answer struct {
		rows []string
		err  error
	}
	got := make(chan answer)
	ask := func(def shardapi.ViewDef) {
		rows, err := v.rows(t.Context(), 1, def, shardapi.UpdateFirst)
		got <- answer{rows, err}
	}
	for range 4 {
		go ask(a)
		go ask(b)
	}
	v.until("all of them wait", func() bool { return v.info(1, a, b).Waiting == 8 })
	if info := v.info(1, a); info.Waiting != 4 || !info.Updating {
		t.Errorf("info %+v", info)
	}
	tasks := v.tasks()
	if len(tasks) != 1 {
		t.Fatalf("tasks %+v", tasks)
	}
	if k := tasks[0]; k.Copy != 1 || k.Design != "_design/d" || k.TotalChanges != 300 || k.ChangesDone > 300 || k.StartedOn < before || k.UpdatedOn < k.StartedOn {
		t.Errorf("task %+v", k)
	}
	for range 8 {
		if a := <-got; a.err != nil || len(a.rows) != 300 {
			t.Errorf("%d rows: %v", len(a.rows), a.err)
		}
	}
	if info := v.info(1, a, b); info.Waiting != 0 || info.Updating || len(v.tasks()) != 0 {
		t.Errorf("info %+v, tasks %+v", info, v.tasks())
	}
}

// What is written while a pass runs is in the answer to whoever asks afterwards.
func TestWaitsForTheNextPass(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, nil)
	def := define("_design/d", "a", slowly, "")
	v.fill(1, 200)
	done := make(chan error)
	go func() {
		_, err := v.rows(t.Context(), 1, def, shardapi.UpdateFirst)
		done <- err
	}()
	v.until("the pass runs", func() bool { return v.info(1, def).Updating })
	v.put(1, "late", `{"n":-1}`)
	if rows := v.must(1, def, shardapi.UpdateFirst); len(rows) != 201 || rows[0] != "-1 late 1" {
		t.Errorf("%d rows, first %q", len(rows), rows[0])
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A client that goes away stops waiting at once. The pass goes on while somebody
// waits for it and ends when nobody does.
func TestClientsGoAway(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, nil)
	def := define("_design/d", "a", slowly, "")
	v.fill(1, 600)
	ask := func(ctx context.Context) chan error {
		done := make(chan error, 1)
		go func() {
			_, err := v.rows(ctx, 1, def, shardapi.UpdateFirst)
			done <- err
		}()
		return done
	}
	gone := errors.New("the client is gone")
	first, leave := context.WithCancelCause(t.Context())
	second, leaveToo := context.WithCancelCause(t.Context())
	one, two := ask(first), ask(second)
	v.until("both wait", func() bool { return v.info(1, def).Waiting == 2 })
	leave(gone)
	if err := <-one; !errors.Is(err, gone) {
		t.Errorf("the first got %v", err)
	}
	if info := v.info(1, def); !info.Updating || info.Waiting != 1 {
		t.Errorf("the pass that somebody waits for: %+v", info)
	}
	leaveToo(gone)
	if err := <-two; !errors.Is(err, gone) {
		t.Errorf("the second got %v", err)
	}
	v.until("the pass ends", func() bool { return !v.info(1, def).Updating })
	if info := v.info(1, def); info.Seq >= info.CopySeq {
		t.Errorf("the pass was not stopped: %+v", info)
	}
	if len(v.tasks()) != 0 {
		t.Errorf("tasks %+v", v.tasks())
	}
	// Who joins a pass that is being stopped gets the next one.
	third, leaveLast := context.WithCancelCause(t.Context())
	three := ask(third)
	v.until("a pass runs", func() bool { return v.info(1, def).Updating })
	four := ask(t.Context())
	leaveLast(gone)
	<-three
	if err := <-four; err != nil {
		t.Error(err)
	}
	if rows := v.must(1, def, shardapi.UpdateNever); len(rows) != 600 {
		t.Errorf("%d rows", len(rows))
	}
}

// A new view catches up by itself; its neighbours answer meanwhile, and then they
// go on together.
func TestNewViewLeavesItsNeighboursAlone(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, nil)
	old, fresh := define("_design/d", "old", emitN, ""), define("_design/d", "new", slowly, "_sum")
	v.designs(auto(old))
	v.fill(1, 400)
	if rows := v.must(1, old, shardapi.UpdateFirst); len(rows) != 400 {
		t.Fatalf("%d rows", len(rows))
	}
	old.Program.Key, fresh.Program.Key = "second", "second" // the design document is another one now
	v.designs(auto(old, fresh))
	done := make(chan error)
	go func() {
		rows, err := v.rows(t.Context(), 1, fresh, shardapi.UpdateFirst)
		if err == nil && len(rows) != 401 {
			err = fmt.Errorf("%d rows", len(rows))
		}
		done <- err
	}()
	v.until("the new one is built", func() bool { return v.info(1, fresh).Updating })
	v.put(1, "late", `{"n":-1}`)
	if info := v.info(1, old); info.Seq != 400 {
		t.Errorf("the old one is at %d", info.Seq)
	}
	if rows := v.must(1, old, shardapi.UpdateFirst); len(rows) != 401 {
		t.Errorf("%d rows", len(rows))
	}
	if info := v.info(1, fresh); !info.Updating || info.Seq != 0 {
		t.Errorf("the old view waited for the new one: %+v", info)
	}
	v.must(1, fresh, shardapi.UpdateFirst)
	if err := <-done; err != nil && !strings.Contains(err.Error(), "400 rows") {
		t.Error(err)
	}
	v.put(1, "later", `{"n":-2}`)
	v.must(1, fresh, shardapi.UpdateFirst)
	if info := v.info(1, old, fresh); info.Seq != 402 {
		t.Errorf("they do not go on together: %+v", info)
	}
}

// A function that throws loses the document in its view only.
func TestThrowsAreLogged(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, func(v *viewHost) {
		v.opts.Database = func(id shardapi.CopyID) string { return fmt.Sprintf("db%d", id) }
	})
	bad, good := define("_design/d", "bad", `function(doc) { emit(doc.n, null); if (doc.n % 2) throw({odd: doc.n}); }`, ""), define("_design/d", "good", emitN, "")
	v.designs(auto(bad, good))
	v.fill(1, 100)
	if rows := v.must(1, bad, shardapi.UpdateFirst); len(rows) != 50 {
		t.Errorf("%d rows", len(rows))
	}
	if rows := v.must(1, good, shardapi.UpdateNever); len(rows) != 100 {
		t.Errorf("%d rows", len(rows))
	}
	if n := v.log.count("database=db1", "design=_design/d", "view=bad", "document=d0"); n != 5 {
		t.Errorf("%d lines:\n%s", n, v.log.text())
	}
	if v.log.count("view=bad", "more=45") != 1 {
		t.Errorf("no sum:\n%s", v.log.text())
	}
}

// Documents at which a function runs away have no rows; at the tenth the view is
// given up, and its neighbour is not.
func TestRunawayViews(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, func(v *viewHost) { v.js.CallTime = 100 * time.Millisecond })
	bad, good := define("_design/d", "bad", forever, ""), define("_design/d", "good", emitN, "")
	v.designs(auto(bad, good))
	v.fill(1, 20)
	for i := range 3 {
		v.put(1, fmt.Sprintf("bad%d", i), `{"bad":true,"n":-1}`)
	}
	if rows := v.must(1, bad, shardapi.UpdateFirst); len(rows) != 20 {
		t.Errorf("%d rows", len(rows))
	}
	if rows := v.must(1, good, shardapi.UpdateNever); len(rows) != 23 {
		t.Errorf("%d rows", len(rows))
	}
	if n := v.log.count("stopped at a document", "view=bad", "document=bad"); n != 3 {
		t.Errorf("%d lines:\n%s", n, v.log.text())
	}
	// Ten in one catch-up are too many; the three before do not count.
	for i := range 12 {
		v.put(1, fmt.Sprintf("worse%d", i), `{"bad":true,"n":-2}`)
	}
	_, err := v.rows(t.Context(), 1, bad, shardapi.UpdateFirst)
	failed := func(err error) bool {
		return err != nil && model.KindOf(err) == model.KindInternal && strings.Contains(err.Error(), "view bad was given up")
	}
	if !failed(err) {
		t.Fatalf("the view gave %v", err)
	}
	for _, how := range []shardapi.Freshness{shardapi.UpdateFirst, shardapi.UpdateNever, shardapi.UpdateAfter} {
		if _, err := v.rows(t.Context(), 1, bad, how); !failed(err) {
			t.Errorf("update %d gave %v", how, err)
		}
	}
	if rows := v.must(1, good, shardapi.UpdateFirst); len(rows) != 35 {
		t.Errorf("the neighbour has %d rows\n%s", len(rows), v.log.text())
	}
	// Another definition is another view.
	mended := define("_design/d", "bad", emitN, "")
	v.designs(auto(mended, good))
	if rows := v.must(1, mended, shardapi.UpdateFirst); len(rows) != 35 {
		t.Errorf("the mended view has %d rows", len(rows))
	}
	// A restart tries again: the operator may have raised the limits.
	v.stop()
	v.start()
	if rows := v.must(1, bad, shardapi.UpdateNever); len(rows) != 20 {
		t.Errorf("after a restart: %d rows", len(rows))
	}
}

// Workers that are stopped are no fault of a document.
func TestWorkersAreStopped(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, nil)
	def := define("_design/d", "a", emitN, "")
	v.fill(1, 10)
	if err := v.pool.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := v.rows(t.Context(), 1, def, shardapi.UpdateFirst); model.KindOf(err) != model.KindUnavailable {
		t.Errorf("the view gave %v", err)
	}
	if rows := v.must(1, def, shardapi.UpdateNever); len(rows) != 0 {
		t.Errorf("rows %q", rows)
	}
}

// Close stops passes and whoever waits for them.
func TestCloseDuringAPass(t *testing.T) {
	t.Parallel()
	v := newViewHost(t, nil)
	def := define("_design/d", "a", slowly, "")
	v.designs(auto(def))
	v.fill(1, 3000)
	v.fill(2, 3000)
	v.host.DesignsChanged(2) // one in the background
	var work sync.WaitGroup
	for range 3 {
		work.Go(func() {
			if _, err := v.rows(t.Context(), 1, def, shardapi.UpdateFirst); !errors.Is(err, model.ErrClosed) {
				t.Errorf("the view gave %v", err)
			}
		})
	}
	v.until("both passes run", func() bool { return v.info(1, def).Waiting == 3 && len(v.tasks()) == 2 })
	began := time.Now()
	if err := v.host.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("it took %s", took)
	}
	work.Wait()
	if _, err := v.rows(t.Context(), 1, def, shardapi.UpdateFirst); !errors.Is(err, model.ErrClosed) {
		t.Errorf("a late request got %v", err)
	}
}
