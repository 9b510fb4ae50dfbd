package index

import (
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// Documents come as map functions see them.
func TestDocumentText(t *testing.T) {
	t.Parallel()
	src := newSource(t)
	st, err := src.Stage(t.Context(), strings.NewReader("hello"))
	if err != nil {
		t.Fatal(err)
	}
	plain := src.write(t, model.Edit{ID: "plain", Body: []byte(`{"a":1.0}`)})[0].Rev
	src.write(t, model.Edit{ID: "att", Body: []byte(`{}`), Atts: []model.AttachmentEdit{
		{Attachment: model.Attachment{Name: "f", ContentType: "text/plain"}, Staged: st.Ticket}}})
	src.write(t, model.Edit{ID: "_design/d", Body: []byte(`{"views":{}}`)})
	gone := src.write(t, model.Edit{ID: "gone", Body: []byte(`{}`)})[0].Rev
	src.write(t, model.Edit{ID: "gone", Body: []byte(`{}`), Parent: gone, Deleted: true})
	rev := func(pos uint64, c string) model.Rev { return model.Rev{Pos: pos, Hash: strings.Repeat(c, 32)} }
	for _, e := range []model.Edit{
		{ID: "many", Body: []byte(`{"w":1}`), Replicated: true, Path: []model.Rev{rev(1, "c")}},
		{ID: "many", Body: []byte(`{}`), Replicated: true, Path: []model.Rev{rev(1, "a")}},
		{ID: "many", Body: []byte(`{}`), Replicated: true, Path: []model.Rev{rev(1, "b")}, Deleted: true},
	} {
		src.write(t, e)
	}
	read := func(design, localSeq bool) map[string]string {
		r, err := open(t.Context(), src, 0, 0, design, localSeq)
		if err != nil {
			t.Fatal(err)
		}
		defer r.close()
		b, err := r.next()
		if err != nil || !b.last || b.seq != src.Seq() {
			t.Fatalf("batch %+v: %v", b, err)
		}
		out := make(map[string]string)
		for _, d := range b.docs {
			out[d.ID] = string(d.Text)
			if d.Text != nil {
				if n, err := rawjson.Normalize(nil, d.Text, 100); err != nil || string(n) != string(d.Text) {
					t.Errorf("%s is not normalised: %s (%v)", d.ID, d.Text, err)
				}
			}
		}
		return out
	}
	docs := read(false, false)
	want := map[string]string{
		"plain": fmt.Sprintf(`{"_id":"plain","_rev":"%s","a":1.0}`, plain),
		"gone":  "",
		"many": fmt.Sprintf(`{"_id":"many","_rev":"%s","w":1,"_conflicts":["%s"],"_deleted_conflicts":["%s"]}`,
			rev(1, "c"), rev(1, "a"), rev(1, "b")),
	}
	for id, text := range want {
		if docs[id] != text {
			t.Errorf("%s is %s, not %s", id, docs[id], text)
		}
	}
	if text := docs["att"]; !strings.Contains(text, `"_attachments":{"f":{"content_type":"text/plain","revpos":1,"digest":"md5-XUFAKrxLKna5cZ2REBfFkg==","length":5,"stub":true}}`) {
		t.Errorf("att is %s", text)
	}
	if _, ok := docs["_design/d"]; ok || len(docs) != 4 {
		t.Errorf("documents %v", docs)
	}
	docs = read(true, true)
	if !strings.HasPrefix(docs["_design/d"], `{"_id":"_design/d",`) {
		t.Errorf("the design document is %q", docs["_design/d"])
	}
	if want := fmt.Sprintf(`{"_id":"plain","_rev":"%s","a":1.0,"_local_seq":1}`, plain); docs["plain"] != want {
		t.Errorf("plain is %s", docs["plain"])
	}
}

// Batches cover the log without gaps, whatever their size, and skipped documents
// count.
func TestBatches(t *testing.T) {
	t.Parallel()
	src := newSource(t)
	var edits []model.Edit
	for i := range 2*batchChanges + 10 {
		edits = append(edits, model.Edit{ID: fmt.Sprintf("_design/%d", i), Body: []byte(`{}`)})
	}
	src.write(t, edits...)
	src.fill(t, 2*batchDocs+1, 10)
	r, err := open(t.Context(), src, 0, 0, false, false)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if r.upTo != math.MaxUint64 {
		t.Fatal("the pass would end early")
	}
	var changes, docs, n int
	for last := false; !last; n++ {
		b, err := r.next()
		if err != nil {
			t.Fatal(err)
		}
		changes, docs, last = changes+int(b.changes), docs+len(b.docs), b.last
		if b.seq != uint64(changes) && !last {
			t.Fatalf("batch %d ends at %d after %d changes", n, b.seq, changes)
		}
	}
	if changes != int(src.Seq()) || docs != 2*batchDocs+1 || n != 5 {
		t.Errorf("%d changes, %d documents, %d batches", changes, docs, n)
	}
}
