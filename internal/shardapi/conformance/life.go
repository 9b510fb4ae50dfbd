package conformance

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// lifeScenes is a copy as a whole: counters, its end, and callers who give up.
var lifeScenes = []scene{
	{"InfoCounters", infoCounters},
	{"InfoOfNothing", infoOfNothing},
	{"PartitionInfo", partitionInfo},
	{"Sync", syncReturns},
	{"CopiesApart", copiesApart},
	{"DropRefusesAll", dropRefusesAll},
	{"DropEndsWaiters", dropEndsWaiters},
	{"DropEndsStreams", dropEndsStreams},
	{"DropOfNothing", dropOfNothing},
	{"Cancelled", cancelled},
	{"Deadline", deadline},
	{"Tasks", tasks},
}

// info reads the counters.
func (t *trial) info() *shardapi.Info {
	t.Helper()
	info, err := t.shard.Info(t.ctx)
	t.no(err)
	return info
}

// The counters follow the documents.
func infoCounters(t *trial) {
	check := func(seq uint64, docs, dels int64) *shardapi.Info {
		t.Helper()
		i := t.info()
		if i.Seq != seq || i.DocCount != docs || i.DocDelCount != dels {
			t.Fatalf("sequence %d, %d documents, %d deleted; want %d, %d, %d", i.Seq, i.DocCount, i.DocDelCount, seq, docs, dels)
		}
		return i
	}
	check(0, 0, 0)
	body := `{"pad":"` + strings.Repeat("x", 1000) + `"}`
	r := t.put("a", body, model.Rev{})
	one := check(1, 1, 0)
	if one.SizeExternal < 1000 || one.SizeActive < 1000 || one.SizeFile < 1000 || one.StaleBytes != 0 {
		t.Fatalf("sizes %+v", one)
	}
	t.put("_design/d", `{}`, model.Rev{})
	check(2, 2, 0)
	r = t.put("a", body, r)
	two := check(3, 2, 0)
	if two.StaleBytes < 1000 || two.StaleRevsKept != 1 || two.SizeExternal > one.SizeExternal+500 {
		t.Fatalf("sizes %+v after %+v", two, one)
	}
	t.remove("a", r)
	check(4, 1, 1)
	t.merge("b", `{}`, true, "1-x")
	check(5, 1, 2)
	t.merge("b", `{}`, false, "1-y") // a live branch beside the tombstone
	check(6, 2, 1)
	t.merge("b", `{}`, false, "1-y")
	check(6, 2, 1)
}

// A copy that nobody wrote to answers like an empty one.
func infoOfNothing(t *trial) {
	if i := t.info(); *i != (shardapi.Info{SizeFile: i.SizeFile}) {
		t.Fatalf("info %+v", i)
	}
	head, ids := t.list(shardapi.ListRequest{Limit: -1, Offset: true})
	if *head != (shardapi.ListHead{}) || len(ids) != 0 {
		t.Fatalf("list %+v %v", head, ids)
	}
	if rows, seq := t.changes(shardapi.ChangesRequest{Limit: -1}); len(rows) != 0 || seq != 0 {
		t.Fatalf("log %v up to %d", rows, seq)
	}
}

// A partition is its own documents only.
func partitionInfo(t *trial) {
	for _, id := range []string{"p:1", "p:2", "p:", "p", "pp:1", "o:1", "p;", "q:1"} {
		r := t.put(id, `{"pad":"0123456789"}`, model.Rev{})
		if id == "p:2" {
			t.remove(id, r)
		}
	}
	for p, want := range map[string][2]int64{"p": {2, 1}, "pp": {1, 0}, "q": {1, 0}, "none": {0, 0}} {
		got, err := t.shard.PartitionInfo(t.ctx, p)
		t.no(err)
		if got.DocCount != want[0] || got.DocDelCount != want[1] {
			t.Errorf("partition %s: %+v", p, got)
		}
		if want[0] > 0 && (got.SizeExternal < 20*want[0] || got.SizeActive < 20*want[0]) || p == "none" && *got != (shardapi.PartitionInfo{}) {
			t.Errorf("partition %s: %+v", p, got)
		}
	}
}

