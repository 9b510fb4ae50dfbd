package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// checkDoc compares everything that can be read of one document.
func (tr *trial) checkDoc(id string) {
	tr.t.Helper()
	const want = shardapi.WantBody | shardapi.WantPath | shardapi.WantLeaves | shardapi.WantRevsInfo
	d := tr.want.docs[id]
	q := []shardapi.DocQuery{{ID: id, AllLeaves: true, Want: want}, {ID: id, Want: shardapi.WantBody}}
	var all []model.Rev
	if d != nil {
		all = slices.SortedFunc(maps.Keys(d.revs), model.Rev.Compare)
		q = append(q, shardapi.DocQuery{ID: id, Revs: append(all, model.Rev{Pos: 9, Hash: "none"}), Want: want})
	}
	resp, err := tr.c.Read(context.Background(), &shardapi.ReadRequest{Queries: q})
	tr.must(err)
	if d == nil {
		if resp.Answers[0].Found {
			tr.t.Fatalf("%q was found", id)
		}
		return
	}
	leaves := d.leaves()
	got := resp.Answers[0].Docs
	if len(got) != len(leaves) {
		tr.t.Fatalf("%q has leaves %v, want %v", id, got, leaves)
	}
	for i, r := range leaves {
		tr.compare(d, r, &got[i])
		if !slices.Equal(got[i].Path, d.path(r)) || len(got[i].RevsInfo) != len(got[i].Path) || len(got[i].Leaves) != len(leaves) {
			tr.t.Fatalf("%q %v: path %v, want %v", id, r, got[i].Path, d.path(r))
		}
		for _, s := range got[i].RevsInfo {
			n := d.revs[s.Rev]
			status := "missing"
			if n.stored && n.deleted {
				status = "deleted"
			} else if n.stored {
				status = "available"
			}
			if s.Status != status {
				tr.t.Fatalf("%q %v is %s, want %s", id, s.Rev, s.Status, status)
			}
		}
	}
	tr.compare(d, leaves[0], &resp.Answers[1].Docs[0])
	stored := slices.DeleteFunc(slices.Clone(all), func(r model.Rev) bool { return !d.revs[r].stored })
	if len(resp.Answers[2].Docs) != len(stored) || len(resp.Answers[2].Missing) != len(all)+1-len(stored) {
		tr.t.Fatalf("%q: %d revisions with a body, want %v", id, len(resp.Answers[2].Docs), stored)
	}
	for i, r := range stored {
		tr.compare(d, r, &resp.Answers[2].Docs[i])
	}
	diff, err := tr.c.RevsDiff(context.Background(), &shardapi.RevsDiffRequest{IDs: []string{id}, Revs: [][]model.Rev{append(all, model.Rev{Pos: 2, Hash: "none"})}})
	tr.must(err)
	if m := diff.Diffs[0].Missing; len(m) != 1 || m[0].Hash != "none" {
		tr.t.Fatalf("%q misses %v", id, m)
	}
	below := 0
	for _, r := range leaves {
		below += int(b2i(r.Pos < 2))
	}
	if len(diff.Diffs[0].PossibleAncestors) != below {
		tr.t.Fatalf("%q: possible ancestors %v", id, diff.Diffs[0].PossibleAncestors)
	}
}

// compare compares one revision.
func (tr *trial) compare(d *naiveDoc, r model.Rev, got *model.Doc) {
	tr.t.Helper()
	n := d.revs[r]
	if got.Rev != r || got.Deleted != n.deleted || string(got.Body) != n.body || len(got.Atts) != len(n.atts) || got.Seq != d.seq {
		tr.t.Fatalf("%q: read %+v (%s), want %v %+v at %d", got.ID, got, got.Body, r, n, d.seq)
	}
	for i := range got.Atts {
		a := &got.Atts[i]
		text, ok := n.atts[a.Name]
		if !ok || a.Length != int64(len(text)) || a.RevPos == 0 || a.RevPos > r.Pos {
			tr.t.Fatalf("%q: attachment %+v, want %q", got.ID, a, text)
		}
		if b := tr.readBlob(a.Blob); string(b) != text {
			tr.t.Fatalf("%q: attachment %s has %q, want %q", got.ID, a.Name, b, text)
		}
	}
}

