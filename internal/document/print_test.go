package document

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/model"
)

// rev reads a revision.
func rev(t testing.TB, s string) model.Rev {
	t.Helper()
	r, err := model.ParseRev(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// md5Of reads a digest as it stands on the wire.
func md5Of(t testing.TB, s string) [16]byte {
	t.Helper()
	b, err := base64.StdEncoding.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return [16]byte(b)
}

// The words of these tests are what CouchDB 3.5.2 answered.
func TestAppend(t *testing.T) {
	t.Parallel()
	bytesOf := map[string]string{
		"a/b.bin":   "\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f",
		"hello.txt": "Hello, world",
	}
	open := func(a *model.Attachment) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(bytesOf[a.Name])), nil
	}
	all := func(f AttForm) func(*model.Attachment) AttForm {
		return func(*model.Attachment) AttForm { return f }
	}
	a := &model.Doc{ID: "a", Rev: rev(t, "3-c909e278739b5f75e416d36e3fda9200"), Body: []byte(`{"b":3}`), Seq: 4}
	for _, r := range []string{"3-c909e278739b5f75e416d36e3fda9200", "2-dfbb24b4b34afe6980d9e32b50472e1d", "1-f8d149f2fa11d60df0c5132c929b27f7"} {
		a.Path = append(a.Path, rev(t, r))
		a.RevsInfo = append(a.RevsInfo, model.RevStatus{Rev: rev(t, r), Status: "available"})
	}
	d := &model.Doc{ID: "d", Rev: rev(t, "2-cc"), Body: []byte(`{"v":3}`), Leaves: []model.Leaf{
		{Rev: rev(t, "2-cc")}, {Rev: rev(t, "2-bb")}, {Rev: rev(t, "1-zz")}, {Rev: rev(t, "3-dd"), Deleted: true},
	}}
	att := &model.Doc{ID: "att", Rev: rev(t, "2-dde89005b8c8b79751cd05656f33a179"), Body: []byte(`{}`), Atts: []model.Attachment{
		{Name: "a/b.bin", ContentType: "application/octet-stream", RevPos: 2, Digest: md5Of(t, "GsHvAelsrxvg0ykzGk/CqA=="), Length: 16, EncodedLength: 16},
		{Name: "hello.txt", ContentType: "text/plain", RevPos: 1, Digest: md5Of(t, "A1i+mIDX+Yjk7/iEJhLdyA=="), Length: 12, Encoding: "gzip", EncodedLength: 32},
	}}
	tests := []struct {
		name string
		doc  *model.Doc
		o    *PrintOptions
		want string
	}{
		{"plain", a, nil, `{"_id":"a","_rev":"3-c909e278739b5f75e416d36e3fda9200","b":3}`},
		{"options without effect", a, &PrintOptions{Conflicts: true, DeletedConflicts: true}, `{"_id":"a","_rev":"3-c909e278739b5f75e416d36e3fda9200","b":3}`},
		{"revs", a, &PrintOptions{Revs: true}, `{"_id":"a","_rev":"3-c909e278739b5f75e416d36e3fda9200","b":3,"_revisions":{"start":3,"ids":["c909e278739b5f75e416d36e3fda9200","dfbb24b4b34afe6980d9e32b50472e1d","f8d149f2fa11d60df0c5132c929b27f7"]}}`},
		{"revs_info", a, &PrintOptions{RevsInfo: true}, `{"_id":"a","_rev":"3-c909e278739b5f75e416d36e3fda9200","b":3,"_revs_info":[{"rev":"3-c909e278739b5f75e416d36e3fda9200","status":"available"},{"rev":"2-dfbb24b4b34afe6980d9e32b50472e1d","status":"available"},{"rev":"1-f8d149f2fa11d60df0c5132c929b27f7","status":"available"}]}`},
		{"local_seq", a, &PrintOptions{LocalSeq: true}, `{"_id":"a","_rev":"3-c909e278739b5f75e416d36e3fda9200","b":3,"_local_seq":4}`},
		{"local_seq as text", a, &PrintOptions{LocalSeq: true, LocalSeqText: []byte(`"4-x"`)}, `{"_id":"a","_rev":"3-c909e278739b5f75e416d36e3fda9200","b":3,"_local_seq":"4-x"}`},
		{"tombstone", &model.Doc{ID: "p", Rev: rev(t, "2-d0ae140c7f7cdb92dd85a3e31ae18f0c"), Deleted: true, Body: []byte(`{}`)}, nil,
			`{"_id":"p","_rev":"2-d0ae140c7f7cdb92dd85a3e31ae18f0c","_deleted":true}`},
		{"tombstone with a body", &model.Doc{ID: "p", Rev: rev(t, "2-d"), Deleted: true, Body: []byte(`{"why":1}`)}, nil,
			`{"_id":"p","_rev":"2-d","why":1,"_deleted":true}`},
		{"local", &model.Doc{ID: "_local/c1", Rev: rev(t, "0-1"), Body: []byte(`{"x":1}`)}, nil, `{"_id":"_local/c1","_rev":"0-1","x":1}`},
		{"escapes", &model.Doc{ID: "q\"\né", Rev: rev(t, "1-a")}, nil, `{"_id":"q\"\né","_rev":"1-a"}`},
		{"conflicts", d, &PrintOptions{Conflicts: true}, `{"_id":"d","_rev":"2-cc","v":3,"_conflicts":["2-bb","1-zz"]}`},
		{"deleted conflicts", d, &PrintOptions{DeletedConflicts: true}, `{"_id":"d","_rev":"2-cc","v":3,"_deleted_conflicts":["3-dd"]}`},
		{"order", &model.Doc{ID: "o", Rev: d.Rev, Body: d.Body, Path: []model.Rev{d.Rev}, RevsInfo: []model.RevStatus{{Rev: d.Rev, Status: "available"}}, Leaves: d.Leaves, Seq: 7, Atts: att.Atts[:1]},
			&PrintOptions{Revs: true, RevsInfo: true, Conflicts: true, DeletedConflicts: true, LocalSeq: true},
			`{"_id":"o","_rev":"2-cc","v":3,"_revisions":{"start":2,"ids":["cc"]},"_revs_info":[{"rev":"2-cc","status":"available"}],"_conflicts":["2-bb","1-zz"],"_deleted_conflicts":["3-dd"],"_local_seq":7,"_attachments":{"a/b.bin":{"content_type":"application/octet-stream","revpos":2,"digest":"md5-GsHvAelsrxvg0ykzGk/CqA==","length":16,"stub":true}}}`},
		{"encoding info", att, &PrintOptions{AttEncodingInfo: true}, `{"_id":"att","_rev":"2-dde89005b8c8b79751cd05656f33a179","_attachments":{"a/b.bin":{"content_type":"application/octet-stream","revpos":2,"digest":"md5-GsHvAelsrxvg0ykzGk/CqA==","length":16,"stub":true},"hello.txt":{"content_type":"text/plain","revpos":1,"digest":"md5-A1i+mIDX+Yjk7/iEJhLdyA==","length":12,"stub":true,"encoding":"gzip","encoded_length":32}}}`},
		{"inline", att, &PrintOptions{Attachments: all(AttInline), Open: open}, `{"_id":"att","_rev":"2-dde89005b8c8b79751cd05656f33a179","_attachments":{"a/b.bin":{"content_type":"application/octet-stream","revpos":2,"digest":"md5-GsHvAelsrxvg0ykzGk/CqA==","data":"AAECAwQFBgcICQoLDA0ODw=="},"hello.txt":{"content_type":"text/plain","revpos":1,"digest":"md5-A1i+mIDX+Yjk7/iEJhLdyA==","data":"SGVsbG8sIHdvcmxk"}}}`},
		{"one inline", att, &PrintOptions{Open: open, Attachments: func(a *model.Attachment) AttForm {
			if a.RevPos > 1 {
				return AttInline
			}
			return AttStub
		}}, `{"_id":"att","_rev":"2-dde89005b8c8b79751cd05656f33a179","_attachments":{"a/b.bin":{"content_type":"application/octet-stream","revpos":2,"digest":"md5-GsHvAelsrxvg0ykzGk/CqA==","data":"AAECAwQFBgcICQoLDA0ODw=="},"hello.txt":{"content_type":"text/plain","revpos":1,"digest":"md5-A1i+mIDX+Yjk7/iEJhLdyA==","length":12,"stub":true}}}`},
		{"follows", att, &PrintOptions{Attachments: all(AttFollows), AttEncodingInfo: true}, `{"_id":"att","_rev":"2-dde89005b8c8b79751cd05656f33a179","_attachments":{"a/b.bin":{"content_type":"application/octet-stream","revpos":2,"digest":"md5-GsHvAelsrxvg0ykzGk/CqA==","length":16,"follows":true},"hello.txt":{"content_type":"text/plain","revpos":1,"digest":"md5-A1i+mIDX+Yjk7/iEJhLdyA==","length":12,"follows":true,"encoding":"gzip","encoded_length":32}}}`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := Append([]byte("x"), test.doc, test.o)
			if err != nil || string(got) != "x"+test.want {
				t.Errorf("%v\ngot  %s\nwant x%s", err, got, test.want)
			}
			var w bytes.Buffer
			if _, err := Write(&w, nil, test.doc, test.o); err != nil || w.String() != test.want {
				t.Errorf("Write: %v\ngot  %s\nwant %s", err, w.String(), test.want)
			}
		})
	}
}

