package jsvm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// batch is one operation on many items. It goes to a worker in pieces; a piece that
// does not get through is replayed item by item, and an item function by function,
// until the one is found that is the reason.
type batch struct {
	pool  *Pool
	prog  Program
	op    string
	funcs []string
	extra []byte
	n     int // items
	// perFunc says that an item has one result per function, and that functions may
	// be run apart.
	perFunc bool
	// appendItem appends the JSON of an item.
	appendItem func(dst []byte, i int) []byte
	// appendShort, if there is one, appends what the functions can see of it.
	appendShort func(dst []byte, i int) []byte
	// take gets the result of function k on item i.
	take func(i, k int, r result)

	buf   []byte
	kills []int // by function: how often it passed a limit
}

// A piece of a batch has at most so many items, and no more of them than fit into so
// many bytes.
const (
	pieceItems = 256
	pieceBytes = 512 << 10
)

// maxKills is how often a function may pass a limit in one batch. Each time takes the
// whole time limit; the rest of the batch is not worth the wait.
const maxKills = 10

// run does the whole batch. Its error is that of the context or of the pool; what
// scripts do wrong comes with the results.
func (b *batch) run(ctx context.Context) error {
	all := make([]int, max(len(b.funcs), 1))
	for k := range all {
		all[k] = k
	}
	b.kills = make([]int, len(all))
	if !b.perFunc {
		all = all[:1]
	}
	for at := 0; at < b.n; {
		items := min(b.pool.pace.items(b.paceKey()), b.n-at)
		body, end := b.appendBody(b.buf[:0], at, at+items)
		b.buf = body
		began := time.Now()
		if err := b.piece(ctx, at, end, all, body); err != nil {
			return err
		}
		b.pool.pace.note(b.paceKey(), end-at, time.Since(began), b.pool.o.CallTime)
		at = end
	}
	return nil
}

// appendBody appends items from at on, as many as fit into a piece.
func (b *batch) appendBody(dst []byte, at, most int) (body []byte, end int) {
	appendItem := b.appendItem
	if b.appendShort != nil {
		appendItem = b.appendShort
	}
	dst = append(dst, '[')
	for end = at; end < most && (end == at || len(dst) < pieceBytes); end++ {
		if end > at {
			dst = append(dst, ',')
		}
		dst = appendItem(dst, end)
	}
	return append(dst, ']'), end
}

func (b *batch) paceKey() paceKey { return paceKey{b.prog.Key, b.op} }

// piece runs items at to end with the functions of these numbers.
func (b *batch) piece(ctx context.Context, at, end int, funcs []int, body []byte) error {
	if funcs = b.withoutGivenUp(at, end, funcs); len(funcs) == 0 {
		return nil
	}
	single := end-at == 1 && len(funcs) == 1
	var failed *failure
	fresh := false
	for crashes := 1; ; crashes++ {
		err := b.try(ctx, at, end, funcs, body, fresh)
		if err == nil {
			return nil
		}
		if !errors.As(err, &failed) {
			return err
		}
		switch failed.kind {
		case failedCrash:
			if crashes < attempts(single, failed.alien) {
				continue
			}
		case failedWhole:
			// Another function of this program spoiled its engine.
			b.pool.sights.spoil(b.prog.Key)
			b.appendShort = nil
			for i := at; i < end; {
				body, next := b.appendBody(nil, i, end)
				if err := b.piece(ctx, i, next, funcs, body); err != nil {
					return err
				}
				i = next
			}
			return nil
		case failedMemory, failedInternal:
			// What was there before may be the reason.
			if single && !fresh {
				fresh = true
				continue
			}
		}
		break
	}
	switch {
	case single:
		if failed.kind != failedInternal {
			b.kills[funcs[0]]++
		}
		b.take(at, funcs[0], result{err: b.pool.verdict(failed)})
	case end-at > 1:
		b.pool.o.Log.Info("a batch of JavaScript calls is replayed one by one",
			"program", b.prog.Key, "items", end-at, "reason", b.pool.verdict(failed))
		for i := at; i < end; i++ {
			item, next := b.appendBody(nil, i, i+1)
			if err := b.piece(ctx, i, next, funcs, item); err != nil {
				return err
			}
		}
	default:
		for k := range funcs {
			if err := b.piece(ctx, at, end, funcs[k:k+1], body); err != nil {
				return err
			}
		}
	}
	return nil
}

