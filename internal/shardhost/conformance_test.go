package shardhost

import (
	"testing"

	"github.com/divandb/divan/internal/shardapi"
	"github.com/divandb/divan/internal/shardapi/conformance"
)

// The copies of this node keep the promises of shardapi.
func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Run(t, func(t *testing.T) shardapi.Host { return newHost(t, t.TempDir(), nil, Options{}) })
}
