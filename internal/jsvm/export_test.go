package jsvm

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
