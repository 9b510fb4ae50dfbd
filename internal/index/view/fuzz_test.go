package view

import (
	"bytes"
	"testing"
)

// FuzzStored feeds damaged bytes to everything that reads stored rows: an error
// is right, a panic is not; and what is read back from good bytes is what went in.
func FuzzStored(f *testing.F) {
	entries := []*entry{{}, {key: []byte("k"), count: 3, state: []byte("s")}}
	m := emptyMeta(1)
	f.Add(appendEntries(nil, entries), []byte("row"))
	f.Add(m.append(nil), appendEscaped(nil, "a\x00b"))
	f.Add(appendBackRow(nil, &backRow{sort: []byte("s"), bytes: 3}), []byte("\x00\xff\x00\x01\x00"))
	f.Fuzz(func(t *testing.T, val, row []byte) {
		var n node
		if n.parse(val) == nil {
			if got := appendEntries(nil, n.entries()); len(got) <= len(val) && n.parse(got) != nil {
				t.Fatalf("%q became %q", val, got)
			}
			n.search(row)
		}
		var m meta
		_ = m.parse(val)
		_, _ = parseBack(nil, val)
		for _, partitioned := range []bool{false, true} {
			var r storedRow
			if r.parse(row, val, partitioned) == nil {
				_, _ = r.appendID(nil)
			}
		}
	})
}

// FuzzRowKey holds the order of escaped texts and numbers against that of the
// texts and numbers.
func FuzzRowKey(f *testing.F) {
	f.Add("a", "a\x00", uint64(0), uint64(1))
	f.Add("", "\x00\x01", uint64(255), uint64(256))
	f.Fuzz(func(t *testing.T, a, b string, x, y uint64) {
		ka, kb := appendNumber(appendEscaped(nil, a), x), appendNumber(appendEscaped(nil, b), y)
		want := bytes.Compare([]byte(a), []byte(b))
		if want == 0 && x != y {
			want = 1
			if x < y {
				want = -1
			}
		}
		if got := bytes.Compare(ka, kb); got != want {
			t.Fatalf("%q %d against %q %d: %d, want %d", a, x, b, y, got, want)
		}
		if text, rest, ok := appendUnescaped(nil, ka); !ok || string(text) != a || len(rest)+escapedLen(ka) != len(ka) {
			t.Fatalf("%q became %q", a, text)
		}
		if after, ok := appendAfter(nil, ka); ok && (bytes.Compare(after, append(ka, 0xff, 0xff)) <= 0 || bytes.Compare(after, ka) <= 0) {
			t.Fatalf("%q is not after %q", after, ka)
		}
	})
}
