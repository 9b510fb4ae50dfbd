package bench

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/divandb/divan/internal/testserver"
)

// Every workload runs against a real server and finds what it expects.
func TestBenchSmoke(t *testing.T) {
	p := testserver.StartProcess(t)
	var out bytes.Buffer
	err := Run(t.Context(), Options{URL: p.URL, PID: p.PID, Docs: 500, LargeDocs: 1000, Large: true, Bare: true,
		BareDir: t.TempDir(), Duration: 30 * time.Second, Compare: true}, &out)
	if err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	for _, w := range []string{"bulk insert", "GET", "PUT, 64 connections", "fan-out", "attachment GET", "bare net/http handler", "bare store"} {
		if !strings.Contains(out.String(), w) {
			t.Errorf("no row %q in\n%s", w, out.String())
		}
	}
	if strings.Contains(out.String(), "failed") {
		t.Errorf("a workload failed:\n%s", out.String())
	}
	res := p.Do(t, "GET", "/_all_dbs", nil).Want(200)
	if strings.Contains(string(res.Body), "bench_") {
		t.Errorf("databases are left: %s", res.Body)
	}
}
