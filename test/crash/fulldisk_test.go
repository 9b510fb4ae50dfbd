package crash_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/server"
	"github.com/divandb/divan/internal/testserver"
)

// await asks until the answer is yes, for what happens in the background and
// tells nobody.
func await(t *testing.T, what string, yes func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !yes(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after %s", what, patience)
		}
	}
}

// smallDisk mounts a file system of its own in memory; that takes root.
func smallDisk(t *testing.T, size string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system takes root; TestFreeSpaceMarkOverHTTP shows the same answers")
	}
	dir := t.TempDir()
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size+",mode=0700")
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		t.Skipf("this root may not mount: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

func freeBytes(t *testing.T, dir string) int64 {
	t.Helper()
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		t.Fatal(err)
	}
	return int64(s.Bavail) * int64(s.Bsize)
}

// status sends a request and gives the status of the answer.
func status(t *testing.T, s *testserver.Server, method, path string, body any) int {
	t.Helper()
	return s.Do(t, method, path, body).Status
}

// refusesWrites checks what a server answers below its free-space mark. /db has a
// document a with an attachment, and /spare exists; /spare is deleted.
func refusesWrites(t *testing.T, s *testserver.Server) {
	t.Helper()
	rev := s.Do(t, "GET", "/db/a", nil).Want(200).Str("_rev")
	big := strings.Repeat("x", 100_000)
	for _, c := range []struct{ method, path, body string }{
		{"PUT", "/db/b", `{}`},
		{"POST", "/db", `{}`},
		{"PUT", "/db/a?rev=" + rev, `{"x":2}`},
		{"POST", "/db/_bulk_docs", `{"docs":[{"_id":"b"},{"_id":"c"}]}`},
		{"PUT", "/db/a/large?rev=" + rev, big},
		{"PUT", "/db/a/small?rev=" + rev, "small"},
		{"PUT", "/db/_local/l", `{}`},
		{"PUT", "/newdb", ""},
	} {
		var body any
		if c.body != "" {
			body = c.body
		}
		r := s.Do(t, c.method, c.path, body)
		if r.Status != 507 {
			t.Errorf("%s %s: %d %.300s, want 507", c.method, c.path, r.Status, r.Body)
			continue
		}
		if o := r.Object(); o["error"] != "insufficient_storage" || o["reason"] == "" || o["reason"] == nil {
			t.Errorf("%s %s: %s", c.method, c.path, r.Body)
		}
	}
	for _, path := range []string{"/", "/_up", "/_all_dbs", "/db", "/db/a", "/db/a/att", "/db/_all_docs?include_docs=true", "/db/_changes"} {
		s.Do(t, "GET", path, nil).Want(200)
	}
	for _, path := range []string{"/db/b", "/db/_local/l", "/newdb"} {
		s.Do(t, "GET", path, nil).Want(404)
	}
	s.Do(t, "DELETE", "/spare", nil).Want(200)
	s.Do(t, "GET", "/spare", nil).Want(404)
}

// prepare makes what refusesWrites expects.
func prepare(t *testing.T, s *testserver.Server) {
	t.Helper()
	s.Do(t, "PUT", "/db", nil).Want(201)
	s.Do(t, "PUT", "/spare", nil).Want(201)
	rev := s.Do(t, "PUT", "/db/a", `{"x":1}`).Want(201).Str("rev")
	s.Do(t, "PUT", "/db/a/att?rev="+rev, "bytes", "Content-Type", "text/plain").Want(201)
}

// TestFullDisk puts ballast beside a server's data and takes it away again.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "96m")
	p := testserver.StartProcess(t, "--data", filepath.Join(disk, "data"), "--min-free-space", "24MiB")
	prepare(t, p.Server)
	ballast := filepath.Join(disk, "ballast")
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, freeBytes(t, disk)-20<<20)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	await(t, "writes are refused", func() bool {
		n++
		return status(t, p.Server, "PUT", fmt.Sprintf("/db/until-%d", n), `{}`) == 507
	})
	refusesWrites(t, p.Server)
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	await(t, "writes are taken again", func() bool { return status(t, p.Server, "PUT", "/db/b", `{}`) == 201 })
	p.Kill()
	p.Restart()
	p.Do(t, "GET", "/db/b", nil).Want(200)
	p.Do(t, "GET", "/db/a/att", nil).Want(200)
	for i := 1; i < n; i++ {
		p.Do(t, "GET", fmt.Sprintf("/db/until-%d", i), nil).Want(200)
	}
	if s := p.Stop(); s != 0 {
		t.Errorf("exit status %d", s)
	}
}

