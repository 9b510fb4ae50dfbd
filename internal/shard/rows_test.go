package shard

import (
	"bytes"
	"cmp"
	"reflect"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/model"
)

// FuzzKeys checks that escaped ids come back and order as the ids do, and that a
// revision comes back.
func FuzzKeys(f *testing.F) {
	f.Add("a", "a\x00", uint64(1), "0123456789abcdef0123456789abcdef")
	f.Add("a\x00\xff", "a\x00\x01", uint64(1<<40), "other")
	f.Add("", "\x00", uint64(0), "0123456789ABCDEF0123456789abcdef")
	f.Fuzz(func(t *testing.T, a, b string, pos uint64, hash string) {
		if len(hash) > model.MaxRevHash {
			hash = hash[:model.MaxRevHash]
		}
		rev := model.Rev{Pos: pos, Hash: hash}
		ka, kb := appendEscaped(nil, a), appendEscaped(nil, b)
		if got, want := bytes.Compare(ka, kb), cmp.Compare(a, b); got != want {
			t.Fatalf("%q and %q compare %d, their keys %d", a, b, want, got)
		}
		if a != b && bytes.HasPrefix(kb, ka) {
			t.Fatalf("the key of %q begins that of %q", a, b)
		}
		id, rest, ok := cutEscaped(appendRev(ka, rev))
		if !ok || id != a {
			t.Fatalf("%q came back as %q (%v)", a, id, ok)
		}
		got, rest, ok := takeRev(rest)
		if !ok || got != rev || len(rest) != 0 {
			t.Fatalf("%+v came back as %+v (%v)", rev, got, ok)
		}
	})
}

// FuzzRows reads arbitrary bytes as every kind of row: an error, never a panic.
func FuzzRows(f *testing.F) {
	h := header{deleted: true, atts: true, seq: 7, external: 8, active: 9, winner: model.Rev{Pos: 3, Hash: "x"}}
	f.Add(appendHeader(nil, &h))
	f.Add(appendAtts(nil, []model.Attachment{{Name: "a", ContentType: "b", Length: 3}}))
	f.Add((&counters{seq: 1, docs: 2}).append(nil))
	f.Add(appendStale(nil, staleRow{at: 1, bytes: 2, atts: true}))
	f.Fuzz(func(t *testing.T, b []byte) {
		var h header
		var k counters
		if _, err := parseInfo(b, &h); err != nil && model.KindOf(err) != model.KindCorruption {
			t.Fatal(err)
		}
		if _, _, err := parseBody(b); err != nil && model.KindOf(err) != model.KindCorruption {
			t.Fatal(err)
		}
		if err := k.parse(b); err != nil && model.KindOf(err) != model.KindCorruption {
			t.Fatal(err)
		}
		if _, err := parseStale(b); err != nil && model.KindOf(err) != model.KindCorruption {
			t.Fatal(err)
		}
		_, _, _ = cutEscaped(b)
	})
}

func TestRowsComeBack(t *testing.T) {
	t.Parallel()
	atts := []model.Attachment{
		{Name: "ä/b", ContentType: "text/plain", RevPos: 3, Digest: [16]byte{1}, Length: 1 << 40, Encoding: "gzip", EncodedLength: 12, Blob: model.BlobID{9}},
		{Name: strings.Repeat("n", 300)},
	}
	got, text, err := parseBody(append(appendAtts(nil, atts), `{"a":1}`...))
	if err != nil || string(text) != `{"a":1}` || !reflect.DeepEqual(got, atts) {
		t.Fatalf("%+v %s %v", got, text, err)
	}
	want := header{deleted: true, atts: true, seq: 1 << 50, external: 5, active: 6, winner: model.Rev{Pos: 3, Hash: "x"}}
	var h header
	if rest, err := parseInfo(append(appendHeader(nil, &want), 42), &h); err != nil || h != want || len(rest) != 1 {
		t.Fatalf("%+v %v", h, err)
	}
}
