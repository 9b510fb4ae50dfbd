package noderpc_test

import (
	"testing"

	"github.com/divandb/divan/internal/noderpc"
	"github.com/divandb/divan/internal/shardapi"
	"github.com/divandb/divan/internal/shardapi/conformance"
	"github.com/divandb/divan/internal/testserver"
)

// A copy behind the wire keeps the promises of shardapi.
func TestConformanceLoopback(t *testing.T) {
	t.Parallel()
	conformance.Run(t, func(t *testing.T) shardapi.Host { return noderpc.LoopbackNode(t, testserver.Binary(t)) })
}

// So does a copy in another process.
func TestConformanceProcess(t *testing.T) {
	t.Parallel()
	conformance.Run(t, func(t *testing.T) shardapi.Host { return noderpc.ProcessNode(t, testserver.Binary(t)) })
}
