package reduce

import (
	"bytes"
	"context"
	"errors"

	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// script is the Reducer of a JavaScript function. A state is a byte for its sort
// and then the JSON value, or the name and reason of what went wrong.
type script struct {
	reduce func(ctx context.Context, calls []jsvm.ReduceCall) ([]jsvm.Reduced, error)
}

// The sorts of states.
const (
	scriptValue  = 'v'
	scriptFailed = 'e'
)

// OverflowError is the name of the error of a function whose output does not
// shrink. CouchDB shows it in the place of the row and goes on.
const OverflowError = "reduce_overflow_error"

// Script gives the reduction that a JavaScript function defines.
func Script(pool *jsvm.Pool, prog jsvm.Program, fn string) Reducer {
	return script{func(ctx context.Context, calls []jsvm.ReduceCall) ([]jsvm.Reduced, error) {
		return pool.Reduce(ctx, prog, fn, calls)
	}}
}

// Reduce implements Reducer. All runs that need the function go to the workers in
// one call.
func (s script) Reduce(ctx context.Context, runs []Run) ([][]byte, error) {
	states := make([][]byte, len(runs))
	var calls []jsvm.ReduceCall
	var callers []int // the run of each call
	for i := range runs {
		run := &runs[i]
		if len(run.States) == 0 {
			calls = append(calls, rowsCall(run.Rows))
			callers = append(callers, i)
			continue
		}
		call, state, err := statesCall(run.States)
		if err != nil {
			return nil, err
		}
		if state != nil {
			states[i] = bytes.Clone(state)
			continue
		}
		calls = append(calls, call)
		callers = append(callers, i)
	}
	if len(calls) == 0 {
		return states, nil
	}
	reduced, err := s.reduce(ctx, calls)
	if err != nil {
		return nil, err
	}
	for k, r := range reduced {
		states[callers[k]] = scriptState(&calls[k], r)
	}
	return states, nil
}

// rowsCall makes the call that reduces rows.
func rowsCall(rows []Row) jsvm.ReduceCall {
	size := 2
	for i := range rows {
		size += len(rows[i].Key) + len(rows[i].ID) + 6
	}
	keys := append(make([]byte, 0, size), '[')
	values := []byte{'['}
	for i := range rows {
		if i > 0 {
			keys = append(keys, ',')
			values = append(values, ',')
		}
		keys = append(append(keys, '['), rows[i].Key...)
		keys = rawjson.AppendString(append(keys, ','), rows[i].ID)
		keys = append(keys, ']')
		values = append(values, rows[i].Value...)
	}
	return jsvm.ReduceCall{Keys: append(keys, ']'), Values: append(values, ']')}
}

// statesCall makes the call that reduces states, or gives the state they come to
// without one: a single state stays as it is, and a failure stays a failure.
func statesCall(states [][]byte) (call jsvm.ReduceCall, state []byte, err error) {
	values := []byte{'['}
	for i, s := range states {
		switch {
		case len(s) < 2 || s[0] != scriptValue && s[0] != scriptFailed:
			return call, nil, errState
		case s[0] == scriptFailed || len(states) == 1:
			return call, s, nil
		}
		if i > 0 {
			values = append(values, ',')
		}
		values = append(values, s[1:]...)
	}
	return jsvm.ReduceCall{Values: append(values, ']'), Rereduce: true}, nil, nil
}

// scriptState makes the state of what a call gave.
func scriptState(call *jsvm.ReduceCall, r jsvm.Reduced) []byte {
	if r.Err != nil {
		var thrown *jsvm.Thrown
		if errors.As(r.Err, &thrown) {
			return failedState(thrown.Name, thrown.Reason)
		}
		return failedState("reduce_killed", r.Err.Error())
	}
	if len(r.Value) == 0 {
		return []byte{scriptValue, 'n', 'u', 'l', 'l'}
	}
	input := len(call.Keys) + len(call.Values)
	if output := len(r.Value); output > overflowSize && 2*output > input {
		return failedState(OverflowError, overflowReason(input, output))
	}
	return append(append(make([]byte, 0, 1+len(r.Value)), scriptValue), r.Value...)
}

// maxReason is how much of a thrown reason a state keeps.
const maxReason = 4096

// failedState makes the state of a failure.
func failedState(name, reason string) []byte {
	if name == "" {
		name = "error"
	}
	if len(reason) > maxReason {
		reason = reason[:maxReason]
	}
	return append(appendPiece([]byte{scriptFailed}, name), reason...)
}

// Final implements Reducer.
func (s script) Final(state []byte) ([]byte, error) {
	if len(state) < 2 {
		return nil, errState
	}
	switch state[0] {
	case scriptValue:
		return bytes.Clone(state[1:]), nil
	case scriptFailed:
		if name, reason, ok := cutBytes(state[1:]); ok {
			return nil, &model.Error{Kind: model.KindInternal, Name: string(name), Reason: string(reason)}
		}
	}
	return nil, errState
}

// Empty implements Reducer: as in CouchDB a reduction of no rows is no row.
func (s script) Empty() ([]byte, bool) { return nil, false }
