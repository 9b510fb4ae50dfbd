package server

import (
	"os"
	"runtime"
	"runtime/debug"
)

// ballastBytes is what tuneMemory reserves, and gcPercent how much may be allocated
// between two collections, in percent of what lives.
const (
	ballastBytes = 96 << 20
	gcPercent    = 30
)

// ballast is only ever reserved: no page of it is touched, so it costs address
// space and no memory.
var ballast []byte

// tuneMemory makes the garbage collector run less often while the heap is small.
// An idle server has a live heap of a few megabytes, and by Go's rule (collect
// when the heap has doubled) a loaded one would collect after every few megabytes
// of requests. The ballast counts as live, so at least its size is allocated
// between two collections; a larger heap is not inflated by a factor, as a higher
// GOGC would do. The block cache is most of a large heap and holds no pointers, so
// that collecting it oftener than Go would costs little and keeps the process near
// what it needs: a view build over a million documents under 300 MB. Whoever sets GOGC or GOMEMLIMIT is left alone.
func tuneMemory() {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	ballast = make([]byte, ballastBytes)
	debug.SetGCPercent(gcPercent)
	runtime.GC() // lets the collector's goal take the ballast into account at once
	runtime.KeepAlive(&ballast)
}
