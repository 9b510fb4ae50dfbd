package server

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"net"
	"net/http"

	"github.com/divandb/divan/internal/noderpc"
	"github.com/divandb/divan/internal/shardapi"
)

// oneNode is a cluster of one: every copy is on the same host.
type oneNode struct{ host shardapi.Host }

// Host implements coordinator.Nodes.
func (n oneNode) Host(string) shardapi.Host { return n.host }

// loopback puts a host behind the node-to-node protocol on a port of this
// machine, so that every call takes the road it will take in a cluster. The
// secret keeps other users of the machine out.
func loopback(host shardapi.Host, log *slog.Logger) (shardapi.Host, func() error, error) {
	o := noderpc.Options{Secret: rand.Text(), HTTPClient: noderpc.NewHTTPClient(nil)}
	handler, err := noderpc.NewHandler(host, o)
	if err != nil {
		return nil, nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	srv := noderpc.NewHTTPServer(handler)
	srv.ErrorLog = slog.NewLogLogger(log.Handler(), slog.LevelWarn)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(listener) }()
	stop := func() error {
		err := srv.Close()
		if served := <-done; !errors.Is(served, http.ErrServerClosed) {
			err = errors.Join(err, served)
		}
		handler.Close() // calls that were cut still have to let go of the store
		o.HTTPClient.CloseIdleConnections()
		return err
	}
	remote, err := noderpc.Dial("http://"+listener.Addr().String(), o)
	if err != nil {
		return nil, nil, errors.Join(err, stop())
	}
	return remote, stop, nil
}
