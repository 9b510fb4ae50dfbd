//go:build !linux

package jsvm

import (
	"os"
	"syscall"
	"time"
)

// Elsewhere a worker ends when it sees its standard input close, or by its own
// watch; time is that of the clock on the wall; memory is bounded by the engine.

func dieWithParent() *syscall.SysProcAttr { return nil }

func cpuOf(int) (time.Duration, bool) { return 0, false }

func limitData(int64) error { return nil }

func residentMemory() int64 { return 0 }

func growPipe(*os.File) {}
