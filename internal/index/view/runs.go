package view

import (
	"context"
	"fmt"
	"slices"

	"github.com/divandb/divan/internal/reduce"
)

// Reductions are asked for in large calls: the function may be JavaScript in
// another process, where a call costs more than a row. These are where a call is
// made although there might be more to put into it.
const (
	callRows  = 8 << 10
	callBytes = 2 << 20
)

// rowRuns collects runs of rows and reduces them together.
type rowRuns struct {
	reducer reduce.Reducer
	rows    []reduce.Row
	closed  []rowRun
	from    int // where the open run begins in rows
	text    arena
	ids     []byte
	idAt    [][2]int // of each row, in ids
	runs    []reduce.Run
}

// rowRun is a run of rows and where its state belongs, nil if the caller knows.
type rowRun struct {
	from, to int
	state    *[]byte
}

// add puts a stored row into the open run.
func (r *rowRuns) add(s *storedRow) error {
	from := len(r.ids)
	var err error
	if r.ids, err = s.appendID(r.ids); err != nil {
		return err
	}
	r.put(from, s.sort, s.key, s.value)
	return nil
}

// addOp puts a row that is not stored yet into the open run.
func (r *rowRuns) addOp(o *op) {
	from := len(r.ids)
	r.ids = append(r.ids, o.id...)
	r.put(from, o.sort, o.show.Key, o.show.Value)
}

// put adds a row whose id is in ids from there on.
func (r *rowRuns) put(id int, sort, key, value []byte) {
	r.idAt = append(r.idAt, [2]int{id, len(r.ids)})
	room := r.text.room(len(sort) + len(key) + len(value))
	room = append(append(append(room, sort...), key...), value...)
	a, b := len(sort), len(sort)+len(key)
	r.rows = append(r.rows, reduce.Row{Sort: room[:a:a], Key: room[a:b:b], Value: room[b:]})
}

// open counts the rows of the open run.
func (r *rowRuns) open() int { return len(r.rows) - r.from }

// close ends the open run, if it has rows; its state comes with flush.
func (r *rowRuns) close(state *[]byte) {
	if r.open() > 0 {
		r.closed = append(r.closed, rowRun{r.from, len(r.rows), state})
		r.from = len(r.rows)
	}
}

// reverse turns the open run round, when it was collected from its end.
func (r *rowRuns) reverse() {
	slices.Reverse(r.rows[r.from:])
	slices.Reverse(r.idAt[r.from:])
}

// full tells whether it is time to flush.
func (r *rowRuns) full() bool { return len(r.rows) >= callRows || r.text.used >= callBytes }

// reduce gives the states of the closed runs. There must be no open one.
func (r *rowRuns) reduce(ctx context.Context) ([][]byte, error) {
	if len(r.closed) == 0 {
		return nil, nil
	}
	ids := string(r.ids)
	for i, at := range r.idAt {
		r.rows[i].ID = ids[at[0]:at[1]]
	}
	r.runs = r.runs[:0]
	for _, c := range r.closed {
		r.runs = append(r.runs, reduce.Run{Rows: r.rows[c.from:c.to:c.to]})
	}
	return reduceAll(ctx, r.reducer, r.runs)
}

// flush puts the states of the closed runs where they belong.
func (r *rowRuns) flush(ctx context.Context) error {
	states, err := r.reduce(ctx)
	if err != nil {
		return err
	}
	for i, c := range r.closed {
		*c.state = states[i]
	}
	r.reset()
	return nil
}

// small tells whether the room it has made may be kept for others.
func (r *rowRuns) small() bool { return cap(r.rows) <= callRows && cap(r.ids) <= callBytes/8 }

// reset forgets everything.
func (r *rowRuns) reset() {
	clear(r.rows)
	r.rows, r.closed, r.from = r.rows[:0], r.closed[:0], 0
	r.ids, r.idAt = r.ids[:0], r.idAt[:0]
	r.text.reset()
}

// reduceAll is Reduce with the number of its answers checked.
func reduceAll(ctx context.Context, r reduce.Reducer, runs []reduce.Run) ([][]byte, error) {
	states, err := r.Reduce(ctx, runs)
	if err != nil {
		return nil, err
	}
	if len(states) != len(runs) {
		return nil, fmt.Errorf("index/view: %d runs gave %d states", len(runs), len(states))
	}
	return states, nil
}

// stateRuns collects runs of states and reduces them together.
type stateRuns struct {
	reducer reduce.Reducer
	runs    []reduce.Run
	into    []*[]byte
}

// add asks for the state of neighbouring states. One alone is itself.
func (r *stateRuns) add(states [][]byte, into *[]byte) {
	switch len(states) {
	case 0:
		*into = nil
	case 1:
		*into = states[0]
	default:
		r.runs = append(r.runs, reduce.Run{States: states})
		r.into = append(r.into, into)
	}
}

// flush reduces them.
func (r *stateRuns) flush(ctx context.Context) error {
	if len(r.runs) == 0 {
		return nil
	}
	states, err := reduceAll(ctx, r.reducer, r.runs)
	if err != nil {
		return err
	}
	for i := range states {
		*r.into[i] = states[i]
	}
	clear(r.runs)
	r.runs, r.into = r.runs[:0], r.into[:0]
	return nil
}
