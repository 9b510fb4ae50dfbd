// Package large_test sends attachments through a server process that are larger
// than the memory it may use.
package large_test

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

const (
	size      = 1 << 30
	maxMemory = 200 << 20
)

// source gives size bytes out of a block of noise, each time round with another
// first word, so that no part of it equals another; it holds one block in memory.
type source struct {
	block []byte
	at    int64
	size  int64
}

func newSource(size int64) *source {
	s := &source{block: make([]byte, 1<<20), size: size}
	_, _ = rand.NewChaCha8([32]byte{1}).Read(s.block) // never fails
	return s
}

// Read implements io.Reader.
func (s *source) Read(p []byte) (int, error) {
	if s.at == s.size {
		return 0, io.EOF
	}
	in := int(s.at % int64(len(s.block)))
	if in == 0 {
		copy(s.block, fmt.Sprintf("%08x", s.at/int64(len(s.block))))
	}
	n := copy(p, s.block[in:min(int64(len(s.block)), int64(in)+s.size-s.at)])
	s.at += int64(n)
	return n, nil
}

// same is a writer that compares what is written with a source.
type same struct {
	want *source
	buf  []byte
}

// Write implements io.Writer.
func (s *same) Write(p []byte) (int, error) {
	if len(s.buf) < len(p) {
		s.buf = make([]byte, len(p))
	}
	at := s.want.at
	if _, err := io.ReadFull(s.want, s.buf[:len(p)]); err != nil {
		return 0, fmt.Errorf("more bytes than went in: %w", err)
	}
	if !bytes.Equal(p, s.buf[:len(p)]) {
		return 0, fmt.Errorf("other bytes after %d", at)
	}
	return len(p), nil
}

// peakMemory is the most memory that a process has ever had.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Skipf("no figure for the memory of a process: %v", err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return kb << 10
		}
	}
	t.Fatal("the status of the process has no VmHWM")
	return 0
}

// An attachment of 1 GiB goes in and comes out of a server that stays under 200 MB.
func TestOneGiBAttachmentInConstantMemory(t *testing.T) {
	p := testserver.StartProcess(t)
	db := "/" + p.DB(t)
	p.Do(t, "PUT", db+"/doc/large.bin", struct{ io.Reader }{newSource(size)}, "Content-Type", "application/x-test").Want(201)
	if got := p.Do(t, "HEAD", db+"/doc/large.bin", nil).Want(200).Header.Get("Content-Length"); got != strconv.Itoa(size) {
		t.Errorf("Content-Length %s", got)
	}
	res := p.Stream(t, context.Background(), "GET", db+"/doc/large.bin", nil)
	n, err := io.Copy(&same{want: newSource(size)}, res.Body)
	if err != nil || n != size {
		t.Fatalf("%d bytes, %v", n, err)
	}

	// The same as parts of a document, both ways, and as base64 within one.
	const part = size / 16
	sum := md5.New()
	if _, err := io.Copy(sum, newSource(part)); err != nil {
		t.Fatal(err)
	}
	doc := fmt.Sprintf(`{"_attachments":{"a":{"follows":true,"content_type":"application/x-test","length":%d,"digest":"md5-%s"}}}`,
		part, base64.StdEncoding.EncodeToString(sum.Sum(nil)))
	body := io.MultiReader(strings.NewReader("--b\r\n\r\n"+doc+"\r\n--b\r\n\r\n"), newSource(part), strings.NewReader("\r\n--b--"))
	p.Do(t, "PUT", db+"/parts", body, "Content-Type", "multipart/related; boundary=b").Want(201)
	for _, accept := range []string{"multipart/related", "application/json"} {
		res = p.Stream(t, context.Background(), "GET", db+"/parts?attachments=true", nil, "Accept", accept)
		if n, err = io.Copy(io.Discard, res.Body); err != nil || n < part {
			t.Fatalf("%s: %d bytes, %v", accept, n, err)
		}
	}
	peak := peakMemory(t, p.PID)
	t.Logf("peak memory %d MB", peak>>20)
	if peak > maxMemory {
		t.Errorf("the server took %d MB", peak>>20)
	}
	if status := p.Stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
}
