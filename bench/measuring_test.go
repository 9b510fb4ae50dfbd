package bench

import (
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"
)

func TestPercentile(t *testing.T) {
	t.Parallel()
	upTo := func(n int) []time.Duration {
		var all []time.Duration
		for i := range n {
			all = append(all, time.Duration(i+1))
		}
		return all
	}
	tests := []struct {
		values []time.Duration
		p      float64
		want   time.Duration
	}{
		{nil, 50, 0},
		{upTo(1), 50, 1},
		{upTo(1), 99, 1},
		{upTo(2), 50, 1},
		{upTo(3), 50, 2},
		{upTo(4), 50, 2},
		{upTo(100), 50, 50},
		{upTo(100), 99, 99},
		{upTo(100), 100, 100},
		{upTo(100), 0.1, 1},
		{upTo(101), 99, 100},
		{upTo(1000), 99, 990},
		{upTo(1001), 99, 991},
	}
	for _, tt := range tests {
		if got := percentile(tt.values, tt.p); got != tt.want {
			t.Errorf("percentile(1..%d, %v) = %d, want %d", len(tt.values), tt.p, got, tt.want)
		}
	}
}

func TestMergeSorted(t *testing.T) {
	t.Parallel()
	got := mergeSorted([][]time.Duration{{5, 1}, nil, {3}, {4, 2}})
	if want := []time.Duration{1, 2, 3, 4, 5}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestParseProcStat(t *testing.T) {
	t.Parallel()
	const tail = " S 17 4242 4242 0 -1 4194560 1 2 3 4 100 20 3 4 20 0 9 0 123 1 2"
	want := procTimes{parent: 17, own: 1200 * time.Millisecond, children: 70 * time.Millisecond}
	for _, comm := range []string{"(beam.smp)", "(a b)", "(a) S 9 (b)", "()", "(\n)"} {
		got, err := parseProcStat([]byte("4242 " + comm + tail))
		if err != nil || got != want {
			t.Errorf("%q: got %v %v, want %v", comm, got, err, want)
		}
	}
	for _, bad := range []string{"", "1 comm S 1", "1 (x)", "1 (x) S", "1 (x) S 1 2 3", "1 (x) S y" + tail[5:], "1 (x) S 17 1 1 0 -1 1 1 2 3 4 a 20 3 4 20"} {
		if got, err := parseProcStat([]byte(bad)); err == nil {
			t.Errorf("%q: got %v, want an error", bad, got)
		}
	}
}

func TestParseProcStatus(t *testing.T) {
	t.Parallel()
	rss, peak, err := parseProcStatus([]byte("Name:\tx: VmRSS\nVmPeak:\t  999 kB\nVmHWM:\t   2048 kB\nVmRSS:\t    1024 kB\nThreads:\t1\n"))
	if err != nil || rss != 1<<20 || peak != 2<<20 {
		t.Errorf("got %d %d %v", rss, peak, err)
	}
	if rss, peak, err := parseProcStatus([]byte("Name:\tzombie\nState:\tZ\n")); err != nil || rss != 0 || peak != 0 {
		t.Errorf("zombie: got %d %d %v", rss, peak, err)
	}
	for _, bad := range []string{"VmRSS: 12\n", "VmRSS: x kB\n", "VmHWM: 12 MB\n"} {
		if _, _, err := parseProcStatus([]byte(bad)); err == nil {
			t.Errorf("%q: want an error", bad)
		}
	}
}

// TestTreeUsage burns CPU in a grandchild and finds it in the tree of the
// child, both while the grandchild lives and after it was waited for.
func TestTreeUsage(t *testing.T) {
	t.Parallel()
	const script = `sh -c 'i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo burnt; read x'; echo waited; read x`
	cmd := exec.Command("sh", "-c", script)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	expect := func(word string) usage {
		buf := make([]byte, len(word)+1)
		if n, err := out.Read(buf); err != nil || string(buf[:n]) != word+"\n" {
			t.Fatalf("read %q %v, want %q", buf[:n], err, word)
		}
		u, err := treeUsage(cmd.Process.Pid)
		if err != nil {
			t.Fatal(err)
		}
		return u
	}
	live := expect("burnt")
	if live.cpu < tick || live.rss <= 0 || live.peakRSS < live.rss {
		t.Errorf("while it lives: %+v", live)
	}
	if _, err := in.Write([]byte("\n")); err != nil {
		t.Fatal(err)
	}
	// What was waited for is counted in ticks, user and system time each.
	if waited := expect("waited"); waited.cpu < live.cpu-2*tick {
		t.Errorf("after the grandchild was waited for: %v, before %v", waited.cpu, live.cpu)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	// The last read meets the end of stdin, which sh reports as status 1.
	if err := cmd.Wait(); err != nil && cmd.ProcessState.ExitCode() != 1 {
		t.Fatal(err)
	}
	if _, err := treeUsage(cmd.Process.Pid); err == nil {
		t.Error("a process that has ended: want an error")
	}
	if _, err := treeUsage(os.Getpid()); err != nil {
		t.Error(err)
	}
}
