package testserver

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// startTimeout bounds how long a server takes until it listens, also on a machine
// that does other things.
const startTimeout = 60 * time.Second

// Process is a server in a process of its own.
type Process struct {
	*Server
	PID    int
	Stdout *LogBuffer // of all its runs
	Stderr *LogBuffer

	t    testing.TB
	args []string
	cmd  *exec.Cmd
	out  sync.WaitGroup // the reader of stdout
	done bool
}

// Binary builds the program once per test process and gives its path.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

var build = sync.OnceValues(func() (string, error) {
	mod, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	root := filepath.Dir(strings.TrimSpace(string(mod)))
	// Packages are tested side by side: one builds, and the others find that there
	// is nothing left to do.
	path := filepath.Join(root, "bin", "divan-test")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	lock, err := os.OpenFile(path+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	cmd := exec.Command("go", "build", "-o", path, "./cmd/divan")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build ./cmd/divan: %w\n%s", err, out)
	}
	return path, nil
})

// StartProcess starts a server with a data directory and an administrator of its
// own; args are further flags of `divan serve`. It is killed when the test ends.
func StartProcess(t testing.TB, args ...string) *Process {
	t.Helper()
	return startProcess(t, args, "DIVAN_ADMIN="+AdminName+":"+AdminPassword)
}

// StartProcessWithoutAdmin is StartProcess for the first start that has to make an
// administrator itself.
func StartProcessWithoutAdmin(t testing.TB, args ...string) *Process {
	t.Helper()
	return startProcess(t, args, "DIVAN_ADMIN=")
}

func startProcess(t testing.TB, args []string, env string) *Process {
	t.Helper()
	p := &Process{Stdout: &LogBuffer{}, Stderr: &LogBuffer{}, t: t}
	data := filepath.Join(t.TempDir(), "data")
	p.args = append([]string{"serve", "--addr", "127.0.0.1:0", "--data", data, "--min-free-space", "off"}, args...)
	t.Cleanup(func() {
		if !p.done {
			p.Kill()
		}
		if t.Failed() {
			t.Logf("log of the server process:\n%s", p.Stderr)
		}
	})
	p.run(data, p.args, env)
	return p
}

// run starts the process and waits until it listens.
func (p *Process) run(data string, args []string, env string) {
	p.t.Helper()
	cmd := exec.Command(Binary(p.t), args...)
	cmd.Env = append(os.Environ(), env)
	cmd.Stderr = p.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.cmd, p.PID, p.done = cmd, cmd.Process.Pid, false
	addr := make(chan string, 1)
	p.out.Go(func() {
		for lines := bufio.NewScanner(io.TeeReader(stdout, p.Stdout)); lines.Scan(); {
			if a, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
				addr <- a
			}
		}
		close(addr)
	})
	select {
	case a, ok := <-addr:
		if !ok {
			p.t.Fatalf("the server ended with status %d before it listened: %s", p.wait(), p.Stderr)
		}
		scheme, host, _ := strings.Cut(a, "://")
		p.Server = newServer(host, AdminName, AdminPassword)
		p.URL = scheme + strings.TrimPrefix(p.URL, "http")
		p.Server.Data, p.Server.log = data, p.Stderr
	case <-time.After(startTimeout):
		p.t.Fatalf("the server does not listen after %s: %s", startTimeout, p.Stderr)
	}
}

// wait waits for the end of the process and gives its exit status, -1 after a
// signal.
func (p *Process) wait() int {
	p.t.Helper()
	p.out.Wait() // the pipe must be read to its end first
	err := p.cmd.Wait()
	p.done = true
	if p.Server != nil {
		p.Client.CloseIdleConnections()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// Kill ends the process as a power cut would end it (without the loss of what the
// operating system holds).
func (p *Process) Kill() {
	p.t.Helper()
	if err := p.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		p.t.Fatal(err)
	}
	p.wait()
}

// Stop ends the process by SIGTERM and gives its exit status.
func (p *Process) Stop() int {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	return p.wait()
}

// Wait waits until the process ends by itself and gives its exit status.
func (p *Process) Wait() int {
	p.t.Helper()
	return p.wait()
}

// Restart starts the process again on the same data, with further flags if need
// be. The port is another one. The administrator is the stored one.
func (p *Process) Restart(args ...string) {
	p.t.Helper()
	if !p.done {
		p.t.Fatal("the process still runs")
	}
	p.run(p.Data, append(p.args[:len(p.args):len(p.args)], args...), "DIVAN_ADMIN=")
}

// ProcessURL gives the address of a server for tests of whole programs: that of
// DIVAN_URL, or of a process that runs until the test ends and must then stop with
// status 0.
func ProcessURL(t testing.TB) string {
	t.Helper()
	if outer := os.Getenv(EnvURL); outer != "" {
		return strings.TrimSuffix(outer, "/")
	}
	p := StartProcess(t)
	t.Cleanup(func() {
		if code := p.Stop(); code != 0 {
			t.Errorf("the server ended with status %d", code)
		}
	})
	return p.URL
}
