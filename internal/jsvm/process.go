package jsvm

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// startTime bounds how long a worker takes until it is ready, also on a machine that
// does other things.
const startTime = 60 * time.Second

// process is the pool's side of one worker process.
type process struct {
	o      *Options
	cmd    *exec.Cmd
	in     *os.File // its standard input
	out    *os.File // its standard output
	frames frameReader
	buf    []byte

	keys      []string // of the programs it lately had an engine for, newest last
	idleSince time.Time

	killOnce sync.Once
	killed   atomic.Bool
	ended    chan struct{} // closed when the process is gone
	state    *os.ProcessState
}

// startProcess starts a worker and waits until it is ready.
func startProcess(ctx context.Context, o *Options) (*process, error) {
	if len(o.Command) == 0 {
		return nil, errors.New("no command for JavaScript workers")
	}
	args := append(slices.Clone(o.Command[1:]),
		"-memory", strconv.FormatInt(o.Memory, 10), "-call-time", o.CallTime.String())
	w := &process{o: o, cmd: exec.Command(o.Command[0], args...), ended: make(chan struct{})}
	w.cmd.SysProcAttr = dieWithParent()
	// Of the server's environment only what dates need.
	w.cmd.Env = []string{"GOTRACEBACK=none", "TZ=" + os.Getenv("TZ")}
	if _, set := os.LookupEnv("TZ"); !set {
		w.cmd.Env = w.cmd.Env[:1]
	}
	if err := w.start(); err != nil {
		return nil, fmt.Errorf("start a JavaScript worker: %w", err)
	}
	w.frames.r = w.out
	w.out.SetReadDeadline(time.Now().Add(startTime))
	undo := context.AfterFunc(ctx, func() { w.out.SetReadDeadline(time.Unix(1, 0)) })
	kind, _, err := w.frames.next()
	if !undo() && ctx.Err() != nil {
		err = ctx.Err()
	} else if err == nil && kind != frameHello {
		err = errBadFrame
	}
	if err != nil {
		w.kill()
		return nil, fmt.Errorf("start a JavaScript worker: %w", err)
	}
	return w, nil
}

// start starts the process with three pipes. (Those that exec makes are closed by its
// Wait, while a reply may still be in them.)
func (w *process) start() error {
	var pipes [3][2]*os.File
	closeAll := func(end int) {
		for _, p := range pipes {
			if p[end] != nil {
				p[end].Close()
			}
		}
	}
	for i := range pipes {
		var err error
		if pipes[i][0], pipes[i][1], err = os.Pipe(); err != nil {
			closeAll(0)
			closeAll(1)
			return err
		}
	}
	// Each pipe as [end of the child, end of the pool].
	pipes[1][0], pipes[1][1] = pipes[1][1], pipes[1][0]
	pipes[2][0], pipes[2][1] = pipes[2][1], pipes[2][0]
	w.cmd.Stdin, w.cmd.Stdout, w.cmd.Stderr = pipes[0][0], pipes[1][0], pipes[2][0]
	err := w.cmd.Start()
	// Only the child may hold its ends: they tell when it is gone.
	closeAll(0)
	if err != nil {
		closeAll(1)
		return err
	}
	w.in, w.out = pipes[0][1], pipes[1][1]
	growPipe(w.in)
	go w.wait(pipes[2][1])
	return nil
}

// maxStderr bounds what is kept of the messages of one worker.
const maxStderr = 16 << 10

// wait logs what the worker says and waits for its end.
func (w *process) wait(stderr *os.File) {
	defer stderr.Close()
	kept := 0
	lines := bufio.NewReaderSize(stderr, 1024)
	for {
		line, _, err := lines.ReadLine()
		if err != nil {
			break
		}
		if kept += len(line); kept <= maxStderr {
			w.o.Log.Warn("JavaScript worker", "pid", w.cmd.Process.Pid, "says", string(line))
		}
	}
	w.cmd.Wait()
	w.state = w.cmd.ProcessState
	close(w.ended)
}

