package shard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// TestEverythingAtOnce runs writers, readers, feeds, counts and compaction
// together; afterwards everything must add up.
func TestEverythingAtOnce(t *testing.T) {
	t.Parallel()
	store, err := openStore(kv.NewCrashFS().FS(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	dir := t.TempDir()
	if err := TidyBlobs(store, dir); err != nil {
		t.Fatal(err)
	}
	// A view that lives only a moment is renewed all the time.
	c, err := Open(store, 1, Prepare(Options{BlobDir: dir, InlineMax: 4, IterMax: time.Millisecond}))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var writers, others sync.WaitGroup
	for w := range 4 {
		writers.Go(func() { concurrentWriter(t, c, rand.New(rand.NewPCG(3, uint64(w)))) })
	}
	loop := func(fn func() error) {
		others.Go(func() {
			for ctx.Err() == nil {
				if err := fn(); err != nil && ctx.Err() == nil {
					t.Error(err)
					return
				}
			}
		})
	}
	loop(func() error { _, err := c.Compact(ctx, time.Now().Add(time.Hour)); return err })
	loop(func() error { return follow(ctx, c) })
	loop(func() error {
		_, st, err := c.List(ctx, &shardapi.ListRequest{Limit: -1, IncludeDocs: true, Want: shardapi.WantLeaves})
		if err != nil {
			return err
		}
		for last := ""; ; {
			rows, err := st.Next()
			if err != nil {
				if errors.Is(err, io.EOF) {
					err = nil
				}
				return errors.Join(err, st.Close())
			}
			for i := range rows {
				if rows[i].ID <= last {
					return fmt.Errorf("list shows %q after %q", rows[i].ID, last)
				}
				last = strings.Clone(rows[i].ID)
			}
		}
	})
	loop(func() error {
		id := fmt.Sprintf("d%02d", rand.IntN(30))
		if err := c.buildSeqs(ctx); err != nil {
			return err
		}
		head, st, err := c.List(ctx, &shardapi.ListRequest{Start: &id, Offset: true})
		if err != nil {
			return err
		}
		if head.Offset > 30 {
			return fmt.Errorf("offset %d of at most 30 documents", head.Offset)
		}
		_, err = c.Read(ctx, &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: id, AllLeaves: true, Want: shardapi.WantBody}}})
		return errors.Join(err, st.Close())
	})
	writers.Wait()
	stop()
	others.Wait()
	if err := checkCopy(c); err != nil {
		t.Fatal(err)
	}
	n, err := c.Pending(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	first, err := c.countSeqs(1, 1<<bucketBits)
	if err != nil {
		t.Fatal(err)
	}
	if counted := c.seqs.above(0) + first; counted != n {
		t.Fatalf("counted %d rows, there are %d", counted, n)
	}
	below, total, err := c.liveBelow(t.Context(), "\xff")
	if err != nil || below != total {
		t.Fatalf("%d of %d documents are below the last id (%v)", below, total, err)
	}
}

// concurrentWriter updates, deletes and creates few documents, with attachments.
func concurrentWriter(t *testing.T, c *Copy, rng *rand.Rand) {
	for range 150 {
		var edits []model.Edit
		for range 1 + rng.IntN(3) {
			id := fmt.Sprintf("d%02d", rng.IntN(30))
			e := model.Edit{ID: id, Body: []byte(fmt.Sprintf(`{"n":%d}`, rng.IntN(1000))), Deleted: rng.IntN(8) == 0}
			resp, err := c.Read(context.Background(), &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: id}}})
			if err != nil {
				t.Error(err)
				return
			}
			if a := resp.Answers[0]; a.Found && !a.Docs[0].Deleted {
				e.Parent = a.Docs[0].Rev
			}
			if rng.IntN(3) == 0 {
				st, err := c.Stage(context.Background(), strings.NewReader(strings.Repeat("y", rng.IntN(10))))
				if err != nil {
					t.Error(err)
					return
				}
				e.Atts = []model.AttachmentEdit{{Attachment: model.Attachment{Name: "f"}, Staged: st.Ticket}}
			}
			edits = append(edits, e)
		}
		if _, err := c.Write(context.Background(), &shardapi.WriteRequest{Edits: edits, RevsLimit: 3}); err != nil {
			t.Error(err)
			return
		}
	}
}

// follow reads the feed in pieces and checks that nothing is given twice.
func follow(ctx context.Context, c *Copy) error {
	since := uint64(0)
	for range 20 {
		st, err := c.Changes(ctx, &shardapi.ChangesRequest{Since: since, Limit: 7, IncludeDocs: true, Want: shardapi.WantPath})
		if err != nil {
			return err
		}
		for {
			rows, err := st.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return errors.Join(err, st.Close())
			}
			for i := range rows {
				if rows[i].Seq <= since {
					return fmt.Errorf("change %d after %d", rows[i].Seq, since)
				}
				since = rows[i].Seq
			}
		}
		since = max(since, st.Seq())
		if err := st.Close(); err != nil {
			return err
		}
	}
	return nil
}

// TestFeedMissesNothing follows the log while documents are created: every one
// must come, exactly once.
func TestFeedMissesNothing(t *testing.T) {
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
	const writers, each = 4, 200
	var work sync.WaitGroup
	for w := range writers {
		work.Go(func() {
			for i := range each {
				if _, err := c.Write(t.Context(), &shardapi.WriteRequest{Edits: []model.Edit{{ID: fmt.Sprintf("%d-%d", w, i), Body: []byte(`{}`)}}}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	seen, since := make(map[string]bool), uint64(0)
	for len(seen) < writers*each {
		if _, err := c.Updated(t.Context(), since); err != nil {
			t.Fatal(err)
		}
		st, err := c.Changes(t.Context(), &shardapi.ChangesRequest{Since: since, Limit: -1})
		if err != nil {
			t.Fatal(err)
		}
		for {
			rows, err := st.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			for i := range rows {
				if seen[rows[i].ID] {
					t.Fatalf("%q came twice", rows[i].ID)
				}
				seen[rows[i].ID] = true
			}
		}
		since = st.Seq()
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
		if uint64(len(seen)) != since {
			t.Fatalf("the feed is at %d and gave %d rows", since, len(seen))
		}
	}
	work.Wait()
}
