package shard

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"sync"
	"syscall"
	"testing"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// TestFailedSyncClosesTheCopy breaks the disk under concurrent writers: none may
// be told that its write is safe, nobody may read what was lost, and what was
// acknowledged before is there after a restart.
func TestFailedSyncClosesTheCopy(t *testing.T) {
	t.Parallel()
	crashFS := kv.NewCrashFS()
	fs, faults := kv.FailingFS(crashFS.FS())
	store, err := openStore(fs, false)
	if err != nil {
		t.Fatal(err)
	}
	c, err := Open(store, 1, Prepare(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	put := func(id string) error {
		_, err := c.Write(t.Context(), &shardapi.WriteRequest{Edits: []model.Edit{{ID: id, Body: []byte(`{}`)}}})
		return err
	}
	if err := put("safe"); err != nil {
		t.Fatal(err)
	}
	faults.FailSyncs(kv.LogFiles, syscall.EIO)
	var work sync.WaitGroup
	for i := range 8 {
		work.Go(func() {
			if err := put(fmt.Sprintf("lost%d", i)); err == nil {
				t.Error("a write was acknowledged on a broken disk")
			}
		})
	}
	work.Wait()
	for i := range 8 {
		resp, err := c.Read(t.Context(), &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: fmt.Sprintf("lost%d", i)}}})
		if err == nil && resp.Answers[0].Found {
			t.Error("a lost write was shown")
		}
	}
	if _, err := c.Updated(t.Context(), 1); model.KindOf(err) != model.KindUnavailable {
		t.Errorf("a waiter got %v", err)
	}
	_ = store.Close() // a broken store may say so
	left := crashFS.Crash()
	if store, err = openStore(left.FS(), false); err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	if c, err = Open(store, 1, Prepare(Options{})); err != nil {
		t.Fatal(err)
	}
	if err := checkCopy(c); err != nil {
		t.Fatal(err)
	}
	resp, err := c.Read(t.Context(), &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: "safe"}}})
	if err != nil || !resp.Answers[0].Found {
		t.Fatalf("the acknowledged write is lost (%v)", err)
	}
}

// TestSizeFileCountsWhatIsNotFlushed writes bytes that do not compress and looks
// at the size before and after they are flushed.
func TestSizeFileCountsWhatIsNotFlushed(t *testing.T) {
	t.Parallel()
	store, err := openStore(kv.NewCrashFS().FS(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := Open(store, 1, Prepare(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	const docs, size = 100, 10_000
	for i := range docs {
		b := make([]byte, size/2)
		_, _ = rand.Read(b) // never fails
		if _, err := c.Write(t.Context(), &shardapi.WriteRequest{Edits: []model.Edit{{ID: fmt.Sprint(i), Body: []byte(`{"x":"` + hex.EncodeToString(b) + `"}`)}}}); err != nil {
			t.Fatal(err)
		}
	}
	before, err := c.Info(t.Context())
	if err != nil || before.SizeFile < docs*size || before.SizeFile > docs*size*11/10 {
		t.Fatalf("info %+v %v", before, err)
	}
	if err := store.Flush(); err != nil {
		t.Fatal(err)
	}
	after, err := c.Info(t.Context())
	if err != nil || after.SizeFile < docs*size/2 || after.SizeFile > docs*size*11/10 {
		t.Fatalf("info %+v %v", after, err)
	}
	if !c.Idle() {
		t.Error("a flushed copy is not idle")
	}
}
