package conformance

import (
	"fmt"
	"strconv"
	"sync"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// batchScenes is several edits in one Write, and several Writes at once.
var batchScenes = []scene{
	{"BatchOrder", batchOrder},
	{"BatchPartlyRefused", batchPartlyRefused},
	{"BatchLarge", batchLarge},
	{"BatchEmpty", batchEmpty},
	{"ParallelWriters", parallelWriters},
	{"ParallelSameDocument", parallelSameDocument},
}

// number writes a number.
func number(i int) string { return strconv.Itoa(i) }

// Edits of one document in one Write see each other, in order.
func batchOrder(t *trial) {
	t.merge("a", `{}`, false, "1-a")
	resp, err := t.shard.Write(t.ctx, &shardapi.WriteRequest{Edits: []model.Edit{
		{ID: "a", Body: []byte(`{"n":2}`), Parent: rev("1-a")},
		{ID: "a", Body: []byte(`{"n":3}`), Parent: rev("1-a")}, // no leaf any more
		{ID: "b", Body: []byte(`{"n":1}`)},
		{ID: "b", Body: []byte(`{"n":2}`)}, // exists by now
		{ID: "a", Body: []byte(`{"n":4}`), Replicated: true, Path: revs("3-z", "2-y", "1-a")},
		{ID: "a", Body: []byte(`{"n":5}`), Parent: rev("3-z")},
	}})
	t.no(err)
	for i, refused := range []bool{false, true, false, true, false, false} {
		r := resp.Results[i]
		if (r.Err != nil) != refused || refused && *r.Err != *model.ErrConflict {
			t.Errorf("edit %d: %+v", i, r)
		}
	}
	if d := t.winner("a"); d.Rev != resp.Results[5].Rev || string(d.Body) != `{"n":5}` {
		t.Fatalf("winner %+v", d)
	}
	a := t.ask(shardapi.DocQuery{ID: "a", AllLeaves: true, Want: shardapi.WantBody})
	if len(a.Docs) != 2 || a.Docs[1].Rev != resp.Results[0].Rev {
		t.Fatalf("leaves %+v", a.Docs)
	}
	if d := t.winner("b"); string(d.Body) != `{"n":1}` {
		t.Fatalf("the first create stands: %+v", d)
	}
	// One document has one row in the log, however many edits a Write has of it.
	rows, _ := t.changes(shardapi.ChangesRequest{Limit: -1})
	if len(rows) != 2 || resp.Seq != rows[1].Seq {
		t.Fatalf("log %v, sequence %d", rows, resp.Seq)
	}
}

// A refused edit does not touch its neighbours.
func batchPartlyRefused(t *trial) {
	r := t.put("b", `{}`, model.Rev{})
	resp, err := t.shard.Write(t.ctx, &shardapi.WriteRequest{Edits: []model.Edit{
		{ID: "a", Body: []byte(`{"ok":1}`)},
		{ID: "b", Body: []byte(`{"no":1}`)},
		{ID: "c", Body: []byte(`{"ok":2}`)},
	}})
	t.no(err)
	if resp.Results[0].Err != nil || resp.Results[2].Err != nil {
		t.Fatalf("results %+v", resp.Results)
	}
	if e := resp.Results[1].Err; e == nil || *e != *model.ErrConflict || resp.Results[1].ID != "b" {
		t.Fatalf("result %+v", resp.Results[1])
	}
	if t.winner("a").Rev != resp.Results[0].Rev || t.winner("c").Rev != resp.Results[2].Rev || t.winner("b").Rev != r {
		t.Fatal("not what the results say")
	}
}

// A bulk write is one message and one batch.
func batchLarge(t *trial) {
	edits := make([]model.Edit, 2000)
	for i := range edits {
		edits[i] = model.Edit{ID: fmt.Sprintf("doc-%05d", i), Body: fmt.Appendf(nil, `{"i":%d,"pad":"%0500d"}`, i, i)}
	}
	got := t.write(edits...)
	for _, i := range []int{0, 1, 999, 1999} {
		if d := t.winner(edits[i].ID); d.Rev != got[i] || string(d.Body) != string(edits[i].Body) {
			t.Fatalf("document %d: %+v", i, d)
		}
	}
	info, err := t.shard.Info(t.ctx)
	t.no(err)
	if info.DocCount != 2000 || info.Seq != 2000 {
		t.Fatalf("info %+v", info)
	}
}

// Nothing to write is nothing wrong.
func batchEmpty(t *trial) {
	resp, err := t.shard.Write(t.ctx, &shardapi.WriteRequest{})
	t.no(err)
	if len(resp.Results) != 0 || resp.Seq != 0 {
		t.Fatalf("response %+v", resp)
	}
}

// Writers side by side lose nothing, and every write is seen at once by its writer.
func parallelWriters(t *trial) {
	const writers, each = 8, 25
	var wg sync.WaitGroup
	errs := make(chan error, writers)
	for w := range writers {
		wg.Go(func() {
			var parent model.Rev
			for i := range each {
				id := fmt.Sprintf("w%d", w)
				body := fmt.Sprintf(`{"w":%d,"i":%d}`, w, i)
				resp, err := t.shard.Write(t.ctx, &shardapi.WriteRequest{Edits: []model.Edit{
					{ID: id, Body: []byte(body), Parent: parent},
					{ID: fmt.Sprintf("w%d-%d", w, i), Body: []byte(body)},
				}})
				if err == nil && resp.Results[0].Err != nil {
					err = resp.Results[0].Err
				}
				if err != nil {
					errs <- err
					return
				}
				parent = resp.Results[0].Rev
				read, err := t.shard.Read(t.ctx, &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: id, Want: shardapi.WantBody}}})
				if err == nil && (read.Answers[0].Docs[0].Rev != parent || string(read.Answers[0].Docs[0].Body) != body) {
					err = fmt.Errorf("wrote %v %s, read %+v", parent, body, read.Answers[0].Docs[0])
				}
				if err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		t.Fatal(err)
	}
	info, err := t.shard.Info(t.ctx)
	t.no(err)
	if info.DocCount != writers*(each+1) || info.Seq != 2*writers*each {
		t.Fatalf("info %+v", info)
	}
	rows, seq := t.changes(shardapi.ChangesRequest{Limit: -1})
	if len(rows) != writers*(each+1) || seq != info.Seq {
		t.Fatalf("%d rows up to %d", len(rows), seq)
	}
}

// Of many who build on one revision, one wins.
func parallelSameDocument(t *trial) {
	r := t.put("a", `{}`, model.Rev{})
	const rivals = 12
	results := make([]*model.Error, rivals)
	errs := make([]error, rivals)
	var wg sync.WaitGroup
	for i := range rivals {
		wg.Go(func() {
			resp, err := t.shard.Write(t.ctx, &shardapi.WriteRequest{Edits: []model.Edit{{ID: "a", Body: fmt.Appendf(nil, `{"i":%d}`, i), Parent: r}}})
			if errs[i] = err; err == nil {
				results[i] = resp.Results[0].Err
			}
		})
	}
	wg.Wait()
	won := 0
	for i := range rivals {
		t.no(errs[i])
		if results[i] == nil {
			won++
		} else if *results[i] != *model.ErrConflict {
			t.Errorf("rival %d: %v", i, results[i])
		}
	}
	if won != 1 {
		t.Fatalf("%d won", won)
	}
}