// withoutGivenUp answers for the functions that passed a limit too often, and gives
// the others.
func (b *batch) withoutGivenUp(at, end int, funcs []int) []int {
	guilty := func(k int) bool { return b.kills[k] >= maxKills }
	if !slices.ContainsFunc(funcs, guilty) {
		return funcs
	}
	for _, k := range funcs {
		for i := at; i < end && guilty(k); i++ {
			b.take(i, k, result{err: &Killed{Skipped: true,
				Reason: fmt.Sprintf("not run, since it passed a limit %d times in the same batch", b.kills[k])}})
		}
	}
	return slices.DeleteFunc(slices.Clone(funcs), guilty)
}

// attempts is how often a request is sent to a worker before its end is taken for
// the request's fault. When something outside ended the worker it mostly is not.
func attempts(single, alien bool) int {
	switch {
	case single && alien:
		return 10
	case alien:
		return 3
	case single:
		return 2
	default:
		return 1
	}
}

// try sends one request and takes its results; fresh asks for a new engine.
func (b *batch) try(ctx context.Context, at, end int, funcs []int, body []byte, fresh bool) error {
	r := runRequest{key: engineKey(b.prog, b.op), fresh: fresh, op: b.op, funcs: b.funcs,
		extra: b.extra, body: body, shortened: b.appendShort != nil}
	if len(funcs) < len(b.funcs) {
		r.funcs = make([]string, len(funcs))
		for n, k := range funcs {
			r.funcs[n] = b.funcs[k]
		}
	}
	reply, err := b.pool.exchange(ctx, &r, b.prog)
	if err != nil {
		return err
	}
	results, err := splitReply(reply, (end-at)*len(funcs))
	if err != nil {
		return &failure{kind: failedInternal, reason: err.Error()}
	}
	for n, r := range results {
		b.take(at+n/len(funcs), funcs[n%len(funcs)], r)
	}
	return nil
}

// engineKey names the engine of an operation. Views have one of their own: their
// functions mostly leave the built-in objects alone, so that documents can be
// shortened, and those that answer requests mostly do not. What is only checked
// touches neither.
func engineKey(prog Program, op string) string {
	switch op {
	case "map", "reduce":
		return "view " + prog.Key
	case "check":
		return "check " + prog.Key
	default:
		return "request " + prog.Key
	}
}

// exchange sends a request to a worker and gives the text of its results, in memory
// of its own and normalised.
func (p *Pool) exchange(ctx context.Context, r *runRequest, prog Program) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	w, err := p.calls.take(ctx, r.key)
	if err != nil {
		return nil, err
	}
	reply, retire, err := w.roundTrip(ctx, r, prog)
	var failed *failure
	switch {
	case err == nil:
		// The reply is the worker's memory: it is read before the worker goes back.
		text, lines, err := openReply(reply)
		p.giveBack(&p.calls, w, retire)
		if err != nil {
			return nil, &failure{kind: failedInternal, reason: err.Error()}
		}
		p.logLines(prog.Key, lines)
		return text, nil
	case errors.As(err, &failed) && failed.kind != failedCrash && !w.isKilled():
		// The worker itself said so: it is well.
		p.calls.put(w)
		return nil, err
	case errors.As(err, &failed):
		p.calls.remove(w)
		if p.calls.isClosed() {
			return nil, ErrClosed
		}
		p.o.Log.Warn("a JavaScript worker was lost", "program", prog.Key, "pid", w.cmd.Process.Pid, "reason", failed.reason)
		return nil, err
	default:
		// The caller left. The worker ends its call, and may be used again then.
		go p.drain(w)
		return nil, err
	}
}

