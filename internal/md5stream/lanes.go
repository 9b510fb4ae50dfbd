package md5stream

import (
	"runtime"
	"slices"
	"sync"
)

const (
	// laneCount is how many streams are hashed side by side.
	laneCount = 8
	// turn is how far the streams of a group go until others may join or leave. The
	// scheduler cannot interrupt it, so it takes some tens of microseconds.
	turn = 16 << 10
	// sharedFrom is the length from which bytes are worth a meeting with other streams.
	sharedFrom = 8 << 10
)

// shared is where all streams of the process meet.
var shared lanes

// lanes hashes bytes of several streams together. There is no goroutine of its own and
// nobody waits a set time for company: of those who need their bytes hashed now, one
// leads, and takes along what others have brought until then.
type lanes struct {
	mu     sync.Mutex
	groups []*group // as many as were needed at once; new jobs fill up the first ones
}

// group is up to laneCount jobs. Jobs come in at its end; the first ones are the oldest.
type group struct {
	jobs []*job
	led  bool // somebody leads, who alone takes jobs out
}

// job is whole blocks of a stream.
type job struct {
	state *[4]uint32
	rest  []byte // what is not yet in state; belongs to whoever leads
	group *group
	done  bool
	waits bool // its owner waits on look
	// look says: done, or nobody leads.
	look chan struct{}
}

// start brings a job. Somebody else may do it from now on.
func (l *lanes) start(j *job, state *[4]uint32, p []byte) {
	if j.look == nil {
		j.look = make(chan struct{}, 1)
	}
	j.state, j.rest, j.done = state, p, false
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, g := range l.groups {
		if len(g.jobs) < laneCount {
			j.group = g
			g.jobs = append(g.jobs, j)
			return
		}
	}
	j.group = &group{jobs: append(make([]*job, 0, laneCount), j)}
	l.groups = append(l.groups, j.group)
}

// finish returns when the job is done: it leads, unless somebody does.
func (l *lanes) finish(j *job) {
	// Whoever could run now and has bytes to bring brings them first. Where nobody
	// could, this returns at once.
	runtime.Gosched()
	l.mu.Lock()
	for !j.done {
		if !j.group.led {
			l.lead(j)
			continue
		}
		j.waits = true
		l.mu.Unlock()
		<-j.look
		l.mu.Lock()
	}
	l.mu.Unlock()
	j.state, j.rest, j.group = nil, nil, nil
}

// lead hashes the jobs of a group until the leader's own is done; whoever is left leads
// next. The caller holds mu, which is free while the processor works.
func (l *lanes) lead(own *job) {
	g := own.group
	g.led = true
	var together [laneCount]*job
	for !own.done {
		n := copy(together[:], g.jobs)
		l.mu.Unlock()
		length := turn
		for _, j := range together[:n] {
			length = min(length, len(j.rest))
		}
		hashTogether(together[:n], length)
		l.mu.Lock()
		for _, j := range together[:n] {
			if len(j.rest) == 0 {
				j.done = true
				j.wake()
			}
		}
		g.jobs = slices.DeleteFunc(g.jobs, func(j *job) bool { return j.done })
	}
	g.led = false
	// Where nobody waits, the first owner to need its bytes leads.
	for _, j := range g.jobs {
		if j.waits {
			j.wake()
			return
		}
	}
}

// wake makes the job's owner look, if it waits. The caller holds mu.
func (j *job) wake() {
	if j.waits {
		j.waits = false
		j.look <- struct{}{} // has room: one for each time waits was set
	}
}

// hashTogether takes length bytes of each job.
func hashTogether(jobs []*job, length int) {
	if len(jobs) == 1 {
		blocks(jobs[0].state, jobs[0].rest[:length])
	} else {
		var states [4][laneCount]uint32
		var streams [laneCount]*byte
		for i := range streams {
			// A lane without a job repeats the first one; nobody looks at what it finds.
			j := jobs[0]
			if i < len(jobs) {
				j = jobs[i]
			}
			streams[i] = &j.rest[0]
			for k, v := range j.state {
				states[k][i] = v
			}
		}
		blocksOfEight(&states, &streams, length)
		for i, j := range jobs {
			for k := range j.state {
				j.state[k] = states[k][i]
			}
		}
	}
	for _, j := range jobs {
		j.rest = j.rest[length:]
	}
}
