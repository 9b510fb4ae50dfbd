package jsvm

import (
	"os"
	"sync"
	"time"
)

// watch ends calls that take too long, from within the worker. The pool would kill
// the worker a little later; an interrupt saves its engines. When the engine does
// not listen, because it is in a loop of its own, and nobody kills the worker,
// because the server is gone, the worker ends itself.
type watch struct {
	limit time.Duration

	mu      sync.Mutex
	turn    int // counts calls, so that a late timer cannot hit the next one
	timer   *time.Timer
	cpu     time.Duration // of the process when the call began
	left    time.Duration // while paused: what the call may still use
	stop    func()
	stopped bool
}

// lastResort is how much longer than its limit a call runs before the worker ends
// itself.
const lastResort = 10

// exitStuck is the exit status of a worker that ended itself.
const exitStuck = 71

// begin starts the clock of a call; stop interrupts it.
func (w *watch) begin(stop func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stop, w.stopped = stop, false
	w.arm(w.limit)
}

// arm starts the timer for what is left of the limit.
func (w *watch) arm(left time.Duration) {
	w.turn++
	turn := w.turn
	w.left = left
	w.cpu, _ = cpuOf(os.Getpid())
	w.timer = time.AfterFunc(left, func() { w.over(turn) })
}

// over runs when the limit has passed on the wall. What counts is the processor time
// of the call: a busy machine is not the script's fault.
func (w *watch) over(turn int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if turn != w.turn {
		return
	}
	if w.stopped {
		os.Exit(exitStuck)
	}
	if now, ok := cpuOf(os.Getpid()); ok && now-w.cpu < w.left {
		w.timer = time.AfterFunc(max(w.left-(now-w.cpu), time.Millisecond), func() { w.over(turn) })
		return
	}
	w.stopped = true
	w.stop()
	w.timer = time.AfterFunc(lastResort*w.limit, func() { w.over(turn) })
}

// pause stops the clock while the call waits for the pool; resume starts it again.
func (w *watch) pause() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.turn++
}

func (w *watch) resume() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.arm(w.limit)
}

// end stops the clock and says whether it had run out.
func (w *watch) end() (stopped bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer.Stop()
	w.turn++
	return w.stopped
}
