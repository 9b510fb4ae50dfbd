// Package testserver gives tests a real server to talk to over HTTP: one in this
// process (Start, Shared) or one in a process of its own that can be killed
// (StartProcess).
//
// Tests that use only what Server offers run unchanged against another server:
// with DIVAN_URL set (http://name:password@host:port), Start and Shared give that
// one. With DIVAN_SHARD_RPC=1 every shard call of the servers started here goes
// through the node-to-node protocol.
package testserver

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/server"
)

// The administrator of every server made here.
const (
	AdminName     = "admin"
	AdminPassword = "test-password"
)

// EnvURL names the variable with the address of a server to test instead of one
// that is started here.
const EnvURL = "DIVAN_URL"

// stopTimeout bounds the stop of a server; a test that needs longer has left a
// request hanging.
const stopTimeout = 20 * time.Second

// Server is a server under test.
type Server struct {
	URL    string       // http://name:password@host:port, without a slash at the end
	Addr   string       // host:port
	Data   string       // its data directory; empty for the server of DIVAN_URL
	Client *http.Client // follows no redirects and decompresses nothing

	log  *LogBuffer
	stop func() error
}

// Log gives what the server has logged so far.
func (s *Server) Log() string { return s.log.String() }

// Option changes how Start makes a server. A test that uses one needs a server of
// its own and is skipped with DIVAN_URL.
type Option func(*config.Config, *server.Options)

// Config changes settings.
func Config(change func(*config.Config)) Option {
	return func(c *config.Config, _ *server.Options) { change(c) }
}

// Parts changes what no setting changes: the file system, the free space.
func Parts(change func(*server.Options)) Option {
	return func(_ *config.Config, o *server.Options) { change(o) }
}

// Start gives a server that ends with the test.
func Start(t testing.TB, options ...Option) *Server {
	t.Helper()
	if outer := os.Getenv(EnvURL); outer != "" {
		if len(options) > 0 {
			t.Skip("needs a server with settings of its own, and DIVAN_URL gives another one")
		}
		return fromURL(t, outer)
	}
	s, err := start(t.TempDir(), options)
	if err != nil {
		t.Fatalf("start a server: %v", err)
	}
	t.Cleanup(func() {
		if err := s.stop(); err != nil {
			t.Errorf("stop the server: %v", err)
		}
		s.showLog(t)
	})
	return s
}

// Stop stops the server before its test ends, as SIGTERM would.
func (s *Server) Stop(t testing.TB) {
	t.Helper()
	if err := s.stop(); err != nil {
		t.Fatalf("stop the server: %v", err)
	}
}

// start makes a server in this process.
func start(data string, options []Option) (*Server, error) {
	cfg := config.Default()
	cfg.Addr = "127.0.0.1:0"
	cfg.Data = data
	cfg.Admin = config.Credentials{Name: AdminName, Password: AdminPassword}
	cfg.MinFree = -1 // a full disk of the machine is no matter of these tests
	cfg.ShardRPC = os.Getenv("DIVAN_SHARD_RPC") == "1"
	cfg.Cache = 16 << 20
	log := &LogBuffer{}
	binary, err := build()
	if err != nil {
		return nil, err
	}
	o := server.Options{
		// A test binary is no worker, and with the race detector it would be a slow one.
		JSCommand: []string{binary, "js-worker"},
		Log:       slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelWarn})),
		Auth:      auth.Options{Rounds: 10},
	}
	for _, change := range options {
		change(&cfg, &o)
	}
	running, err := server.Start(context.Background(), cfg, o)
	if err != nil {
		return nil, err
	}
	s := newServer(running.Addr(), cfg.Admin.Name, cfg.Admin.Password)
	s.Data, s.log = data, log
	s.stop = sync.OnceValue(func() error {
		s.Client.CloseIdleConnections()
		ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
		defer cancel()
		return running.Shutdown(ctx)
	})
	return s, nil
}

