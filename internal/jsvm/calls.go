package jsvm

import (
	"context"

	"github.com/divandb/divan/internal/rawjson"
)

// Check compiles functions without calling them: one error (or nil) per function,
// in order. An error is a *Thrown whose Reason names the place.
func (p *Pool) Check(ctx context.Context, prog Program, funcs []string) ([]error, error) {
	errs := make([]error, len(funcs))
	b := batch{
		pool: p, prog: prog, op: "check", n: len(funcs),
		appendItem: func(dst []byte, i int) []byte { return rawjson.AppendString(dst, funcs[i]) },
		take:       func(i, _ int, r result) { errs[i] = r.err },
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	return errs, nil
}

// Map calls every map function with every document (JSON objects): result[i][k]
// is what maps[k] made of docs[i].
func (p *Pool) Map(ctx context.Context, prog Program, maps []string, docs [][]byte) ([][]Emitted, error) {
	all := make([]Emitted, len(docs)*len(maps))
	out := make([][]Emitted, len(docs))
	for i := range out {
		out[i] = all[i*len(maps) : (i+1)*len(maps) : (i+1)*len(maps)]
	}
	if len(maps) == 0 {
		return out, nil
	}
	var short func(dst []byte, i int) []byte
	if fields, ok := p.sights.of(prog.Key, maps); ok {
		short = func(dst []byte, i int) []byte { return project(dst, docs[i], fields) }
	}
	b := batch{
		pool: p, prog: prog, op: "map", funcs: maps, perFunc: true, n: len(docs),
		appendItem:  func(dst []byte, i int) []byte { return append(dst, docs[i]...) },
		appendShort: short,
		take: func(i, k int, r result) {
			switch {
			case r.err == nil && !isRows(r.json):
				out[i][k] = Emitted{Err: &Thrown{Name: "TypeError", Reason: "the rows of the map function are no pairs of key and value"}}
			case r.err == nil && len(r.json) > len("[]"):
				out[i][k] = Emitted{Rows: r.json}
			default:
				out[i][k] = Emitted{Err: r.err}
			}
		},
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	return out, nil
}

// Reduce runs calls of one reduce function.
func (p *Pool) Reduce(ctx context.Context, prog Program, fn string, calls []ReduceCall) ([]Reduced, error) {
	out := make([]Reduced, len(calls))
	item := func(dst []byte, c *ReduceCall, keys []byte) []byte {
		dst = appendOrNull(append(dst, '['), keys)
		dst = appendOrNull(append(dst, ','), c.Values)
		if c.Rereduce {
			return append(dst, ",true]"...)
		}
		return append(dst, ",false]"...)
	}
	var short func(dst []byte, i int) []byte
	if fields, ok := p.sights.of(prog.Key, []string{fn}); ok && len(fields) == 0 {
		// Keys are most of what there is to parse, and most functions never look at
		// them.
		short = func(dst []byte, i int) []byte {
			keys := calls[i].Keys
			if keys != nil {
				keys = noRows
			}
			return item(dst, &calls[i], keys)
		}
	}
	b := batch{
		pool: p, prog: prog, op: "reduce", funcs: []string{fn}, n: len(calls),
		appendItem:  func(dst []byte, i int) []byte { return item(dst, &calls[i], calls[i].Keys) },
		appendShort: short,
		take:        func(i, _ int, r result) { out[i].Value, out[i].Err = r.value() },
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	return out, nil
}

// Filter asks a filter function of each document. Every true value of JavaScript
// lets a document pass, as in CouchDB.
func (p *Pool) Filter(ctx context.Context, prog Program, fn string, req []byte, docs [][]byte) ([]Verdict, error) {
	out := make([]Verdict, len(docs))
	b := batch{
		pool: p, prog: prog, op: "filter", funcs: []string{fn}, n: len(docs),
		extra:      appendOrNull(nil, req),
		appendItem: func(dst []byte, i int) []byte { return append(dst, docs[i]...) },
		take: func(i, _ int, r result) {
			v, err := r.value()
			out[i] = Verdict{Pass: string(v) == "1", Err: err}
		},
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	return out, nil
}

// Validate runs a validation function: one error per call, nil for what may be
// written, *Thrown with the name "forbidden" or "unauthorized" for a refusal.
func (p *Pool) Validate(ctx context.Context, prog Program, fn string, calls []ValidateCall) ([]error, error) {
	errs := make([]error, len(calls))
	b := batch{
		pool: p, prog: prog, op: "validate", funcs: []string{fn}, n: len(calls),
		appendItem: func(dst []byte, i int) []byte {
			c := &calls[i]
			dst = appendOrNull(append(dst, '['), c.NewDoc)
			dst = appendOrNull(append(dst, ','), c.OldDoc)
			dst = appendOrNull(append(dst, ','), c.UserCtx)
			dst = appendOrNull(append(dst, ','), c.Security)
			return append(dst, ']')
		},
		take: func(i, _ int, r result) { errs[i] = r.err },
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	return errs, nil
}

// Update runs an update function with (doc, req), doc nil for null. It gives the
// document to write (nil for none) and the response object, both JSON.
func (p *Pool) Update(ctx context.Context, prog Program, fn string, doc, req []byte) (newDoc, response []byte, err error) {
	v, err := p.one(ctx, prog, "update", fn, doc, req)
	if err != nil {
		return nil, nil, err
	}
	n := 0
	for part := range rawjson.Elements(v) {
		switch n++; n {
		case 1:
			newDoc = part
		case 2:
			response = part
		}
	}
	if rawjson.KindOf(newDoc) != rawjson.KindObject {
		newDoc = nil
	}
	return newDoc, response, nil
}

// Show runs a show function with (doc, req) and gives the response object, JSON.
func (p *Pool) Show(ctx context.Context, prog Program, fn string, doc, req []byte) (response []byte, err error) {
	return p.one(ctx, prog, "show", fn, doc, req)
}

// Rewrite runs a rewrite function with (req) and gives what it returned, JSON: null
// for no rule, a string as an object with path and method.
func (p *Pool) Rewrite(ctx context.Context, prog Program, fn string, req []byte) (result []byte, err error) {
	return p.one(ctx, prog, "rewrite", fn, req)
}

// one runs a function once.
func (p *Pool) one(ctx context.Context, prog Program, op, fn string, args ...[]byte) (value []byte, err error) {
	var scriptErr error
	b := batch{
		pool: p, prog: prog, op: op, funcs: []string{fn}, n: 1,
		appendItem: func(dst []byte, _ int) []byte { return appendArgs(dst, args) },
		take:       func(_, _ int, r result) { value, scriptErr = r.value() },
	}
	if err := b.run(ctx); err != nil {
		return nil, err
	}
	return value, scriptErr
}

func appendArgs(dst []byte, args [][]byte) []byte {
	dst = append(dst, '[')
	for i, a := range args {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendOrNull(dst, a)
	}
	return append(dst, ']')
}

func appendOrNull(dst, v []byte) []byte {
	if v == nil {
		return append(dst, "null"...)
	}
	return append(dst, v...)
}

// value is the one thing that a function gave back.
func (r *result) value() ([]byte, error) {
	if r.err != nil {
		return nil, r.err
	}
	v, ok := only(r.json)
	if !ok {
		return nil, &Thrown{Name: "InternalError", Reason: errNoResult.Error()}
	}
	return v, nil
}
