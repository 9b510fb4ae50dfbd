package shardhost_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// randomEdits writes some documents: new ones, changed ones, deleted ones.
func (v *viewHost) randomEdits(rnd *rand.Rand, n int) {
	v.t.Helper()
	s := v.host.Shard(1)
	var queries []shardapi.DocQuery
	for _, number := range rnd.Perm(1500)[:n] {
		queries = append(queries, shardapi.DocQuery{ID: fmt.Sprintf("d%04d", number)})
	}
	found, err := s.Read(context.Background(), &shardapi.ReadRequest{Queries: queries})
	if err != nil {
		v.t.Fatal(err)
	}
	var edits []model.Edit
	for i, q := range queries {
		e := model.Edit{ID: q.ID, Body: fmt.Appendf(nil, `{"n":%d,"m":%d,"tags":["t%d","t%d"]}`, rnd.IntN(100), rnd.IntN(1000), rnd.IntN(9), rnd.IntN(9))}
		if a := &found.Answers[i]; a.Found && !a.Docs[0].Deleted {
			e.Parent = a.Docs[0].Rev
			if rnd.IntN(4) == 0 {
				e.Deleted, e.Body = true, []byte(`{}`)
			}
		}
		edits = append(edits, e)
	}
	resp, err := s.Write(context.Background(), &shardapi.WriteRequest{Edits: edits})
	if err != nil {
		v.t.Fatal(err)
	}
	for i := range resp.Results {
		if resp.Results[i].Err != nil {
			v.t.Fatal(resp.Results[i].Err)
		}
	}
}

// reduced gives the groups of a view as they are stored: their states.
func (v *viewHost) reduced(def shardapi.ViewDef, level int) []string {
	v.t.Helper()
	req := everything(def, shardapi.UpdateFirst)
	req.Reduce, req.GroupLevel = true, level
	_, st, err := v.host.Shard(1).View(context.Background(), req)
	if err != nil {
		v.t.Fatal(err)
	}
	rows, err := readRows(st)
	if err != nil {
		v.t.Fatal(err)
	}
	return rows
}

// The stores are closed while indexes are built, or the power is cut and some of
// what was not synced is lost, again and again. The indexes go on from their
// checkpoints, and in the end they are what a fresh build makes.
func TestResumeEqualsFreshBuild(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	disk := kv.NewCrashFS()
	v := newViewHost(t, func(v *viewHost) { v.fs = disk.FS() })
	defs := func(generation int) []shardapi.ViewDef {
		out := []shardapi.ViewDef{
			define("_design/d", "number", `function(doc) { if (doc.n !== undefined) emit(doc.n, doc.m); }`, "_sum"),
			define("_design/d", "tags", `function(doc) { (doc.tags || []).forEach(function(t) { emit([t, doc.n], 1); }); }`, "_count"),
			define("_design/e", "slow", `function(doc) { var end = Date.now() + 2; while (Date.now() < end); emit(doc.m % 7, doc._rev); }`, ""),
		}
		for i := range out {
			out[i].Sig += fmt.Sprintf("-%d", generation)
		}
		v.designs(auto(out[0], out[1]), auto(out[2]))
		return out
	}
	views := defs(0)
	resumed := 0
	for round := range 6 {
		v.randomEdits(rnd, 300+1000*((round+1)%2))
		before := v.info(1, views[2])
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, len(views))
		for _, def := range views {
			go func() { _, err := v.rows(ctx, 1, def, shardapi.UpdateFirst); done <- err }()
		}
		crashed := disk
		if round%2 == 0 { // in the middle of the build
			v.until("a part is in", func() bool { return v.info(1, views[2]).Seq > before.Seq })
		} else { // anywhere
			time.Sleep(time.Duration(rnd.IntN(700)) * time.Millisecond)
			crashed = disk.CrashKeeping(rnd.IntN(101), rnd.Uint64())
		}
		cancel()
		for range views {
			if err := <-done; err != nil && !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}
		v.stop()
		disk, v.fs = crashed, crashed.FS()
		v.start()
		if info := v.info(1, views[2]); info.Seq > before.Seq && info.Seq < info.CopySeq {
			resumed++
		}
	}
	if resumed == 0 {
		t.Error("no build was cut in the middle")
	}
	v.randomEdits(rnd, 100)
	got := make([][]string, len(views))
	for i, def := range views {
		got[i] = v.must(1, def, shardapi.UpdateFirst)
	}
	sums := [][]string{v.reduced(views[0], 0), v.reduced(views[0], shardapi.GroupExact), v.reduced(views[1], 1)}
	fresh := defs(1)
	for i, def := range fresh {
		if want := v.must(1, def, shardapi.UpdateFirst); !slices.Equal(got[i], want) {
			t.Errorf("view %s has %d rows, a fresh one %d", def.Name, len(got[i]), len(want))
		}
	}
	for i, want := range [][]string{v.reduced(fresh[0], 0), v.reduced(fresh[0], shardapi.GroupExact), v.reduced(fresh[1], 1)} {
		if len(sums[i]) == 0 || !slices.Equal(sums[i], want) {
			t.Errorf("reduction %d is %q, of a fresh build %q", i, sums[i], want)
		}
	}
}
