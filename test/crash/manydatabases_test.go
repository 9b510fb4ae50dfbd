package crash_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/testserver"
)

// TestMeasureManyDatabases prints how long a server with 10,000 databases takes
// to start and how much memory it has. It asserts nothing about the figures and
// runs only with DIVAN_MEASURE=1.
func TestMeasureManyDatabases(t *testing.T) {
	if os.Getenv("DIVAN_MEASURE") != "1" {
		t.Skip("a measurement: DIVAN_MEASURE=1 runs it")
	}
	const databases, connections = 10_000, 8
	p := testserver.StartProcess(t, "--log-level", "warn")
	begun := time.Now()
	var work sync.WaitGroup
	for c := range connections {
		work.Go(func() {
			for i := c; i < databases; i += connections {
				name := fmt.Sprintf("/db-%05d", i)
				for _, path := range []string{name, name + "/doc"} {
					r, err := p.Try(context.Background(), "PUT", path, `{"a":1}`)
					if err != nil || r.Status != 201 {
						t.Errorf("PUT %s: %v %+v", path, err, r)
						return
					}
				}
			}
		})
	}
	work.Wait()
	t.Logf("made in %s, %s", time.Since(begun), memory(t, p.PID))
	for _, how := range []string{"stopped", "killed"} {
		if how == "killed" {
			p.Kill()
		} else if s := p.Stop(); s != 0 {
			t.Fatalf("exit status %d", s)
		}
		begun = time.Now()
		p.Restart()
		t.Logf("%s: listens after %s, %s", how, time.Since(begun), memory(t, p.PID))
		begun = time.Now()
		for i := range databases {
			p.Do(t, "GET", fmt.Sprintf("/db-%05d/doc", i), nil).Want(200)
		}
		t.Logf("%s: all documents read after %s, %s", how, time.Since(begun), memory(t, p.PID))
	}
}

// memory gives the resident memory of a process, now and at its peak.
func memory(t *testing.T, pid int) string {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	var words []string
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "VmRSS") || strings.HasPrefix(line, "VmHWM") {
			words = append(words, strings.Join(strings.Fields(line), " "))
		}
	}
	return strings.Join(words, ", ")
}
