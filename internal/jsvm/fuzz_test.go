package jsvm

import (
	"bytes"
	"errors"
	"io"
	"reflect"
	"testing"
	"testing/iotest"

	"github.com/divandb/divan/internal/rawjson"
)

// FuzzFrame reads anything as frames, whole and byte by byte: the result is the same,
// and what is a frame is written back as it was.
func FuzzFrame(f *testing.F) {
	f.Add(endFrame(append(beginFrame(nil, frameDone), "[[]]"...)))
	f.Add([]byte{1, 0, 0, 0, 'h', 255, 255, 255, 255, 'k'})
	f.Fuzz(func(t *testing.T, data []byte) {
		whole := frameReader{r: bytes.NewReader(data)}
		slow := frameReader{r: iotest.OneByteReader(bytes.NewReader(data))}
		rest := data
		for {
			kind, payload, err := whole.next()
			kind2, payload2, err2 := slow.next()
			if kind != kind2 || !bytes.Equal(payload, payload2) || !errors.Is(err2, errors.Unwrap(err)) && (err == nil) != (err2 == nil) {
				t.Fatalf("%c %q %v, byte by byte %c %q %v", kind, payload, err, kind2, payload2, err2)
			}
			if err != nil {
				if errors.Is(err, io.EOF) && len(rest) > 0 {
					t.Fatalf("%d bytes were lost", len(rest))
				}
				return
			}
			again := endFrame(append(beginFrame(nil, kind), payload...))
			if !bytes.HasPrefix(rest, again) {
				t.Fatalf("%q was read from %q", again, rest)
			}
			rest = rest[len(again):]
		}
	})
}

// FuzzRunRequest reads anything as a request; what is one means the same when it is
// written and read again.
func FuzzRunRequest(f *testing.F) {
	f.Add((&runRequest{key: "k", design: []byte("{}"), op: "map", funcs: []string{"a", ""}, extra: []byte("1"), body: []byte("[]")}).append(nil))
	f.Add((&runRequest{key: "k", design: []byte("{}"), fresh: true, op: "map"}).append(nil))
	f.Add((&runRequest{}).append(nil))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := parseRun(data)
		if err != nil {
			return
		}
		again, err := parseRun(r.append(nil))
		if err != nil || !reflect.DeepEqual(r, again) {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}

// FuzzReply takes anything for what a worker sent. What is accepted is normal JSON of
// the form it has to have.
func FuzzReply(f *testing.F) {
	f.Add([]byte(`[[[["k",1]],[],{"e":["name","reason"]}],["line"]]`))
	f.Add([]byte(`[[[["\ud800","\udc00\ud83d\ude00","\\ud800"]]]]`))
	f.Add([]byte(`[[[1]],5]`))
	f.Add([]byte(`[{"n":[1,0,{"e":["a","b"]},2],"f":[1,2,3,4,5,6]}]`))
	f.Fuzz(func(t *testing.T, data []byte) {
		before := bytes.Clone(data)
		results, _, err := openReply(data)
		if !bytes.Equal(before, data) {
			t.Fatal("the reply was changed")
		}
		if err != nil {
			return
		}
		if again, err := rawjson.Normalize(nil, results, replyDepth); err != nil || !bytes.Equal(again, results) {
			t.Fatalf("%q is not normal: %v", results, err)
		}
		n := rawjson.Len(results)
		if rawjson.KindOf(results) == rawjson.KindObject {
			counts, _ := rawjson.Get(results, "n")
			n = rawjson.Len(counts)
		}
		split, err := splitReply(results, n)
		if err != nil {
			return
		}
		if len(split) != n {
			t.Fatalf("%d results of %d", len(split), n)
		}
		for _, r := range split {
			if r.err == nil {
				if again, err := rawjson.Normalize(nil, r.json, replyDepth); err != nil || !bytes.Equal(again, r.json) {
					t.Fatalf("%q is not normal: %v", r.json, err)
				}
				isRows(r.json)
				r.value()
			}
		}
		if _, err := splitReply(results, n+1); err == nil {
			t.Fatal("a missing result was not missed")
		}
	})
}

// TestPairSurrogates leaves everything as it is but halves of pairs.
func TestPairSurrogates(t *testing.T) {
	for in, want := range map[string]string{
		`"a"`:                  `"a"`,
		`"\ud83d\ude00"`:       `"\ud83d\ude00"`,
		`"\uD83D\uDE00"`:       `"\uD83D\uDE00"`,
		`"\ud83d"`:             `"\ufffd"`,
		`"\ude00"`:             `"\ufffd"`,
		`"\ude00\ud83d"`:       `"\ufffd\ufffd"`,
		`"\ud83d\ud83d\ude00"`: `"\ufffd\ud83d\ude00"`,
		`"\\ud83d"`:            `"\\ud83d"`,
		`"\\\ud83d"`:           `"\\\ufffd"`,
		`"\ud7ff\ue000"`:       `"\ud7ff\ue000"`,
		`"\ud8`:                `"\ud8`,
		`"\ud83dx`:             `"\ufffdx`,
	} {
		if got := string(pairSurrogates([]byte(in))); got != want {
			t.Errorf("%s became %s, want %s", in, got, want)
		}
	}
}
