package rawjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestNormalizeAccepts checks the normal form of accepted texts.
func TestNormalizeAccepts(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ in, want string }{
		{`null`, `null`},
		{" \t\r\ntrue \n", `true`},
		{`false`, `false`},
		{`0`, `0`}, {`-0`, `-0`}, {`-0.0e-00`, `-0.0e-00`}, {`1E+05`, `1E+05`},
		{`123456789012345678901234567890`, `123456789012345678901234567890`},
		{`""`, `""`},
		{`"a b"`, `"a b"`},
		{`"\u0041\/\"\\\b\f\n\r\t"`, `"\u0041\/\"\\\b\f\n\r\t"`},
		{`"\uD83D\ude00 \u0000"`, `"\uD83D\ude00 \u0000"`},
		{"\"\x7fäöü€😀\u2028\"", "\"\x7fäöü€😀\u2028\""},
		{`[ ]`, `[]`}, {`{ }`, `{}`},
		{` [ 1 , 2 , [ "x" ] ] `, `[1,2,["x"]]`},
		{` { "a" : 1 , "b" : { "c" : [ ] } } `, `{"a":1,"b":{"c":[]}}`},
		{`{"b":1,"a":2}`, `{"b":1,"a":2}`},
		{`{"":1,"":2}`, `{"":2}`},
		{`{"a":1,"b":2,"a":3}`, `{"b":2,"a":3}`},
		{`{"a":1,"A":2}`, `{"a":1,"A":2}`},
		{`{"a":1,"a":2,"a":3,"b":4,"a":5}`, `{"b":4,"a":5}`},
		{`{"\u0061":1,"a":2}`, `{"a":2}`},
		{`{"a":1,"\u0061":2}`, `{"\u0061":2}`},
		{`{"\ud83d\ude00":1,"😀":2,"c":3}`, `{"😀":2,"c":3}`},
		{`{"\n":1,"\u000a":2,"\\n":3}`, `{"\u000a":2,"\\n":3}`},
		{`{ "a" : { "x" : 1 , "x" : 2 } , "b" : { "x" : 1 , "x" : [ 3 ] } , "a" : 0 }`, `{"b":{"x":[3]},"a":0}`},
		{`{"o":{"a":1,"o":{"a":1,"b":2,"a":3},"a":4},"p":[{"q":1,"q":2}]}`, `{"o":{"o":{"b":2,"a":3},"a":4},"p":[{"q":2}]}`},
		{`[{"a":1},{"a":1},{"a":{"a":1}}]`, `[{"a":1},{"a":1},{"a":{"a":1}}]`},
	} {
		got, err := Normalize([]byte("kept"), []byte(c.in), 10)
		if err != nil || string(got) != "kept"+c.want {
			t.Errorf("Normalize(%s) = %s, %v; want %s", c.in, got, err, c.want)
		}
	}
}

