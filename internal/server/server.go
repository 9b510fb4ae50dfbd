// Package server builds a node from its configuration, starts its parts from the
// bottom up and stops them in reverse. It is the only place that knows all of
// them, and the only one that turns settings into their Options.
package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/changes"
	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/designs"
	"github.com/divandb/divan/internal/httpapi"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
	"github.com/divandb/divan/internal/shardhost"
)

// What net/http is bounded by. Bodies have no deadline here: an attachment may take
// its time, and httpapi gives up only who stops sending.
const (
	readHeaderTimeout = 30 * time.Second // and of a TLS handshake
	idleTimeout       = 2 * time.Minute
	// HTTP/2 has no deadline on headers: one that sends half of them opens no stream,
	// and is idle. Who does not answer a ping is gone, and who reads nothing too.
	pingAfter    = 30 * time.Second
	pingTimeout  = 15 * time.Second
	stuckTimeout = 2 * time.Minute
	// abandonAfter is how long handlers get to return once their connections were
	// cut at the end of a stop.
	abandonAfter = 5 * time.Second
)

// Options is what a Server is made of beside its configuration. The zero value is
// good.
type Options struct {
	// Stdout gets the password of a first start. Default: nowhere, and then a first
	// start without an administrator fails.
	Stdout io.Writer
	// Log gets what happens. Default: nowhere.
	Log *slog.Logger
	// OnFatal is called once when the store failed and takes no more writes. The
	// process should end: a restart recovers. Default: a log line.
	OnFatal func(error)
	// Auth is for tests, which cannot wait for real hashes.
	Auth auth.Options
	// FS and FreeSpace are for tests: see kv.Options.
	FS        kv.FS
	FreeSpace func() (int64, error)
	// JSCommand starts a process that runs JavaScript. Default: this program with
	// the word js-worker, which a test binary is not.
	JSCommand []string
	// NoSync is for tests, which show that they notice what it loses.
	NoSync bool
	// CompactEvery is for tests, which cannot wait for the next look at the copies:
	// see shardhost.Options.
	CompactEvery time.Duration
}

// Server is a running node.
type Server struct {
	cfg      config.Config
	log      *slog.Logger
	listener net.Listener
	http     *http.Server
	requests *requests
	cancel   context.CancelFunc // of everything that runs on behalf of a request
	served   chan error

	certificate  *certificate // nil: no TLS
	compactEvery time.Duration

	// ended keeps OnFatal to one call.
	ended sync.Once
	// closers undo the start, last first.
	closers []func() error
}

// Start opens the data directory and serves. Nothing is left open when it fails,
// and its errors are fit to be shown to an operator.
func Start(ctx context.Context, cfg config.Config, o Options) (s *Server, err error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	s = &Server{cfg: cfg, log: o.Log, served: make(chan error, 1), compactEvery: o.CompactEvery}
	// What the operator got wrong is said before anything is made.
	if o.Auth, err = authOptions(cfg, o.Auth); err != nil {
		return nil, err
	}
	if cfg.TLSCert != "" {
		if s.certificate, err = openCertificate(cfg.TLSCert, cfg.TLSKey, s.log); err != nil {
			return nil, err
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.closeParts())
			s = nil
		}
	}()
	if err := prepareDataDir(cfg.Data); err != nil {
		return s, err
	}
	store, err := s.openStore(o)
	if err != nil {
		return s, err
	}
	indexes, err := s.openIndexes(o, store)
	if err != nil {
		return s, err
	}
	scripts, err := s.openScripts(o)
	if err != nil {
		return s, err
	}
	defs, accounts := newDefinitions(), newAccounts()
	registry, nodes, err := s.openShards(ctx, store, indexes, scripts, defs, accounts)
	if err != nil {
		return s, err
	}
	if o.Auth.SessionKey, err = sessionKey(ctx, registry); err != nil {
		return s, err
	}
	o.Auth.Accounts = accounts
	users, err := auth.New(adminStore{registry}, o.Auth)
	if err != nil {
		return s, err
	}
	// The port is taken before a password is made: a first start that fails has
	// shown none.
	s.listener, err = net.Listen("tcp", cfg.Addr)
	if err != nil {
		return s, fmt.Errorf("cannot listen: %w", err)
	}
	s.closers = append(s.closers, func() error { return ignoreClosed(s.listener.Close()) })
	if err := ensureAdmin(users, cfg.Admin, o.Stdout); err != nil {
		return s, err
	}
	auditStart(o.Log, &cfg, users)
	s.serve(s.api(registry, nodes, users, scripts, defs, accounts))
	return s, nil
}