// trackedReader counts its closing.
type trackedReader struct {
	io.Reader
	closed int
}

func (r *trackedReader) Close() error { r.closed++; return nil }

func TestInlineFaults(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	doc := &model.Doc{ID: "a", Atts: []model.Attachment{{Name: "n", Length: 5}}}
	for name, test := range map[string]struct {
		r    io.Reader
		open error
		want func(error) bool
	}{
		"short":   {strings.NewReader("1234"), nil, func(err error) bool { return model.KindOf(err) == model.KindCorruption }},
		"long":    {strings.NewReader("123456"), nil, func(err error) bool { return model.KindOf(err) == model.KindCorruption }},
		"reading": {io.MultiReader(strings.NewReader("12"), errReader{broken}), nil, func(err error) bool { return errors.Is(err, broken) }},
		"opening": {nil, broken, func(err error) bool { return errors.Is(err, broken) }},
	} {
		r := &trackedReader{Reader: test.r}
		o := &PrintOptions{
			Attachments: func(*model.Attachment) AttForm { return AttInline },
			Open: func(*model.Attachment) (io.ReadCloser, error) {
				if test.open != nil {
					return nil, test.open
				}
				return r, nil
			},
		}
		if _, err := Append(nil, doc, o); !test.want(err) {
			t.Errorf("%s: Append gave %v", name, err)
		}
		if test.open == nil && r.closed != 1 {
			t.Errorf("%s: closed %d times", name, r.closed)
		}
	}
}

