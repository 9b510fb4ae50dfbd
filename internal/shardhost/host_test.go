package shardhost

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// large is an attachment that becomes a file.
var large = bytes.Repeat([]byte("0123456789abcdef"), 10_000)

// writeWithFile writes a document with a large attachment.
func writeWithFile(t testing.TB, s shardapi.Shard, id string, parent model.Rev, data []byte) model.Rev {
	t.Helper()
	st, err := s.Stage(context.Background(), bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	return write(t, s, model.Edit{ID: id, Parent: parent, Body: []byte(`{}`), Atts: []model.AttachmentEdit{
		{Attachment: model.Attachment{Name: "f", ContentType: "x/y"}, Staged: st.Ticket},
	}})
}

// files lists the attachment files of a host's directory.
func files(t testing.TB, dir string) (out []string) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join(dir, "blobs"), func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestDrop(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := newHost(t, dir, nil, Options{})
	s, other := h.Shard(1), h.Shard(2)
	writeWithFile(t, s, "a", model.Rev{}, large)
	write(t, other, model.Edit{ID: "b", Body: []byte(`{}`)})
	st, err := s.Changes(t.Context(), &shardapi.ChangesRequest{Limit: -1})
	if err != nil {
		t.Fatal(err)
	}
	waiting := make(chan error, 1)
	go func() { _, err := s.Updated(t.Context(), 1); waiting <- err }()
	var work sync.WaitGroup
	for i := range 8 { // late writes
		work.Go(func() {
			for k := 0; ; k++ {
				_, err := s.Write(t.Context(), &shardapi.WriteRequest{Edits: []model.Edit{{ID: fmt.Sprintf("%d-%d", i, k), Body: []byte(`{}`)}}})
				if errors.Is(err, model.ErrCopyClosed) {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	if _, err := s.Updated(t.Context(), 5); err != nil { // writers are at work
		t.Fatal(err)
	}
	if err := h.Drop(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	work.Wait()
	if err := <-waiting; err != nil && !errors.Is(err, model.ErrCopyClosed) {
		t.Fatalf("a waiter got %v", err)
	}
	if _, err := st.Next(); !errors.Is(err, model.ErrCopyClosed) {
		t.Fatalf("a stream got %v", err)
	}
	if _, err := s.Info(t.Context()); !errors.Is(err, model.ErrCopyClosed) {
		t.Fatalf("info gave %v", err)
	}
	if _, err := s.Stage(t.Context(), strings.NewReader("x")); !errors.Is(err, model.ErrCopyClosed) {
		t.Fatalf("stage gave %v", err)
	}
	if seq, err := h.CopySeq(1); err != nil || seq != 0 {
		t.Fatalf("a dropped copy is at %d (%v)", seq, err)
	}
	if seq, err := h.CopySeq(2); err != nil || seq != 1 {
		t.Fatalf("the other copy is at %d (%v)", seq, err)
	}
	if d := read(t, other, "b"); d == nil {
		t.Fatal("the other copy lost its document")
	}
	if err := h.Close(); err != nil { // waits for the background removal
		t.Fatal(err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Fatalf("files left: %v", left)
	}
}

// What a drop writes does not depend on what the copy holds.
func TestDropCostsTheSame(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := kv.Open(dir+"/store", kv.Options{MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(store, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	var commits, written []int64
	for i, documents := range []int{1, 10_000} {
		id := shardapi.CopyID(i + 1)
		edits := make([]model.Edit, documents)
		for k := range edits {
			edits[k] = model.Edit{ID: fmt.Sprint("document-", k), Body: []byte(`{"a":1}`)}
		}
		if _, err := h.Shard(id).Write(t.Context(), &shardapi.WriteRequest{Edits: edits}); err != nil {
			t.Fatal(err)
		}
		before := store.Metrics()
		if err := h.Drop(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		after := store.Metrics()
		commits, written = append(commits, after.Commits-before.Commits), append(written, after.BytesIn-before.BytesIn)
	}
	if commits[0] != commits[1] || written[0] != written[1] || written[0] == 0 {
		t.Errorf("a drop of 1 and of 10,000 documents: %v batches, %v bytes", commits, written)
	}
	if err := errors.Join(h.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestFilesOfACrashAreRemoved(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	store, err := kv.Open(dir+"/store", kv.Options{MinFree: -1})
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(store, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	writeWithFile(t, h.Shard(1), "a", model.Rev{}, large)
	named := files(t, dir)
	if len(named) != 1 {
		t.Fatalf("files %v", named)
	}
	if err := errors.Join(h.Close(), store.Close()); err != nil {
		t.Fatal(err)
	}
	// What a crash leaves: staged bytes, a placed file whose batch never came,
	// and files of a copy that is gone.
	orphan := strings.Repeat("ab", 32)
	for _, name := range []string{"tmp/ticket", "1/" + orphan, "77/" + orphan} {
		path := filepath.Join(dir, "blobs", name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("left"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	h = newHost(t, dir, nil, Options{})
	if left := files(t, dir); len(left) != 1 || left[0] != named[0] {
		t.Fatalf("files %v, want %v", left, named)
	}
	d := read(t, h.Shard(1), "a")
	rc, err := h.Shard(1).OpenBlob(t.Context(), d.Atts[0].Blob, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := rc.(*os.File); !ok {
		t.Fatalf("a large attachment is a %T", rc)
	}
	got, err := io.ReadAll(rc)
	if cerr := rc.Close(); err != nil || cerr != nil || !bytes.Equal(got, large) {
		t.Fatalf("read %d bytes, %v %v", len(got), err, cerr)
	}
}

func TestStagedBytesThatAreRefusedGo(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newHost(t, dir, nil, Options{}).Shard(1)
	write(t, s, model.Edit{ID: "a", Body: []byte(`{}`)})
	st, err := s.Stage(t.Context(), bytes.NewReader(large))
	if err != nil {
		t.Fatal(err)
	}
	att := []model.AttachmentEdit{{Attachment: model.Attachment{Name: "f"}, Staged: st.Ticket}}
	if err := refused(t, s, model.Edit{ID: "a", Body: []byte(`{}`), Atts: att}); !errors.Is(err, model.ErrConflict) {
		t.Fatalf("got %v", err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Fatalf("files left: %v", left)
	}
	if _, err := s.Write(t.Context(), &shardapi.WriteRequest{Edits: []model.Edit{{ID: "c", Body: []byte(`{}`), Atts: att}}}); err == nil {
		t.Fatal("a used ticket was taken again")
	}
	if st, err = s.Stage(t.Context(), bytes.NewReader(large)); err != nil {
		t.Fatal(err)
	}
	if err := s.Unstage(t.Context(), st.Ticket); err != nil {
		t.Fatal(err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Fatalf("files left: %v", left)
	}
}

func TestIdenticalBytesAreStoredOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := newHost(t, dir, nil, Options{}).Shard(1)
	for i := range 3 {
		writeWithFile(t, s, fmt.Sprint(i), model.Rev{}, large)
	}
	if left := files(t, dir); len(left) != 1 {
		t.Fatalf("files: %v", left)
	}
}

// TestCompaction waits for the background loop to remove what was superseded.
func TestCompaction(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	h := newHost(t, dir, nil, Options{CompactEvery: 5 * time.Millisecond, CompactBytes: -1, CompactShare: -1, CompactGrace: -1})
	s := h.Shard(1)
	rev := model.Rev{}
	var first model.Rev
	for i := range 200 {
		rev = write(t, s, model.Edit{ID: "a", Parent: rev, Body: []byte(fmt.Sprintf(`{"n":%d}`, i))})
		if i == 0 {
			first = rev
		}
	}
	other := writeWithFile(t, s, "b", model.Rev{}, large)
	write(t, s, model.Edit{ID: "b", Parent: other, Body: []byte(`{}`)})
	for {
		info, err := s.Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		tasks, err := h.Tasks(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if task.Type != "database_compaction" || task.Copy != 1 || task.TotalChanges < task.ChangesDone {
				t.Fatalf("task %+v", task)
			}
		}
		if info.StaleRevsKept == 0 {
			if info.StaleBytes != 0 {
				t.Fatalf("info %+v", info)
			}
			break
		}
	}
	resp, err := s.Read(t.Context(), &shardapi.ReadRequest{Queries: []shardapi.DocQuery{
		{ID: "a", Revs: []model.Rev{first, rev}, Want: shardapi.WantBody},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if a := resp.Answers[0]; len(a.Docs) != 1 || a.Docs[0].Rev != rev || len(a.Missing) != 1 || a.Missing[0] != first {
		t.Fatalf("answer %+v", a)
	}
	if err := h.Close(); err != nil { // the file goes right after its row
		t.Fatal(err)
	}
	if left := files(t, dir); len(left) != 0 {
		t.Fatalf("files left: %v", left)
	}
}

func TestGraceKeepsYoungBodies(t *testing.T) {
	t.Parallel()
	h := newHost(t, t.TempDir(), nil, Options{CompactEvery: -1})
	s := h.Shard(1)
	r1 := write(t, s, model.Edit{ID: "a", Body: []byte(`{}`)})
	write(t, s, model.Edit{ID: "a", Parent: r1, Body: []byte(`{"v":2}`)})
	if err := h.Compact(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if info, err := s.Info(t.Context()); err != nil || info.StaleRevsKept != 1 {
		t.Fatalf("info %+v %v", info, err)
	}
}

// TestIdleCopiesAreClosed opens more copies than may stay open.
func TestIdleCopiesAreClosed(t *testing.T) {
	t.Parallel()
	h := newHost(t, t.TempDir(), nil, Options{MaxOpen: 10})
	for id := range shardapi.CopyID(40) {
		write(t, h.Shard(id), model.Edit{ID: "a", Body: []byte(`{}`)})
		// Bytes that only a memtable has keep a copy open: sizes would be wrong.
		if err := h.store.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	h.mu.RLock()
	open := len(h.open)
	h.mu.RUnlock()
	if open > 10 {
		t.Fatalf("%d copies are open", open)
	}
	for id := range shardapi.CopyID(40) {
		if d := read(t, h.Shard(id), "a"); d == nil {
			t.Fatalf("copy %d lost its document", id)
		}
	}
}

func TestOnUpdateHearsOfEveryCopy(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	heard := make(map[shardapi.CopyID]uint64)
	h := newHost(t, t.TempDir(), nil, Options{OnUpdate: func(id shardapi.CopyID, seq uint64) {
		mu.Lock()
		defer mu.Unlock()
		heard[id] = max(heard[id], seq)
	}})
	for id := range shardapi.CopyID(3) {
		write(t, h.Shard(id), model.Edit{ID: "a", Body: []byte(`{}`)})
	}
	mu.Lock()
	defer mu.Unlock()
	if len(heard) != 3 || heard[2] != 1 {
		t.Fatalf("heard %v", heard)
	}
}
