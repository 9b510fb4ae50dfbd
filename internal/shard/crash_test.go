package shard

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// acknowledged is what writers were told is safe.
type acknowledged struct {
	mu    sync.Mutex
	revs  map[string]model.Rev
	local map[string]string
}

// crashRun lets writers work on a store, cuts the power while they do, and says
// what is wrong with what is left: a lost acknowledged write, a half document, a
// false counter.
func crashRun(seed uint64, noSync bool) error {
	crashFS := kv.NewCrashFS()
	store, err := openStore(crashFS.FS(), noSync)
	if err != nil {
		return err
	}
	opts := Prepare(Options{})
	c, err := Open(store, 1, opts)
	if err != nil {
		return err
	}
	acks := &acknowledged{revs: make(map[string]model.Rev), local: make(map[string]string)}
	const writers, cutAfter = 8, 40
	var work sync.WaitGroup
	enough := make(chan struct{}) // closed when every writer has done its share
	stop := make(chan struct{})   // closed after the power cut
	var shares sync.WaitGroup
	shares.Add(writers)
	errs := make([]error, writers)
	for w := range writers {
		work.Go(func() {
			errs[w] = crashWriter(c, w, rand.New(rand.NewPCG(seed, uint64(w))), acks, cutAfter, &shares, stop)
		})
	}
	go func() { shares.Wait(); close(enough) }()
	<-enough
	// The list of acknowledged writes is taken before the cut: what is told
	// later need not be there.
	acks.mu.Lock()
	revs, local := make(map[string]model.Rev), make(map[string]string)
	for id, r := range acks.revs {
		revs[id] = r
	}
	for id, b := range acks.local {
		local[id] = b
	}
	acks.mu.Unlock()
	left := crashFS.Crash()
	close(stop)
	work.Wait()
	if err := errors.Join(append(errs, store.Close())...); err != nil {
		return fmt.Errorf("before the crash: %w", err)
	}
	return afterCrash(left, opts, revs, local)
}

// crashWriter writes until it is told to stop; its share is n writes.
func crashWriter(c *Copy, w int, rng *rand.Rand, acks *acknowledged, n int, shares *sync.WaitGroup, stop chan struct{}) error {
	last := make(map[string]model.Rev)
	for i := 0; ; i++ {
		select {
		case <-stop:
			return nil
		default:
		}
		var edits []model.Edit
		for k := range 1 + rng.IntN(3) {
			id := fmt.Sprintf("w%d-%d-%d", w, k, rng.IntN(20))
			edits = append(edits, model.Edit{ID: id, Parent: last[id], Body: []byte(fmt.Sprintf(`{"i":%d}`, i))})
		}
		resp, err := c.Write(context.Background(), &shardapi.WriteRequest{Edits: edits})
		if err == nil {
			lid := fmt.Sprintf("_local/w%d", w)
			body := fmt.Sprintf(`{"i":%d}`, i)
			if _, err = c.WriteLocal(context.Background(), &shardapi.LocalEdit{ID: lid, Body: []byte(body), Replicated: true}); err == nil {
				acks.mu.Lock()
				acks.local[lid] = body
				acks.mu.Unlock()
			}
		}
		if err != nil {
			if i <= n {
				shares.Done()
			}
			return err
		}
		acks.mu.Lock()
		for _, r := range resp.Results {
			if r.Err == nil {
				last[r.ID] = r.Rev
				acks.revs[r.ID] = r.Rev
			}
		}
		acks.mu.Unlock()
		if i == n {
			shares.Done()
		}
	}
}

// afterCrash looks at what the power cut left.
func afterCrash(left *kv.CrashFS, opts *Options, revs map[string]model.Rev, local map[string]string) error {
	store, err := openStore(left.FS(), false)
	if err != nil {
		return err
	}
	c, err := Open(store, 1, opts)
	if err == nil {
		err = checkCopy(c)
	}
	for id, rev := range revs {
		if err != nil {
			break
		}
		var resp *shardapi.ReadResponse
		resp, err = c.Read(context.Background(), &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: id, Want: shardapi.WantPath | shardapi.WantBody}}})
		if err != nil {
			break
		}
		known := false
		for _, d := range resp.Answers[0].Docs {
			for _, r := range d.Path {
				known = known || r == rev
			}
		}
		if !known {
			err = fmt.Errorf("%q: %v was acknowledged and is lost", id, rev)
		}
	}
	for id := range local {
		if err != nil {
			break
		}
		if _, err = c.ReadLocal(context.Background(), id); err != nil {
			err = fmt.Errorf("%q was acknowledged and is lost: %w", id, err)
		}
	}
	return errors.Join(err, store.Close())
}

func TestCrashKeepsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		if err := crashRun(seed, false); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestCrashTestCanFail shows that the test above would see a lost write.
func TestCrashTestCanFail(t *testing.T) {
	t.Parallel()
	if err := crashRun(1, true); err == nil {
		t.Fatal("nothing was lost without syncing: the crash test sees nothing")
	}
}