func newServer(addr, name, password string) *Server {
	u := url.URL{Scheme: "http", Host: addr, User: url.UserPassword(name, password)}
	return &Server{URL: u.String(), Addr: addr, Client: newClient(), log: &LogBuffer{}, stop: func() error { return nil }}
}

// newClient makes a client that shows answers as they are.
func newClient() *http.Client {
	return &http.Client{
		Transport:     &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 100},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

func fromURL(t testing.TB, outer string) *Server {
	t.Helper()
	u, err := url.Parse(outer)
	if err != nil || u.Host == "" {
		t.Fatal("DIVAN_URL is no address of the form http://name:password@host:port")
	}
	password, _ := u.User.Password()
	s := newServer(u.Host, u.User.Username(), password)
	s.URL = strings.TrimSuffix(outer, "/")
	t.Cleanup(s.Client.CloseIdleConnections)
	return s
}

// showLog prints the log of a server whose test failed.
func (s *Server) showLog(t testing.TB) {
	if text := s.Log(); t.Failed() && text != "" {
		t.Logf("log of the server:\n%s", text)
	}
}

// shared is the server of Shared and how many tests use it.
var shared struct {
	sync.Mutex
	server *Server
	users  int
}

// Shared gives a server that the tests of a package have in common. It runs while
// a test uses it; Main keeps it running between tests.
func Shared(t testing.TB) *Server {
	t.Helper()
	if outer := os.Getenv(EnvURL); outer != "" {
		return fromURL(t, outer)
	}
	s, err := takeShared()
	if err != nil {
		t.Fatalf("start the shared server: %v", err)
	}
	t.Cleanup(func() {
		s.showLog(t)
		if err := releaseShared(); err != nil {
			t.Errorf("stop the shared server: %v", err)
		}
	})
	return s
}

// Main is the TestMain of a package that uses Shared much: one server for all of
// its tests.
func Main(m *testing.M) {
	code := func() int {
		if os.Getenv(EnvURL) != "" {
			return m.Run()
		}
		if _, err := takeShared(); err != nil {
			println("start the shared server: " + err.Error())
			return 1
		}
		code := m.Run()
		if err := releaseShared(); err != nil {
			println("stop the shared server: " + err.Error())
			return 1
		}
		return code
	}()
	os.Exit(code)
}

func takeShared() (*Server, error) {
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		// Not a test's own directory: the server may outlive the test that began it.
		dir, err := os.MkdirTemp("", "divan-shared-")
		if err != nil {
			return nil, err
		}
		s, err := start(dir, nil)
		if err != nil {
			_ = os.RemoveAll(dir) // the start's error says more
			return nil, err
		}
		shared.server = s
	}
	shared.users++
	return shared.server, nil
}

func releaseShared() error {
	shared.Lock()
	defer shared.Unlock()
	if shared.users--; shared.users > 0 {
		return nil
	}
	s := shared.server
	shared.server = nil
	err := s.stop()
	if rerr := os.RemoveAll(s.Data); err == nil {
		err = rerr
	}
	return err
}

// DB creates a database with a name of its own, which goes when the test ends.
// The words of the query ("q=4", "partitioned=true") are put together.
func (s *Server) DB(t testing.TB, query ...string) string {
	t.Helper()
	name := "t-" + strings.ToLower(rand.Text()[:16])
	path := "/" + name
	if len(query) > 0 {
		path += "?" + strings.Join(query, "&")
	}
	if r := s.Do(t, "PUT", path, nil); r.Status != 201 && r.Status != 202 {
		t.Fatalf("create database %s: %d %s", path, r.Status, r.Body)
	}
	t.Cleanup(func() {
		if r, err := s.send(context.Background(), "DELETE", "/"+name, nil, nil); err == nil {
			_ = r.Body.Close() // the test may have deleted it, or stopped the server
		}
	})
	return name
}

// LogBuffer keeps a log that is read while it is written.
type LogBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write implements io.Writer.
func (b *LogBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

// String gives what was written so far.
func (b *LogBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}
