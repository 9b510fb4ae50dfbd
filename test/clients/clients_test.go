// Package clients_test runs the real, unmodified JavaScript clients of this
// directory against a server.
package clients_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divandb/divan/internal/testserver"
)

// runLimit bounds one file of tests; each test in it has a shorter bound of its own.
const runLimit = 8 * time.Minute

// testFiles are the files that TestClients runs, one subtest each. A file that
// is in the directory and not here fails TestEveryFileRuns.
var testFiles = []string{
	"cloudant.test.mjs",
	"couchbackup.test.mjs",
	"nano.test.mjs",
	"pouchdb-sync.test.mjs",
	"pouchdb.test.mjs",
	"users.test.mjs",
}

func TestEveryFileRuns(t *testing.T) {
	t.Parallel()
	found, err := filepath.Glob("*.test.mjs")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(found, " ") != strings.Join(testFiles, " ") {
		t.Errorf("the directory holds %v, the list of files to run is %v", found, testFiles)
	}
}

// TestLockNamesNoHost keeps download addresses out of the lock file: packages
// come from whatever registry the machine is configured for.
func TestLockNamesNoHost(t *testing.T) {
	t.Parallel()
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(lock), `"resolved"`) {
		t.Error("package-lock.json holds download addresses")
	}
}

func TestClients(t *testing.T) {
	install(t)
	address := testserver.ProcessURL(t)
	for _, file := range testFiles {
		t.Run(strings.TrimSuffix(file, ".test.mjs"), func(t *testing.T) {
			node(t, address, file)
		})
	}
}

// install fetches the packages that the lock file pins, unless they are there.
// npm writes its own lock into node_modules last, so a broken install is redone.
func install(t *testing.T) {
	t.Helper()
	installed, err := os.Stat(filepath.Join("node_modules", ".package-lock.json"))
	if err == nil {
		wanted, err := os.Stat("package-lock.json")
		if err != nil {
			t.Fatal(err)
		}
		if !installed.ModTime().Before(wanted.ModTime()) {
			return
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	if output, err := exec.CommandContext(ctx, "npm", "ci").CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, output)
	}
}

// node runs one file of tests and passes its output on line by line.
func node(t *testing.T, address, file string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runLimit)
	defer cancel()
	command := exec.CommandContext(ctx, "node", "--test", "--test-force-exit", "--test-reporter=spec", file)
	command.Env = append(os.Environ(), testserver.EnvURL+"="+address)
	output, writer := io.Pipe()
	command.Stdout = writer
	command.Stderr = writer
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		err := command.Wait()
		_ = writer.Close() // a pipe's Close never fails; it ends the loop below
		ended <- err
	}()
	lines := bufio.NewReader(output)
	for {
		line, err := lines.ReadString('\n')
		if line != "" {
			t.Log(strings.TrimRight(line, "\n"))
		}
		if err != nil {
			break
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("%s: %v", file, err)
	}
}
