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
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/shardapi"
	"github.com/divandb/divan/internal/shardhost"
)

// childDir, in the environment, makes the test binary a node of its own with its
// data there; childSecret is the secret it asks for and childProgram the program
// that runs JavaScript for it.
const (
	childDir     = "DIVAN_TEST_NODE_DIR"
	childSecret  = "DIVAN_TEST_NODE_SECRET"
	childProgram = "DIVAN_TEST_NODE_PROGRAM"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		if err := runNode(dir, os.Getenv(childProgram), os.Getenv(childSecret)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// node is a shardhost behind a real server.
type node struct {
	host    *shardhost.Host
	calls   *Handler
	srv     *http.Server
	addr    string
	done    chan error
	closers []func() error // in the order of opening
}

// startNode serves the copies in dir. With a program to run JavaScript it has views
// too.
func startNode(dir, program string, wrap func(shardapi.Host) shardapi.Host, o Options) (*node, error) {
	n := &node{done: make(chan error, 1)}
	if err := n.open(dir, program, wrap, o); err != nil {
		return nil, errors.Join(err, n.close())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, n.close())
	}
	n.addr = l.Addr().String()
	go func() { n.done <- n.srv.Serve(l) }()
	return n, nil
}

// open makes all but the listener.
func (n *node) open(dir, program string, wrap func(shardapi.Host) shardapi.Host, o Options) error {
	store, err := kv.Open(dir+"/store", kv.Options{MinFree: -1, CacheBytes: 8 << 20})
	if err != nil {
		return err
	}
	n.closers = append(n.closers, store.Close)
	var options shardhost.Options
	if program != "" {
		if options.Index, err = kv.Open(dir+"/index", kv.Options{MinFree: -1, CacheOf: store, NoSync: true}); err != nil {
			return err
		}
		options.JS = jsvm.New(jsvm.Options{Command: []string{program, "js-worker"}})
		n.closers = append(n.closers, options.Index.Close, options.JS.Close)
	}
	if n.host, err = shardhost.New(store, dir, options); err != nil {
		return err
	}
	n.closers = append(n.closers, n.host.Close)
	served := shardapi.Host(n.host)
	if wrap != nil {
		served = wrap(served)
	}
	if n.calls, err = NewHandler(served, o); err != nil {
		return err
	}
	n.srv = NewHTTPServer(n.calls)
	return nil
}

// close closes what was opened, the last first.
func (n *node) close() (err error) {
	for _, c := range slices.Backward(n.closers) {
		err = errors.Join(err, c())
	}
	return err
}

// stop ends the node.
func (n *node) stop() error {
	err := n.srv.Close()
	if served := <-n.done; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	n.calls.Close()
	return errors.Join(err, n.close())
}

// runNode is a node in a process of its own: it tells its address and lives until
// its standard input is closed.
func runNode(dir, program, secret string) error {
	n, err := startNode(dir, program, nil, Options{Secret: secret})
	if err != nil {
		return err
	}
	fmt.Println(n.addr)
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, n.stop())
}

// newNode starts a node without views for a test.
func newNode(t *testing.T, wrap func(shardapi.Host) shardapi.Host, o Options) *node {
	t.Helper()
	return newNodeWith(t, "", wrap, o)
}

// newNodeWith starts a node for a test.
func newNodeWith(t *testing.T, program string, wrap func(shardapi.Host) shardapi.Host, o Options) *node {
	t.Helper()
	n, err := startNode(t.TempDir(), program, wrap, o)
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

// startProcess starts a node in another process.
func startProcess(t *testing.T, program, secret string) (addr string) {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), childDir+"="+t.TempDir(), childProgram+"="+program, childSecret+"="+secret)
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

// LoopbackNode gives a node of this process to tests outside of the package, which
// know how to build a program that runs JavaScript.
func LoopbackNode(t *testing.T, program string) *Host {
	return dialNode(t, newNodeWith(t, program, nil, Options{}).addr, Options{})
}

// ProcessNode gives them a node of another process.
func ProcessNode(t *testing.T, program string) *Host {
	return dialNode(t, startProcess(t, program, "a secret"), Options{Secret: "a secret"})
}
