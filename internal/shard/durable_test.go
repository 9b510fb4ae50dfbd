package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"time"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// TestNothingIsShownBeforeItIsDurable asks every question while a write is
// applied but not synced. No answer may come before the mark has passed it.
func TestNothingIsShownBeforeItIsDurable(t *testing.T) {
	t.Parallel()
	fs, _ := kv.SlowSync(kv.NewCrashFS().FS(), 50*time.Millisecond)
	store, err := openStore(fs, false)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := Open(store, 1, Prepare(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	drain := func(next func() error) error {
		for {
			if err := next(); err != nil {
				if errors.Is(err, io.EOF) {
					return nil
				}
				return err
			}
		}
	}
	asks := map[string]func(id string, rev model.Rev) error{
		"read": func(id string, _ model.Rev) error {
			resp, err := c.Read(ctx, &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: id}}})
			if err == nil && !resp.Answers[0].Found {
				return errors.New("an applied document was not found")
			}
			return err
		},
		"revs diff": func(id string, rev model.Rev) error {
			_, err := c.RevsDiff(ctx, &shardapi.RevsDiffRequest{IDs: []string{id}, Revs: [][]model.Rev{{rev}}})
			return err
		},
		"list": func(string, model.Rev) error {
			_, st, err := c.List(ctx, &shardapi.ListRequest{Limit: -1})
			if err != nil {
				return err
			}
			defer st.Close()
			return drain(func() error { _, err := st.Next(); return err })
		},
		"changes": func(string, model.Rev) error {
			st, err := c.Changes(ctx, &shardapi.ChangesRequest{Limit: -1})
			if err != nil {
				return err
			}
			defer st.Close()
			return drain(func() error { _, err := st.Next(); return err })
		},
		"pending": func(string, model.Rev) error { _, err := c.Pending(ctx, 0); return err },
		"info":    func(string, model.Rev) error { _, err := c.Info(ctx); return err },
		"sync":    func(string, model.Rev) error { return c.Sync(ctx) },
		"partition": func(string, model.Rev) error {
			_, err := c.PartitionInfo(ctx, "p")
			return err
		},
		"conflict": func(id string, _ model.Rev) error {
			resp, err := c.Write(ctx, &shardapi.WriteRequest{Edits: []model.Edit{{ID: id, Body: []byte(`{}`)}}})
			if err == nil && resp.Results[0].Err == nil {
				return errors.New("no conflict")
			}
			return err
		},
		"known already": func(id string, rev model.Rev) error {
			_, err := c.Write(ctx, &shardapi.WriteRequest{Edits: []model.Edit{{ID: id, Replicated: true, Path: []model.Rev{rev}, Body: []byte(`{}`)}}})
			return err
		},
	}
	for name, ask := range asks {
		id, rev := "p:"+name, model.Rev{Pos: 1, Hash: "given"}
		before, _, err := c.present()
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := c.Write(context.Background(), &shardapi.WriteRequest{Edits: []model.Edit{{ID: id, Replicated: true, Path: []model.Rev{rev}, Body: []byte(`{}`)}}})
			done <- err
		}()
		for seq := before; seq == before; seq, _, _ = c.present() {
			runtime.Gosched()
		}
		early := c.mark.seq.Load() == before
		if err := ask(id, rev); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := c.mark.seq.Load(); got <= before {
			t.Errorf("%s answered at %d, before the mark (%d) had passed the write", name, before+1, got)
		}
		if !early {
			t.Logf("%s: the sync was faster than the test; it showed nothing", name)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// TestLocalDocumentIsShownWhenDurable is the same for what has no sequence.
func TestLocalDocumentIsShownWhenDurable(t *testing.T) {
	t.Parallel()
	fs, _ := kv.SlowSync(kv.NewCrashFS().FS(), 50*time.Millisecond)
	store, err := openStore(fs, false)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := Open(store, 1, Prepare(Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		_, before, err := c.present()
		if err != nil {
			t.Fatal(err)
		}
		id, done := fmt.Sprintf("_local/%d", i), make(chan error, 1)
		go func() {
			_, err := c.WriteLocal(context.Background(), &shardapi.LocalEdit{ID: id, Body: []byte(`{}`)})
			done <- err
		}()
		for ticket := before; ticket == before; _, ticket, _ = c.present() {
			runtime.Gosched()
		}
		if _, err := c.ReadLocal(t.Context(), id); err != nil {
			t.Fatal(err)
		}
		if c.mark.ticket.Load() <= before {
			t.Error("a local document was shown before it was durable")
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
}

// TestUpdatedWakes shows that many waiters wake at a write, and not before.
func TestUpdatedWakes(t *testing.T) {
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
	const waiters = 1000
	got := make(chan error, waiters)
	for range waiters {
		go func() {
			seq, err := c.Updated(t.Context(), 0)
			if err == nil && seq < 1 {
				err = fmt.Errorf("woke at %d", seq)
			}
			got <- err
		}()
	}
	if _, err := c.Write(t.Context(), &shardapi.WriteRequest{Edits: []model.Edit{{ID: "a", Body: []byte(`{}`)}}}); err != nil {
		t.Fatal(err)
	}
	for range waiters {
		if err := <-got; err != nil {
			t.Fatal(err)
		}
	}
	go func() { _, err := c.Updated(t.Context(), 1); got <- err }()
	c.Close(model.ErrCopyClosed)
	if err := <-got; !errors.Is(err, model.ErrCopyClosed) {
		t.Fatalf("a closed copy gave %v", err)
	}
	if _, err := c.Write(t.Context(), &shardapi.WriteRequest{Edits: []model.Edit{{ID: "b", Body: []byte(`{}`)}}}); !errors.Is(err, model.ErrCopyClosed) {
		t.Fatalf("a write to a closed copy gave %v", err)
	}
}
