//go:build race

package jsvm_test

import (
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// workerCommand starts a worker of these tests: the real program, since the race
// detector makes the engine some 57 times slower.
func workerCommand(t testing.TB) []string {
	t.Helper()
	return []string{testserver.Binary(t), "js-worker"}
}