// checkAll compares everything else.
func (tr *trial) checkAll() {
	tr.t.Helper()
	tr.must(checkCopy(tr.c))
	live := tr.want.ids(true)
	info, err := tr.c.Info(context.Background())
	tr.must(err)
	if info.Seq != tr.want.seq || info.DocCount != int64(len(live)) || info.DocDelCount != int64(len(tr.want.docs)-len(live)) {
		tr.t.Fatalf("info %+v, want seq %d, %d live of %d", info, tr.want.seq, len(live), len(tr.want.docs))
	}
	for _, id := range tr.want.ids(false) {
		tr.checkDoc(id)
	}
	tr.checkList(&shardapi.ListRequest{Limit: -1})
	tr.checkList(&shardapi.ListRequest{Limit: -1, IncludeDocs: true, Descending: true, Want: shardapi.WantLeaves})
	a, b := tr.anyID(), tr.anyID()
	for n := range 16 {
		req := &shardapi.ListRequest{Limit: 3, Descending: n&1 != 0, ExclusiveEnd: n&2 != 0, IncludeDocs: n&4 != 0, Start: &a, End: &b}
		if n&8 != 0 {
			req.Table = shardapi.TableDesign
		}
		tr.checkList(req)
	}
	tr.checkLocals()
	since := uint64(0)
	if tr.want.seq > 0 {
		since = tr.rng.Uint64N(tr.want.seq)
	}
	for n := range 16 {
		req := &shardapi.ChangesRequest{Since: since, Limit: -1, Descending: n&1 != 0, IncludeDocs: n&2 != 0}
		switch n >> 2 {
		case 1:
			req.DocIDs = []string{tr.anyID(), tr.anyID(), "never"}
			for i := range (n & 1) * 2 * pickAlways { // many: the log is scanned
				req.DocIDs = append(req.DocIDs, fmt.Sprintf("doc%02d", i))
			}
		case 2:
			req.Design = true
		case 3:
			req.Selector = []byte(`{"r":{"$gt":500}}`)
		}
		tr.checkChanges(req)
	}
	tr.offsets()
}

// offsets compares Pending and offsets of lists.
func (tr *trial) offsets() {
	tr.t.Helper()
	tr.must(tr.c.buildSeqs(context.Background()))
	for _, since := range []uint64{0, tr.want.seq / 3, tr.want.seq / 2, tr.want.seq, tr.want.seq + 5} {
		n := int64(0)
		for _, d := range tr.want.docs {
			n += b2i(d.seq > since)
		}
		got, err := tr.c.Pending(context.Background(), since)
		tr.must(err)
		if got != n {
			tr.t.Fatalf("pending since %d: %d, want %d", since, got, n)
		}
		if since < tr.want.seq {
			rest, err := tr.c.countSeqs(since+1, (since>>bucketBits+1)<<bucketBits)
			tr.must(err)
			if tr.c.seqs.above(since)+rest != n {
				tr.t.Fatalf("counted since %d: %d, want %d", since, tr.c.seqs.above(since)+rest, n)
			}
		}
	}
	live := tr.want.ids(true)
	for _, down := range []bool{false, true} {
		id := tr.anyID()
		n := int64(0)
		for _, l := range live {
			n += b2i(!down && l < id || down && l > id)
		}
		head, st, err := tr.c.List(context.Background(), &shardapi.ListRequest{Start: &id, Descending: down, Offset: true, Limit: 0})
		tr.must(err)
		tr.must(st.Close())
		if head.Offset != n {
			tr.t.Fatalf("offset of %q (down %v) is %d, want %d", id, down, head.Offset, n)
		}
	}
}

