package jsvm

import (
	"context"
	"runtime"
	"time"
)

// CloseAndWait is Close, and waits until the processes are gone, so that their
// processor time is counted.
func (p *Pool) CloseAndWait() {
	for _, s := range []*workerSet{&p.calls, &p.lists} {
		s.mu.Lock()
		var all []*process
		for w := range s.live {
			all = append(all, w)
		}
		s.mu.Unlock()
		s.close()
		for _, w := range all {
			<-w.ended
		}
	}
}

// WorkerCPU is the processor time of the workers that run.
func (p *Pool) WorkerCPU() (total time.Duration) {
	for _, pid := range p.Workers() {
		cpu, _ := cpuOf(pid)
		total += cpu
	}
	return total
}

// Workers gives the ids of the worker processes.
func (p *Pool) Workers() (pids []int) {
	for _, s := range []*workerSet{&p.calls, &p.lists} {
		s.mu.Lock()
		for w := range s.live {
			pids = append(pids, w.cmd.Process.Pid)
		}
		s.mu.Unlock()
	}
	return pids
}

// OnlyReads is the test of functions that can change nothing.
var OnlyReads = onlyReads

// AwaitWaiters waits until that many calls wait for a worker.
func (p *Pool) AwaitWaiters(n int) {
	for {
		p.calls.mu.Lock()
		waiting := len(p.calls.waiters)
		p.calls.mu.Unlock()
		if waiting >= n {
			return
		}
		runtime.Gosched()
	}
}

// HoldWorker takes a worker away until release.
func (p *Pool) HoldWorker() (pid int, release func()) {
	w, err := p.calls.take(context.Background(), "")
	if err != nil {
		panic(err)
	}
	return w.cmd.Process.Pid, func() { p.calls.put(w) }
}
