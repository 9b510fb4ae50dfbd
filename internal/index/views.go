package index

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
)

// MaxKills is how many documents may make a view's function run away in one
// catch-up before the view is given up.
const MaxKills = 10

// loggedThrows is how many exceptions of a view are logged one by one in a pass.
const loggedThrows = 5

// Mapper runs map functions: result[i][k] is what maps[k] made of docs[i].
type Mapper interface {
	Map(ctx context.Context, prog jsvm.Program, maps []string, docs [][]byte) ([][]jsvm.Emitted, error)
}

// Target is the index of one view. D are the rows of one document.
type Target[D any] interface {
	// Seq is the checkpoint.
	Seq() uint64
	// Begin tells how many changes are ahead.
	Begin(changes int64) error
	// Apply replaces the rows of documents and moves the checkpoint.
	Apply(ctx context.Context, docs []D, seq uint64) error
	// Finish ends what Begin began.
	Finish(ctx context.Context) error
}

// View is one view of a pass.
type View[D any] struct {
	Name   string
	Map    string
	Target Target[D]
	// Kills are those of earlier passes of the same catch-up.
	Kills int

	kills  atomic.Int64
	throws atomic.Int64
	failed atomic.Pointer[model.Error]
}

// Failed gives the reason why the view was given up, nil if it was not.
func (v *View[D]) Failed() error {
	if e := v.failed.Load(); e != nil {
		return e
	}
	return nil
}

// Killed is how often the function was stopped, earlier passes included.
func (v *View[D]) Killed() int { return v.Kills + int(v.kills.Load()) }

// Views is the Work of the views of one design document: each document is parsed
// once for all of them.
type Views[D any] struct {
	Mapper  Mapper
	Program jsvm.Program
	Views   []*View[D]
	// Rows makes the rows of one document of what a map function emitted, which is
	// nil when it emitted nothing.
	Rows func(id string, emitted []byte) (D, error)
	// Log has the database and the design document among its attributes.
	Log *slog.Logger
}

// errAllFailed ends a pass that has no view left.
var errAllFailed = errors.New("all views of the pass were given up")

// Mapped are the rows of a batch: of each view, those of each document. A view that
// was given up meanwhile has none.
type Mapped[D any] struct{ rows [][]D }

// Process implements Work.
func (w *Views[D]) Process(ctx context.Context, docs []Doc) (Mapped[D], int, error) {
	out := Mapped[D]{rows: make([][]D, len(w.Views))}
	maps := make([]string, 0, len(w.Views))
	views := make([]int, 0, len(w.Views))
	for k, v := range w.Views {
		if v.failed.Load() == nil {
			maps, views = append(maps, v.Map), append(views, k)
			out.rows[k] = make([]D, 0, len(docs))
		}
	}
	if len(views) == 0 {
		return out, 0, errAllFailed
	}
	texts := make([][]byte, 0, len(docs))
	for i := range docs {
		if docs[i].Text != nil {
			texts = append(texts, docs[i].Text)
		}
	}
	emitted, err := w.mapAll(ctx, maps, texts)
	if err != nil {
		return out, 0, err
	}
	size, live := 0, 0
	for n, k := range views {
		killed, err := w.settle(ctx, k, docs, texts, emitted, n)
		if err != nil {
			return out, 0, err
		}
		if killed {
			// To find this out was dear: the checkpoint goes past it soon, so that it
			// need not be found out again.
			size += commitBytes
		}
	}
	for i := range docs {
		var answers []jsvm.Emitted // none: the document is deleted
		if docs[i].Text != nil {
			answers = emitted[live]
			live++
		}
		for n, k := range views {
			var rows []byte
			if answers != nil {
				if rows = answers[n].Rows; answers[n].Err != nil {
					rows = nil
				}
			}
			d, err := w.Rows(docs[i].ID, rows)
			if err != nil {
				// One bad answer must not keep the view from ever being built.
				w.threw(w.Views[k], docs[i].ID, err)
				if d, err = w.Rows(docs[i].ID, nil); err != nil {
					return out, 0, err
				}
			}
			out.rows[k] = append(out.rows[k], d)
			size += len(docs[i].ID) + len(rows)
		}
	}
	return out, size, nil
}

// mapAll calls map functions with documents and checks the form of the answer.
func (w *Views[D]) mapAll(ctx context.Context, maps []string, texts [][]byte) ([][]jsvm.Emitted, error) {
	if len(texts) == 0 {
		return nil, nil
	}
	emitted, err := w.Mapper.Map(ctx, w.Program, maps, texts)
	if err != nil {
		return nil, err
	}
	if len(emitted) != len(texts) {
		return nil, fmt.Errorf("map: %d answers to %d documents", len(emitted), len(texts))
	}
	for i := range emitted {
		if len(emitted[i]) != len(maps) {
			return nil, fmt.Errorf("map: %d answers of %d functions", len(emitted[i]), len(maps))
		}
	}
	return emitted, nil
}

