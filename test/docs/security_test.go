package docs_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/divandb/divan/internal/testserver"
)

// step is a command of a page with the answer that the page shows.
type step struct {
	command string
	answer  []string
}

// steps reads the indented lines of a page: `$ command`, the answers below it, and
// lines that stand alone, as commands of servers and lines of logs do.
func steps(t *testing.T, page string) (list []step, alone []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", page))
	if err != nil {
		t.Fatal(err)
	}
	answering := false
	for _, line := range strings.Split(string(text), "\n") {
		line, indented := strings.CutPrefix(line, "    ")
		if !indented {
			answering = false
			continue
		}
		command, is := strings.CutPrefix(line, "$ ")
		switch {
		case is:
			list, answering = append(list, step{command: command}), true
		case answering:
			last := &list[len(list)-1]
			last.answer = append(last.answer, line)
		case strings.HasPrefix(line, "divan serve ") || strings.HasPrefix(line, "DIVAN_ADMIN="):
			list = append(list, step{command: line})
		default:
			alone = append(alone, line)
		}
	}
	return list, alone
}

// pattern makes an expression of a text in which … stands for anything.
func pattern(text string) *regexp.Regexp {
	return regexp.MustCompile("(?m)^" + strings.ReplaceAll(regexp.QuoteMeta(text), "…", ".*?") + "$")
}

// The examples of docs/security.md are run in order. A line that starts a server
// starts one with those flags; what follows goes to it, on a port of its own.
func TestSecurityExamples(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "TOKEN="+provider(t, dir))
	certificate(t, dir)
	if err := os.Symlink(testserver.Binary(t), filepath.Join(dir, "divan")); err != nil {
		t.Fatal(err)
	}
	list, alone := steps(t, "docs/security.md")
	var p, first *testserver.Process
	ran := 0
	for _, s := range list {
		command := strings.ReplaceAll(s.command, "/etc/divan/", dir+"/")
		if _, flags, serves := strings.Cut(command, "divan serve "); serves {
			var args []string
			words := strings.Fields(flags)
			for i := 0; i < len(words); i += 2 {
				if words[i] != "--addr" && words[i] != "--data" {
					args = append(args, words[i], words[i+1])
				}
			}
			next := testserver.StartProcess(t, append(args, "--admin", "me:secret")...)
			if p = next; first == nil {
				first = p
			}
			continue
		}
		to := p
		if !strings.Contains(command, "$TOKEN") && !strings.Contains(command, "--cacert") {
			to = first // the servers of tokens and TLS are for their own examples
		}
		port := to.Addr[strings.LastIndexByte(to.Addr, ':'):]
		command = strings.ReplaceAll(strings.ReplaceAll(command, ":5984", port), "curl ", "curl -s ")
		cmd := exec.Command("sh", "-c", command)
		cmd.Dir, cmd.Env = dir, env
		out, err := cmd.CombinedOutput()
		answer := strings.TrimSpace(strings.ReplaceAll(string(out), "\r", ""))
		want := strings.Join(s.answer, "\n")
		if len(s.answer) == 0 || err != nil || pattern(want).FindString(answer) != answer {
			t.Errorf("%s\n  gives %s (%v)\n  the page says %s", s.command, answer, err, want)
		}
		ran++
	}
	if ran < 20 {
		t.Errorf("the page has only %d examples", ran)
	}
	logged := 0
	for _, line := range alone {
		if strings.HasPrefix(line, "time=") {
			logged++
			if !pattern(line).MatchString(first.Stderr.String()) {
				t.Errorf("the log has no line as %q:\n%s", line, first.Stderr)
			}
		}
	}
	if logged == 0 {
		t.Error("the page shows no lines of the audit log")
	}
}

// writePEM writes a file of one block.
func writePEM(t *testing.T, path, kind string, der []byte, err error) {
	t.Helper()
	if err == nil {
		err = os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// provider is the identity provider of the page: it writes its public key, and gives
// a token.
func provider(t *testing.T, dir string) string {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	writePEM(t, filepath.Join(dir, "provider.pem"), "PUBLIC KEY", der, err)
	part := base64.RawURLEncoding.EncodeToString
	text := part([]byte(`{"alg":"RS256","kid":"main"}`)) + "." + part(fmt.Appendf(nil,
		`{"sub":"zoe","_couchdb.roles":["vets"],"iss":"https://id.example.com","aud":"pets","exp":%d}`, time.Now().Add(time.Hour).Unix()))
	sum := sha256.Sum256([]byte(text))
	sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	return text + "." + part(sig)
}

// certificate writes a certificate for localhost and its key.
func certificate(t *testing.T, dir string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "localhost"}, DNSNames: []string{"localhost"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	writePEM(t, filepath.Join(dir, "cert.pem"), "CERTIFICATE", der, err)
	der, err = x509.MarshalPKCS8PrivateKey(key)
	writePEM(t, filepath.Join(dir, "key.pem"), "PRIVATE KEY", der, err)
}
