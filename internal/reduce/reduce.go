// Package reduce computes the reductions of views. A reduction goes by way of a
// state: rows are reduced to a state, states to a state, and the last state is
// finished to the value a client sees. States are kept in indexes and travel
// between nodes, so their form is part of the signature of an index.
package reduce

import "context"

// Version is part of the signature of every reducing view: raise it when the form
// of a state changes.
const Version = 1

// Row is one row of a view. Sort is its collation key followed by nothing else;
// Key and Value are JSON.
type Row struct {
	Sort, Key, Value []byte
	ID               string
}

// Run is what becomes one state: rows in the order of the view, or states of
// neighbouring runs in that order (of several copies: in any order). Exactly one
// of the two is set.
type Run struct {
	Rows   []Row
	States [][]byte
}

// Reducer reduces many runs at once. It is safe for concurrent use.
type Reducer interface {
	// Reduce gives one state per run, in order. An error is of the whole call (a
	// cancelled context, no worker); a function that fails on its rows gives a
	// state that says so. The states are the caller's to keep.
	Reduce(ctx context.Context, runs []Run) ([][]byte, error)
	// Final gives the value of a state, JSON. An error is a *model.Error for the client.
	Final(state []byte) ([]byte, error)
	// Empty gives the value of no rows at all, JSON, and false if an empty reduction has no row.
	Empty() ([]byte, bool)
}
