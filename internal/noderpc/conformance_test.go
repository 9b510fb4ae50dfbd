package noderpc

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/shardapi"
	"github.com/divandb/divan/internal/shardapi/conformance"
	"github.com/divandb/divan/internal/shardhost"
)

// childDir, in the environment, makes the test binary a node of its own with its
// data there, and childSecret is the secret it asks for.
const (
	childDir    = "DIVAN_TEST_NODE_DIR"
	childSecret = "DIVAN_TEST_NODE_SECRET"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := runNode(dir, os.Getenv(childSecret)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// node is a shardhost behind a real server.
type node struct {
	store *kv.Store
	host  *shardhost.Host
	calls *Handler
	srv   *http.Server
	addr  string
	done  chan error
}

// startNode serves the copies in dir.
func startNode(dir string, wrap func(shardapi.Host) shardapi.Host, o Options) (*node, error) {
	store, err := kv.Open(dir+"/store", kv.Options{MinFree: -1, CacheBytes: 8 << 20})
	if err != nil {
		return nil, err
	}
	host, err := shardhost.New(store, dir, shardhost.Options{})
	if err != nil {
		return nil, errors.Join(err, store.Close())
	}
	served := shardapi.Host(host)
	if wrap != nil {
		served = wrap(host)
	}
	h, err := NewHandler(served, o)
	if err != nil {
		return nil, errors.Join(err, host.Close(), store.Close())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, host.Close(), store.Close())
	}
	n := &node{store: store, host: host, calls: h, srv: NewHTTPServer(h), addr: l.Addr().String(), done: make(chan error, 1)}
	go func() { n.done <- n.srv.Serve(l) }()
	return n, nil
}

// stop ends the node.
func (n *node) stop() error {
	err := n.srv.Close()
	if served := <-n.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	n.calls.Close()
	return errors.Join(err, n.host.Close(), n.store.Close())
}

// runNode is a node in a process of its own: it tells its address and lives until
// its standard input is closed.
func runNode(dir, secret string) error {
	n, err := startNode(dir, nil, Options{Secret: secret})
	if err != nil {
		return err
	}
	fmt.Println(n.addr)
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, n.stop())
}

// newNode starts a node for a test.
func newNode(t *testing.T, wrap func(shardapi.Host) shardapi.Host, o Options) *node {
	t.Helper()
	n, err := startNode(t.TempDir(), wrap, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.stop(); err != nil {
			t.Error(err)
		}
	})
	return n
}

// dialNode gives a host for an address; its connections end with the test.
func dialNode(t *testing.T, addr string, o Options) *Host {
	t.Helper()
	if o.HTTPClient == nil {
		o.HTTPClient = NewHTTPClient(nil)
		t.Cleanup(o.HTTPClient.CloseIdleConnections)
	}
	h, err := Dial("http://"+addr, o)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// A copy behind the wire keeps the promises of shardapi.
func TestConformanceLoopback(t *testing.T) {
	t.Parallel()
	conformance.Run(t, func(t *testing.T) shardapi.Host { return dialNode(t, newNode(t, nil, Options{}).addr, Options{}) })
}

// startProcess starts a node in another process.
func startProcess(t *testing.T, secret string) (addr string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childDir+"="+t.TempDir(), childSecret+"="+secret)
	cmd.Stderr = os.Stderr
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
	t.Cleanup(func() {
		if err := in.Close(); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other process: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(line)
}

// So does a copy in another process.
func TestConformanceProcess(t *testing.T) {
	t.Parallel()
	conformance.Run(t, func(t *testing.T) shardapi.Host {
		return dialNode(t, startProcess(t, "a secret"), Options{Secret: "a secret"})
	})
}
