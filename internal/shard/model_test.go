package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// trial runs random operations on a copy and on the naive one.
type trial struct {
	t     *testing.T
	rng   *rand.Rand
	fs    kv.FS
	store *kv.Store
	opts  *Options
	c     *Copy
	want  *naive
	limit int
	old   [][]model.Rev // histories sent before, to be sent again
	oldID []string
}

func TestModel(t *testing.T) {
	t.Parallel()
	for seed, limit := range []int{1000, 1000, 3, 2, 5} {
		t.Run(fmt.Sprintf("seed%d_limit%d", seed, limit), func(t *testing.T) {
			t.Parallel()
			fs := kv.NewCrashFS().FS()
			dir := t.TempDir()
			tr := &trial{
				t: t, fs: fs, limit: limit, want: newNaive(),
				rng:  rand.New(rand.NewPCG(uint64(seed), 7)),
				opts: Prepare(Options{BlobDir: dir, InlineMax: 8}),
			}
			tr.open()
			defer func() { tr.must(tr.store.Close()) }()
			for step := range 300 {
				tr.step()
				if step%50 == 49 {
					tr.checkAll()
				}
			}
		})
	}
}

func (tr *trial) must(err error) {
	tr.t.Helper()
	if err != nil {
		tr.t.Fatal(err)
	}
}

// open opens the store and the copy.
func (tr *trial) open() {
	tr.t.Helper()
	var err error
	tr.store, err = openStore(tr.fs, false)
	tr.must(err)
	tr.must(TidyBlobs(tr.store, tr.opts.BlobDir))
	tr.c, err = Open(tr.store, 1, tr.opts)
	tr.must(err)
}

// anyID picks one of few ids, so that documents meet again; some are awkward.
func (tr *trial) anyID() string {
	ids := []string{"a", "a\x00", "a\x00b", "b", "_design/x", "_design/y", "p:1", "p:2", "é", "z"}
	if tr.rng.IntN(3) == 0 {
		return fmt.Sprintf("doc%02d", tr.rng.IntN(40))
	}
	return ids[tr.rng.IntN(len(ids))]
}

// step does one random thing.
func (tr *trial) step() {
	switch n := tr.rng.IntN(100); {
	case n < 60:
		tr.newEdits()
	case n < 80:
		tr.replicated()
	case n < 88:
		tr.localEdit()
	case n < 92:
		_, err := tr.c.Compact(context.Background(), time.Now().Add(time.Hour))
		tr.must(err)
		tr.want.compact()
	case n < 95:
		tr.must(tr.store.Close())
		tr.open()
	default:
		tr.offsets()
	}
}

// newEdits writes a batch of one to four new edits.
func (tr *trial) newEdits() {
	var edits []model.Edit
	var atts []map[string]string
	for range 1 + tr.rng.IntN(4) {
		id := tr.anyID()
		e := model.Edit{ID: id, Body: []byte(fmt.Sprintf(`{"r":%d}`, tr.rng.IntN(1000))), Deleted: tr.rng.IntN(6) == 0}
		if d := tr.want.docs[id]; d != nil && tr.rng.IntN(5) > 0 {
			leaves := d.leaves()
			e.Parent = leaves[tr.rng.IntN(len(leaves))]
			if tr.rng.IntN(10) == 0 {
				p := d.path(e.Parent)
				e.Parent = p[len(p)-1] // perhaps no leaf
			}
		}
		a := tr.attachments(&e)
		edits, atts = append(edits, e), append(atts, a)
	}
	resp, err := tr.c.Write(context.Background(), &shardapi.WriteRequest{Edits: edits, RevsLimit: tr.limit})
	tr.must(err)
	changed, seq := make(map[string]bool), tr.want.seq
	for i, e := range edits {
		tr.expectEdit(&e, atts[i], resp.Results[i], changed)
	}
	// A write stems once, at its end, and gives each document that changed one
	// place in the log, in the order in which it names them.
	tr.want.seq = seq
	for _, e := range edits {
		if changed[e.ID] {
			delete(changed, e.ID)
			tr.want.seq++
			tr.want.docs[e.ID].seq = tr.want.seq
			tr.want.docs[e.ID].stem(tr.limit)
		}
	}
	for _, e := range edits {
		tr.checkDoc(e.ID)
	}
}

// attachments adds attachments to an edit: staged ones and stubs.
func (tr *trial) attachments(e *model.Edit) map[string]string {
	out := make(map[string]string)
	if tr.rng.IntN(2) == 0 {
		return out
	}
	for range tr.rng.IntN(3) {
		name := fmt.Sprintf("att%d", tr.rng.IntN(3))
		if _, twice := out[name]; twice {
			continue
		}
		text := strings.Repeat("x", tr.rng.IntN(20)) // few distinct ones: blobs are shared
		st, err := tr.c.Stage(context.Background(), strings.NewReader(text))
		tr.must(err)
		e.Atts = append(e.Atts, model.AttachmentEdit{Attachment: model.Attachment{Name: name, ContentType: "text/plain"}, Staged: st.Ticket})
		out[name] = text
	}
	if d := tr.want.docs[e.ID]; d != nil && !e.Parent.IsZero() {
		for name, text := range d.revs[e.Parent].atts {
			if _, twice := out[name]; !twice {
				e.Atts = append(e.Atts, model.AttachmentEdit{Attachment: model.Attachment{Name: name}, Stub: true})
				out[name] = text
			}
		}
	}
	return out
}

