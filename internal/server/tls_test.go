package server_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/server"
	"github.com/divandb/divan/internal/testserver"
)

// keyPair is a certificate and its key, in files.
type keyPair struct{ cert, key string }

func (p keyPair) write(t *testing.T, name string) {
	t.Helper()
	server.WriteKeyPair(t, name, p.cert, p.key)
}

// startTLS starts a server with a pair, and gives it a client.
func startTLS(t *testing.T, options ...testserver.Option) (*testserver.Server, keyPair) {
	t.Helper()
	dir := t.TempDir()
	pair := keyPair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	pair.write(t, "first")
	s := testserver.Start(t, append(options, testserver.Config(func(c *config.Config) { c.TLSCert, c.TLSKey = pair.cert, pair.key }))...)
	s.URL = strings.Replace(s.URL, "http://", "https://", 1)
	s.Client = tlsClient(t, pair, true)
	return s, pair
}

// tlsClient believes the pair's certificate.
func tlsClient(t *testing.T, pair keyPair, http2 bool) *http.Client {
	t.Helper()
	data, err := os.ReadFile(pair.cert)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(data)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: http2, DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// Everything works over TLS as it does without, by HTTP/1.1 and by HTTP/2.
func TestTLS(t *testing.T) {
	t.Parallel()
	s, pair := startTLS(t)
	large := make([]byte, 5<<20) // a file of its own, more than the windows of HTTP/2
	_, _ = rand.Read(large)
	for i, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		s := *s
		s.Client = tlsClient(t, pair, i == 1)
		res := s.Stream(t, t.Context(), "GET", "/", nil)
		if res.Proto != proto || res.TLS == nil || res.TLS.Version != tls.VersionTLS13 {
			t.Errorf("%s, want %s", res.Proto, proto)
		}
		db := "/" + s.DB(t)
		r := s.Do(t, "PUT", db+"/a", `{"x":1}`).Want(201)
		if loc := r.Header.Get("Location"); !strings.HasPrefix(loc, "https://") {
			t.Errorf("Location %s", loc)
		}
		s.Do(t, "PUT", db+"/b/file", bytes.NewReader(large), "Content-Type", "application/octet-stream").Want(201)
		if got := s.Do(t, "GET", db+"/b/file", nil).Want(200); !bytes.Equal(got.Body, large) {
			t.Errorf("%s: %d bytes came back", proto, len(got.Body))
		}
		if got := s.Do(t, "GET", db+"/b/file", nil, "Range", "bytes=1000000-2999999").Want(206); !bytes.Equal(got.Body, large[1000000:3000000]) {
			t.Errorf("%s: a range of %d bytes", proto, len(got.Body))
		}
		if r := s.Do(t, "GET", db+"/nothing", nil).Want(404); r.Str("error") != "not_found" {
			t.Errorf("%s", r.Body)
		}
		if r := s.Do(t, "PUT", db+"/c", `{"x":`+strings.Repeat("x", 1<<20)).Want(400); r.Str("error") == "" {
			t.Errorf("%s", r.Body)
		}
		if i == 0 { // by HTTP/2 the client knows the limit and does not even send it
			s.Do(t, "GET", "/", nil, "X", strings.Repeat("x", 100<<10)).Want(431)
		}
		login := s.Do(t, "POST", "/_session", map[string]string{"name": testserver.AdminName, "password": testserver.AdminPassword}, "Authorization", "").Want(200)
		if c := login.Header.Get("Set-Cookie"); !strings.Contains(c, "; Secure") || !strings.Contains(c, "; HttpOnly") {
			t.Errorf("the cookie over TLS: %s", c)
		}
		done := make(chan error, 20) // requests side by side; by HTTP/2 on one connection
		for n := range cap(done) {
			go func() {
				r, err := s.Try(t.Context(), "PUT", fmt.Sprintf("%s/n%d", db, n), `{}`)
				if err == nil && r.Status != 201 {
					err = fmt.Errorf("status %d: %s", r.Status, r.Body)
				}
				done <- err
			}()
		}
		for range cap(done) {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	plain := testserver.Start(t)
	login := plain.Do(t, "POST", "/_session", map[string]string{"name": testserver.AdminName, "password": testserver.AdminPassword}).Want(200)
	if c := login.Header.Get("Set-Cookie"); strings.Contains(c, "Secure") {
		t.Errorf("the cookie without TLS would never come back: %s", c)
	}
}

// What is too old, or no TLS at all, is refused, and is no reason to wake anybody.
func TestTLSRefusals(t *testing.T) {
	t.Parallel()
	s, _ := startTLS(t)
	for version, good := range map[uint16]bool{tls.VersionTLS10: false, tls.VersionTLS11: false, tls.VersionTLS12: true, tls.VersionTLS13: true} {
		conn, err := tls.Dial("tcp", s.Addr, &tls.Config{InsecureSkipVerify: true, MinVersion: version, MaxVersion: version})
		if (err == nil) != good {
			t.Errorf("%s: %v", tls.VersionName(version), err)
		}
		if err == nil {
			_ = conn.Close()
		}
	}
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
	if answer, _ := io.ReadAll(conn); !strings.HasPrefix(string(answer), "HTTP/1.0 400 ") {
		t.Errorf("plain HTTP: %q", answer)
	}
	if s.Log() != "" {
		t.Errorf("log: %s", s.Log())
	}
}

// A new certificate is used without a restart. (What becomes of a broken one is in
// TestBrokenCertificateIsNotUsed.)
func TestCertificateReload(t *testing.T) {
	t.Parallel()
	s, pair := startTLS(t)
	name := func() string {
		t.Helper()
		conn, err := tls.Dial("tcp", s.Addr, &tls.Config{InsecureSkipVerify: true})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if n := name(); n != "first" {
		t.Fatalf("the certificate of %s", n)
	}
	pair.write(t, "second")
	for end := time.Now().Add(time.Minute); name() != "second"; {
		if time.Now().After(end) {
			t.Fatal("not after a minute")
		}
	}
}

// A stop ends feeds over HTTP/2 and waits for the rest.
func TestStopOverHTTP2(t *testing.T) {
	t.Parallel()
	s, _ := startTLS(t)
	s.Do(t, "PUT", "/db", nil).Want(201)
	s.Do(t, "PUT", "/db/a", `{}`).Want(201)
	feed := s.Stream(t, context.Background(), "GET", "/db/_changes?feed=continuous&heartbeat=1000", nil)
	if feed.ProtoMajor != 2 {
		t.Fatal(feed.Proto)
	}
	one := make([]byte, 1)
	if _, err := feed.Body.Read(one); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { _, err := io.Copy(io.Discard, feed.Body); ended <- err }()
	s.Stop(t)
	<-ended
}

// A failed start says which of the two files is to blame.
func TestBadCertificateEndsTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pair := keyPair{filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")}
	pair.write(t, "first")
	other := keyPair{filepath.Join(dir, "cert2.pem"), filepath.Join(dir, "key2.pem")}
	other.write(t, "second")
	for _, c := range []struct{ cert, key, want string }{
		{pair.cert, filepath.Join(dir, "none"), "no such file"},
		{filepath.Join(dir, "none"), pair.key, "no such file"},
		{pair.cert, other.key, "private key does not match public key"},
		{pair.key, pair.key, "cannot be used"},
		{pair.cert, pair.cert, "cannot be used"},
	} {
		cfg := config.Default()
		cfg.Data, cfg.TLSCert, cfg.TLSKey = filepath.Join(dir, "data"), c.cert, c.key
		_, err := server.Start(t.Context(), cfg, server.Options{Log: slog.New(slog.DiscardHandler)})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), c.cert) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s %s: %v", c.cert, c.key, err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "data")); err == nil {
		t.Error("a start that could never work has made a data directory")
	}
}
