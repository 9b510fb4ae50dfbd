package bench

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// tick is the unit of CPU times in /proc: Linux shows them in USER_HZ, which is
// 100 on every architecture Go runs on, whatever the kernel's own clock is.
const tick = 10 * time.Millisecond

// procTimes is what the driver reads of /proc/PID/stat.
type procTimes struct {
	parent   int
	own      time.Duration // in whole ticks
	children time.Duration // of children that have ended and were waited for
}

// usage is what a process tree has used.
type usage struct {
	cpu     time.Duration
	rss     int64 // bytes now
	peakRSS int64 // sum of the peaks of the live processes
}

// parseProcStat reads the text of /proc/PID/stat. The command stands in
// brackets and may hold spaces and brackets itself, so fields are counted from
// the last closing one.
func parseProcStat(text []byte) (procTimes, error) {
	end := bytes.LastIndexByte(text, ')')
	if end < 0 {
		return procTimes{}, errors.New("stat: no command name")
	}
	fields := bytes.Fields(text[end+1:])
	// After the command: state, ppid, …; utime, stime, cutime and cstime are
	// fields 14 to 17 of the line, and the state is field 3.
	if len(fields) < 15 {
		return procTimes{}, fmt.Errorf("stat: %d fields after the command", len(fields))
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return procTimes{}, fmt.Errorf("stat: parent: %w", err)
	}
	t := procTimes{parent: parent}
	for i, f := range fields[11:15] {
		n, err := strconv.ParseInt(string(f), 10, 64)
		if err != nil {
			return procTimes{}, fmt.Errorf("stat: times: %w", err)
		}
		if i < 2 {
			t.own += time.Duration(n) * tick
		} else {
			t.children += time.Duration(n) * tick
		}
	}
	return t, nil
}

// parseProcStatus reads VmRSS and VmHWM, in bytes, of the text of
// /proc/PID/status. A process without memory (a zombie) has neither.
func parseProcStatus(text []byte) (rss, peak int64, err error) {
	for line := range bytes.Lines(text) {
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok {
			continue
		}
		var to *int64
		switch string(name) {
		case "VmRSS":
			to = &rss
		case "VmHWM":
			to = &peak
		default:
			continue
		}
		fields := bytes.Fields(value)
		if len(fields) != 2 || string(fields[1]) != "kB" {
			return 0, 0, fmt.Errorf("status: %s is %.40q", name, value)
		}
		kb, err := strconv.ParseInt(string(fields[0]), 10, 64)
		if err != nil {
			return 0, 0, fmt.Errorf("status: %s: %w", name, err)
		}
		*to = kb << 10
	}
	return rss, peak, nil
}

// processTree gives pid and its live descendants with their times.
func processTree(pid int) (map[int]procTimes, error) {
	names, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		return nil, err
	}
	all := make(map[int]procTimes, len(names))
	children := make(map[int][]int, len(names))
	for _, name := range names {
		id, err := strconv.Atoi(filepath.Base(name))
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(name, "stat"))
		if err != nil {
			continue // ended between the listing and the reading
		}
		t, err := parseProcStat(text)
		if err != nil {
			return nil, fmt.Errorf("process %d: %w", id, err)
		}
		all[id] = t
		children[t.parent] = append(children[t.parent], id)
	}
	if _, ok := all[pid]; !ok {
		return nil, fmt.Errorf("no process %d", pid)
	}
	tree := map[int]procTimes{}
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		tree[queue[0]] = all[queue[0]]
		queue = append(queue, children[queue[0]]...)
	}
	return tree, nil
}

// processCPU reads the CPU clock of a process: the same time as utime and stime
// of its stat, in nanoseconds where those are in ticks of 10 ms, which is more
// than a short workload on a fast server uses.
func processCPU(pid int) (time.Duration, error) {
	// The clock id of a process, as clock_getcpuclockid(3) makes it:
	// the complement of the pid, and 2 for the scheduler's clock.
	var at unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|2), &at); err != nil {
		return 0, fmt.Errorf("CPU clock of process %d: %w", pid, err)
	}
	return time.Duration(at.Nano()), nil
}

// treeUsage adds up what pid and its descendants used. A child that ends while
// the bench runs is not lost: its parent's stat takes its time over.
func treeUsage(pid int) (usage, error) {
	tree, err := processTree(pid)
	if err != nil {
		return usage{}, err
	}
	var u usage
	for id, t := range tree {
		own, err := processCPU(id)
		if err != nil {
			own = t.own // coarser, and all that a sandbox may allow
		}
		u.cpu += own + t.children
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", id))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return usage{}, err
		}
		rss, peak, err := parseProcStatus(text)
		if err != nil {
			return usage{}, fmt.Errorf("process %d: %w", id, err)
		}
		u.rss += rss
		u.peakRSS += peak
	}
	return u, nil
}

// resetPeak makes the kernel count the peak of the tree's memory anew, so that
// each workload shows its own. It needs the right to write to the processes'
// clear_refs; it reports whether all of them took it.
func resetPeak(pid int) bool {
	tree, err := processTree(pid)
	if err != nil {
		return false
	}
	all := true
	for id := range tree {
		if os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", id), []byte("5"), 0) != nil {
			all = false
		}
	}
	return all
}