// TestNormalizeRefuses checks the errors and where they point.
func TestNormalizeRefuses(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		in     string
		offset int
		reason string
	}{
		{``, 0, "end of text"}, {`  `, 2, "end of text"},
		{`1 2`, 2, "after the value"}, {`{}x`, 2, "after the value"}, {`01`, 1, "after the value"},
		{"1\x00", 1, "after the value"}, {"1\v", 1, "after the value"},
		{`-`, 1, "number"}, {`1.`, 2, "number"}, {`1.e1`, 2, "number"}, {`1e`, 2, "number"}, {`1e+`, 3, "number"}, {`-a`, 1, "number"},
		{`.5`, 0, "value starts"}, {`+1`, 0, "value starts"}, {`NaN`, 0, "value starts"}, {`Infinity`, 0, "value starts"},
		{"\xef\xbb\xbf1", 0, "value starts"}, {`'a'`, 0, "value starts"},
		{`tru`, 0, "word"}, {`nul1`, 0, "word"}, {`falsE`, 0, "word"}, {`nan`, 0, "word"},
		{`"`, 1, "end of text"}, {`"abcdefghijk`, 12, "end of text"}, {`"\`, 2, "end of text"}, {`"\"`, 3, "end of text"},
		{"\"a\nb\"", 2, "control"}, {"\"0123456789\x1fabcdefgh\"", 11, "control"}, {"\"\x00\"", 1, "control"},
		{`"\x"`, 1, "bad escape"}, {`"\u12"`, 1, `\u escape`}, {`"\u12g4"`, 1, `\u escape`}, {`"\U0041"`, 1, "bad escape"},
		{`"\ud800"`, 1, "surrogate"}, {`"\udc00"`, 1, "surrogate"}, {`"\ud800\ud800"`, 1, "surrogate"}, {`"\ud800x"`, 1, "surrogate"}, {`"\ud800\u00zz"`, 1, "surrogate"},
		{"\"\xff\"", 1, "UTF-8"}, {"\"abc\xc3\"", 4, "UTF-8"}, {"\"\xed\xa0\x80\"", 1, "UTF-8"}, {"\"\xc0\x80\"", 1, "UTF-8"},
		{"\"é\xf5\x80\x80\x80\"", 3, "UTF-8"}, {"{\"\xfe\":1}", 2, "UTF-8"},
		{`[`, 1, "end of text"}, {`[1`, 2, "array"}, {`[1,`, 3, "end of text"}, {`[1,]`, 3, "value starts"}, {`[,1]`, 1, "value starts"}, {`[1 2]`, 3, "comma"}, {`[1}`, 2, "comma"},
		{`{`, 1, "object"}, {`{"a"`, 4, "colon"}, {`{"a":`, 5, "end of text"}, {`{"a":1`, 6, "object"}, {`{"a":1,`, 7, "object"},
		{`{"a":1,}`, 7, "member name"}, {`{1:2}`, 1, "member name"}, {`{"a" 1}`, 5, "colon"}, {`{"a":1]`, 6, "comma"}, {`{"a":1 "b":2}`, 7, "comma"}, {`{,}`, 1, "member name"},
		{`/**/1`, 0, "value starts"},
		{`[[[[]]]]`, 3, "deeply"}, {`{"a":[{"b":[]}]}`, 11, "deeply"},
	} {
		dst := []byte("kept")
		got, err := Normalize(dst, []byte(c.in), 3)
		var bad *SyntaxError
		if !errors.As(err, &bad) || string(got) != "kept" {
			t.Errorf("Normalize(%q) = %q, %v; want a *SyntaxError", c.in, got, err)
			continue
		}
		if bad.Offset != c.offset || !strings.Contains(bad.Error(), c.reason) {
			t.Errorf("Normalize(%q): %v; want offset %d and %q", c.in, bad, c.offset, c.reason)
		}
	}
}

// TestNormalizeDepth checks that maxDepth counts containers and that deep text is
// accepted up to it.
func TestNormalizeDepth(t *testing.T) {
	t.Parallel()
	deep := []byte(strings.Repeat(`[`, 1000) + strings.Repeat(`]`, 1000))
	if _, err := Normalize(nil, deep, 1000); err != nil {
		t.Error(err)
	}
	if _, err := Normalize(nil, deep, 999); err == nil {
		t.Error("1000 levels passed a limit of 999")
	}
	if _, err := Normalize(nil, []byte(`[]`), 0); err == nil {
		t.Error("an array passed a limit of 0")
	}
	if _, err := Normalize(nil, []byte(`1`), 0); err != nil {
		t.Error(err)
	}
}

