package server

import (
	"os"
	"runtime"
)

// ballastBytes is what tuneMemory reserves.
const ballastBytes = 32 << 20

// ballast is only ever reserved: no page of it is touched, so it costs address
// space and no memory.
var ballast []byte

// tuneMemory makes the garbage collector run less often while the heap is small.
// An idle server has a live heap of a few megabytes, and by Go's rule (collect
// when the heap has doubled) a loaded one would collect after every few megabytes
// of requests. The ballast counts as live, so at least its size is allocated
// between two collections; a larger heap is not inflated by a factor, as a higher
// GOGC would do. Whoever sets GOGC or GOMEMLIMIT is left alone.
func tuneMemory() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	ballast = make([]byte, ballastBytes)
	runtime.GC() // lets the collector's goal take the ballast into account at once
	runtime.KeepAlive(&ballast)
}
