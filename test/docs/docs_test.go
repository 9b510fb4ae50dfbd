// Package docs_test runs the examples of the documentation against the real program.
package docs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// commands gives the indented lines of a page that run a program.
func commands(t *testing.T, page string, programs ...string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", page))
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, line := range strings.Split(string(text), "\n") {
		command, indented := strings.CutPrefix(line, "    ")
		if !indented {
			continue
		}
		for _, p := range programs {
			if strings.Contains(" "+command, " "+p+" ") {
				out = append(out, command)
				break
			}
		}
	}
	if len(out) == 0 {
		t.Fatalf("%s has no examples of %v any more", page, programs)
	}
	return out
}

// The README's own server and its curl lines, with another address and directory.
func TestReadmeExamples(t *testing.T) {
	t.Parallel()
	serve := commands(t, "README.md", "bin/divan")
	if len(serve) != 1 || !strings.HasPrefix(serve[0], "DIVAN_ADMIN=me:secret ") {
		t.Fatalf("the README starts the server otherwise now: %v", serve)
	}
	p := testserver.StartProcess(t, "--admin", "me:secret")
	for _, command := range commands(t, "README.md", "curl") {
		command = strings.ReplaceAll(command, "me:secret@127.0.0.1:5984", "me:secret@"+p.Addr)
		out, err := exec.Command("sh", "-c", command).Output()
		if err != nil || !strings.Contains(string(out), `"ok":true`) {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
	if code := p.Stop(); code != 0 {
		t.Errorf("the server ended with status %d", code)
	}
}

// The commands of the top of the README are targets of the Makefile.
func TestMakeTargets(t *testing.T) {
	t.Parallel()
	for _, command := range commands(t, "README.md", "make") {
		command, _, _ = strings.Cut(command, "#")
		cmd := exec.Command("sh", "-c", strings.TrimSpace(command)+" --dry-run")
		cmd.Dir = filepath.Join("..", "..")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", command, err, out)
		}
	}
}

// The lines of bench's page, with a free port and few documents.
func TestBenchExample(t *testing.T) {
	t.Parallel()
	lines := commands(t, "bench/README.md", "divan")
	if len(lines) != 2 {
		t.Fatalf("bench's page has other examples now: %v", lines)
	}
	p := testserver.StartProcess(t, "--admin", "admin:secret")
	command := strings.NewReplacer("divan bench", testserver.Binary(t)+" bench", "127.0.0.1:5984", p.Addr,
		"$!", "$PID", "--bare", "--docs 500 --workloads get,put16").Replace(lines[1])
	cmd := exec.Command("sh", "-c", command)
	cmd.Env = append(os.Environ(), "PID="+strconv.Itoa(p.PID))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "PUT, 16 connections") {
		t.Errorf("%s: %v: %s", command, err, out)
	}
}