func (p *Pool) giveBack(s *workerSet, w *process, retire bool) {
	if retire {
		s.remove(w)
		return
	}
	s.put(w)
}

// drain reads a reply that nobody waits for any more.
func (p *Pool) drain(w *process) {
	kind, payload, err := w.read(context.Background(), w.startClock())
	if err != nil || len(payload) == 0 || (kind != frameDone && kind != frameFailed) {
		p.calls.remove(w)
		return
	}
	p.giveBack(&p.calls, w, kind == frameDone && payload[0]&flagRetire != 0)
}

// roundTrip runs one request on a worker. The reply is good until the worker's next
// request.
func (w *process) roundTrip(ctx context.Context, r *runRequest, prog Program) (reply []byte, retire bool, err error) {
	if r.fresh || !w.knows(r.key) {
		r.design = prog.Design
	}
	for {
		w.buf = endFrame(r.append(beginFrame(w.buf[:0], frameRun)))
		c := w.startClock()
		if err := w.write(w.buf); err != nil {
			return nil, false, err
		}
		if cap(w.buf) > keepBuffer {
			w.buf = nil
		}
		kind, payload, err := w.read(ctx, c)
		if err != nil {
			return nil, false, err
		}
		switch {
		case kind == frameDone && len(payload) > 0:
			w.learn(r.key)
			return payload[1:], payload[0]&flagRetire != 0, nil
		case kind == frameFailed && len(payload) > 0:
			return nil, false, &failure{kind: failureKind(payload[0]), reason: string(payload[1:])}
		case kind == frameDesign && r.design == nil:
			r.design = prog.Design
		default:
			return nil, false, w.crash(fmt.Errorf("%w: type %q", errBadFrame, kind))
		}
	}
}

// verdict is what a script is told that did not get through, alone and with nobody
// else to blame.
func (p *Pool) verdict(f *failure) error {
	switch f.kind {
	case failedTime:
		return &Killed{Reason: fmt.Sprintf("it passed the time limit of %s", p.o.CallTime)}
	case failedMemory:
		return &Killed{Reason: fmt.Sprintf("it passed the memory limit of %d MiB", p.o.Memory>>20)}
	case failedSize:
		return &Killed{Reason: fmt.Sprintf("its result passes %d MiB", maxResult>>20)}
	case failedCrash:
		return &Killed{Reason: f.reason}
	default:
		return &Thrown{Name: "InternalError", Reason: f.reason}
	}
}

func (p *Pool) logLines(program string, lines []string) {
	for _, line := range lines {
		p.o.Log.Info("JavaScript log", "program", program, "message", line)
	}
}

// pace remembers how many items of a program fit well into the time limit, for those
// that are slow: a batch that runs into the limit is done twice.
type pace struct {
	mu   sync.Mutex
	slow map[paceKey]int
}

type paceKey struct{ program, op string }

// maxPaces bounds the memory of it; forgetting costs one replay each.
const maxPaces = 1024

func (p *pace) items(key paceKey) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n, ok := p.slow[key]; ok {
		return n
	}
	return pieceItems
}

func (p *pace) note(key paceKey, items int, took, limit time.Duration) {
	perItem := max(took/time.Duration(items), 1)
	fits := int(min(limit/4/perItem, pieceItems))
	p.mu.Lock()
	defer p.mu.Unlock()
	_, slow := p.slow[key]
	switch {
	case fits >= pieceItems && slow:
		delete(p.slow, key)
	case fits < pieceItems:
		if p.slow == nil || len(p.slow) >= maxPaces {
			p.slow = map[paceKey]int{}
		}
		p.slow[key] = max(fits, 1)
	}
}
