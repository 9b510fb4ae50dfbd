package jsvm

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// dieWithParent makes the kernel kill a worker when the server dies, also when the
// worker is in an endless loop and never sees its standard input close.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// cpuOf gives the processor time a process has used, all its threads together.
// A process has a clock of its own, whose number is made from its id.
func cpuOf(pid int) (time.Duration, bool) {
	const scheduled = 2 // CPUCLOCK_SCHED
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid)<<3|scheduled, &ts); err != nil {
		return 0, false
	}
	return time.Duration(ts.Nano()), true
}

// limitData bounds the writable memory of this process.
func limitData(bytes int64) error {
	return unix.Setrlimit(unix.RLIMIT_DATA, &unix.Rlimit{Cur: uint64(bytes), Max: uint64(bytes)})
}

// residentMemory is what this process holds in memory now; 0 if unknown.
func residentMemory() int64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(statm)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseInt(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * int64(os.Getpagesize())
}

// growPipe makes room for a batch, so that writer and reader change places once per
// batch and not every 64 KiB. Where the system allows no more it stays as it is.
func growPipe(f *os.File) {
	conn, err := f.SyscallConn()
	if err != nil {
		return
	}
	conn.Control(func(fd uintptr) { unix.FcntlInt(fd, unix.F_SETPIPE_SZ, pieceBytes) })
}
