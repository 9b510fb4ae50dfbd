package shard

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// shrinkingDisk is an upload that takes the space it reads from a small disk.
type shrinkingDisk struct {
	free, read atomic.Int64
}

// Read implements io.Reader: it never ends.
func (d *shrinkingDisk) Read(p []byte) (int, error) {
	d.free.Add(-int64(len(p)))
	d.read.Add(int64(len(p)))
	return len(p), nil
}

// TestUploadStopsAtTheMark lets one attachment run into the free-space mark. The
// room below the mark is the store's own: an upload must stop there, not at the
// end of the disk, and give back what it took.
func TestUploadStopsAtTheMark(t *testing.T) {
	t.Parallel()
	const start, mark = 200 << 20, 100 << 20
	var disk shrinkingDisk
	disk.free.Store(start)
	store, err := kv.Open("store", kv.Options{
		FS: kv.NewCrashFS().FS(), CacheBytes: 4 << 20, MinFree: mark, FreeEvery: time.Hour,
		FreeSpace: func() (int64, error) { return disk.free.Load(), nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	dir := t.TempDir()
	if err := TidyBlobs(store, dir); err != nil {
		t.Fatal(err)
	}
	c, err := Open(store, 1, Prepare(Options{BlobDir: dir}))
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Stage(t.Context(), io.LimitReader(&disk, 150<<20))
	if !errors.Is(err, model.ErrStorageFull) {
		t.Fatalf("the upload ended with %v after %d bytes", err, disk.read.Load())
	}
	if over := mark - disk.free.Load(); over > 16<<20 {
		t.Errorf("the upload went %d bytes below the mark", over)
	}
	left, err := os.ReadDir(filepath.Join(dir, TempDir))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the temporary directory: %v, %v", left, err)
	}
}

// TestFileStaysUntilItsRowIsGoneForGood has compaction take the last reference of
// an attachment while a write that fails brings the same bytes. Until compaction's
// batch is durable a crash would bring the reference back, so the file must stay.
func TestFileStaysUntilItsRowIsGoneForGood(t *testing.T) {
	t.Parallel()
	fs, _ := kv.SlowSync(kv.NewCrashFS().FS(), 300*time.Millisecond)
	store, err := openStore(fs, false)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	dir := t.TempDir()
	if err := TidyBlobs(store, dir); err != nil {
		t.Fatal(err)
	}
	c, err := Open(store, 1, Prepare(Options{BlobDir: dir, InlineMax: 1}))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	stage := func() model.AttachmentEdit {
		s, err := c.Stage(ctx, bytes.NewReader([]byte("the same bytes")))
		if err != nil {
			t.Fatal(err)
		}
		return model.AttachmentEdit{Attachment: model.Attachment{Name: "a", Blob: s.Blob}, Staged: s.Ticket}
	}
	att := stage()
	first := mustWrite(t, c, 0, model.Edit{ID: "d", Body: []byte("{}"), Atts: []model.AttachmentEdit{att}})[0].Rev
	mustWrite(t, c, 0, model.Edit{ID: "d", Body: []byte("{}"), Parent: first})
	again := stage()

	done := make(chan error, 1)
	go func() {
		_, err := c.Compact(ctx, time.Now().Add(time.Hour))
		done <- err
	}()
	for {
		_, found, err := c.readBlobRow(&att.Blob)
		if err != nil {
			t.Fatal(err)
		}
		if !found {
			break
		}
		runtime.Gosched()
	}
	resp, err := c.Write(ctx, &shardapi.WriteRequest{Edits: []model.Edit{{ID: "d", Body: []byte("{}"), Atts: []model.AttachmentEdit{again}}}})
	if err != nil || resp.Results[0].Err == nil {
		t.Fatalf("%v, %v; want a conflict", resp, err)
	}
	_, statErr := os.Stat(c.blobPath(&att.Blob))
	_, ticket, err := c.present()
	if err != nil {
		t.Fatal(err)
	}
	if c.mark.ticket.Load() >= ticket {
		t.Log("the sync was faster than the test; it showed nothing")
	} else if statErr != nil {
		t.Errorf("the file went before compaction was durable: %v", statErr)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(c.blobPath(&att.Blob)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there after compaction: %v", err)
	}
	if len(c.blobs.pins) > 0 {
		t.Errorf("pins are left: %v", c.blobs.pins)
	}
}