var errInUse = errors.New("is in use by another process")

// openStore opens the store of documents.
func (s *Server) openStore(o Options) (*kv.Store, error) {
	store, err := kv.Open(filepath.Join(s.cfg.Data, "store"), kv.Options{
		FS:         o.FS,
		CacheBytes: s.cfg.Cache,
		MinFree:    s.cfg.MinFree,
		FreeSpace:  o.FreeSpace,
		NoSync:     o.NoSync,
		Logger:     s.log,
		OnFatal:    s.fatal(o, "the store failed and takes no more writes"),
	})
	if err != nil {
		if model.KindOf(err) == model.KindUnavailable {
			return nil, fmt.Errorf("the data directory %s %w", s.cfg.Data, errInUse)
		}
		return nil, err
	}
	s.closers = append(s.closers, store.Close)
	return store, nil
}

// fatal gives what a store calls when it failed for good. A broken disk breaks both
// stores; the process ends once.
func (s *Server) fatal(o Options, words string) func(error) {
	return func(err error) {
		s.log.Error(words, "error", err)
		if o.OnFatal != nil {
			s.ended.Do(func() { o.OnFatal(err) })
		}
	}
}

// openShards opens this node's copies and the registry that knows them.
func (s *Server) openShards(ctx context.Context, store, indexes *kv.Store, scripts *jsvm.Pool, defs *definitions, accounts *accounts) (*cluster.Local, coordinator.Nodes, error) {
	// The copies tell the registry of their writes and the registry asks the copies
	// for their sequences at its start, so one of them must be named late.
	var registry atomic.Pointer[cluster.Local]
	host, err := shardhost.New(store, s.cfg.Data, shardhost.Options{
		CompactEvery: s.compactEvery,
		CompactGrace: orNone(s.cfg.CompactGrace),
		CompactBytes: s.cfg.CompactAt,
		Logger:       s.log,
		Index:        indexes,
		JS:           scripts,
		Definitions:  defs,
		OnDesign:     defs.changed,
		Database:     defs.name,
		OnUpdate: func(id shardapi.CopyID, seq uint64) {
			if r := registry.Load(); r != nil {
				r.Touched(id, seq)
			}
			accounts.touched(id)
		},
	})
	if err != nil {
		return nil, nil, err
	}
	s.closers = append(s.closers, host.Close)
	local, err := cluster.Open(ctx, store, cluster.Options{
		Node:    s.cfg.NodeName,
		Account: s.cfg.Account,
		Q:       s.cfg.DefaultQ,
		N:       s.cfg.DefaultN,
		Drop:    host.Drop,
		CopySeq: host.CopySeq,
		Logger:  s.log,
	})
	if err != nil {
		return nil, nil, err
	}
	registry.Store(local)
	defs.own(local, host)
	accounts.own(local)
	// A crash while a database was deleted may have left its indexes.
	if err := host.TidyIndexes(func(id shardapi.CopyID) bool { _, ok := local.ByCopy(id); return ok }); err != nil {
		return nil, nil, err
	}
	s.closers = append(s.closers, func() error { local.Close(); return nil })
	if !s.cfg.ShardRPC {
		return local, oneNode{host}, nil
	}
	remote, stop, err := loopback(host, s.log)
	if err != nil {
		return nil, nil, err
	}
	s.closers = append(s.closers, stop)
	return local, oneNode{remote}, nil
}

