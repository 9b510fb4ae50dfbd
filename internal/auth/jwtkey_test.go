package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseJWTKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name string, data []byte) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	block := func(kind string, der []byte, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
	}
	rsaKey, ec, p384 := testRSA(), newEC(t, elliptic.P256()), newEC(t, elliptic.P384())
	pkix, err := x509.MarshalPKIXPublicKey(&rsaKey.PublicKey)
	rsaFile := write("rsa.pem", block("PUBLIC KEY", pkix, err))
	pkcs1File := write("pkcs1.pem", block("RSA PUBLIC KEY", x509.MarshalPKCS1PublicKey(&rsaKey.PublicKey), nil))
	ecDER, err := x509.MarshalPKIXPublicKey(&ec.PublicKey)
	ecFile := write("ec.pem", append(block("EC PARAMETERS", []byte{6, 0}, nil), block("PUBLIC KEY", ecDER, err)...))
	p384DER, err := x509.MarshalPKIXPublicKey(&p384.PublicKey)
	p384File := write("p384.pem", block("PUBLIC KEY", p384DER, err))
	template := &x509.Certificate{SerialNumber: big.NewInt(1)}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &ec.PublicKey, ec)
	certFile := write("cert.pem", block("CERTIFICATE", cert, err))
	ecPrivate, err := x509.MarshalECPrivateKey(ec)
	privateFile := write("private.pem", block("EC PRIVATE KEY", ecPrivate, err))
	small, err := x509.MarshalPKIXPublicKey(&rsa.PublicKey{N: new(big.Int).Lsh(big.NewInt(1), 1023), E: 65537})
	smallFile := write("small.pem", block("PUBLIC KEY", small, err))
	long := append([]byte{0xfb, 0xff}, testSecret...) // has both letters that the alphabets spell differently
	secretFile := write("secret", []byte(base64.StdEncoding.EncodeToString(long)+"\n"))
	urlFile := write("with:colon", []byte(base64.RawURLEncoding.EncodeToString(long)))

	for _, c := range []struct {
		spec, id, alg string
		key           any
	}{
		{"k1:RS256:" + rsaFile, "k1", "RS256", &rsaKey.PublicKey},
		{"k1:RS512:" + pkcs1File, "k1", "RS512", &rsaKey.PublicKey},
		{":ES256:" + ecFile, DefaultKeyID, "ES256", &ec.PublicKey},
		{"_default:ES256:" + certFile, DefaultKeyID, "ES256", &ec.PublicKey},
		{"k:ES384:" + p384File, "k", "ES384", &p384.PublicKey},
		{"https://idp/keys/1:HS256:" + secretFile, "https://idp/keys/1", "HS256", long},
		{"k:HS512:" + urlFile, "k", "HS512", long},
	} {
		k, err := ParseJWTKey(c.spec)
		if err != nil || k.ID != c.id || k.Alg != c.alg {
			t.Errorf("%s: %+v %v", c.spec, k, err)
			continue
		}
		same := false
		switch key := k.Key.(type) {
		case []byte:
			same = string(key) == string(c.key.([]byte))
		case *rsa.PublicKey:
			same = key.Equal(c.key)
		case *ecdsa.PublicKey:
			same = key.Equal(c.key)
		}
		if !same {
			t.Errorf("%s: another key", c.spec)
		}
	}
	for spec, words := range map[string]string{
		"":                             "kid:alg:file",
		"k":                            "kid:alg:file",
		"k:" + rsaFile:                 "kid:alg:file",
		"k:none:" + rsaFile:            "kid:alg:file",
		"k:rs256:" + rsaFile:           "kid:alg:file",
		"k:RS256:" + dir + "/none.pem": "no such file",
		"k:RS256:" + dir:               "directory",
		"k:RS256:" + ecFile:            "ECDSA key signs with",
		"k:ES256:" + rsaFile:           "RSA key signs with",
		"k:ES256:" + p384File:          "curve",
		"k:HS256:" + rsaFile:           "base64", // a public key is never a secret
		"k:HS256:" + write("short", []byte("c2hvcnQ=")):                                "at least 32 bytes",
		"k:RS256:" + smallFile:                                                         "at least 2048 bits",
		"k:RS256:" + secretFile:                                                        "no public key",
		"k:ES256:" + privateFile:                                                       "private key",
		"k:RS256:" + write("huge", make([]byte, maxKeyFile+1)):                         "larger than",
		"k:RS256:" + write("broken.pem", block("PUBLIC KEY", []byte{1, 2, 3}, nil)):    "token key",
		"k:RS256:" + write("broken-cert.pem", block("CERTIFICATE", []byte{1, 2}, nil)): "token key",
	} {
		if k, err := ParseJWTKey(spec); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %+v %v, want %q", spec, k, err, words)
		}
	}
}

func TestTokenKeysAreChecked(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]JWTKey{
		"twice":         {{Alg: "HS256", Key: testSecret}, {ID: DefaultKeyID, Alg: "HS256", Key: testSecret}},
		"public for HS": {{Alg: "HS256", Key: &testRSA().PublicKey}},
		"secret for RS": {{Alg: "RS256", Key: testSecret}},
		"no key":        {{Alg: "RS256"}},
		"no algorithm":  {{Key: testSecret}},
		"private key":   {{Alg: "RS256", Key: testRSA()}},
		"none":          {{Alg: "none", Key: testSecret}},
	} {
		if _, err := New(&memory{}, Options{JWT: JWTOptions{Keys: keys}}); err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