// checkList compares a list with a filter over the naive copy.
func (tr *trial) checkList(req *shardapi.ListRequest) {
	tr.t.Helper()
	want := tr.want.ids(true)
	if req.Descending {
		slices.Reverse(want)
	}
	way := func(a, b string) int {
		if req.Descending {
			return cmp.Compare(b, a)
		}
		return cmp.Compare(a, b)
	}
	want = slices.DeleteFunc(want, func(id string) bool {
		return req.Table == shardapi.TableDesign && (id < designFirst || id >= designAfter) ||
			req.Start != nil && way(id, *req.Start) < 0 ||
			req.End != nil && (way(id, *req.End) > 0 || req.ExclusiveEnd && id == *req.End)
	})
	if req.Limit >= 0 && int64(len(want)) > req.Limit {
		want = want[:req.Limit]
	}
	_, st, err := tr.c.List(context.Background(), req)
	tr.must(err)
	var got []string
	for {
		rows, err := st.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		tr.must(err)
		for i := range rows {
			got = append(got, rows[i].ID)
			d := tr.want.docs[rows[i].ID]
			if r := d.leaves()[0]; rows[i].Rev != r {
				tr.t.Fatalf("list shows %v, want %v", rows[i].Rev, r)
			} else if req.IncludeDocs {
				tr.compare(d, r, rows[i].Doc)
			}
		}
	}
	tr.must(st.Close())
	if !slices.Equal(got, want) {
		tr.t.Fatalf("list %+v gave %q, want %q", req, got, want)
	}
}

// checkLocals compares the list of local documents.
func (tr *trial) checkLocals() {
	tr.t.Helper()
	_, st, err := tr.c.List(context.Background(), &shardapi.ListRequest{Table: shardapi.TableLocal, Limit: -1, IncludeDocs: true})
	tr.must(err)
	rows, err := st.Next()
	if err != nil && !errors.Is(err, io.EOF) {
		tr.t.Fatal(err)
	}
	if len(rows) != len(tr.want.local) {
		tr.t.Fatalf("%d local documents, want %d", len(rows), len(tr.want.local))
	}
	for i := range rows {
		l := tr.want.local[rows[i].ID]
		if string(rows[i].Doc.Body) != l.body || rows[i].Rev != localRev(uint64(l.n)) || rows[i].Doc.Rev != rows[i].Rev {
			tr.t.Fatalf("local %q: %+v, want %+v", rows[i].ID, rows[i], l)
		}
	}
	tr.must(st.Close())
}

// over500 tells whether a body is {"r":n} with n over 500, as the selector asks.
func over500(body string) bool {
	var n int
	_, err := fmt.Sscanf(body, `{"r":%d}`, &n)
	return err == nil && n > 500
}

// checkChanges compares a feed with a filter over the naive copy.
func (tr *trial) checkChanges(req *shardapi.ChangesRequest) {
	tr.t.Helper()
	want := tr.want.ids(false)
	slices.SortFunc(want, func(a, b string) int { return cmp.Compare(tr.want.docs[a].seq, tr.want.docs[b].seq) })
	if req.Descending {
		slices.Reverse(want)
	}
	want = slices.DeleteFunc(want, func(id string) bool {
		d := tr.want.docs[id]
		return d.seq <= req.Since ||
			req.DocIDs != nil && !slices.Contains(req.DocIDs, id) ||
			req.Design && (id < designFirst || id >= designAfter) ||
			req.Selector != nil && !over500(d.revs[d.leaves()[0]].body)
	})
	st, err := tr.c.Changes(context.Background(), req)
	tr.must(err)
	var got []string
	for {
		rows, err := st.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		tr.must(err)
		for i := range rows {
			got = append(got, rows[i].ID)
			d := tr.want.docs[rows[i].ID]
			leaves := d.leaves()
			if rows[i].Seq != d.seq || len(rows[i].Leaves) != len(leaves) {
				tr.t.Fatalf("change %+v, want %v at %d", rows[i], leaves, d.seq)
			}
			for k, r := range leaves {
				if rows[i].Leaves[k] != (model.Leaf{Rev: r, Deleted: d.revs[r].deleted}) {
					tr.t.Fatalf("change %+v, want %v", rows[i], leaves)
				}
			}
			if req.IncludeDocs {
				tr.compare(d, leaves[0], rows[i].Doc)
			}
		}
	}
	if !req.Descending && st.Seq() != tr.want.seq {
		tr.t.Fatalf("feed ended at %d, want %d", st.Seq(), tr.want.seq)
	}
	tr.must(st.Close())
	if !slices.Equal(got, want) {
		tr.t.Fatalf("changes %+v gave %q, want %q", req, got, want)
	}
}
