package shardhost

import (
	"bytes"
	"context"
	"errors"
	"io"
	"testing"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// newHost opens a store and a host in a directory of the test.
func newHost(t testing.TB, dir string, fs kv.FS, o Options) *Host {
	t.Helper()
	store, err := kv.Open(dir+"/store", kv.Options{FS: fs, MinFree: -1, CacheBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	h, err := New(store, dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

// write writes one edit and fails the test on any error.
func write(t testing.TB, s shardapi.Shard, e model.Edit) model.Rev {
	t.Helper()
	resp, err := s.Write(context.Background(), &shardapi.WriteRequest{Edits: []model.Edit{e}})
	if err != nil {
		t.Fatal(err)
	}
	if resp.Results[0].Err != nil {
		t.Fatal(resp.Results[0].Err)
	}
	return resp.Results[0].Rev
}

// refused writes one edit and gives the refusal.
func refused(t testing.TB, s shardapi.Shard, e model.Edit) *model.Error {
	t.Helper()
	resp, err := s.Write(context.Background(), &shardapi.WriteRequest{Edits: []model.Edit{e}})
	if err != nil {
		t.Fatal(err)
	}
	return resp.Results[0].Err
}

// read reads the winner of a document.
func read(t testing.TB, s shardapi.Shard, id string) *model.Doc {
	t.Helper()
	resp, err := s.Read(context.Background(), &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: id, Want: shardapi.WantBody}}})
	if err != nil {
		t.Fatal(err)
	}
	if !resp.Answers[0].Found {
		return nil
	}
	return &resp.Answers[0].Docs[0]
}

func TestLifeOfADocument(t *testing.T) {
	t.Parallel()
	s := newHost(t, t.TempDir(), nil, Options{}).Shard(7)
	r1 := write(t, s, model.Edit{ID: "a", Body: []byte(`{"n":1}`)})
	if err := refused(t, s, model.Edit{ID: "a", Body: []byte(`{"n":1}`)}); !errors.Is(err, model.ErrConflict) {
		t.Fatalf("an identical create gave %v", err)
	}
	r2 := write(t, s, model.Edit{ID: "a", Body: []byte(`{"n":2}`), Parent: r1})
	if d := read(t, s, "a"); d.Rev != r2 || string(d.Body) != `{"n":2}` {
		t.Fatalf("read %+v", d)
	}
	if err := refused(t, s, model.Edit{ID: "a", Body: []byte(`{"n":3}`), Parent: r1}); !errors.Is(err, model.ErrConflict) {
		t.Fatalf("an update of an inner revision gave %v", err)
	}
	r3 := write(t, s, model.Edit{ID: "a", Body: []byte(`{}`), Parent: r2, Deleted: true})
	if d := read(t, s, "a"); !d.Deleted || d.Rev != r3 {
		t.Fatalf("read %+v", d)
	}
	r4 := write(t, s, model.Edit{ID: "a", Body: []byte(`{"again":true}`)})
	if r4.Pos != 4 {
		t.Fatalf("recreated as %v", r4)
	}
	info, err := s.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if info.Seq != 4 || info.DocCount != 1 || info.DocDelCount != 0 || info.SizeFile <= 0 {
		t.Fatalf("info %+v", info)
	}
	st, err := s.Changes(t.Context(), &shardapi.ChangesRequest{Limit: -1, IncludeDocs: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	rows, err := st.Next()
	if err != nil || len(rows) != 1 || rows[0].Seq != 4 || rows[0].ID != "a" || rows[0].Leaves[0].Rev != r4 || string(rows[0].Doc.Body) != `{"again":true}` {
		t.Fatalf("changes %+v %v", rows, err)
	}
	if _, err := st.Next(); err != io.EOF || st.Seq() != 4 {
		t.Fatalf("end %v at %d", err, st.Seq())
	}
	head, list, err := s.List(t.Context(), &shardapi.ListRequest{Limit: -1, IncludeDocs: true})
	if err != nil {
		t.Fatal(err)
	}
	defer list.Close()
	got, err := list.Next()
	if err != nil || head.TotalRows != 1 || len(got) != 1 || got[0].ID != "a" || got[0].Rev != r4 || string(got[0].Doc.Body) != `{"again":true}` {
		t.Fatalf("list %+v %v", got, err)
	}
}

func TestAttachmentLargeAndSmall(t *testing.T) {
	t.Parallel()
	s := newHost(t, t.TempDir(), nil, Options{}).Shard(7)
	var atts []model.AttachmentEdit
	want := map[string][]byte{"small": []byte("hello"), "large": bytes.Repeat([]byte("0123456789"), 100_000)}
	for _, name := range []string{"small", "large"} {
		st, err := s.Stage(t.Context(), bytes.NewReader(want[name]))
		if err != nil {
			t.Fatal(err)
		}
		atts = append(atts, model.AttachmentEdit{Attachment: model.Attachment{Name: name, ContentType: "text/plain"}, Staged: st.Ticket})
	}
	r1 := write(t, s, model.Edit{ID: "a", Body: []byte(`{}`), Atts: atts})
	stub := []model.AttachmentEdit{{Attachment: model.Attachment{Name: "large", RevPos: 1}, Stub: true}}
	write(t, s, model.Edit{ID: "a", Body: []byte(`{"v":2}`), Atts: stub, Parent: r1})
	d := read(t, s, "a")
	if len(d.Atts) != 1 || d.Atts[0].Name != "large" || d.Atts[0].RevPos != 1 || d.Atts[0].Length != 1_000_000 {
		t.Fatalf("read %+v", d)
	}
	rc, err := s.OpenBlob(t.Context(), d.Atts[0].Blob, 5, 10)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(rc)
	if cerr := rc.Close(); err != nil || cerr != nil || string(got) != "5678901234" {
		t.Fatalf("read %q %v %v", got, err, cerr)
	}
	stub[0].Name = "nothing"
	if err := refused(t, s, model.Edit{ID: "a", Body: []byte(`{}`), Atts: stub, Parent: d.Rev}); err == nil || err.Kind != model.KindPrecondition {
		t.Fatalf("a stub of nothing gave %v", err)
	}
}