// errReader fails.
type errReader struct{ err error }

func (r errReader) Read([]byte) (int, error) { return 0, r.err }

// TestRoundTrip prints random documents and reads them back.
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		text := func() string {
			const letters = "ab\"\\/é\n_😀 \x01"
			runes := []rune(letters)
			var b strings.Builder
			for range rng.IntN(6) {
				b.WriteRune(runes[rng.IntN(len(runes))])
			}
			return b.String()
		}
		var body strings.Builder
		body.WriteString("{")
		for i := range rng.IntN(5) {
			if i > 0 {
				body.WriteString(",")
			}
			fmt.Fprintf(&body, `"m%d\u0041%s":{"_id":[%d,"}{"]}`, i, strings.Repeat(`\"`, rng.IntN(3)), rng.IntN(1000))
		}
		body.WriteString("}")
		d := &model.Doc{ID: "i" + text(), Deleted: rng.IntN(3) == 0, Body: normal(t, body.String()), Seq: rng.Uint64()}
		for pos := uint64(1 + rng.IntN(5)); pos > 0; pos-- {
			d.Path = append(d.Path, model.Rev{Pos: pos, Hash: fmt.Sprintf("%x", rng.Uint32())})
		}
		d.Rev = d.Path[0]
		d.Leaves = []model.Leaf{{Rev: d.Rev}, {Rev: model.Rev{Pos: 1, Hash: "z"}}, {Rev: model.Rev{Pos: 2, Hash: "y"}, Deleted: true}}
		d.RevsInfo = []model.RevStatus{{Rev: d.Rev, Status: "available"}}
		data := map[string]string{}
		for i := range rng.IntN(4) {
			a := model.Attachment{Name: fmt.Sprint(i, text()), ContentType: "t/" + strings.Repeat("é", i), RevPos: rng.Uint64N(9)}
			for k := range a.Digest {
				a.Digest[k] = byte(rng.Uint32())
			}
			data[a.Name] = text() + text()
			a.Length = int64(len(data[a.Name]))
			a.EncodedLength = a.Length
			if rng.IntN(2) == 0 {
				a.Encoding, a.EncodedLength = "gzip", 1+rng.Int64N(99)
			}
			d.Atts = append(d.Atts, a)
		}
		forms := map[string]AttForm{}
		o := &PrintOptions{Revs: true, RevsInfo: rng.IntN(2) == 0, Conflicts: true, DeletedConflicts: true, LocalSeq: true, AttEncodingInfo: true,
			Attachments: func(a *model.Attachment) AttForm {
				if _, ok := forms[a.Name]; !ok {
					forms[a.Name] = AttForm(rng.IntN(3))
				}
				return forms[a.Name]
			},
			Open: func(a *model.Attachment) (io.ReadCloser, error) {
				return io.NopCloser(strings.NewReader(data[a.Name])), nil
			}}
		out, err := Append(nil, d, o)
		if err != nil {
			t.Fatal(err)
		}
		if n := normal(t, string(out)); !bytes.Equal(n, out) {
			t.Fatalf("seed %d: not in normal form:\n%s\n%s", seed, out, n)
		}
		p, err := Parse(out, ParseOptions{Replicated: true})
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, out)
		}
		if p.ID != d.ID || p.Rev != d.Rev || fmt.Sprint(p.Path) != fmt.Sprint(d.Path) || p.Deleted != d.Deleted || !bytes.Equal(p.Body, d.Body) || len(p.Atts) != len(d.Atts) {
			t.Fatalf("seed %d\n%s\n%+v", seed, out, *p)
		}
		for i := range p.Atts {
			got, want := &p.Atts[i], d.Atts[i]
			form := forms[want.Name]
			if form == AttInline {
				want.Digest, want.Encoding, want.EncodedLength = [16]byte{}, "", want.Length
				if string(got.Data) != data[want.Name] {
					t.Fatalf("seed %d: data %q, want %q", seed, got.Data, data[want.Name])
				}
			}
			if got.Attachment != want || got.Stub != (form == AttStub) || got.Inline != (form == AttInline) || got.Follows != (form == AttFollows) {
				t.Fatalf("seed %d\ngot  %+v\nwant %+v", seed, *got, want)
			}
		}
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	d := benchDoc(t)
	buf := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() {
		var err error
		if buf, err = Append(buf[:0], d, nil); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// benchDoc is a document of 1 KB.
func benchDoc(t testing.TB) *model.Doc {
	return &model.Doc{ID: "0123456789abcdef", Rev: rev(t, "3-c909e278739b5f75e416d36e3fda9200"),
		Body: normal(t, `{"name":"a name","n":12345,"tags":["x","y","z"],"text":"`+strings.Repeat("lorem ipsum ", 80)+`"}`)}
}

func BenchmarkAppend(b *testing.B) {
	d := benchDoc(b)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf, _ = Append(buf[:0], d, nil)
	}
}

func BenchmarkParse(b *testing.B) {
	text, err := Append(nil, benchDoc(b), nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(text, ParseOptions{MaxSize: 1 << 20}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkNewRev(b *testing.B) {
	d := benchDoc(b)
	b.ReportAllocs()
	for b.Loop() {
		NewRev(d.Rev, false, d.Body, nil)
	}
}
