package kv

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/divandb/divan/internal/model"
)

// gate is open until the first write error and closed for good after it. Pebble
// reports an error of its log once, goes on showing the lost write, and later
// panics with its locks held: so nobody may write, and nobody may be told that
// anything is durable, from that error on.
type gate struct {
	log     *slog.Logger
	onFatal func(error)

	failed atomic.Pointer[model.Error]

	mu      sync.Mutex
	armed   bool  // Open has succeeded: errors go to the gate, not to its caller
	opening error // the first fatal error while opening
}

// newGate gives an open gate that is not armed.
func newGate(log *slog.Logger, onFatal func(error)) *gate {
	return &gate{log: log, onFatal: onFatal}
}

// arm ends the opening of the store; it gives the fatal error that happened
// meanwhile, if any.
func (g *gate) arm() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.opening != nil {
		return g.opening
	}
	g.armed = true
	return nil
}

// failure gives the error of a closed gate, nil of an open one.
func (g *gate) failure() error {
	if e := g.failed.Load(); e != nil {
		return e
	}
	return nil
}

// frozen tells whether the disk must not change any more.
func (g *gate) frozen() bool { return g.failed.Load() != nil }

// fail closes the gate because of cause, and returns its error. Only the first
// call has an effect. It may be called with any lock of Pebble held, hence the
// goroutine around OnFatal. Before arm it keeps the cause for Open and returns
// it as it is.
func (g *gate) fail(cause error) error {
	g.mu.Lock()
	if !g.armed {
		if g.opening == nil {
			g.opening = cause
		}
		g.mu.Unlock()
		return cause
	}
	first := g.failed.Load() == nil
	if first {
		// The words of model.ErrClosed, so that errors.Is finds it.
		g.failed.Store(&model.Error{
			Kind: model.ErrClosed.Kind, Name: model.ErrClosed.Name, Reason: model.ErrClosed.Reason, Err: cause,
		})
	}
	g.mu.Unlock()
	if first {
		g.log.Error("the store cannot write and is closed for writing", "error", cause)
		go g.fatal(cause)
	}
	return g.failure()
}

// fatal tells the owner.
func (g *gate) fatal(cause error) {
	if g.onFatal == nil {
		panic(fmt.Sprintf("kv: the store cannot write: %v", cause))
	}
	g.onFatal(cause)
}

// pebbleLogger is Pebble's way to the log. Pebble's own logger ends the process
// on Fatalf; this one closes the gate, which freezes the disk: what Pebble does
// after a Fatalf that returns cannot do harm.
type pebbleLogger struct {
	log  *slog.Logger
	gate *gate
}

// Infof implements pebble.Logger.
func (l *pebbleLogger) Infof(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug(fmt.Sprintf(format, args...))
	}
}

// Errorf implements pebble.Logger.
func (l *pebbleLogger) Errorf(format string, args ...any) {
	l.log.Error(fmt.Sprintf(format, args...))
}

// Fatalf implements pebble.Logger.
func (l *pebbleLogger) Fatalf(format string, args ...any) {
	_ = l.gate.fail(fmt.Errorf("kv: "+format, args...)) // the gate keeps it
}
