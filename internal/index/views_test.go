package index

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// target is an index in memory: the rows of each document as they were emitted.
type target struct {
	rows     map[string]string
	seq      uint64
	begun    int64
	finished int
	err      error
}

// docRow is what the tests' views make of a document.
type docRow struct{ id, rows string }

func makeRow(id string, emitted []byte) (docRow, error) {
	if string(emitted) == "bad" {
		return docRow{}, errors.New("unreadable")
	}
	return docRow{id, string(emitted)}, nil
}

func (x *target) Seq() uint64                  { return x.seq }
func (x *target) Begin(n int64) error          { x.begun = n; return nil }
func (x *target) Finish(context.Context) error { x.finished++; return nil }

func (x *target) Apply(_ context.Context, docs []docRow, seq uint64) error {
	if x.err != nil {
		return x.err
	}
	if x.rows == nil {
		x.rows = make(map[string]string)
	}
	once := make(map[string]bool)
	for _, d := range docs {
		if once[d.id] {
			return fmt.Errorf("%s twice in one batch", d.id)
		}
		once[d.id] = true
		if d.rows == "" {
			delete(x.rows, d.id)
		} else {
			x.rows[d.id] = d.rows
		}
	}
	x.seq = seq
	return nil
}

// emitN emits the member n of a document.
func emitN(doc []byte) jsvm.Emitted {
	n, ok := rawjson.Get(doc, "n")
	if !ok {
		return jsvm.Emitted{}
	}
	return jsvm.Emitted{Rows: fmt.Appendf(nil, "[[%s,null]]", n)}
}

// failAt fails at every step-th document, up to most of them.
func failAt(step, most int, err error) mapFunc {
	var mu sync.Mutex
	failed := 0
	return func(doc []byte) jsvm.Emitted {
		v, _ := rawjson.Get(doc, "n")
		n, _ := rawjson.Int(v)
		mu.Lock()
		defer mu.Unlock()
		if int(n)%step == 0 && failed < most {
			failed++
			return jsvm.Emitted{Err: err}
		}
		return emitN(doc)
	}
}

// newViews makes the Work of views that are named like their functions.
func newViews(m *goMapper, log *captured, names ...string) *Views[docRow] {
	w := &Views[docRow]{Mapper: m, Rows: makeRow, Log: logTo(log)}
	for _, name := range names {
		w.Views = append(w.Views, &View[docRow]{Name: name, Map: name, Target: &target{}})
	}
	return w
}

func at(w *Views[docRow], k int) *target { return w.Views[k].Target.(*target) }

// All views of a pass see each document once, in one call, and deleted documents
// lose their rows.
func TestViewsShareAPass(t *testing.T) {
	t.Parallel()
	src := newSource(t)
	src.fill(t, 1000, 10)
	m := &goMapper{funcs: map[string]mapFunc{"a": emitN, "b": func(doc []byte) jsvm.Emitted {
		return jsvm.Emitted{Rows: []byte(`[["b",1]]`)}
	}}}
	w := newViews(m, &captured{}, "a", "b")
	seq, err := w.CatchUp(t.Context(), &Pass[Mapped[docRow]]{Source: src}, 1000)
	if err != nil || seq != 1000 {
		t.Fatalf("came to %d: %v", seq, err)
	}
	for k := range w.Views {
		if x := at(w, k); len(x.rows) != 1000 || x.seq != 1000 || x.begun != 1000 || x.finished != 1 {
			t.Errorf("view %d has %d rows at %d, %+v", k, len(x.rows), x.seq, x.finished)
		}
	}
	if at(w, 0).rows["d000007"] != "[[7,null]]" || at(w, 1).rows["d000007"] != `[["b",1]]` {
		t.Error("the views have mixed rows")
	}
	if m.docs != 1000 || m.calls != 1000/batchDocs {
		t.Errorf("%d documents in %d calls", m.docs, m.calls)
	}

	head := src.write(t, model.Edit{ID: "new", Body: []byte(`{"n":-1}`)})[0].Rev
	src.write(t, model.Edit{ID: "new", Body: []byte(`{}`), Parent: head, Deleted: true})
	resp := src.write(t, model.Edit{ID: "none", Body: []byte(`{}`)})
	at(w, 0).rows["new"] = "left over"
	if seq, err := w.CatchUp(t.Context(), &Pass[Mapped[docRow]]{Source: src}, 2); err != nil || seq != 1003 {
		t.Fatalf("came to %d: %v", seq, err)
	}
	if x := at(w, 0); len(x.rows) != 1000 || x.rows["new"] != "" {
		t.Errorf("%d rows, %q", len(x.rows), x.rows["new"])
	}
	if m.docs != 1001 || resp[0].ID != "none" {
		t.Errorf("%d documents mapped", m.docs)
	}
}