// TestWritersFillTheDisk writes until the server refuses by itself, which must be
// before the disk is full, and gets the space back by deleting a database.
func TestWritersFillTheDisk(t *testing.T) {
	t.Parallel()
	// The store keeps log files for reuse: the disk must be larger than those.
	disk := smallDisk(t, "400m")
	const mark = 64 << 20
	p := testserver.StartProcess(t, "--data", filepath.Join(disk, "data"), "--min-free-space", strconv.Itoa(mark))
	prepare(t, p.Server)
	p.Do(t, "PUT", "/big", nil).Want(201)
	var written atomic.Int64
	least := int64(1 << 40)
	ended := make(chan error, 4)
	for c := range cap(ended) {
		go func() { ended <- fillDisk(p.Server, c, &written) }()
	}
	for left := cap(ended); left > 0; {
		select {
		case err := <-ended:
			if left--; err != nil {
				t.Error(err)
			}
		case <-time.After(5 * time.Millisecond):
		}
		least = min(least, freeBytes(t, disk))
	}
	t.Logf("%d documents written; at the mark of %d bytes the disk had at least %d free", written.Load(), mark, least)
	if least == 0 {
		t.Error("the disk was truly full")
	}
	if got := p.Do(t, "GET", "/big", nil).Want(200).Object()["doc_count"]; got != float64(written.Load()) {
		t.Errorf("doc_count %v, %d acknowledged", got, written.Load())
	}
	refusesWrites(t, p.Server)
	p.Do(t, "DELETE", "/big", nil).Want(200)
	// Half of the disk: a compaction that ends could give back a little by itself.
	await(t, "the deletion gives the space back", func() bool { return freeBytes(t, disk) > 200<<20 })
	await(t, "writes are taken after the deletion", func() bool { return status(t, p.Server, "PUT", "/db/b", `{}`) == 201 })
	for line := range strings.Lines(p.Stderr.String()) {
		if (strings.Contains(line, "level=ERROR") || strings.Contains(line, "panic")) && !strings.Contains(line, "insufficient_storage") {
			t.Errorf("the server complains: %s", line)
		}
	}
	if s := p.Stop(); s != 0 {
		t.Errorf("exit status %d", s)
	}
}

// fillDisk writes documents that do not compress until they are refused.
func fillDisk(s *testserver.Server, writer int, written *atomic.Int64) error {
	rng := rand.New(rand.NewPCG(uint64(writer), 0))
	for n := range 100_000 {
		const docs = 16
		texts := make([]string, docs)
		for k := range texts {
			data, _ := newAttachment(rng, 30_000)
			texts[k] = fmt.Sprintf(`{"_id":"%d-%d-%d","pad":"%s"}`, writer, n, k, base64.StdEncoding.EncodeToString(data))
		}
		r, err := s.Try(context.Background(), "POST", "/big/_bulk_docs", `{"docs":[`+strings.Join(texts, ",")+`]}`)
		if err != nil {
			return err
		}
		// A database has several ranges: one may have taken its part before the mark.
		taken := int64(strings.Count(string(r.Body), `"ok":true`))
		written.Add(taken)
		switch {
		case r.Status == 507 && taken == 0:
			return nil
		case r.Status != 201:
			return fmt.Errorf("status %d: %.300s", r.Status, r.Body)
		case taken < docs:
			if !strings.Contains(string(r.Body), "insufficient_storage") {
				return fmt.Errorf("%d of %d documents taken: %.2000s", taken, docs, r.Body)
			}
			return nil
		}
	}
	return errors.New("the disk does not become full")
}

// TestFreeSpaceMarkOverHTTP is TestFullDisk with a told free space, which takes no
// root.
func TestFreeSpaceMarkOverHTTP(t *testing.T) {
	t.Parallel()
	var free atomic.Int64
	free.Store(1 << 30)
	s := testserver.Start(t,
		testserver.Config(func(c *config.Config) { c.MinFree = 1 << 20 }),
		testserver.Parts(func(o *server.Options) { o.FreeSpace = func() (int64, error) { return free.Load(), nil } }))
	prepare(t, s)
	free.Store(1<<20 - 1)
	n := 0
	await(t, "writes are refused", func() bool {
		n++
		return status(t, s, "PUT", fmt.Sprintf("/db/until-%d", n), `{}`) == 507
	})
	refusesWrites(t, s)
	free.Store(1 << 20)
	await(t, "writes are taken again", func() bool { return status(t, s, "PUT", "/db/b", `{}`) == 201 })
}

// TestTrulyFullDiskEndsTheProcess switches the mark off. A log that cannot be
// written ends the process with a status of its own, and nothing is lost.
func TestTrulyFullDiskEndsTheProcess(t *testing.T) {
	t.Parallel()
	disk := smallDisk(t, "192m")
	p := testserver.StartProcess(t, "--data", filepath.Join(disk, "data"), "--min-free-space", "off")
	w := newWorld(writers)
	crew := newCrew(w, uint64(time.Now().UnixNano()), true)
	for _, c := range crew.writers {
		c.broken = true
	}
	createShared(t, w, p.Server)
	p.Do(t, "PUT", "/fill", nil).Want(201)
	ballast := filepath.Join(disk, "ballast")
	enough := w.beginRound(100)
	crew.start(p.Server)
	select {
	case <-enough:
	case <-crew.ended:
		crew.wait(t)
	}
	// Every byte of the disk, while the server writes: the write that fails is the
	// last one here.
	f, err := os.Create(ballast)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 1<<20))
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	crew.wait(t)
	// Attachments that find no room are refused one by one; the log goes on in the
	// space it has reserved, and then not.
	filled := 0
	for ; filled < 10_000; filled++ {
		r, err := p.Try(context.Background(), "PUT", fmt.Sprintf("/fill/%d", filled), `{"pad":"`+strings.Repeat("x", 100_000)+`"}`)
		if err != nil || r.Status >= 500 {
			break
		}
	}
	if s := p.Wait(); s != 75 {
		t.Errorf("exit status %d, want 75", s)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	p.Restart()
	for i := range filled {
		p.Do(t, "GET", fmt.Sprintf("/fill/%d", i), nil).Want(200)
	}
	p.Do(t, "DELETE", "/fill", nil).Want(200)
	report(t, 0, w.inspect(p.Server, true))
	report(t, 0, w.blobFiles(p.Server, filepath.Join(disk, "data"), make(map[string]string), patience))
	t.Logf("%d acknowledged writes and %d after the disk was full", w.total, filled)
}
