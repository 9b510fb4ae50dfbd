package jsvm

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
	"time"
)

// maxEngines is how many Programs a worker keeps an engine for. One takes about half
// a megabyte.
const maxEngines = 16

// maxResult bounds the results of one request, in bytes.
const maxResult = 32 << 20

// failureKind says why the engine did not get through a request.
type failureKind byte

const (
	failedTime     failureKind = 'T' // the time limit
	failedMemory   failureKind = 'M' // the memory limit
	failedSize     failureKind = 'L' // the results are too large
	failedWhole    failureKind = 'W' // errWhole; nothing was run
	failedInternal failureKind = 'I' // the environment broke, or gave what is no result
	failedCrash    failureKind = 'C' // the worker ended; only the pool says so
)

// flagRetire in a frameDone says that the worker wants to be replaced: it holds more
// memory than it should, and a new process is the sure way to give it back.
const flagRetire = 1

// goMemory is what the worker may use besides the engines: the Go runtime, frames and
// the stack of deep recursion.
const goMemory = 192 << 20

// WorkerMain is `divan js-worker`: it serves one pool over its standard input and
// output until they close, and gives the exit status.
func WorkerMain(args []string, in io.Reader, out, errOut io.Writer) int {
	flags := flag.NewFlagSet("js-worker", flag.ContinueOnError)
	flags.SetOutput(errOut)
	memory := flags.Int64("memory", 256<<20, "bytes of memory")
	callTime := flags.Duration("call-time", 5*time.Second, "how long a call may take")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	runtime.GOMAXPROCS(2)
	debug.SetGCPercent(200)
	debug.SetMemoryLimit(goMemory / 2)
	if err := limitData(*memory + goMemory); err != nil {
		fmt.Fprintln(errOut, "memory limit:", err)
	}
	w := &worker{in: frameReader{r: in}, out: out, memory: *memory, watch: watch{limit: *callTime}}
	if err := w.serve(); err != nil && !errors.Is(err, io.EOF) {
		fmt.Fprintln(errOut, err)
		return 1
	}
	return 0
}

// worker is one worker process.
type worker struct {
	in      frameReader
	out     io.Writer
	buf     []byte
	memory  int64
	watch   watch
	engines []*engine // the most recently used one first
	tidied  int       // bytes that went through since the memory was looked at
}

// serve answers requests until the input closes.
func (w *worker) serve() error {
	if err := w.send(frameHello, nil, ""); err != nil {
		return err
	}
	for {
		kind, payload, err := w.in.next()
		if err != nil {
			return err
		}
		if kind != frameRun {
			return fmt.Errorf("%w: type %q", errBadFrame, kind)
		}
		r, err := parseRun(payload)
		if err != nil {
			return err
		}
		if err := w.answer(&r); err != nil {
			return err
		}
	}
}

func (w *worker) send(kind byte, flags []byte, text string) error {
	w.buf = append(append(beginFrame(w.buf[:0], kind), flags...), text...)
	_, err := w.out.Write(endFrame(w.buf))
	if cap(w.buf) > keepBuffer {
		w.buf = nil
	}
	return err
}

// answer runs one request.
func (w *worker) answer(r *runRequest) error {
	e, err := w.engineOf(r)
	if err != nil {
		return w.send(frameFailed, []byte{byte(failedInternal)}, err.Error())
	}
	if e == nil {
		return w.send(frameDesign, nil, "")
	}
	w.watch.begin(e.vm.Interrupt)
	result, err := e.run(r)
	late := w.watch.end()
	if errors.Is(err, errWhole) {
		return w.send(frameFailed, []byte{byte(failedWhole)}, err.Error())
	}
	if err != nil {
		// What the engine was doing is half done: it is not used again.
		w.drop(e)
		return w.send(frameFailed, []byte{byte(w.kindOf(err, late))}, err.Error())
	}
	if len(result) > maxResult {
		w.drop(e)
		return w.send(frameFailed, []byte{byte(failedSize)}, "")
	}
	if len(e.funcs) > maxFuncs {
		w.drop(e)
	}
	w.tidied += len(r.body) + len(result) + tidyCall
	return w.send(frameDone, []byte{w.tidy()}, result)
}

func (w *worker) kindOf(err error, late bool) failureKind {
	switch {
	case outOfMemory(err):
		return failedMemory
	case late || interrupted(err):
		return failedTime
	default:
		return failedInternal
	}
}

// engineOf gives the engine of a request's program; nil if it must be made and the
// design document is not there.
func (w *worker) engineOf(r *runRequest) (*engine, error) {
	if i := slices.IndexFunc(w.engines, func(e *engine) bool { return e.key == r.key }); i >= 0 {
		e := w.engines[i]
		if r.fresh {
			w.drop(e)
			return w.engineOf(&runRequest{key: r.key, design: r.design})
		}
		copy(w.engines[1:i+1], w.engines[:i])
		w.engines[0] = e
		return e, nil
	}
	if r.design == nil {
		return nil, nil
	}
	e, err := newEngine(r.key, string(r.design), w.memory*3/4, w.listHost)
	if err != nil {
		return nil, err
	}
	if len(w.engines) >= maxEngines {
		w.drop(w.engines[len(w.engines)-1])
	}
	w.engines = slices.Insert(w.engines, 0, e)
	return e, nil
}

func (w *worker) drop(e *engine) {
	w.engines = slices.DeleteFunc(w.engines, func(other *engine) bool { return other == e })
	e.close()
}

// The memory is looked at after so many bytes; a call counts as some of them.
const (
	tidyBytes = 256 << 10
	tidyCall  = 32 << 10
)

// tidy looks after the memory between requests. Each engine may use most of the
// worker's memory, so that one large program gets through; together they may not.
func (w *worker) tidy() (flags byte) {
	if w.tidied < tidyBytes {
		return 0
	}
	w.tidied = 0
	if residentMemory() < w.memory/2 {
		return 0
	}
	for len(w.engines) > 1 {
		w.drop(w.engines[len(w.engines)-1])
	}
	debug.FreeOSMemory()
	if residentMemory() < w.memory/2 {
		return 0
	}
	return flagRetire
}

// listHost serves a list function: it passes on what was sent and fetches rows. The
// time this takes is not the script's.
func (w *worker) listHost(word, text string) (string, error) {
	w.watch.pause()
	defer w.watch.resume()
	kind := byte(framePiece)
	if word == "rows" {
		kind = frameNeedRow
	}
	if err := w.send(kind, nil, text); err != nil {
		panic(err) // the pool is gone, and so goes the worker
	}
	if kind == framePiece {
		return "", nil
	}
	kind, rows, err := w.in.next()
	if err != nil || (kind != frameRows && kind != frameLastRow) {
		panic(fmt.Errorf("no rows for a list: %q %w", kind, err))
	}
	return string(kind) + string(rows), nil
}
