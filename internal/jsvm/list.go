package jsvm

import (
	"context"
	"errors"
	"fmt"

	"github.com/divandb/divan/internal/rawjson"
)

// ListIO is what a list function reads and writes.
type ListIO struct {
	// Row gives the next row (JSON object), nil at the end.
	Row func() ([]byte, error)
	// Start gets the response object of start() (JSON), once, before anything else.
	Start func(response []byte) error
	// Send gets pieces of the body.
	Send func(piece []byte) error
}

// Rows go to a list function in bundles.
const (
	listRows  = 100
	listBytes = 256 << 10
)

// List runs a list function with (head, req); rows are pulled and pieces are
// pushed while it runs. The time limit is for the script's own time from one such
// exchange to the next.
func (p *Pool) List(ctx context.Context, prog Program, fn string, head, req []byte, io ListIO) error {
	for attempt := 1; ; attempt++ {
		l := list{io: io}
		err := p.list(ctx, prog, fn, head, req, &l)
		var failed *failure
		if !errors.As(err, &failed) {
			return err
		}
		// What the client has seen cannot be taken back, nor rows be read again.
		if failed.kind != failedCrash || l.touched || attempt >= attempts(true, failed.alien) {
			return p.verdict(failed)
		}
	}
}

func (p *Pool) list(ctx context.Context, prog Program, fn string, head, req []byte, l *list) error {
	key := engineKey(prog, "list")
	w, err := p.lists.take(ctx, key)
	if err != nil {
		return err
	}
	r := runRequest{key: key, op: "list", funcs: []string{fn}}
	r.body = append(appendArgs([]byte{'['}, [][]byte{head, req}), ']')
	retire, err := w.list(ctx, &r, prog, l)
	var failed *failure
	var thrown *Thrown
	switch {
	case err == nil || errors.As(err, &thrown):
		p.giveBack(&p.lists, w, retire)
	case errors.As(err, &failed) && failed.kind != failedCrash && !w.isKilled():
		p.lists.put(w)
	default:
		// Also when the client left: the script is in the middle of something.
		p.lists.remove(w)
		if p.lists.isClosed() {
			return ErrClosed
		}
	}
	p.logLines(prog.Key, l.lines)
	return err
}

// list is a list function under way.
type list struct {
	io      ListIO
	touched bool // rows were taken, or something was sent
	ended   bool // there are no more rows
	started bool
	lines   []string
}

// list talks with the worker until the function ends.
func (w *process) list(ctx context.Context, r *runRequest, prog Program, l *list) (retire bool, err error) {
	r.design = prog.Design
	if w.knows(r.key) {
		r.design = nil
	}
	w.buf = endFrame(r.append(beginFrame(w.buf[:0], frameRun)))
	for answer := w.buf; ; {
		c := w.startClock()
		if len(answer) > 0 {
			if err := w.write(answer); err != nil {
				return false, err
			}
		}
		kind, payload, err := w.read(ctx, c)
		if err != nil {
			return false, err
		}
		switch {
		case kind == framePiece, kind == frameNeedRow:
			if err := l.pass(payload); err != nil {
				return false, err
			}
			if w.buf = w.buf[:0]; kind == frameNeedRow {
				if w.buf, err = l.rows(w.buf); err != nil {
					return false, err
				}
			}
			answer = w.buf
		case kind == frameDesign && r.design == nil:
			r.design = prog.Design
			w.buf = endFrame(r.append(beginFrame(w.buf[:0], frameRun)))
			answer = w.buf
		case kind == frameDone && len(payload) > 0:
			w.learn(r.key)
			return payload[0]&flagRetire != 0, l.end(payload[1:])
		case kind == frameFailed && len(payload) > 0:
			return false, &failure{kind: failureKind(payload[0]), reason: string(payload[1:])}
		default:
			return false, w.crash(fmt.Errorf("%w: type %q", errBadFrame, kind))
		}
	}
}

// pass gives the client what the script sent.
func (l *list) pass(packet []byte) error {
	packet, err := rawjson.Normalize(nil, pairSurrogates(packet), replyDepth)
	if err != nil || rawjson.KindOf(packet) != rawjson.KindObject {
		return &failure{kind: failedInternal, reason: errNoResult.Error()}
	}
	if start, ok := rawjson.Get(packet, "start"); ok && !l.started {
		l.started, l.touched = true, true
		if err := l.io.Start(start); err != nil {
			return err
		}
	}
	pieces, _ := rawjson.Get(packet, "pieces")
	if rawjson.KindOf(pieces) != rawjson.KindArray {
		return nil
	}
	var body []byte
	for piece := range rawjson.Elements(pieces) {
		body, _ = rawjson.AppendUnquoted(body, piece)
	}
	if len(body) == 0 {
		return nil
	}
	if !l.started {
		return &failure{kind: failedInternal, reason: errNoResult.Error()}
	}
	return l.io.Send(body)
}

// rows makes the frame with the next rows.
func (l *list) rows(frame []byte) ([]byte, error) {
	l.touched = true
	frame = append(beginFrame(frame, frameRows), '[')
	for n := 0; n < listRows && len(frame) < listBytes && !l.ended; n++ {
		row, err := l.io.Row()
		if err != nil {
			return nil, err
		}
		if row == nil {
			l.ended = true
			break
		}
		if n > 0 {
			frame = append(frame, ',')
		}
		frame = append(frame, row...)
	}
	if l.ended {
		frame[4] = frameLastRow
	}
	return endFrame(append(frame, ']')), nil
}

// end reads the result of the function.
func (l *list) end(reply []byte) error {
	results, lines, err := openReply(reply)
	if err != nil {
		return &failure{kind: failedInternal, reason: err.Error()}
	}
	l.lines = lines
	split, err := splitReply(results, 1)
	if err != nil {
		return &failure{kind: failedInternal, reason: err.Error()}
	}
	return split[0].err
}