// api builds the outside.
func (s *Server) api(registry cluster.Registry, nodes coordinator.Nodes, users *auth.Service, scripts *jsvm.Pool, defs *definitions, accounts *accounts) http.Handler {
	coord := coordinator.New(registry, nodes, coordinator.Options{JS: scripts})
	accounts.bind(coord)
	known := designs.New(coord)
	defs.bind(known)
	feeds := changes.New(coord, changes.Options{})
	s.closers = append(s.closers, func() error { feeds.Close(); return nil })
	return httpapi.New(httpapi.Options{
		Registry:    registry,
		Coordinator: coord,
		Changes:     feeds,
		Designs:     known,
		JS:          scripts,
		Auth:        authenticator{users, registry},
		Log:         s.log,
		Limits: httpapi.Limits{
			MaxURL:        s.cfg.MaxURL,
			MaxBody:       s.cfg.MaxRequest,
			MaxDocument:   s.cfg.MaxDocument,
			MaxAttachment: s.cfg.MaxAttachment,
		},
		Rates:      auth.Limits{Lookup: s.cfg.RateLookup, Write: s.cfg.RateWrite, Query: s.cfg.RateQuery},
		UUID:       registry.UUID(),
		Version:    Version,
		Build:      Build(),
		Account:    registry.Account(),
		DefaultQ:   s.cfg.DefaultQ,
		DefaultN:   s.cfg.DefaultN,
		DiskFormat: formatVersion,
	})
}

// serve begins to answer.
func (s *Server) serve(api http.Handler) {
	s.requests = newRequests(api)
	var base context.Context
	base, s.cancel = context.WithCancel(context.Background())
	s.http = &http.Server{
		Handler:           s.requests,
		ReadHeaderTimeout: readHeaderTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    s.cfg.MaxHeader,
		BaseContext:       func(net.Listener) context.Context { return base },
		ErrorLog:          log.New(httpErrors{s.log}, "", 0),
		ConnContext:       withConnection,
		ConnState:         answered,
	}
	if s.certificate == nil {
		go func() { s.served <- s.http.Serve(connections{s.listener}) }()
		return
	}
	s.http.TLSConfig = s.certificate.config()
	s.http.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout, WriteByteTimeout: stuckTimeout}
	// Without connections: they look at what is written, and here that is encrypted.
	go func() { s.served <- s.http.ServeTLS(s.listener, "", "") }()
}

// URL is where the server is reached.
func (s *Server) URL() string {
	if s.certificate != nil {
		return "https://" + s.Addr()
	}
	return "http://" + s.Addr()
}

// Addr is where the server listens.
func (s *Server) Addr() string { return s.listener.Addr().String() }

// Failed gives the error that ended the serving by itself, once.
func (s *Server) Failed() <-chan error { return s.served }

// Shutdown stops: no new connections, feeds end, running requests may finish
// until ctx ends and are cut then, and the parts are closed in reverse order.
func (s *Server) Shutdown(ctx context.Context) error {
	s.requests.end()
	err := s.http.Shutdown(ctx)
	s.cancel()
	if err != nil {
		s.log.Warn("requests did not end in time and were cut", "error", err)
		if err := s.http.Close(); err != nil {
			s.log.Warn("closing connections", "error", err)
		}
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), abandonAfter)
	defer cancel()
	if !s.requests.wait(last) {
		// Closing the store under a reader would be worse than not closing it: what
		// was acknowledged is on the disk either way.
		return errors.New("a request did not end; the store is left as after a crash, which loses nothing")
	}
	return s.closeParts()
}

// closeParts undoes the start.
func (s *Server) closeParts() error {
	var errs []error
	for i := len(s.closers) - 1; i >= 0; i-- {
		errs = append(errs, s.closers[i]())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// orNone says "none" to a part for which zero means its default.
func orNone(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// ignoreClosed leaves out the error of a listener that net/http closed already.
func ignoreClosed(err error) error {
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