// Sync returns on an empty copy and after writes.
func syncReturns(t *trial) {
	t.no(t.shard.Sync(t.ctx))
	t.put("a", `{}`, model.Rev{})
	t.no(t.shard.Sync(t.ctx))
}

// Copies know nothing of each other.
func copiesApart(t *trial) {
	other := t.host.Shard(t.id + 2_000_000)
	t.put("a", `{}`, model.Rev{})
	resp, err := other.Read(t.ctx, &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: "a"}}})
	t.no(err)
	if resp.Answers[0].Found {
		t.Fatal("found in another copy")
	}
	_, err = other.Write(t.ctx, &shardapi.WriteRequest{Edits: []model.Edit{{ID: "b", Body: []byte(`{}`)}}})
	t.no(err)
	t.no(t.host.Drop(t.ctx, t.id+2_000_000))
	if i := t.info(); i.DocCount != 1 || t.winner("a").Deleted {
		t.Fatalf("info %+v", i)
	}
	// Two handles are one copy.
	again, err := t.host.Shard(t.id).Info(t.ctx)
	t.no(err)
	if again.DocCount != 1 {
		t.Fatalf("info %+v", again)
	}
}

// After Drop every call fails alike.
func dropRefusesAll(t *trial) {
	s := t.stage(noise(100 << 10))
	t.write(model.Edit{ID: "a", Body: []byte(`{}`), Atts: []model.AttachmentEdit{staged("f", s)}})
	waiting := t.stage(noise(200 << 10))
	t.no(t.host.Drop(t.ctx, t.id))
	t.no(t.host.Drop(t.ctx, t.id)) // twice is no fault
	sh := t.shard
	calls := map[string]func() error{
		"Write": func() error {
			_, err := sh.Write(t.ctx, &shardapi.WriteRequest{Edits: []model.Edit{{ID: "b", Body: []byte(`{}`)}}})
			return err
		},
		"Write of staged bytes": func() error {
			_, err := sh.Write(t.ctx, &shardapi.WriteRequest{Edits: []model.Edit{{ID: "b", Body: []byte(`{}`), Atts: []model.AttachmentEdit{staged("f", waiting)}}}})
			return err
		},
		"Read": func() error {
			_, err := sh.Read(t.ctx, &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: "a"}}})
			return err
		},
		"RevsDiff": func() error {
			_, err := sh.RevsDiff(t.ctx, &shardapi.RevsDiffRequest{IDs: []string{"a"}, Revs: [][]model.Rev{revs("1-a")}})
			return err
		},
		"WriteLocal": func() error {
			_, err := sh.WriteLocal(t.ctx, &shardapi.LocalEdit{ID: "_local/a", Body: []byte(`{}`)})
			return err
		},
		"ReadLocal":     func() error { _, err := sh.ReadLocal(t.ctx, "_local/a"); return err },
		"List":          func() error { _, _, err := sh.List(t.ctx, &shardapi.ListRequest{Limit: -1}); return err },
		"Changes":       func() error { _, err := sh.Changes(t.ctx, &shardapi.ChangesRequest{Limit: -1}); return err },
		"Pending":       func() error { _, err := sh.Pending(t.ctx, 0); return err },
		"Updated":       func() error { _, err := sh.Updated(t.ctx, 0); return err },
		"Info":          func() error { _, err := sh.Info(t.ctx); return err },
		"PartitionInfo": func() error { _, err := sh.PartitionInfo(t.ctx, "p"); return err },
		"Sync":          func() error { return sh.Sync(t.ctx) },
		"View":          func() error { _, _, err := sh.View(t.ctx, &shardapi.ViewRequest{Limit: -1}); return err },
		"ViewInfo":      func() error { _, err := sh.ViewInfo(t.ctx, []string{"x"}); return err },
		"Stage":         func() error { _, err := sh.Stage(t.ctx, strings.NewReader("x")); return err },
		"Stage of more than is ever read": func() error {
			_, err := sh.Stage(t.ctx, io.LimitReader(endless{}, 1<<30))
			return err
		},
		"Unstage":      func() error { return sh.Unstage(t.ctx, waiting.Ticket) },
		"OpenBlob":     func() error { _, err := sh.OpenBlob(t.ctx, s.Blob, 0, -1); return err },
		"a new handle": func() error { _, err := t.host.Shard(t.id).Info(t.ctx); return err },
	}
	for name, call := range calls {
		if err := call(); !errors.Is(err, model.ErrCopyClosed) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// endless gives zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// Whoever waits for the next change of a copy hears of its end.
func dropEndsWaiters(t *trial) {
	t.put("a", `{}`, model.Rev{})
	out := make(chan error, 10)
	for range cap(out) {
		go func() {
			_, err := t.shard.Updated(t.ctx, 1)
			out <- err
		}()
	}
	t.no(t.host.Drop(t.ctx, t.id))
	for range cap(out) {
		t.is(<-out, model.ErrCopyClosed)
	}
}

// A stream over a copy that is dropped fails; it does not end as if it were whole.
func dropEndsStreams(t *trial) {
	// More than any window between two nodes can hold.
	t.fillMany(3000, 6000)
	_, list, err := t.shard.List(t.ctx, &shardapi.ListRequest{Limit: -1, IncludeDocs: true})
	t.no(err)
	defer list.Close()
	feed, err := t.shard.Changes(t.ctx, &shardapi.ChangesRequest{Limit: -1, IncludeDocs: true})
	t.no(err)
	defer feed.Close()
	_, err = list.Next()
	t.no(err)
	_, err = feed.Next()
	t.no(err)
	t.no(t.host.Drop(t.ctx, t.id))
	for err = nil; err == nil; {
		_, err = list.Next()
	}
	t.is(err, model.ErrCopyClosed)
	for err = nil; err == nil; {
		_, err = feed.Next()
	}
	t.is(err, model.ErrCopyClosed)
}

// A copy that never came into being can be dropped, and stays so.
func dropOfNothing(t *trial) {
	t.no(t.host.Drop(t.ctx, t.id))
	_, err := t.shard.Info(t.ctx)
	t.is(err, model.ErrCopyClosed)
}

// A caller who has given up before a write hears so, and nothing is written.
func cancelled(t *trial) {
	why := errors.New("nobody is waiting")
	ctx, cancel := context.WithCancelCause(t.ctx)
	cancel(why)
	_, err := t.shard.Write(ctx, &shardapi.WriteRequest{Edits: []model.Edit{{ID: "a", Body: []byte(`{}`)}}})
	t.is(err, why)
	_, err = t.shard.Updated(ctx, 5)
	t.is(err, why)
	if t.ask(shardapi.DocQuery{ID: "a"}).Found {
		t.Fatal("written all the same")
	}
}

// A deadline ends a wait with the error that says so.
func deadline(t *trial) {
	ctx, cancel := context.WithTimeout(t.ctx, 20*time.Millisecond)
	defer cancel()
	_, err := t.shard.Updated(ctx, 0)
	t.is(err, context.DeadlineExceeded)
	if k := model.KindOf(err); k != model.KindInternal {
		t.Fatalf("kind %d: a slow copy is not one out of reach", k)
	}
}

// Nothing runs on copies that hold next to nothing.
func tasks(t *trial) {
	list, err := t.host.Tasks(t.ctx)
	t.no(err)
	for _, task := range list {
		if task.Copy == t.id {
			t.Fatal(fmt.Errorf("work on a copy without data: %+v", task))
		}
	}
}