// expectEdit does the edit on the naive copy and compares the results.
func (tr *trial) expectEdit(e *model.Edit, atts map[string]string, res model.EditResult, changed map[string]bool) {
	tr.t.Helper()
	d := tr.want.docs[e.ID]
	parent := e.Parent
	ok := true
	switch {
	case d == nil:
		ok = parent.IsZero()
	case parent.IsZero():
		w := d.leaves()[0]
		if ok = !d.live() && !e.Deleted; ok {
			parent = w
		}
	default:
		ok = slices.Contains(d.leaves(), parent) && (!e.Deleted || !d.revs[parent].deleted)
	}
	if !ok {
		if !errors.Is(res.Err, model.ErrConflict) {
			tr.t.Fatalf("edit of %q on %v: %v, want a conflict", e.ID, e.Parent, res.Err)
		}
		return
	}
	if res.Err != nil {
		tr.t.Fatalf("edit of %q on %v: %v", e.ID, e.Parent, res.Err)
	}
	if res.Rev.Pos != parent.Pos+1 {
		tr.t.Fatalf("edit of %q on %v gave %v", e.ID, parent, res.Rev)
	}
	path := []model.Rev{res.Rev}
	if !parent.IsZero() {
		path = append(path, parent)
	}
	tr.want.put(e.ID, path, e.Deleted, string(e.Body), atts, 1<<30)
	changed[e.ID] = true
}

// replicated sends a history: a new branch, an extension, or an old one again.
func (tr *trial) replicated() {
	id := tr.anyID()
	var path []model.Rev
	switch d := tr.want.docs[id]; {
	case len(tr.old) > 0 && tr.rng.IntN(3) == 0:
		i := tr.rng.IntN(len(tr.old))
		id, path = tr.oldID[i], tr.old[i][tr.rng.IntN(len(tr.old[i])):]
	case d != nil && tr.rng.IntN(4) > 0:
		leaves := d.leaves()
		path = d.path(leaves[tr.rng.IntN(len(leaves))])
		path = path[tr.rng.IntN(len(path)):]
	}
	if len(path) == 0 || tr.rng.IntN(3) > 0 {
		for range 1 + tr.rng.IntN(3) {
			pos := uint64(1 + tr.rng.IntN(2))
			if len(path) > 0 {
				pos = path[0].Pos + 1
			}
			hash := fmt.Sprintf("%032x", tr.rng.Uint64())
			if tr.rng.IntN(4) == 0 {
				hash = fmt.Sprintf("other%d", tr.rng.IntN(1000))
			}
			path = append([]model.Rev{{Pos: pos, Hash: hash}}, path...)
		}
	}
	tr.old, tr.oldID = append(tr.old, path), append(tr.oldID, id)
	e := model.Edit{ID: id, Replicated: true, Path: path, Deleted: tr.rng.IntN(4) == 0, Body: []byte(fmt.Sprintf(`{"rep":%d}`, tr.rng.IntN(1000)))}
	atts := tr.attachments(&e)
	resp, err := tr.c.Write(context.Background(), &shardapi.WriteRequest{Edits: []model.Edit{e}, RevsLimit: tr.limit})
	tr.must(err)
	if res := resp.Results[0]; res.Err != nil || res.Rev != path[0] {
		tr.t.Fatalf("replicated %q %v: %+v", id, path, res)
	}
	tr.want.put(id, path, e.Deleted, string(e.Body), atts, tr.limit)
	tr.checkDoc(id)
}

// localEdit writes or deletes a local document.
func (tr *trial) localEdit() {
	id := fmt.Sprintf("_local/%d", tr.rng.IntN(5))
	was, found := tr.want.local[id]
	e := &shardapi.LocalEdit{ID: id, Body: []byte(fmt.Sprintf(`{"l":%d}`, tr.rng.IntN(100))), Deleted: tr.rng.IntN(4) == 0}
	if found {
		e.Rev = localRev(uint64(was.n))
	}
	wrong := tr.rng.IntN(5) == 0
	if wrong {
		e.Rev = model.Rev{Hash: "99"}
	}
	rev, err := tr.c.WriteLocal(context.Background(), e)
	switch {
	case e.Deleted && !found:
		if !errors.Is(err, model.ErrMissing) {
			tr.t.Fatalf("deleting no local document gave %v", err)
		}
	case wrong:
		if !errors.Is(err, model.ErrConflict) {
			tr.t.Fatalf("a wrong local revision gave %v", err)
		}
	case e.Deleted:
		tr.must(err)
		delete(tr.want.local, id)
	default:
		tr.must(err)
		if rev != localRev(uint64(was.n+1)) {
			tr.t.Fatalf("local revision %v after %d", rev, was.n)
		}
		tr.want.local[id] = naiveLocal{was.n + 1, string(e.Body)}
	}
	d, err := tr.c.ReadLocal(context.Background(), id)
	if l, found := tr.want.local[id]; !found {
		if !errors.Is(err, model.ErrMissing) {
			tr.t.Fatalf("reading no local document gave %v", err)
		}
	} else if err != nil || string(d.Body) != l.body || d.Rev != localRev(uint64(l.n)) {
		tr.t.Fatalf("local %q: %+v %v, want %+v", id, d, err, l)
	}
}

// readBlob reads attachment bytes whole.
func (tr *trial) readBlob(id model.BlobID) []byte {
	tr.t.Helper()
	rc, err := tr.c.OpenBlob(context.Background(), id, 0, -1)
	tr.must(err)
	b, err := io.ReadAll(rc)
	tr.must(err)
	tr.must(rc.Close())
	return bytes.Clone(b)
}
