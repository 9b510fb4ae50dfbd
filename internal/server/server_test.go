package server_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/server"
	"github.com/divandb/divan/internal/testserver"
)

// Every shard call may go through the node-to-node protocol; nothing above sees a
// difference.
func TestShardCallsOverLoopback(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(func(c *config.Config) { c.ShardRPC = true }))
	db := s.DB(t, "q=4")
	for _, id := range []string{"a", "b", "c", "d", "e", "f"} {
		s.Do(t, "PUT", "/"+db+"/"+id, `{"v":1}`).Want(201)
	}
	s.Do(t, "PUT", "/"+db+"/a", `{"v":2}`).Want(409)
	if n := s.Do(t, "GET", "/"+db+"/_all_docs", nil).Want(200).Object()["total_rows"]; n != 6.0 {
		t.Errorf("total_rows %v", n)
	}
	if n := s.Do(t, "GET", "/"+db, nil).Want(200).Object()["doc_count"]; n != 6.0 {
		t.Errorf("doc_count %v", n)
	}
	s.Do(t, "DELETE", "/"+db, nil).Want(200)
	s.Do(t, "GET", "/"+db+"/a", nil).Want(404)
}

// Below the free-space mark writes are refused and reads and deletions work; they
// are taken again when space returns.
func TestFullDiskMakesReadOnly(t *testing.T) {
	t.Parallel()
	var free atomic.Int64
	free.Store(1 << 40)
	s := testserver.Start(t,
		testserver.Config(func(c *config.Config) { c.MinFree = 1 << 30 }),
		testserver.Parts(func(o *server.Options) { o.FreeSpace = func() (int64, error) { return free.Load(), nil } }))
	db := s.DB(t)
	rev := s.Do(t, "PUT", "/"+db+"/a", `{}`).Want(201).Str("rev")
	free.Store(1 << 20)
	// The mark is looked at each second; until then writes are still taken.
	full := false
	for end := time.Now().Add(time.Minute); !full && time.Now().Before(end); {
		r := s.Do(t, "POST", "/"+db, `{}`)
		full = r.Status == 507
		if !full {
			r.Want(201)
		} else if name := r.Str("error"); name != "insufficient_storage" {
			t.Errorf("error %s", name)
		}
	}
	if !full {
		t.Fatal("writes are still taken")
	}
	s.Do(t, "PUT", "/another", nil).Want(507)
	if got := s.Do(t, "GET", "/"+db+"/a", nil).Want(200).Str("_rev"); got != rev {
		t.Errorf("rev %s", got)
	}
	free.Store(1 << 40)
	for end := time.Now().Add(time.Minute); full && time.Now().Before(end); {
		full = s.Do(t, "PUT", "/"+db+"/b", `{}`).Status == 507
	}
	s.Do(t, "GET", "/"+db+"/b", nil).Want(200)
	free.Store(1 << 20)
	s.Do(t, "DELETE", "/"+db, nil).Want(200)
}

// The first failed write of the log ends the acknowledging, tells the operator,
// and loses nothing that was acknowledged.
func TestFailedLogIsFatal(t *testing.T) {
	t.Parallel()
	fs, faults := kv.FailingFS(kv.DiskFS())
	fatal := make(chan error, 1)
	s := testserver.Start(t, testserver.Parts(func(o *server.Options) {
		o.FS = fs
		o.OnFatal = func(err error) { fatal <- err }
	}))
	s.Do(t, "PUT", "/db", nil).Want(201)
	s.Do(t, "PUT", "/db/kept", `{}`).Want(201)
	faults.FailSyncs(kv.LogFiles, syscall.EIO)
	if r := s.Do(t, "PUT", "/db/lost", `{}`); r.Status < 500 {
		t.Errorf("a write that is on no disk was answered %d", r.Status)
	}
	if err := <-fatal; !errors.Is(err, syscall.EIO) {
		t.Errorf("fatal: %v", err)
	}
	faults.FailSyncs(kv.LogFiles, nil)
	if r := s.Do(t, "PUT", "/db/later", `{}`); r.Status != 503 {
		t.Errorf("a write after it was answered %d", r.Status)
	}
	if !strings.Contains(s.Log(), "takes no more writes") {
		t.Errorf("log: %s", s.Log())
	}
}

// What no setting allows stays so: there is no way to be anonymous and admin.
func TestAnonymousIsNeverAdmin(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	for _, c := range []struct {
		method, path string
		want         int
	}{
		{"GET", "/", 200}, {"GET", "/_up", 200},
		{"GET", "/_all_dbs", 401}, {"GET", "/_uuids", 401}, {"PUT", "/x", 401}, {"GET", "/_users", 401},
		{"GET", "/x/y", 401}, {"GET", "/_nothing", 401}, {"TRACE", "/", 401}, {"GET", "/_membership", 401},
	} {
		if r := s.Do(t, c.method, c.path, nil, "Authorization", ""); r.Status != c.want {
			t.Errorf("%s %s: %d, want %d: %s", c.method, c.path, r.Status, c.want, r.Body)
		}
	}
	if r := s.Do(t, "GET", "/", nil, "Authorization", "Basic: xxx"); r.Status != 200 {
		t.Errorf("an unknown scheme: %d", r.Status)
	}
	if r := s.Do(t, "GET", "/", nil, "Authorization", "Basic %%%"); r.Status != 400 {
		t.Errorf("no base64: %d", r.Status)
	}
	if r := s.Do(t, "GET", "/", nil, "Authorization", basic("admin:wrong")); r.Status != 401 {
		t.Errorf("a wrong password: %d", r.Status)
	}
}

// A directory that a cut-short first start left behind is taken.
func TestInterruptedFirstStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, name := range []string{"FORMAT.new", "lost+found"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("div"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := testserver.Start(t, testserver.Config(func(c *config.Config) { c.Data = dir }))
	s.Do(t, "GET", "/_up", nil).Want(200)
	if data, err := os.ReadFile(filepath.Join(dir, "FORMAT")); err != nil || string(data) != "divan 1\n" {
		t.Errorf("FORMAT: %q %v", data, err)
	}
}
