package jsvm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/jsvm"
)

// shortTime is the time limit of tests in which scripts run away.
const shortTime = 100 * time.Millisecond

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "js-worker" {
		os.Exit(jsvm.WorkerMain(os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// newPool makes a pool that ends with the test.
func newPool(t testing.TB, o jsvm.Options) *jsvm.Pool {
	t.Helper()
	o.Command = workerCommand(t)
	p := jsvm.New(o)
	t.Cleanup(func() { p.Close() })
	return p
}

// program is a program with a design document.
func program(key, design string) jsvm.Program {
	return jsvm.Program{Key: key, Design: []byte(design)}
}

// rowsOf says what a map function made of a document, as text.
func rowsOf(e jsvm.Emitted) string {
	if e.Err != nil {
		return e.Err.Error()
	}
	return string(e.Rows)
}

// mapOne runs one map function on one document.
func mapOne(t testing.TB, p *jsvm.Pool, prog jsvm.Program, fn, doc string) jsvm.Emitted {
	t.Helper()
	return mapAll(t, p, prog, []string{fn}, doc)[0][0]
}

func mapAll(t testing.TB, p *jsvm.Pool, prog jsvm.Program, fns []string, docs ...string) [][]jsvm.Emitted {
	t.Helper()
	out, err := p.Map(context.Background(), prog, fns, texts(docs...))
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != len(docs) {
		t.Fatalf("%d results for %d documents", len(out), len(docs))
	}
	return out
}

func texts(s ...string) [][]byte {
	out := make([][]byte, len(s))
	for i := range s {
		out[i] = []byte(s[i])
	}
	return out
}

// wantThrown fails unless err is a *Thrown of that name whose reason holds part.
func wantThrown(t testing.TB, err error, name, part string) {
	t.Helper()
	var thrown *jsvm.Thrown
	if !errors.As(err, &thrown) || thrown.Name != name || !strings.Contains(thrown.Reason, part) {
		t.Errorf("got %v, want %s with %q", err, name, part)
	}
}

// wantKilled fails unless err is a *Killed whose reason holds part.
func wantKilled(t testing.TB, err error, part string) {
	t.Helper()
	var killed *jsvm.Killed
	if !errors.As(err, &killed) || !strings.Contains(killed.Reason, part) {
		t.Errorf("got %v, want an end by %q", err, part)
	}
}

// logOf makes a logger and gives what it wrote.
func logOf() (*slog.Logger, func() string) {
	var b lockedBuffer
	return slog.New(slog.NewTextHandler(&b, nil)), b.String
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// document is a document of about a kilobyte.
func document(i int) []byte {
	head := fmt.Sprintf(`{"_id":"doc-%06d","_rev":"1-967a00dff5e02add41819138abb3284d","type":"type%d",`+
		`"created":"2024-01-%02dT00:00:00Z","amount":%d,"tags":["a","b","c"],`+
		`"address":{"street":"Some street 12","city":"Town","zip":"12345"},`+
		`"items":[{"sku":"a1","n":1,"price":3.5},{"sku":"b2","n":2,"price":7.25}],`+
		`"name":"Some Name %d","active":true,"note":null,"text":"`, i, i%10, i%28+1, i*3, i)
	return []byte(head + strings.Repeat("lorem ipsum dolor ", (1000-len(head))/18) + `"}`)
}
