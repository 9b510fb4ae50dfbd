package coordinator_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// TestOrderOfAnswers writes, reads and compares over ranges: answers stand in the
// order of the request.
func TestOrderOfAnswers(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, q := range []int{1, 2, 8} {
		d := n.create(t, cluster.CreateSpec{Name: fmt.Sprintf("q%d", q), Q: q})
		var edits []model.Edit
		for i := range 60 {
			edits = append(edits, doc(fmt.Sprintf("d%d", i%50))) // the last ten conflict
		}
		res, err := n.coord.Write(t.Context(), d, edits, coordinator.WriteOptions{})
		if err != nil || res.Accepted {
			t.Fatalf("write: %v, %v", res.Accepted, err)
		}
		var queries []shardapi.DocQuery
		diff := &shardapi.RevsDiffRequest{}
		for i, r := range res.Results {
			if r.ID != edits[i].ID || (i < 50) != (r.Err == nil) || i >= 50 && !errors.Is(r.Err, model.ErrConflict) {
				t.Fatalf("q=%d result %d: %+v", q, i, r)
			}
			if i < 50 {
				queries = append(queries, shardapi.DocQuery{ID: r.ID, Want: shardapi.WantBody}, shardapi.DocQuery{ID: "none" + r.ID})
				diff.IDs = append(diff.IDs, r.ID)
				diff.Revs = append(diff.Revs, []model.Rev{r.Rev, {Pos: 9, Hash: "x"}})
			}
		}
		answers, err := n.coord.Read(t.Context(), d, queries, 2)
		if err != nil {
			t.Fatal(err)
		}
		for i, a := range answers {
			if a.Found != (i%2 == 0) || a.Found && a.Docs[0].ID != queries[i].ID {
				t.Fatalf("q=%d answer %d to %q: %+v", q, i, queries[i].ID, a)
			}
		}
		diffs, err := n.coord.RevsDiff(t.Context(), d, diff)
		if err != nil {
			t.Fatal(err)
		}
		for i, df := range diffs {
			if len(df.Missing) != 1 || df.Missing[0].Pos != 9 {
				t.Fatalf("q=%d diff %d: %+v", q, i, df)
			}
		}
		info, err := n.coord.Info(t.Context(), d)
		if err != nil || info.DocCount != 50 || info.Seq != 50 || len(info.Seqs) != q {
			t.Fatalf("q=%d info: %+v, %v", q, info, err)
		}
		if pending, err := n.coord.Pending(t.Context(), d, make([]uint64, q)); err != nil || pending != 50 {
			t.Fatalf("q=%d pending: %d, %v", q, pending, err)
		}
		if err := n.coord.Sync(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
}

// TestAccepted asks for more copies than there are.
func TestAccepted(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	d := n.create(t, cluster.CreateSpec{Name: "a", N: 3})
	for w, want := range map[int]bool{0: false, 1: false, 2: true, 3: true} {
		res, err := n.coord.Write(t.Context(), d, []model.Edit{doc(fmt.Sprint("d", w))}, coordinator.WriteOptions{W: w})
		if err != nil || res.Accepted != want || res.Results[0].Err != nil {
			t.Errorf("w=%d: %+v, %v", w, res, err)
		}
	}
}

// TestDeletedDatabase finds every operation on a deleted database, and on one
// created again, to be 'no such database'.
func TestDeletedDatabase(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	d := n.create(t, cluster.CreateSpec{Name: "a", Q: 3})
	n.put(t, d, doc("x"), doc("y"), doc("z"))
	if _, err := n.registry.Delete(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	for _, again := range []bool{false, true} {
		if again {
			n.create(t, cluster.CreateSpec{Name: "a", Q: 3})
		}
		ctx := t.Context()
		_, err1 := n.coord.Write(ctx, d, []model.Edit{doc("x"), doc("y"), doc("z"), doc("u")}, coordinator.WriteOptions{})
		_, err2 := n.coord.ReadOne(ctx, d, shardapi.DocQuery{ID: "x"}, 0)
		_, _, err3 := n.coord.List(ctx, d, &coordinator.ListRequest{})
		_, err4 := n.coord.Info(ctx, d)
		_, err5 := n.coord.WriteLocal(ctx, d, &shardapi.LocalEdit{ID: "_local/x", Body: []byte("{}")})
		_, err6 := n.coord.Stage(ctx, d, coordinator.StageRequest{DocID: "x", Body: strings.NewReader("x")})
		_, err7 := n.coord.Updated(ctx, d, 0, 1<<40)
		for i, err := range []error{err1, err2, err3, err4, err5, err6, err7} {
			if !errors.Is(err, model.ErrDBNotFound) {
				t.Errorf("again %v, operation %d: %v", again, i+1, err)
			}
		}
	}
}

// TestLocalDocuments writes and reads one in its range.
func TestLocalDocuments(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	d := n.create(t, cluster.CreateSpec{Name: "a", Q: 4})
	for i := range 10 {
		id := fmt.Sprintf("_local/%d", i)
		if _, err := n.coord.WriteLocal(t.Context(), d, &shardapi.LocalEdit{ID: id, Body: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
		if got, err := n.coord.ReadLocal(t.Context(), d, id); err != nil || got.ID != id {
			t.Fatalf("%+v, %v", got, err)
		}
	}
	if _, err := n.coord.ReadLocal(t.Context(), d, "_local/none"); !errors.Is(err, model.ErrMissing) {
		t.Fatal(err)
	}
	_, got := n.collect(t, d, &coordinator.ListRequest{ListRequest: shardapi.ListRequest{Table: shardapi.TableLocal, Limit: -1}})
	if len(got) != 10 {
		t.Fatalf("local documents: %v", got)
	}
}

func TestCompressible(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]bool{
		"text/plain": true, "TEXT/HTML; charset=utf-8": true, "application/json": true, "application/ld+json": true,
		"image/svg+xml": true, "application/javascript": true, "application/xml": true,
		"image/png": false, "": false, "application/octet-stream": false, "json": false, "application/jsonx": false,
	} {
		if coordinator.Compressible(kind) != want {
			t.Errorf("%q: not %v", kind, want)
		}
	}
}

func gzipped(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	if _, err := w.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestAttachments stages, writes, reads and copies attachments of every kind.
func TestAttachments(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	d := n.create(t, cluster.CreateSpec{Name: "a", Q: 8})
	ctx := t.Context()
	for i, c := range []struct {
		contentType, encoding string
		length                int64
		size                  int
	}{
		{"text/plain", "", 0, 0}, {"text/plain", "", 0, 100}, {"text/plain", "", 0, 300_000},
		{"image/png", "", 0, 0}, {"image/png", "", 0, 300_000},
		{"text/plain", "gzip", -1, 200_000}, {"image/png", "gzip", 200_000, 200_000},
	} {
		plain := bytes.Repeat([]byte(fmt.Sprintf("%d some text; ", i)), c.size/10+1)[:c.size]
		body := plain
		if c.encoding != "" {
			body = gzipped(t, plain)
		}
		id := fmt.Sprintf("doc%d", i)
		edit, err := n.coord.Stage(ctx, d, coordinator.StageRequest{DocID: id, Name: "f", ContentType: c.contentType,
			Encoding: c.encoding, Length: c.length, Body: bytes.NewReader(body)})
		if err != nil {
			t.Fatal(err)
		}
		if edit.Length != int64(len(plain)) {
			t.Fatalf("case %d: length %d, want %d", i, edit.Length, len(plain))
		}
		if edit.Encoding == "" && edit.EncodedLength != edit.Length {
			t.Fatalf("case %d: encoded length %d", i, edit.EncodedLength)
		}
		n.put(t, d, model.Edit{ID: id, Body: []byte("{}"), Atts: []model.AttachmentEdit{edit}})
		check := func(id string) model.Attachment {
			t.Helper()
			a, err := n.coord.ReadOne(ctx, d, shardapi.DocQuery{ID: id, Want: shardapi.WantBody}, 0)
			if err != nil || len(a.Docs) != 1 || len(a.Docs[0].Atts) != 1 {
				t.Fatalf("case %d: %+v, %v", i, a, err)
			}
			att := a.Docs[0].Atts[0]
			stored := slurp(t)(n.coord.OpenAttachment(ctx, d, id, &att, 0, -1))
			if md5.Sum(stored) != att.Digest || int64(len(stored)) != att.EncodedLength {
				t.Fatalf("case %d: stored bytes are not what the attachment says", i)
			}
			if got := slurp(t)(n.coord.OpenIdentity(ctx, d, id, &att, 0, -1)); !bytes.Equal(got, plain) {
				t.Fatalf("case %d: identity bytes differ", i)
			}
			if len(plain) > 50 {
				if got := slurp(t)(n.coord.OpenIdentity(ctx, d, id, &att, 20, 30)); !bytes.Equal(got, plain[20:50]) {
					t.Fatalf("case %d: part of the identity bytes: %q", i, got)
				}
			}
			return att
		}
		att := check(id)
		for to := range 4 { // some in the same range, some not
			dst := fmt.Sprintf("copy%d-%d", i, to)
			edits, err := n.coord.CopyAttachments(ctx, d, id, []model.Attachment{att}, dst)
			if err != nil {
				t.Fatal(err)
			}
			n.put(t, d, model.Edit{ID: dst, Body: []byte("{}"), Atts: edits})
			check(dst)
		}
	}
	_, err := n.coord.Stage(ctx, d, coordinator.StageRequest{DocID: "x", Encoding: "gzip", Length: -1, Body: strings.NewReader(strings.Repeat("no gzip", 10_000))})
	if model.KindOf(err) != model.KindBadRequest {
		t.Errorf("bytes that are no gzip: %v", err)
	}
	broken := errors.New("the client went away")
	for _, kind := range []string{"text/plain", "image/png"} {
		_, err := n.coord.Stage(ctx, d, coordinator.StageRequest{DocID: "x", ContentType: kind,
			Body: io.MultiReader(strings.NewReader("half"), failingReader{broken})})
		if !errors.Is(err, broken) {
			t.Errorf("%s: a body that breaks off: %v", kind, err)
		}
	}
	edit, err := n.coord.Stage(ctx, d, coordinator.StageRequest{DocID: "x", Body: strings.NewReader("never written")})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.coord.Unstage(ctx, d, "x", edit.Staged); err != nil {
		t.Fatal(err)
	}
	if tasks, err := n.coord.Tasks(context.Background()); err != nil {
		t.Errorf("tasks: %v, %v", tasks, err)
	}
}

// failingReader gives an error.
type failingReader struct{ err error }

func (r failingReader) Read([]byte) (int, error) { return 0, r.err }

// slurp reads everything and closes.
func slurp(t *testing.T) func(io.ReadCloser, error) []byte {
	return func(r io.ReadCloser, err error) []byte {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		b, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
}

// panicking is a node whose copies panic.
type panicking struct{}

func (p panicking) Host(string) shardapi.Host { return brokenHost{} }

type brokenHost struct{ shardapi.Host }

func (brokenHost) Shard(shardapi.CopyID) shardapi.Shard { panic("broken copy") }

// TestPanicInAFanOut finds a panic beside the request's goroutine to be an error.
func TestPanicInAFanOut(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	d := n.create(t, cluster.CreateSpec{Name: "a", Q: 4})
	c := coordinator.New(n.registry, panicking{}, coordinator.Options{})
	if _, err := c.Info(t.Context(), d); model.KindOf(err) != model.KindInternal || !strings.Contains(err.Error(), "broken copy") {
		t.Fatal(err)
	}
	_, err := c.Write(t.Context(), d, []model.Edit{doc("a"), doc("b"), doc("c"), doc("d"), doc("e")}, coordinator.WriteOptions{})
	if model.KindOf(err) != model.KindInternal || err == nil {
		t.Fatal(err)
	}
}

// halfBroken refuses writes on one copy.
type halfBroken struct {
	*oneNode
	broken shardapi.CopyID
}

func (h halfBroken) Host(string) shardapi.Host { return halfBrokenHost{h.host, h.broken} }

type halfBrokenHost struct {
	shardapi.Host
	broken shardapi.CopyID
}

func (h halfBrokenHost) Shard(id shardapi.CopyID) shardapi.Shard {
	s := h.Host.Shard(id)
	if id == h.broken {
		return refusing{s}
	}
	return s
}

type refusing struct{ shardapi.Shard }

func (refusing) Write(context.Context, *shardapi.WriteRequest) (*shardapi.WriteResponse, error) {
	return nil, fmt.Errorf("copy: %w", model.ErrStorageFull)
}

// TestOneRangeFails finds the failure of a range in the results of its edits, and
// as the answer when nothing else was asked.
func TestOneRangeFails(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	d := n.create(t, cluster.CreateSpec{Name: "a", Q: 3})
	c := coordinator.New(n.registry, halfBroken{n, d.Shards[1].Copies[0].ID}, coordinator.Options{})
	var edits []model.Edit
	for i := range 30 {
		edits = append(edits, doc(fmt.Sprint("d", i)))
	}
	res, err := c.Write(t.Context(), d, edits, coordinator.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var refused model.Edit
	for i, r := range res.Results {
		bad := d.ShardOf(edits[i].ID) == 1
		if r.ID != edits[i].ID || bad != (r.Err != nil) || bad && !errors.Is(r.Err, model.ErrStorageFull) {
			t.Errorf("result %d: %+v", i, r)
		}
		if bad {
			refused = edits[i]
		}
	}
	if _, err := c.Write(t.Context(), d, []model.Edit{refused}, coordinator.WriteOptions{}); !errors.Is(err, model.ErrStorageFull) {
		t.Errorf("a write to the broken range alone: %v", err)
	}
}

// counting counts the writes and refuses one of them.
type counting struct {
	*oneNode
	writes *atomic.Int64
	refuse int64
}

func (c counting) Host(string) shardapi.Host { return countingHost{c.host, c} }

type countingHost struct {
	shardapi.Host
	c counting
}

func (h countingHost) Shard(id shardapi.CopyID) shardapi.Shard {
	return countingShard{h.Host.Shard(id), h.c}
}

type countingShard struct {
	shardapi.Shard
	c counting
}

func (s countingShard) Write(ctx context.Context, req *shardapi.WriteRequest) (*shardapi.WriteResponse, error) {
	if s.c.writes.Add(1) == s.c.refuse {
		return nil, model.ErrStorageFull
	}
	return s.Shard.Write(ctx, req)
}

// TestVeryManyEdits shows that a large bulk write is cut into pieces, that its
// results stay in order, and what becomes of a piece that fails.
func TestVeryManyEdits(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	d := n.create(t, cluster.CreateSpec{Name: "a", Q: 1})
	c := counting{n, new(atomic.Int64), 2}
	coord := coordinator.New(n.registry, c, coordinator.Options{})
	var edits []model.Edit
	for i := range 25_000 {
		edits = append(edits, doc(fmt.Sprint("d", i)))
	}
	edits[24_999].ID = "d0" // written by the first piece
	res, err := coord.Write(t.Context(), d, edits, coordinator.WriteOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if c.writes.Load() != 3 || len(res.Results) != len(edits) {
		t.Fatalf("%d writes, %d results", c.writes.Load(), len(res.Results))
	}
	for i, r := range res.Results {
		var want error
		switch {
		case i >= 10_000 && i < 20_000:
			want = model.ErrStorageFull
		case i == 24_999:
			want = model.ErrConflict
		}
		if r.ID != edits[i].ID || (r.Err == nil) != (want == nil) || want != nil && !errors.Is(r.Err, want) {
			t.Fatalf("result %d: %+v, want %v", i, r, want)
		}
	}
	large := []model.Edit{doc("x"), doc("y"), doc("z"), doc("h"), doc("h")}
	for i := range large {
		large[i].Body = fmt.Appendf(nil, `{"a":"%s"}`, strings.Repeat("x", 10<<20))
	}
	for i, hash := range []string{"a", "b"} { // long histories instead
		e := &large[3+i]
		e.Body, e.Replicated = []byte("{}"), true
		for pos := uint64(200_000); pos > 0; pos-- {
			e.Path = append(e.Path, model.Rev{Pos: pos, Hash: hash})
		}
	}
	c.writes.Store(10)
	if _, err := coord.Write(t.Context(), d, large, coordinator.WriteOptions{}); err != nil || c.writes.Load() != 15 {
		t.Fatalf("%d writes of large documents, %v", c.writes.Load()-10, err)
	}
}
