package server

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// WriteKeyPair makes a certificate for 127.0.0.1 that signs itself, in files.
func WriteKeyPair(t *testing.T, name, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, certFile, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: cert}))
	writeFile(t, keyFile, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, to, data)
}

// A pair that cannot be used leaves the old one in use and is reported once; the next
// good one is taken.
func TestBrokenCertificateIsNotUsed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	aCert, aKey, bCert, bKey := filepath.Join(dir, "a1"), filepath.Join(dir, "a2"), filepath.Join(dir, "b1"), filepath.Join(dir, "b2")
	WriteKeyPair(t, "a", aCert, aKey)
	WriteKeyPair(t, "b", bCert, bKey)
	copyFile(t, aCert, cert)
	copyFile(t, aKey, key)
	var log strings.Builder
	c, err := openCertificate(cert, key, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	name := func() string {
		t.Helper()
		pair, err := c.get(nil)
		if err != nil {
			t.Fatal(err)
		}
		return pair.Leaf.Subject.CommonName
	}
	look := func(want string, failures int) {
		t.Helper()
		for range 3 {
			c.refresh()
		}
		if got := name(); got != want {
			t.Errorf("the certificate of %s, want %s", got, want)
		}
		if n := strings.Count(log.String(), "the old one stays"); n != failures {
			t.Errorf("%d failures are logged, want %d: %s", n, failures, log.String())
		}
	}
	look("a", 0)
	copyFile(t, bCert, cert) // the certificate comes before its key
	look("a", 1)
	copyFile(t, bKey, key)
	look("b", 1)
	writeFile(t, cert, []byte("no certificate"))
	look("b", 2)
	if err := os.Remove(key); err != nil {
		t.Fatal(err)
	}
	look("b", 3)
	copyFile(t, aKey, key)
	copyFile(t, aCert, cert)
	look("a", 3)
	if strings.Contains(log.String(), "PRIVATE") {
		t.Errorf("log: %s", log.String())
	}
}