// A document at which a function fails has no rows in that view; the first few are
// logged, the others counted.
func TestThrows(t *testing.T) {
	t.Parallel()
	src := newSource(t)
	src.fill(t, 500, 10)
	log := &captured{}
	m := &goMapper{funcs: map[string]mapFunc{
		"good": emitN,
		"bad":  failAt(5, 1000, &jsvm.Thrown{Name: "TypeError", Reason: "no such thing"}),
		"odd":  func([]byte) jsvm.Emitted { return jsvm.Emitted{Rows: []byte("bad")} },
	}}
	w := newViews(m, log, "good", "bad", "odd")
	if _, err := w.CatchUp(t.Context(), &Pass[Mapped[docRow]]{Source: src}, 500); err != nil {
		t.Fatal(err)
	}
	if len(at(w, 0).rows) != 500 || len(at(w, 1).rows) != 400 || len(at(w, 2).rows) != 0 {
		t.Errorf("%d, %d and %d rows", len(at(w, 0).rows), len(at(w, 1).rows), len(at(w, 2).rows))
	}
	for k := range w.Views {
		if w.Views[k].Failed() != nil {
			t.Errorf("exceptions gave view %d up", k)
		}
	}
	if lines := log.lines("view=bad document="); len(lines) != loggedThrows || !strings.Contains(lines[0], "no such thing") {
		t.Errorf("logged %q", lines)
	}
	if lines := log.lines("view=bad more="); len(lines) != 1 || !strings.Contains(lines[0], "more=95") {
		t.Errorf("logged %q", lines)
	}
}

// A view whose function runs away too often is given up; its neighbour goes on.
func TestKills(t *testing.T) {
	t.Parallel()
	src := newSource(t)
	src.fill(t, 3000, 10)
	kill := &jsvm.Killed{Reason: "it took longer than 5s"}
	log := &captured{}
	m := &goMapper{funcs: map[string]mapFunc{"good": emitN, "some": failAt(100, MaxKills-1, kill), "bad": failAt(100, 1000, kill)}}
	w := newViews(m, log, "good", "some", "bad")
	if seq, err := w.CatchUp(t.Context(), &Pass[Mapped[docRow]]{Source: src, Workers: 1}, 3000); err != nil || seq != 3000 {
		t.Fatalf("came to %d: %v", seq, err)
	}
	if x := at(w, 0); len(x.rows) != 3000 || x.finished != 1 || w.Views[0].Failed() != nil || w.Views[0].Killed() != 0 {
		t.Errorf("the neighbour has %d rows", len(x.rows))
	}
	if x := at(w, 1); len(x.rows) != 3000-MaxKills+1 || x.finished != 1 || w.Views[1].Failed() != nil || w.Views[1].Killed() != MaxKills-1 {
		t.Errorf("%d kills gave the view up: %v", w.Views[1].Killed(), w.Views[1].Failed())
	}
	err := w.Views[2].Failed()
	if err == nil || model.KindOf(err) != model.KindInternal || !strings.Contains(err.Error(), "longer than 5s") || at(w, 2).finished != 0 {
		t.Errorf("the bad view: %v", err)
	}
	if lines := log.lines("view=bad document="); len(lines) != MaxKills || !strings.Contains(lines[0], "document=d000000") {
		t.Errorf("logged %q", lines)
	}
	if lines := log.lines("given up"); len(lines) != 1 {
		t.Errorf("logged %q", lines)
	}

	// Those of earlier passes of the same catch-up count.
	again := newViews(&goMapper{funcs: map[string]mapFunc{"bad": failAt(100, 2, kill)}}, log, "bad")
	again.Views[0].Kills = MaxKills - 2
	if _, err := again.CatchUp(t.Context(), &Pass[Mapped[docRow]]{Source: src}, 3000); err != nil || again.Views[0].Failed() == nil {
		t.Errorf("the pass ended with %v, the view with %v", err, again.Views[0].Failed())
	}
}

