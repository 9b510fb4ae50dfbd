package coordinator

import "runtime"

// crew runs functions in goroutines that are kept for the next ones. What is done
// on a copy needs some kilobytes of stack, and a new goroutine comes to them by
// copying its stack several times: for a short call on a second range that was a
// twelfth of its cost.
type crew struct {
	work chan func()
	idle chan struct{} // a place for each that may wait
}

// newCrew makes a crew of which so many may wait for work.
func newCrew(idle int) *crew {
	return &crew{work: make(chan func()), idle: make(chan struct{}, idle)}
}

// theCrew serves all coordinators of the process: it has no state.
var theCrew = newCrew(8 * runtime.GOMAXPROCS(0))

// run runs do in a goroutine: one that waits, or a new one. It never waits itself.
func (c *crew) run(do func()) {
	select {
	case c.work <- do:
	default:
		go c.serve(do)
	}
}

// serve works until there are enough others that wait.
func (c *crew) serve(do func()) {
	for {
		do()
		do = nil // what it holds may be large
		select {
		case c.idle <- struct{}{}:
		default:
			return
		}
		do = <-c.work
		<-c.idle
	}
}
