package jsvm

import (
	"context"
	"log/slog"
	"time"
)

// Options of a Pool. The zero value is good but for Command.
type Options struct {
	// Command starts a worker: the path of the divan binary and "js-worker".
	Command []string
	// Workers is how many run at most; default: the number of cores. They are
	// started when first needed.
	Workers int
	// CallTime is how long one call of a function may take; default 5 s.
	CallTime time.Duration
	// Memory is how many bytes a worker may use; default 256 MiB.
	Memory int64
	// Log takes what scripts log and what happens to workers.
	Log *slog.Logger
}

// Pool runs scripts in worker processes.
type Pool struct{ o Options }

// New makes a Pool. It starts no process yet.
func New(o Options) *Pool { return &Pool{o: o} }

// Close kills the workers; calls under way fail with ErrClosed.
func (p *Pool) Close() error { return nil }

// Check compiles functions without running them: one error (or nil) per function,
// in order. An error is a *Thrown whose Reason names the place.
func (p *Pool) Check(ctx context.Context, prog Program, funcs []string) ([]error, error) {
	panic("not there yet")
}

// Map calls every map function with every document (JSON objects): result[i][k]
// is what maps[k] made of docs[i].
func (p *Pool) Map(ctx context.Context, prog Program, maps []string, docs [][]byte) ([][]Emitted, error) {
	panic("not there yet")
}

// Reduce runs calls of one reduce function.
func (p *Pool) Reduce(ctx context.Context, prog Program, fn string, calls []ReduceCall) ([]Reduced, error) {
	panic("not there yet")
}

// Filter asks a filter function of each document.
func (p *Pool) Filter(ctx context.Context, prog Program, fn string, req []byte, docs [][]byte) ([]Verdict, error) {
	panic("not there yet")
}

// Validate runs a validation function: one error per call, nil for what may be
// written, *Thrown with the name "forbidden" or "unauthorized" for a refusal.
func (p *Pool) Validate(ctx context.Context, prog Program, fn string, calls []ValidateCall) ([]error, error) {
	panic("not there yet")
}

// Update runs an update function with (doc, req), doc nil for null. It gives the
// document to write (nil for none) and the response object, both JSON.
func (p *Pool) Update(ctx context.Context, prog Program, fn string, doc, req []byte) (newDoc, response []byte, err error) {
	panic("not there yet")
}

// Show runs a show function with (doc, req) and gives the response object, JSON.
func (p *Pool) Show(ctx context.Context, prog Program, fn string, doc, req []byte) (response []byte, err error) {
	panic("not there yet")
}

// Rewrite runs a rewrite function with (req) and gives what it returned, JSON.
func (p *Pool) Rewrite(ctx context.Context, prog Program, fn string, req []byte) (result []byte, err error) {
	panic("not there yet")
}

// ListIO is what a list function reads and writes.
type ListIO struct {
	// Row gives the next row (JSON object), nil at the end.
	Row func() ([]byte, error)
	// Start gets the response object of start() (JSON), once, before anything else.
	Start func(response []byte) error
	// Send gets pieces of the body.
	Send func(piece []byte) error
}

// List runs a list function with (head, req); rows are pulled and pieces are
// pushed while it runs.
func (p *Pool) List(ctx context.Context, prog Program, fn string, head, req []byte, io ListIO) error {
	panic("not there yet")
}