// settle counts the documents at which view k failed, whose answers are column n of
// emitted. Those that were skipped because another view ran away too often are
// mapped again, for this view alone.
func (w *Views[D]) settle(ctx context.Context, k int, docs []Doc, texts [][]byte, emitted [][]jsvm.Emitted, n int) (killed bool, err error) {
	v := w.Views[k]
	if !slices.ContainsFunc(emitted, func(e []jsvm.Emitted) bool { return e[n].Err != nil }) {
		return false, nil // as nearly always
	}
	live := make([]*Doc, 0, len(texts))
	for i := range docs {
		if docs[i].Text != nil {
			live = append(live, &docs[i])
		}
	}
	look := make([]int, len(live)) // answers to be looked at
	for i := range look {
		look[i] = i
	}
	for {
		var skipped []int
		for _, i := range look {
			e := &emitted[i][n]
			var kill *jsvm.Killed
			switch {
			case e.Err == nil:
			case !errors.As(e.Err, &kill):
				w.threw(v, live[i].ID, e.Err)
			case kill.Skipped:
				skipped = append(skipped, i)
			default:
				killed = true
				w.killed(v, live[i].ID, kill)
			}
		}
		// Whoever skips has been run away from often enough: in the end either nothing
		// is skipped, or the view is given up.
		if len(skipped) == 0 || v.failed.Load() != nil {
			return killed, nil
		}
		again := make([][]byte, len(skipped))
		for at, i := range skipped {
			again[at] = texts[i]
		}
		answers, err := w.mapAll(ctx, []string{v.Map}, again)
		if err != nil {
			return killed, err
		}
		for at, i := range skipped {
			emitted[i][n] = answers[at][0]
		}
		look = skipped
	}
}

// killed counts a document at which a function had to be stopped; at too many the
// view is given up.
func (w *Views[D]) killed(v *View[D], id string, kill *jsvm.Killed) {
	if v.failed.Load() != nil {
		return
	}
	w.Log.Warn("a map function was stopped at a document, which has no rows in the view",
		"view", v.Name, "document", id, "reason", kill.Reason)
	v.kills.Add(1)
	if n := v.Killed(); n >= MaxKills {
		err := &model.Error{Kind: model.KindInternal, Name: "view_failed", Reason: fmt.Sprintf(
			"The view %s was given up: its map function had to be stopped at %d documents, the last one %q (%s). It is built again when its definition changes.",
			v.Name, n, id, kill.Reason)}
		if v.failed.CompareAndSwap(nil, err) {
			w.Log.Error("a view was given up", "view", v.Name, "reason", err.Reason)
		}
	}
}

// threw logs the first failures of a pass and counts the others: a function may
// throw at every document of a database.
func (w *Views[D]) threw(v *View[D], id string, err error) {
	if v.throws.Add(1) <= loggedThrows {
		w.Log.Warn("a map function failed on a document, which has no rows in the view",
			"view", v.Name, "document", id, "error", err)
	}
}

// Commit implements Work. The views have batches of their own, each atomic with its
// checkpoint.
func (w *Views[D]) Commit(ctx context.Context, results []Mapped[D], seq uint64) error {
	return w.each(func(k int, v *View[D]) error {
		n := 0
		for i := range results {
			n += len(results[i].rows[k])
		}
		docs := make([]D, 0, n)
		for i := range results {
			docs = append(docs, results[i].rows[k]...)
		}
		if err := v.Target.Apply(ctx, docs, seq); err != nil {
			return fmt.Errorf("view %s: %w", v.Name, err)
		}
		return nil
	})
}

// each calls fn for every view that was not given up, at the same time. It fails
// when none is left.
func (w *Views[D]) each(fn func(k int, v *View[D]) error) error {
	errs := make([]error, len(w.Views))
	var work sync.WaitGroup
	left := 0
	for k, v := range w.Views {
		if v.failed.Load() != nil {
			continue
		}
		left++
		work.Go(func() {
			defer func() {
				if r := recover(); r != nil { // here it would end the server
					errs[k] = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
				}
			}()
			errs[k] = fn(k, v)
		})
	}
	work.Wait()
	if left == 0 {
		return errAllFailed
	}
	return errors.Join(errs...)
}

// CatchUp runs a pass for the views, which must have the same checkpoint: Begin,
// the pass itself, Finish. pass says how; its Work and Since are set here. changes
// is how many are ahead. A view that is given up is no error of the others.
func (w *Views[D]) CatchUp(ctx context.Context, pass *Pass[Mapped[D]], changes int64) (seq uint64, err error) {
	pass.Work, pass.Since = w, w.Views[0].Target.Seq()
	if pass.Progress == nil {
		pass.Progress = new(Progress)
	}
	pass.Progress.Expect(changes)
	defer w.countThrows()
	err = w.each(func(_ int, v *View[D]) error { return v.Target.Begin(changes) })
	seq = pass.Since
	if err == nil {
		seq, err = pass.Run(ctx)
	}
	if err == nil {
		err = w.each(func(_ int, v *View[D]) error { return v.Target.Finish(ctx) })
	}
	if errors.Is(err, errAllFailed) {
		err = nil // each of them says why
	}
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return seq, err
}

// countThrows logs how many exceptions were not logged one by one.
func (w *Views[D]) countThrows() {
	for _, v := range w.Views {
		if n := v.throws.Load(); n > loggedThrows {
			w.Log.Warn("a map function failed on more documents, which have no rows in the view",
				"view", v.Name, "more", n-loggedThrows)
		}
	}
}
