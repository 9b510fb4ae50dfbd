package conformance

import (
	"bytes"
	"context"
	"crypto/md5"
	"errors"
	"fmt"
	"io"
	"testing/iotest"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// attachmentScenes is attachment bytes, from Stage to OpenBlob.
var attachmentScenes = []scene{
	{"AttachmentSizes", attachmentSizes},
	{"AttachmentRanges", attachmentRanges},
	{"AttachmentSameBytes", attachmentSameBytes},
	{"AttachmentStubs", attachmentStubs},
	{"AttachmentReplicatedStubs", attachmentReplicatedStubs},
	{"AttachmentEncoded", attachmentEncoded},
	{"AttachmentTickets", attachmentTickets},
	{"AttachmentBrokenSource", attachmentBrokenSource},
}

// noise is n bytes that do not repeat soon.
func noise(n int) []byte {
	b := make([]byte, n)
	x := uint32(2463534242)
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// stage stages bytes.
func (t *trial) stage(data []byte) *shardapi.Staged {
	t.Helper()
	s, err := t.shard.Stage(t.ctx, bytes.NewReader(data))
	t.no(err)
	if s.Length != int64(len(data)) || s.Digest != md5.Sum(data) || s.Ticket == "" || s.Blob == (model.BlobID{}) {
		t.Fatalf("staged %+v of %d bytes", s, len(data))
	}
	return s
}

// staged is an attachment of staged bytes.
func staged(name string, s *shardapi.Staged) model.AttachmentEdit {
	return model.AttachmentEdit{Attachment: model.Attachment{Name: name, ContentType: "application/x-" + name}, Staged: s.Ticket}
}

// blob reads stored bytes.
func (t *trial) blob(id model.BlobID, offset, length int64) []byte {
	t.Helper()
	r, err := t.shard.OpenBlob(t.ctx, id, offset, length)
	t.no(err)
	data, err := io.ReadAll(r)
	t.no(err)
	t.no(r.Close())
	return data
}

// Bytes of every size come back, whether they are kept in the store or in a file.
func attachmentSizes(t *trial) {
	sizes := []int{0, 1, 64 << 10, 64<<10 + 1, 256<<10 - 1, 256 << 10, 256<<10 + 1, 512 << 10, 1<<20 + 17, 5 << 20}
	e := model.Edit{ID: "a", Body: []byte(`{}`)}
	for i, n := range sizes {
		e.Atts = append(e.Atts, staged("f"+number(i), t.stage(noise(n))))
	}
	r := t.write(e)[0]
	d := t.winner("a")
	if d.Rev != r || len(d.Atts) != len(sizes) {
		t.Fatalf("read %v with %d attachments", d.Rev, len(d.Atts))
	}
	for i, n := range sizes {
		a, data := d.Atts[i], noise(n)
		want := model.Attachment{
			Name: "f" + number(i), ContentType: "application/x-f" + number(i), RevPos: 1, Digest: md5.Sum(data),
			Length: int64(n), EncodedLength: int64(n), Blob: a.Blob,
		}
		if a != want {
			t.Errorf("attachment %d: %+v", i, a)
		}
		if got := t.blob(a.Blob, 0, -1); !bytes.Equal(got, data) {
			t.Errorf("%d bytes came back as %d", n, len(got))
		}
	}
	info, err := t.shard.Info(t.ctx)
	t.no(err)
	if info.SizeExternal < 7<<20 || info.SizeFile < 7<<20 {
		t.Errorf("info %+v", info)
	}
}

// Any part may be read.
func attachmentRanges(t *trial) {
	for _, n := range []int{1000, 1 << 20} {
		data := noise(n)
		s := t.stage(data)
		t.write(model.Edit{ID: "a" + number(n), Body: []byte(`{}`), Atts: []model.AttachmentEdit{staged("f", s)}})
		size := int64(n)
		for _, c := range [][3]int64{ // offset, length, bytes to come
			{0, -1, size}, {0, 10, 10}, {10, 10, 10}, {size - 10, -1, 10}, {size - 10, 10, 10}, {size - 10, 100, 10},
			{size, -1, 0}, {size, 0, 0}, {5, 0, 0}, {1, size, size - 1}, {size / 2, size / 3, size / 3},
		} {
			got := t.blob(s.Blob, c[0], c[1])
			if !bytes.Equal(got, data[c[0]:c[0]+c[2]]) {
				t.Errorf("%d bytes from %d of %d: %d came", c[1], c[0], n, len(got))
			}
		}
		for _, offset := range []int64{-1, size + 1} {
			_, err := t.shard.OpenBlob(t.ctx, s.Blob, offset, -1)
			if model.KindOf(err) != model.KindRange {
				t.Errorf("from %d of %d: %v", offset, n, err)
			}
		}
	}
	_, err := t.shard.OpenBlob(t.ctx, model.BlobID{1}, 0, -1)
	t.is(err, model.ErrMissingAtt)
	// A reader closed halfway leaves the copy usable.
	s := t.stage(noise(3 << 20))
	t.write(model.Edit{ID: "half", Body: []byte(`{}`), Atts: []model.AttachmentEdit{staged("f", s)}})
	r, err := t.shard.OpenBlob(t.ctx, s.Blob, 0, -1)
	t.no(err)
	_, err = io.ReadFull(r, make([]byte, 1000))
	t.no(err)
	t.no(r.Close())
	if got := t.blob(s.Blob, 1, 5); !bytes.Equal(got, noise(6)[1:]) {
		t.Fatalf("after it: %v", got)
	}
}

// Equal bytes are stored once and known by one name.
func attachmentSameBytes(t *trial) {
	data := noise(1 << 20)
	size := func() int64 {
		info, err := t.shard.Info(t.ctx)
		t.no(err)
		return info.SizeFile
	}
	first := t.stage(data)
	t.write(model.Edit{ID: "a", Body: []byte(`{}`), Atts: []model.AttachmentEdit{staged("f", first)}})
	before := size()
	for i := range 4 {
		s := t.stage(data)
		if s.Blob != first.Blob || s.Ticket == first.Ticket {
			t.Fatalf("staged %+v after %+v", s, first)
		}
		t.write(model.Edit{ID: "b" + number(i), Body: []byte(`{}`), Atts: []model.AttachmentEdit{staged("f", s), staged("g", s)}})
	}
	if grown := size() - before; grown > 1<<19 {
		t.Errorf("four more uses of 1 MiB took %d bytes", grown)
	}
	// Bytes the copy holds may be named without staging them again.
	t.write(model.Edit{ID: "c", Body: []byte(`{}`), Atts: []model.AttachmentEdit{{Attachment: model.Attachment{Name: "f", Blob: first.Blob, Digest: first.Digest}}}})
	if d := t.winner("c"); d.Atts[0].Length != 1<<20 || !bytes.Equal(t.blob(d.Atts[0].Blob, 0, -1), data) {
		t.Fatalf("read %+v", d)
	}
	err := t.refused(model.Edit{ID: "d", Body: []byte(`{}`), Atts: []model.AttachmentEdit{{Attachment: model.Attachment{Name: "f", Blob: model.BlobID{1}}}}})
	if !errors.Is(err, model.MissingStub("d", "f")) {
		t.Fatalf("bytes the copy does not hold: %v", err)
	}
}

// stub is an attachment that stays as it was.
func stub(name string, revPos uint64) model.AttachmentEdit {
	return model.AttachmentEdit{Attachment: model.Attachment{Name: name, RevPos: revPos}, Stub: true}
}

// A stub is the parent's attachment; what is not named goes.
func attachmentStubs(t *trial) {
	s1, s2 := t.stage([]byte("one")), t.stage(noise(100<<10))
	r1 := t.write(model.Edit{ID: "a", Body: []byte(`{}`), Atts: []model.AttachmentEdit{staged("f", s1), staged("g", s2)}})[0]
	s3 := t.stage([]byte("three"))
	r2 := t.write(model.Edit{ID: "a", Body: []byte(`{"v":2}`), Parent: r1, Atts: []model.AttachmentEdit{stub("g", 1), staged("h", s3)}})[0]
	d := t.winner("a")
	if len(d.Atts) != 2 || d.Atts[0].Name != "g" || d.Atts[0].RevPos != 1 || d.Atts[0].ContentType != "application/x-g" ||
		d.Atts[0].Digest != s2.Digest || d.Atts[1].Name != "h" || d.Atts[1].RevPos != 2 {
		t.Fatalf("read %+v", d)
	}
	for what, a := range map[string]model.AttachmentEdit{
		"a name that went":      stub("f", 0),
		"a name that never was": stub("x", 0),
		"another position":      stub("g", 2),
	} {
		err := t.refused(model.Edit{ID: "a", Body: []byte(`{}`), Parent: r2, Atts: []model.AttachmentEdit{a}})
		if !errors.Is(err, model.MissingStub("a", a.Name)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := t.refused(model.Edit{ID: "new", Body: []byte(`{}`), Atts: []model.AttachmentEdit{stub("f", 0)}}); !errors.Is(err, model.MissingStub("new", "f")) {
		t.Errorf("a stub in a create: %v", err)
	}
	r3 := t.write(model.Edit{ID: "a", Body: []byte(`{}`), Parent: r2, Atts: []model.AttachmentEdit{stub("g", 0)}})[0]
	// Stubs see an earlier edit of the same Write.
	s4 := t.stage([]byte("four"))
	first := model.Edit{ID: "b", Body: []byte(`{}`), Replicated: true, Path: revs("1-x"), Atts: []model.AttachmentEdit{staged("f", s4)}}
	second := model.Edit{ID: "b", Body: []byte(`{"v":2}`), Parent: rev("1-x"), Atts: []model.AttachmentEdit{stub("f", 1)}}
	t.write(first, second)
	if d := t.winner("b"); d.Rev.Pos != 2 || len(d.Atts) != 1 || string(t.blob(d.Atts[0].Blob, 0, -1)) != "four" {
		t.Fatalf("read %+v", d)
	}
	// Older revisions keep what they had.
	a := t.ask(shardapi.DocQuery{ID: "a", Revs: []model.Rev{r1, r3}, Want: shardapi.WantBody})
	if len(a.Docs[0].Atts) != 2 || string(t.blob(a.Docs[0].Atts[0].Blob, 0, -1)) != "one" || len(a.Docs[1].Atts) != 1 {
		t.Fatalf("older revisions %+v", a.Docs)
	}
	_, s, err := t.shard.List(t.ctx, &shardapi.ListRequest{Limit: 1, IncludeDocs: true})
	t.no(err)
	drain(t, s, func(row shardapi.Row) {
		if len(row.Doc.Atts) != 1 || row.Doc.Atts[0] != a.Docs[1].Atts[0] {
			t.Errorf("in the list: %+v", row.Doc.Atts)
		}
	})
}

// A replicated stub may mean an attachment of any ancestor or leaf.
func attachmentReplicatedStubs(t *trial) {
	s := t.stage([]byte("bytes"))
	t.write(model.Edit{ID: "a", Body: []byte(`{}`), Replicated: true, Path: revs("2-a", "1-r"), Atts: []model.AttachmentEdit{staged("f", s)}})
	if d := t.winner("a"); d.Atts[0].RevPos != 2 {
		t.Fatalf("without a position: %+v", d.Atts)
	}
	t.write(model.Edit{ID: "a", Body: []byte(`{}`), Replicated: true, Path: revs("4-c", "3-b", "2-a"), Atts: []model.AttachmentEdit{stub("f", 2)}})
	t.write(model.Edit{ID: "a", Body: []byte(`{}`), Replicated: true, Path: revs("2-z", "1-r"), Atts: []model.AttachmentEdit{stub("f", 2)}})
	a := t.ask(shardapi.DocQuery{ID: "a", AllLeaves: true, Want: shardapi.WantBody})
	for _, d := range a.Docs {
		if len(d.Atts) != 1 || d.Atts[0].RevPos != 2 || string(t.blob(d.Atts[0].Blob, 0, -1)) != "bytes" {
			t.Errorf("leaf %+v", d)
		}
	}
	err := t.refused(model.Edit{ID: "a", Body: []byte(`{}`), Replicated: true, Path: revs("5-d", "4-c"), Atts: []model.AttachmentEdit{stub("x", 0)}})
	if !errors.Is(err, model.MissingStub("a", "x")) {
		t.Fatalf("error %v", err)
	}
	s = t.stage([]byte("old"))
	e := staged("g", s)
	e.RevPos = 3
	t.write(model.Edit{ID: "a", Body: []byte(`{}`), Replicated: true, Path: revs("6-e", "5-x"), Atts: []model.AttachmentEdit{e}})
	if d := t.winner("a"); d.Rev != rev("6-e") || d.Atts[0].RevPos != 3 {
		t.Fatalf("a position that came along: %+v", d)
	}
}

// Encoded bytes keep the length they stand for.
func attachmentEncoded(t *trial) {
	s := t.stage([]byte("pretend this is gzip"))
	e := staged("f", s)
	e.Encoding, e.Length = "gzip", 1234
	t.write(model.Edit{ID: "a", Body: []byte(`{}`), Atts: []model.AttachmentEdit{e}})
	a := t.winner("a").Atts[0]
	if a.Encoding != "gzip" || a.Length != 1234 || a.EncodedLength != s.Length || a.Digest != s.Digest {
		t.Fatalf("read %+v", a)
	}
}

// A ticket is good for one Write, whatever comes of it.
func attachmentTickets(t *trial) {
	for _, n := range []int{10, 200 << 10} {
		t.ticketsOf(number(n), noise(n))
	}
}

func (t *trial) ticketsOf(id string, data []byte) {
	t.Helper()
	write := func(s *shardapi.Staged, parent model.Rev) (*model.EditResult, error) {
		resp, err := t.shard.Write(t.ctx, &shardapi.WriteRequest{Edits: []model.Edit{
			{ID: id, Body: []byte(`{}`), Parent: parent, Atts: []model.AttachmentEdit{staged("f", s)}}}})
		if err != nil {
			return nil, err
		}
		return &resp.Results[0], nil
	}
	unknown := func(s *shardapi.Staged, what string) {
		t.Helper()
		if _, err := write(s, model.Rev{}); model.KindOf(err) != model.KindBadRequest {
			t.Errorf("a ticket %s: %v", what, err)
		}
	}
	unknown(&shardapi.Staged{Ticket: "none"}, "nobody gave")
	s := t.stage(data)
	t.no(t.shard.Unstage(t.ctx, s.Ticket))
	t.no(t.shard.Unstage(t.ctx, s.Ticket)) // twice is no fault
	unknown(s, "given up")
	if a := t.ask(shardapi.DocQuery{ID: id}); a.Found {
		t.Fatal("a Write that failed made a document")
	}
	s = t.stage(data)
	res, err := write(s, model.Rev{})
	t.no(err)
	if res.Err != nil {
		t.Fatal(res.Err)
	}
	unknown(s, "used")
	s = t.stage(append(data, 1))
	res, err = write(s, rev("1-0"))
	t.no(err)
	if res.Err == nil {
		t.Fatal("no conflict")
	}
	unknown(s, "used in vain")
	_, err = t.shard.OpenBlob(t.ctx, s.Blob, 0, -1)
	t.is(err, model.ErrMissingAtt)
	// Tickets are of one copy.
	s = t.stage(data)
	_, err = t.host.Shard(t.id+1_000_000).Write(t.ctx, &shardapi.WriteRequest{Edits: []model.Edit{
		{ID: id, Body: []byte(`{}`), Atts: []model.AttachmentEdit{staged("f", s)}}}})
	if model.KindOf(err) != model.KindBadRequest {
		t.Errorf("a ticket of another copy: %v", err)
	}
}

// errSource is what a broken source says.
var errSource = errors.New("the source broke")

// A source that breaks is not taken for one that ends, wherever it breaks: an
// upload cut on its way shows as io.ErrUnexpectedEOF.
func attachmentBrokenSource(t *trial) {
	for _, why := range []error{errSource, io.ErrUnexpectedEOF, fmt.Errorf("cut: %w", io.ErrUnexpectedEOF)} {
		for _, n := range []int{0, 1, 1000, 64 << 10, 256 << 10, 300 << 10, 1 << 20} {
			s, err := t.shard.Stage(t.ctx, io.MultiReader(bytes.NewReader(noise(n)), iotest.ErrReader(why)))
			if !errors.Is(err, why) {
				t.Errorf("%v after %d bytes: %+v, %v", why, n, s, err)
			}
		}
	}
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	_, err := t.shard.Stage(ctx, bytes.NewReader(noise(1<<20)))
	t.is(err, context.Canceled)
	t.stage(noise(1 << 20)) // and the copy goes on
}
