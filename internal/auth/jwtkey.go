package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/rsa"
	_ "crypto/sha256" // the hashes of the algorithms
	_ "crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// DefaultKeyID is the id of the key for tokens that name none.
const DefaultKeyID = "_default"

// JWTKey is a key that signs bearer tokens.
type JWTKey struct {
	ID  string // `kid` of the tokens; DefaultKeyID or empty: those without one
	Alg string // `alg` of the tokens: HS256, RS256, ES256, or with 384 or 512
	Key any    // []byte for HS, *rsa.PublicKey for RS, *ecdsa.PublicKey for ES
}

// algorithm is how one `alg` signs.
type algorithm struct {
	kind  string // HS, RS, ES
	hash  crypto.Hash
	curve int // bits, of ES
}

var algorithms = map[string]algorithm{
	"HS256": {"HS", crypto.SHA256, 0},
	"HS384": {"HS", crypto.SHA384, 0},
	"HS512": {"HS", crypto.SHA512, 0},
	"RS256": {"RS", crypto.SHA256, 0},
	"RS384": {"RS", crypto.SHA384, 0},
	"RS512": {"RS", crypto.SHA512, 0},
	"ES256": {"ES", crypto.SHA256, 256},
	"ES384": {"ES", crypto.SHA384, 384},
	"ES512": {"ES", crypto.SHA512, 521},
}

const (
	maxKeyFile = 64 << 10
	minSecret  = 32 // bytes, RFC 7518: whoever has a token can try out a shorter one
	minRSABits = 2048
)

// check tells whether key and algorithm fit, so that no public key is ever taken
// for a secret.
func (k JWTKey) check() error {
	alg, ok := algorithms[k.Alg]
	if !ok {
		return fmt.Errorf("token key %q: the algorithm %q is not known", k.ID, k.Alg)
	}
	wrong := ""
	switch key := k.Key.(type) {
	case []byte:
		if alg.kind != "HS" {
			wrong = "a secret signs with HS256, HS384 or HS512"
		} else if len(key) < minSecret {
			wrong = fmt.Sprintf("a secret has at least %d bytes", minSecret)
		}
	case *rsa.PublicKey:
		if alg.kind != "RS" {
			wrong = "an RSA key signs with RS256, RS384 or RS512"
		} else if key.N.BitLen() < minRSABits {
			wrong = fmt.Sprintf("an RSA key has at least %d bits", minRSABits)
		}
	case *ecdsa.PublicKey:
		if alg.kind != "ES" || key.Curve.Params().BitSize != alg.curve {
			wrong = "an ECDSA key signs with ES256, ES384 or ES512, as its curve is P-256, P-384 or P-521"
		}
	default:
		wrong = "neither a secret nor a public RSA or ECDSA key"
	}
	if wrong != "" {
		return fmt.Errorf("token key %q for %s: %s", k.ID, k.Alg, wrong)
	}
	return nil
}

// ParseJWTKey reads a key as a flag gives it: kid:alg:file. The file holds the secret
// in base64 for HS, a public key or a certificate as PEM for the others. An empty kid
// is DefaultKeyID.
func ParseJWTKey(spec string) (JWTKey, error) {
	// Both kid and file may have colons; the algorithm between them is a fixed word.
	for at := range len(spec) {
		if spec[at] != ':' {
			continue
		}
		alg, file, ok := strings.Cut(spec[at+1:], ":")
		if _, known := algorithms[alg]; !ok || !known {
			continue
		}
		k := JWTKey{ID: spec[:at], Alg: alg}
		if k.ID == "" {
			k.ID = DefaultKeyID
		}
		var err error
		if k.Key, err = readKeyFile(file, algorithms[alg].kind); err != nil {
			return JWTKey{}, fmt.Errorf("token key %q: %w", k.ID, err)
		}
		return k, k.check()
	}
	return JWTKey{}, errors.New("a token key is given as kid:alg:file, with alg one of HS256, RS256, ES256 or these with 384 or 512")
}

func readKeyFile(file, kind string) (any, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // only read
	data, err := io.ReadAll(io.LimitReader(f, maxKeyFile+1))
	if err != nil {
		return nil, err
	}
	if len(data) > maxKeyFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", file, maxKeyFile)
	}
	if kind == "HS" {
		return parseSecret(data)
	}
	return parsePublic(data)
}

// parseSecret reads base64, of either alphabet, with or without padding.
func parseSecret(data []byte) ([]byte, error) {
	errSecret := errors.New("the file of a secret holds it in base64")
	if bytes.Contains(data, []byte("-----")) {
		// The lines of a PEM text are base64 too, in the alphabet with dashes. A public
		// key that was taken for a secret would let everybody sign.
		return nil, errSecret
	}
	s := strings.TrimRight(strings.Join(strings.Fields(string(data)), ""), "=")
	s = strings.NewReplacer("-", "+", "_", "/").Replace(s)
	secret, err := base64.RawStdEncoding.DecodeString(s)
	if err != nil {
		return nil, errSecret
	}
	return secret, nil
}

// parsePublic reads the first public key or certificate of a PEM text.
func parsePublic(data []byte) (any, error) {
	for {
		var block *pem.Block
		if block, data = pem.Decode(data); block == nil {
			return nil, errors.New("the file holds no public key and no certificate as PEM")
		}
		switch block.Type {
		case "PUBLIC KEY":
			return x509.ParsePKIXPublicKey(block.Bytes)
		case "RSA PUBLIC KEY":
			return x509.ParsePKCS1PublicKey(block.Bytes)
		case "CERTIFICATE":
			c, err := x509.ParseCertificate(block.Bytes)
			if err != nil {
				return nil, err
			}
			return c.PublicKey, nil
		}
		if strings.HasSuffix(block.Type, "PRIVATE KEY") {
			return nil, errors.New("the file holds a private key; the server needs the public one only")
		}
	}
}
