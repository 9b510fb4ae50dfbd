// Package serverprocess gives tests a server to talk to: the one that DIVAN_URL
// names, or else the project's own binary, built and started for the test on a
// free port with an empty data directory, and stopped when the test ends.
package serverprocess

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// EnvURL names the environment variable with the address of a running server,
// credentials included, e.g. http://admin:secret@127.0.0.1:5984.
const EnvURL = "DIVAN_URL"

const (
	// adminName and adminPassword are the credentials of a server started here.
	adminName     = "admin"
	adminPassword = "test-secret"

	// startLimit bounds the wait for the line with the address, stopLimit the
	// wait for the exit after SIGTERM; a server over either is a failure.
	startLimit = 30 * time.Second
	stopLimit  = 30 * time.Second

	// announcement precedes the address on the server's standard output.
	announcement = "listening on "
)

// Start returns the address of a server, credentials included. A server that it
// started itself is stopped by the end of the test, which fails if the server
// does not then exit with status 0.
func Start(t *testing.T) string {
	t.Helper()
	if address := os.Getenv(EnvURL); address != "" {
		if parsed, err := url.Parse(address); err != nil || parsed.User == nil {
			t.Fatalf("%s must be an address with credentials", EnvURL)
		}
		return strings.TrimSuffix(address, "/")
	}
	return run(t, build(t))
}

// Root returns the top directory of the project.
func Root(t *testing.T) string {
	t.Helper()
	_, file, _, ok := runtime.Caller(0)
	if !ok {
		t.Fatal("the place of this source file is unknown")
	}
	if filepath.IsAbs(file) {
		return filepath.Join(filepath.Dir(file), "..", "..")
	}
	// built with -trimpath: go test runs in the directory of the tested package
	directory, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(directory, "go.mod")); err == nil {
			return directory
		}
		parent := filepath.Dir(directory)
		if parent == directory {
			t.Fatal("no go.mod above the working directory")
		}
		directory = parent
	}
}

// build compiles the server into a directory of the test.
func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "divan")
	command := exec.Command("go", "build", "-o", binary, "./cmd/divan")
	command.Dir = Root(t)
	if output, err := command.CombinedOutput(); err != nil {
		t.Fatalf("go build ./cmd/divan: %v\n%s", err, output)
	}
	return binary
}

// run starts the binary and waits until it tells its address.
func run(t *testing.T, binary string) string {
	t.Helper()
	command := exec.Command(binary, "serve", "--addr", "127.0.0.1:0", "--data", t.TempDir(), "--admin", adminName+":"+adminPassword)
	logs, err := os.Create(filepath.Join(t.TempDir(), "server.log"))
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = logs
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}

	address := make(chan string, 1)
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		defer close(address)
		lines := bufio.NewReader(stdout)
		for found := false; !found; {
			line, err := lines.ReadString('\n')
			if _, told, ok := strings.Cut(strings.TrimSpace(line), announcement); ok {
				address <- strings.TrimSpace(told)
				found = true
			}
			if err != nil {
				return
			}
		}
		// keep the pipe empty, or the server would block on a full one
		_, _ = io.Copy(io.Discard, lines)
	}()
	t.Cleanup(func() {
		stop(t, command, drained)
		if t.Failed() {
			showLogs(t, logs.Name())
		}
		if err := logs.Close(); err != nil {
			t.Error(err)
		}
	})

	limit := time.NewTimer(startLimit)
	defer limit.Stop()
	select {
	case told, ok := <-address:
		if !ok {
			t.Fatalf("the server ended without the line %q", announcement)
		}
		parsed, err := url.Parse(told)
		if err != nil || parsed.Host == "" {
			t.Fatalf("the server told the address %q", told)
		}
		parsed.User = url.UserPassword(adminName, adminPassword)
		return strings.TrimSuffix(parsed.String(), "/")
	case <-limit.C:
		t.Fatalf("the server did not tell its address within %s", startLimit)
	}
	return ""
}

// stop ends the server as an operator would and checks that it ends well.
func stop(t *testing.T, command *exec.Cmd, drained <-chan struct{}) {
	t.Helper()
	if err := command.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		t.Errorf("SIGTERM: %v", err)
	}
	ended := make(chan error, 1)
	go func() {
		<-drained // Wait closes the pipe, so everything must have been read
		ended <- command.Wait()
	}()
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	select {
	case err := <-ended:
		if err != nil {
			t.Errorf("the server ended with: %v", err)
		}
	case <-limit.C:
		_ = command.Process.Kill()
		t.Errorf("the server did not end within %s after SIGTERM", stopLimit)
	}
}

// showLogs adds the last lines of the server's log to a failed test.
func showLogs(t *testing.T, name string) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Error(err)
		return
	}
	const tail = 8 << 10
	if len(data) > tail {
		data = data[len(data)-tail:]
	}
	t.Log(fmt.Sprintf("end of the server's log:\n%s", data))
}