// kill ends the process. It is safe to call more than once and from anywhere.
func (w *process) kill() {
	w.killOnce.Do(func() {
		w.killed.Store(true)
		w.cmd.Process.Kill()
		w.in.Close()
		w.out.Close()
	})
}

func (w *process) isKilled() bool { return w.killed.Load() }

// knows says that the worker has probably an engine for the key.
func (w *process) knows(key string) bool { return slices.Contains(w.keys, key) }

// learn notes that it has one now.
func (w *process) learn(key string) {
	if n := len(w.keys); n > 0 && w.keys[n-1] == key {
		return
	}
	w.keys = slices.DeleteFunc(w.keys, func(k string) bool { return k == key })
	w.keys = append(w.keys, key)
	if len(w.keys) > maxEngines {
		w.keys = slices.Delete(w.keys, 0, 1)
	}
}

// failure is a request that a worker did not get through.
type failure struct {
	kind   failureKind
	reason string
	// alien says that something outside ended the worker.
	alien bool
}

func (f *failure) Error() string { return f.reason }

// write sends a request. A worker reads while it has nothing else to do, so a write
// that stays stuck is a worker that is not there any more.
func (w *process) write(frame []byte) error {
	w.in.SetWriteDeadline(time.Now().Add(startTime))
	_, err := w.in.Write(frame)
	if err != nil {
		return w.crash(err)
	}
	return nil
}

// crash is the failure of a worker that ended or talks nonsense.
func (w *process) crash(err error) error {
	if !errors.Is(err, errBadFrame) {
		// Let it come to its end, which tells more than a kill.
		select {
		case <-w.ended:
		case <-time.After(time.Second):
		}
	}
	w.kill()
	<-w.ended
	f := &failure{kind: failedCrash, reason: "the worker process ended: " + w.state.String()}
	if errors.Is(err, errBadFrame) {
		f.reason = "the worker process sent " + err.Error()
		return f
	}
	status, ok := w.state.Sys().(syscall.WaitStatus)
	f.alien = ok && status.Signaled() && (status.Signal() == syscall.SIGKILL || status.Signal() == syscall.SIGTERM)
	return f
}

// A busy machine gives a worker less processor time than the clock on the wall says;
// patience is how much longer it may take on the wall. grace is for the worker's own
// watch, which is to come first.
const (
	patience = 6
	grace    = 100 * time.Millisecond
)

// clock is the time limit of one call, seen from the pool.
type clock struct {
	limit time.Duration
	wall  time.Time     // when the call began
	cpu   time.Duration // of the worker then
}

func (w *process) startClock() clock {
	c := clock{limit: w.o.CallTime + w.o.CallTime/8 + grace, wall: time.Now()}
	c.cpu, _ = cpuOf(w.cmd.Process.Pid)
	return c
}

// left is the time until the clock must be looked at again; not above 0: it has run
// out.
func (w *process) left(c clock) time.Duration {
	wall := time.Since(c.wall)
	cpu, ok := cpuOf(w.cmd.Process.Pid)
	if !ok || wall > patience*c.limit {
		return c.limit - wall
	}
	return c.limit - (cpu - c.cpu)
}

// read waits for the next frame of a call. A context that ends comes back as its
// error, with the worker still at work; everything else that goes wrong is a
// *failure, and the worker is gone.
func (w *process) read(ctx context.Context, c clock) (kind byte, payload []byte, err error) {
	for wait := c.limit; ; {
		w.out.SetReadDeadline(time.Now().Add(wait))
		undo := func() bool { return true }
		if ctx.Done() != nil {
			undo = context.AfterFunc(ctx, func() { w.out.SetReadDeadline(time.Unix(1, 0)) })
		}
		kind, payload, err = w.frames.next()
		undone := undo()
		if err == nil {
			return kind, payload, nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return 0, nil, w.crash(err)
		}
		if !undone && ctx.Err() != nil {
			return 0, nil, ctx.Err()
		}
		if wait = w.left(c); wait <= 0 {
			w.kill()
			return 0, nil, &failure{kind: failedTime, reason: "killed"}
		}
	}
}
