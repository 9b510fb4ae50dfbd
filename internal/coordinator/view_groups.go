package coordinator

import (
	"bytes"
	"context"
	"errors"
	"io"

	"github.com/divandb/divan/internal/reduce"
	"github.com/divandb/divan/internal/shardapi"
)

// groupStream makes the groups of a view out of those of its copies: the states of
// equal groups become one, and the values are final. Groups outside the window are
// counted and not reduced.
type groupStream struct {
	ctx     context.Context
	from    shardapi.Stream[shardapi.ViewRow]
	reducer reduce.Reducer
	join    bool  // equal groups may follow each other
	whole   bool  // one group of everything: it has a value even if there is nothing
	skip    int64 // groups
	left    int64 // groups; <0: no limit

	// open is the group that the next row may belong to. It outlives the batch that
	// it was found in; the first kept states of it are then ours.
	open   shardapi.ViewRow
	states [][]byte
	kept   int
	some   bool // there has been a group

	out    []shardapi.ViewRow // groups of this batch, their values not final yet
	joined []joinedGroup      // those of them with several states
	slab   [][]byte           // their states
	runs   []reduce.Run
	err    error
}

var jsonNull = []byte("null")

// joinedGroup is a group of out and its states in the slab.
type joinedGroup struct{ at, from, to int }

// Next gives the next groups.
func (g *groupStream) Next() ([]shardapi.ViewRow, error) {
	if g.err != nil {
		return nil, g.err
	}
	if g.left == 0 {
		g.err = io.EOF
		return nil, io.EOF
	}
	g.out, g.joined, g.slab = g.out[:0], g.joined[:0], g.slab[:0]
	rows, err := g.from.Next()
	switch {
	case err == io.EOF:
		g.err = io.EOF // after what is left
		return g.last()
	case err != nil:
		g.err = err
		return nil, err
	}
	for i := range rows {
		g.add(&rows[i])
	}
	g.keep()
	if err := g.finish(); err != nil {
		g.err = err
		return nil, err
	}
	return g.out, nil
}

// Close ends the stream below.
func (g *groupStream) Close() error {
	if g.err == nil {
		g.err = errStreamClosed
	}
	return g.from.Close()
}

// add takes a group of a copy.
func (g *groupStream) add(row *shardapi.ViewRow) {
	if len(g.states) > 0 {
		if g.join && g.open.Range == row.Range && bytes.Equal(g.open.Sort, row.Sort) {
			g.states = append(g.states, row.Value)
			return
		}
		g.shut()
	}
	g.some = true
	g.open = *row
	g.states = append(g.states, row.Value)
	if !g.join {
		g.shut()
	}
}

// shut ends the open group and puts it out if it lies in the window.
func (g *groupStream) shut() {
	switch {
	case g.skip > 0:
		g.skip--
	case g.left != 0:
		if g.left > 0 {
			g.left--
		}
		g.open.Value = g.states[0]
		if len(g.states) > 1 {
			from := len(g.slab)
			g.slab = append(g.slab, g.states...)
			g.joined = append(g.joined, joinedGroup{len(g.out), from, len(g.slab)})
		}
		g.out = append(g.out, g.open)
	}
	g.states, g.kept = g.states[:0], 0
}

// keep makes the open group independent of the batch.
func (g *groupStream) keep() {
	if len(g.states) == 0 {
		return
	}
	if g.kept == 0 {
		g.open.Sort, g.open.Key = bytes.Clone(g.open.Sort), bytes.Clone(g.open.Key)
	}
	for i := g.kept; i < len(g.states); i++ {
		g.states[i] = bytes.Clone(g.states[i])
	}
	g.kept = len(g.states)
}

// finish reduces the groups that have several states, all in one call, and makes
// the values final. As in CouchDB the error of a function whose output does not
// shrink stands in the place of its group; any other ends the stream.
func (g *groupStream) finish() error {
	if len(g.joined) > 0 {
		g.runs = g.runs[:0]
		for _, j := range g.joined {
			g.runs = append(g.runs, reduce.Run{States: g.slab[j.from:j.to]})
		}
		states, err := g.reducer.Reduce(g.ctx, g.runs)
		if err != nil {
			return err
		}
		for i, j := range g.joined {
			g.out[j.at].Value = states[i]
		}
	}
	for i := range g.out {
		row := &g.out[i]
		value, err := g.reducer.Final(row.Value)
		if err != nil {
			if !errors.As(err, &row.Err) || row.Err.Name != reduce.OverflowError {
				return err
			}
			value = jsonNull
		}
		row.Value = value
	}
	return nil
}

// last gives what is left at the end of the rows.
func (g *groupStream) last() ([]shardapi.ViewRow, error) {
	if len(g.states) > 0 {
		g.shut()
	}
	if err := g.finish(); err != nil {
		g.err = err
		return nil, err
	}
	if !g.some && g.whole && g.skip == 0 {
		if value, ok := g.reducer.Empty(); ok {
			g.out = append(g.out, shardapi.ViewRow{Key: jsonNull, Value: value})
		}
	}
	if len(g.out) == 0 {
		return nil, io.EOF
	}
	return g.out, nil
}