// Documents that were not looked at since another view ran away are not lost.
func TestSkippedDocuments(t *testing.T) {
	t.Parallel()
	src := newSource(t)
	src.fill(t, 150, 10)
	kill := &jsvm.Killed{Reason: "test"}
	m := &goMapper{skip: true, funcs: map[string]mapFunc{"good": emitN, "some": failAt(10, MaxKills-1, kill), "bad": failAt(5, 1000, kill)}}
	w := newViews(m, &captured{}, "some", "bad", "good")
	if _, err := w.CatchUp(t.Context(), &Pass[Mapped[docRow]]{Source: src}, 150); err != nil {
		t.Fatal(err)
	}
	if w.Views[0].Failed() != nil || w.Views[1].Failed() == nil || w.Views[2].Failed() != nil {
		t.Errorf("given up: %v, %v, %v", w.Views[0].Failed(), w.Views[1].Failed(), w.Views[2].Failed())
	}
	if len(at(w, 0).rows) != 150-MaxKills+1 || len(at(w, 2).rows) != 150 || w.Views[2].Killed() != 0 {
		t.Errorf("%d and %d rows, %d kills", len(at(w, 0).rows), len(at(w, 2).rows), w.Views[2].Killed())
	}
}

// What was found out at the price of a killed worker is put in soon.
func TestKillIsCommittedSoon(t *testing.T) {
	t.Parallel()
	src := newSource(t)
	src.fill(t, 1000, 10)
	m := &goMapper{funcs: map[string]mapFunc{"a": func(doc []byte) jsvm.Emitted {
		v, _ := rawjson.Get(doc, "n")
		switch n, _ := rawjson.Int(v); n {
		case 1:
			return jsvm.Emitted{Err: &jsvm.Killed{Reason: "test"}}
		case 900:
			panic("the pass ends here")
		}
		return emitN(doc)
	}}}
	w := newViews(m, &captured{}, "a")
	if _, err := w.CatchUp(t.Context(), &Pass[Mapped[docRow]]{Source: src, Workers: 1}, 1000); err == nil {
		t.Fatal("no error")
	}
	if x := at(w, 0); x.seq != batchDocs {
		t.Errorf("the checkpoint is at %d", x.seq)
	}
}

// An error that is none of a document's ends the pass.
func TestPassErrorsOfTheParts(t *testing.T) {
	t.Parallel()
	src := newSource(t)
	src.fill(t, 10, 10)
	m := &goMapper{funcs: map[string]mapFunc{"a": emitN, "b": emitN}, err: jsvm.ErrClosed}
	w := newViews(m, &captured{}, "a", "b")
	if _, err := w.CatchUp(t.Context(), &Pass[Mapped[docRow]]{Source: src}, 10); !errors.Is(err, jsvm.ErrClosed) {
		t.Errorf("closed workers gave %v", err)
	}
	m.err = nil
	at(w, 1).err = model.ErrStorageFull
	if _, err := w.CatchUp(t.Context(), &Pass[Mapped[docRow]]{Source: src}, 10); !errors.Is(err, model.ErrStorageFull) {
		t.Errorf("a full disk gave %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errTest)
	at(w, 1).err = nil
	if _, err := w.CatchUp(ctx, &Pass[Mapped[docRow]]{Source: src}, 10); !errors.Is(err, errTest) {
		t.Errorf("a cancelled pass gave %v", err)
	}
	if at(w, 0).finished+at(w, 1).finished != 0 {
		t.Error("a pass that failed was finished")
	}
}
