package server

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// certificateLook is how often a handshake looks whether the files have changed.
const certificateLook = time.Second

// certificate is the certificate of the server, read again when its files change:
// those that renew it need not know how to restart us. A new pair that cannot be read
// leaves the old one in use. Files are often written one after the other, so a pair
// that does not fit may be half of a change; the next look finds the rest.
type certificate struct {
	certFile, keyFile string
	log               *slog.Logger

	pair   atomic.Pointer[tls.Certificate]
	looked atomic.Int64 // when, in nanoseconds

	mu   sync.Mutex // held to look and to load
	seen [2]fileStamp
}

// fileStamp tells one state of a file from another.
type fileStamp struct {
	modified time.Time
	size     int64
}

func stampOf(path string) fileStamp {
	info, err := os.Stat(path)
	if err != nil {
		return fileStamp{} // reading it says why
	}
	return fileStamp{info.ModTime(), info.Size()}
}

// openCertificate reads the pair.
func openCertificate(certFile, keyFile string, log *slog.Logger) (*certificate, error) {
	c := &certificate{certFile: certFile, keyFile: keyFile, log: log}
	c.looked.Store(time.Now().UnixNano())
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen = c.stamps()
	return c, c.load()
}

// stamps must be taken before the files are read: a change in between is then seen
// as one.
func (c *certificate) stamps() [2]fileStamp {
	return [2]fileStamp{stampOf(c.certFile), stampOf(c.keyFile)}
}

func (c *certificate) load() error {
	pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("the TLS certificate %s with the key %s cannot be used: %w", c.certFile, c.keyFile, err)
	}
	c.pair.Store(&pair)
	return nil
}

// get is the GetCertificate of the TLS configuration.
func (c *certificate) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	last, now := c.looked.Load(), time.Now().UnixNano()
	// One of many handshakes looks; the others go on with what there is.
	if now-last >= int64(certificateLook) && c.looked.CompareAndSwap(last, now) {
		c.refresh()
	}
	return c.pair.Load(), nil
}

// refresh loads the pair if a file has changed.
func (c *certificate) refresh() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.stamps()
	if now == c.seen {
		return
	}
	c.seen = now // a bad pair is reported once, not once a second
	if err := c.load(); err != nil {
		c.log.Error("the new certificate is not used; the old one stays", "error", err)
		return
	}
	c.log.Info("a new certificate is in use", "file", c.certFile, "expires", c.pair.Load().Leaf.NotAfter)
}

// config gives the TLS configuration. Which protocols follow (h2, http/1.1) is added
// by net/http.
func (c *certificate) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: c.get}
}

// httpErrors is where net/http reports what goes wrong outside of handlers.
type httpErrors struct{ log *slog.Logger }

var handshakeError = []byte("http: TLS handshake error")

// Write implements io.Writer: one call is one line. A handshake that fails is the
// client's affair, and whoever scans ports makes many: such lines would bury others.
func (e httpErrors) Write(line []byte) (int, error) {
	level := slog.LevelWarn
	if bytes.HasPrefix(line, handshakeError) {
		level = slog.LevelDebug
	}
	e.log.Log(context.Background(), level, string(bytes.TrimSpace(line)))
	return len(line), nil
}