// TestNormalizeManyMembers compares the duplicate rule with a plain model on
// objects of sizes around the switch to hashing and far beyond, nested too.
func TestNormalizeManyMembers(t *testing.T) {
	t.Parallel()
	for _, size := range []int{1, 31, 32, 33, 34, 64, 65, 127, 128, 129, 1000, 20000} {
		for _, distinct := range []int{1, 2, size/2 + 1, size} {
			type entry struct{ key, text string }
			var all []entry
			last := map[string]int{}
			for i := range size {
				key := fmt.Sprintf("name-%d", i*7919%distinct)
				spelled := key
				if i%5 == 0 {
					spelled = `\u006e` + key[1:]
				}
				inner := fmt.Sprintf(`{"name-0":%d}`, i)
				last[key] = i
				all = append(all, entry{key, `"` + spelled + `":` + inner})
			}
			var in, want []string
			for i, e := range all {
				in = append(in, strings.Replace(e.text, `{`, `{ "name-0" : 0 , `, 1))
				if last[e.key] == i {
					want = append(want, e.text)
				}
			}
			got, err := Normalize(nil, []byte("["+"{"+strings.Join(in, " , ")+"}"+", {}]"), 10)
			if err != nil {
				t.Fatal(err)
			}
			if wanted := "[{" + strings.Join(want, ",") + "},{}]"; string(got) != wanted {
				t.Errorf("%d members, %d names: got %.300s, want %.300s", size, distinct, got, wanted)
			}
		}
	}
}

// TestNormalizeNestedLargeObjects has a large object at every level, so that
// several hash tables are open at once.
func TestNormalizeNestedLargeObjects(t *testing.T) {
	t.Parallel()
	in, want := `0`, `0`
	for range 5 {
		var head, tail strings.Builder
		for i := range 100 {
			fmt.Fprintf(&head, `"h%d":%d,`, i, i)
			fmt.Fprintf(&tail, `,"t%d":%d`, i, i)
		}
		in = `{` + head.String() + `"x":1,"x":` + in + tail.String() + `,"h0":7}`
		want = `{` + strings.TrimPrefix(head.String(), `"h0":0,`) + `"x":` + want + tail.String() + `,"h0":7}`
	}
	got, err := Normalize(nil, []byte(in), 10)
	if err != nil || string(got) != want {
		t.Errorf("got %.200s, %v", got, err)
	}
}

// FuzzNormalize compares Normalize with encoding/json. The documented differences
// are lone surrogates and invalid UTF-8, which only we refuse, and the depth.
func FuzzNormalize(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, src []byte) {
		before := bytes.Clone(src)
		got, err := Normalize(nil, src, 1000)
		if !bytes.Equal(before, src) {
			t.Fatal("the source was changed")
		}
		if err != nil {
			bad := err.(*SyntaxError)
			if bad.Offset < 0 || bad.Offset > len(src) {
				t.Fatalf("offset %d of %d", bad.Offset, len(src))
			}
			stricter := !utf8.Valid(src) || strings.Contains(bad.Reason, "surrogate") || strings.Contains(bad.Reason, "deeply")
			if json.Valid(src) && !stricter {
				t.Fatalf("refused valid %q: %v", src, err)
			}
			return
		}
		if !json.Valid(src) {
			t.Fatalf("accepted %q", src)
		}
		if !utf8.Valid(got) || !json.Valid(got) {
			t.Fatalf("%q became invalid %q", src, got)
		}
		again, err := Normalize(nil, got, 1000)
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("not idempotent: %q, then %q, %v", got, again, err)
		}
		var compact bytes.Buffer
		if err := json.Compact(&compact, src); err != nil {
			t.Fatal(err)
		}
		if len(got) > compact.Len() {
			t.Fatalf("%q is longer than %q", got, compact.Bytes())
		}
		if len(got) == compact.Len() && !bytes.Equal(got, compact.Bytes()) {
			t.Fatalf("%q differs from %q", got, compact.Bytes())
		}
		want, have := decode(t, src), decode(t, got)
		if !deepEqual(want, have) {
			t.Fatalf("%q means %v, %q means %v", src, want, got, have)
		}
		if duplicates := hasDuplicates(t, got); duplicates {
			t.Fatalf("duplicates left in %q", got)
		}
	})
}
