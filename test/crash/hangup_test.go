package crash_test

import (
	"encoding/base64"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/testserver"
)

// filesBelow lists the files below the attachments of a data directory.
func filesBelow(t *testing.T, data string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(data, "blobs"), func(path string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			files = append(files, path)
		}
		return ignoreMissing(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// sendHalf sends the beginning of a request and hangs up, once ready says so.
// reset cuts the connection the hard way.
func sendHalf(t *testing.T, s *testserver.Server, head, half string, ready func() bool, reset bool) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	auth := base64.StdEncoding.EncodeToString([]byte(testserver.AdminName + ":" + testserver.AdminPassword))
	if _, err := fmt.Fprintf(conn, "%s\r\nHost: %s\r\nAuthorization: Basic %s\r\n\r\n%s", head, s.Addr, auth, half); err != nil {
		t.Fatal(err)
	}
	if ready != nil {
		await(t, "the server has taken the half", ready)
	}
	if reset {
		if err := conn.(*net.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestClientHangsUp sends halves of bodies: nothing of them is written, no file
// stays, and the server goes on.
func TestClientHangsUp(t *testing.T) {
	t.Parallel()
	data := t.TempDir()
	here := testserver.Config(func(c *config.Config) { c.Data = data })
	s := testserver.Start(t, here)
	s.Do(t, "PUT", "/db", nil).Want(201)
	rev := s.Do(t, "PUT", "/db/doc", `{}`).Want(201).Str("rev")
	seq := s.Do(t, "GET", "/db", nil).Want(200).Str("update_seq")
	large := strings.Repeat("0123456789", 100_000) // becomes a file while it comes in
	bulk := `{"docs":[` + strings.Repeat(`{"a":"b"},`, 5000)
	part := "--x\r\nContent-Type: application/json\r\n\r\n" +
		`{"_attachments":{"a":{"follows":true,"length":2000000,"content_type":"image/png"}}}` + "\r\n--x\r\n\r\n"
	staged := func() bool { return len(filesBelow(t, data)) > 0 }
	for _, c := range []struct {
		name, head, half string
		ready            func() bool
	}{
		{"attachment", "PUT /db/doc/a?rev=" + rev + " HTTP/1.1\r\nContent-Type: image/png\r\nContent-Length: 2000000", large, staged},
		{"attachment of a new document", "PUT /db/new/a HTTP/1.1\r\nContent-Type: image/png\r\nContent-Length: 2000000", large, staged},
		{"attachment in chunks", "PUT /db/new/a HTTP/1.1\r\nContent-Type: image/png\r\nTransfer-Encoding: chunked",
			fmt.Sprintf("%x\r\n%s\r\n", len(large), large), staged},
		{"compressible attachment", "PUT /db/new/a HTTP/1.1\r\nContent-Type: text/plain\r\nContent-Length: 2000000", large, nil},
		{"small attachment", "PUT /db/new/a HTTP/1.1\r\nContent-Type: image/png\r\nContent-Length: 100", "half", nil},
		{"parts", "PUT /db/new HTTP/1.1\r\nContent-Type: multipart/related;boundary=x\r\nContent-Length: 2001000", part + large, staged},
		{"bulk", "POST /db/_bulk_docs HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 2000000", bulk, nil},
		{"bulk in chunks", "POST /db/_bulk_docs HTTP/1.1\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked",
			fmt.Sprintf("%x\r\n%s\r\n", len(bulk), bulk), nil},
		{"document", "PUT /db/new HTTP/1.1\r\nContent-Type: application/json\r\nContent-Length: 1000", `{"half":"`, nil},
	} {
		for _, reset := range []bool{false, true} {
			// One after the other: the files of one must not be taken for another's.
			t.Run(fmt.Sprintf("%s/reset=%v", c.name, reset), func(t *testing.T) {
				sendHalf(t, s, c.head, c.half, c.ready, reset)
				await(t, "no file stays", func() bool { return len(filesBelow(t, data)) == 0 })
				s.Do(t, "GET", "/db/new", nil).Want(404)
				if got := s.Do(t, "GET", "/db/doc", nil).Want(200).Str("_rev"); got != rev {
					t.Errorf("revision %s, was %s", got, rev)
				}
			})
		}
	}
	// What leaves no file could still be under way: a stop waits for it.
	s.Stop(t)
	s = testserver.Start(t, here)
	info := s.Do(t, "GET", "/db", nil).Want(200)
	if info.Str("update_seq") != seq || info.Object()["doc_count"] != 1.0 {
		t.Errorf("something was written: %s", info.Body)
	}
	s.Do(t, "PUT", "/db/after", `{}`).Want(201)
}

// TestKilledDuringUploads leaves a half-received file behind a killed server; the
// next start removes it.
func TestKilledDuringUploads(t *testing.T) {
	t.Parallel()
	p := testserver.StartProcess(t)
	p.Do(t, "PUT", "/db", nil).Want(201)
	conn, err := net.DialTimeout("tcp", p.Addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	auth := base64.StdEncoding.EncodeToString([]byte(testserver.AdminName + ":" + testserver.AdminPassword))
	if _, err := fmt.Fprintf(conn, "PUT /db/new/a HTTP/1.1\r\nHost: x\r\nAuthorization: Basic %s\r\nContent-Length: 2000000\r\n\r\n%s",
		auth, strings.Repeat("x", 1_000_000)); err != nil {
		t.Fatal(err)
	}
	await(t, "the upload is on disk", func() bool { return len(filesBelow(t, p.Data)) > 0 })
	p.Kill()
	if len(filesBelow(t, p.Data)) == 0 {
		t.Fatal("the kill left no file: this shows nothing")
	}
	p.Restart()
	if files := filesBelow(t, p.Data); len(files) > 0 {
		t.Errorf("files left by the killed server: %q", files)
	}
	p.Do(t, "GET", "/db/new", nil).Want(404)
}

// TestStopUnderLoad ends a server in order while clients write.
func TestStopUnderLoad(t *testing.T) {
	t.Parallel()
	p := testserver.StartProcess(t, "--log-level", "warn")
	w := newWorld(writers)
	crew := newCrew(w, uint64(time.Now().UnixNano()), true)
	createShared(t, w, p.Server)
	digests := make(map[string]string)
	for round := range 5 {
		enough := w.beginRound(200)
		crew.start(p.Server)
		select {
		case <-enough:
		case <-crew.ended:
			crew.wait(t)
		}
		if s := p.Stop(); s != 0 {
			t.Fatalf("round %d: exit status %d after SIGTERM", round, s)
		}
		crew.wait(t)
		p.Restart()
		report(t, round, w.inspect(p.Server, true))
		report(t, round, w.blobFiles(p.Server, p.Data, digests, patience))
	}
	if text := p.Stderr.String(); strings.Contains(text, "level=ERROR") || strings.Contains(text, "panic") || strings.Contains(text, "not clean") {
		t.Errorf("the servers complain:\n%s", text)
	}
}
