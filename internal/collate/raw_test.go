package collate

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/rawjson"
)

// rawOrdered is a ladder of values in the raw order, each lower than the next.
var rawOrdered = []string{
	`-2` + strings.Repeat("0", 400), `-9007199254740993`, `-9007199254740992`, `-1.5`, `-1`, `0`, `0.1`, `1`, `1.5`, `10`, `9007199254740992`, `9007199254740993`, `12345678901234567890`, `1` + strings.Repeat("0", 400),
	`false`, `null`, `true`,
	`{}`, `{"":1}`, `{"A":1}`, `{"a":1}`, `{"a":1,"b":1}`, `{"a":2}`, `{"a":false}`, `{"a":{}}`, `{"a":[]}`, `{"a":""}`, `{"a\u0000":1}`, `{"aa":1}`, `{"b":1}`, `{"b":1,"a":1}`, `{"é":1}`,
	`[]`, `[0]`, `[0,0]`, `[1]`, `[1,null]`, `[false]`, `[{}]`, `[[]]`, `[[],1]`, `[[1]]`, `[""]`, `["a"]`, `["a",1]`, `["a\u0000"]`, `["b"]`,
	`""`, `"\u0000"`, `"\u0000\u0000"`, `"\u0001"`, `" "`, `"0"`, `"A"`, `"B"`, `"a"`, `"a\u0000"`, `"a\u0001"`, `"aa"`, `"b"`, `"\u007f"`, `"é"`, `"日"`, `"\uffff"`, `"\ud83d\ude00"`,
}

// TestRawLadder checks every pair of the ladder, by comparison and by key.
func TestRawLadder(t *testing.T) {
	t.Parallel()
	var values [][]byte
	for _, s := range rawOrdered {
		v, err := rawjson.Normalize(nil, []byte(s), 100)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		values = append(values, v)
	}
	for i, a := range values {
		for j, b := range values {
			want := min(max(i-j, -1), 1)
			if got := CompareRaw(a, b); got != want {
				t.Errorf("CompareRaw(%.40s, %.40s) = %d, want %d", a, b, got, want)
			}
			if got := bytes.Compare(AppendRawKey(nil, a), AppendRawKey(nil, b)); got != want {
				t.Errorf("keys of %.40s and %.40s: %d, want %d", a, b, got, want)
			}
		}
	}
	for _, pair := range [][2]string{{`1`, `1.0`}, {`"\u0061"`, `"a"`}, {`{"\u0061":[1]}`, `{"a":[1e0]}`}} {
		a, b := []byte(pair[0]), []byte(pair[1])
		if CompareRaw(a, b) != 0 || !bytes.Equal(AppendRawKey(nil, a), AppendRawKey(nil, b)) {
			t.Errorf("%s and %s are not equal", a, b)
		}
	}
}

// rawModel is the raw order spelled out over decoded values without objects.
func rawModel(a, b any) int {
	rank := func(v any) int {
		switch v := v.(type) {
		case json.Number:
			return 0
		case bool:
			if v {
				return 3
			}
			return 1
		case nil:
			return 2
		case []any:
			return 4
		}
		return 5
	}
	if ra, rb := rank(a), rank(b); ra != rb {
		return min(max(ra-rb, -1), 1)
	}
	switch a := a.(type) {
	case json.Number:
		return modelNumber(a).Cmp(modelNumber(b.(json.Number)))
	case string:
		return strings.Compare(a, b.(string))
	case []any:
		return slices.CompareFunc(a, b.([]any), rawModel)
	}
	return 0
}

// TestRawModel compares random values with the model, and keys with the comparison.
func TestRawModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(9, 9))
	for range 30000 {
		a, b := randomValue(r, 3), randomValue(r, 3)
		checkRaw(t, a, b)
		if !bytes.ContainsRune(a, '{') && !bytes.ContainsRune(b, '{') {
			if m, c := rawModel(decodeModel(t, a), decodeModel(t, b)), CompareRaw(a, b); m != c {
				t.Fatalf("CompareRaw(%s, %s) = %d, the model says %d", a, b, c, m)
			}
		}
	}
}

// checkRaw checks that comparison and keys agree on two values.
func checkRaw(t *testing.T, a, b []byte) {
	t.Helper()
	c := CompareRaw(a, b)
	if CompareRaw(b, a) != -c || CompareRaw(a, a) != 0 {
		t.Fatalf("not antisymmetric: %s %s", a, b)
	}
	ka, kb := AppendRawKey(nil, a), AppendRawKey(nil, b)
	if k := bytes.Compare(ka, kb); k != c {
		t.Fatalf("keys of %s and %s: %d, CompareRaw %d", a, b, k, c)
	}
	if c != 0 && (bytes.HasPrefix(ka, kb) || bytes.HasPrefix(kb, ka)) {
		t.Fatalf("of the keys of %s and %s one is the beginning of the other", a, b)
	}
}

// FuzzCompareRaw feeds arbitrary JSON: keys must order as the comparison does.
func FuzzCompareRaw(f *testing.F) {
	for i, s := range rawOrdered {
		f.Add([]byte(s), []byte(rawOrdered[(i+1)%len(rawOrdered)]))
	}
	f.Fuzz(func(t *testing.T, x, y []byte) {
		a, err := rawjson.Normalize(nil, x, 50)
		if err != nil {
			return
		}
		b, err := rawjson.Normalize(nil, y, 50)
		if err != nil {
			return
		}
		checkRaw(t, a, b)
	})
}

// checkPrefix checks for two keys that the second lies in the group of the first
// exactly if it is an array that begins with the same n elements.
func checkPrefix(t *testing.T, a, b []byte, n int, raw bool) {
	t.Helper()
	compare, appendKey := Compare, AppendKey
	if raw {
		compare, appendKey = CompareRaw, AppendRawKey
	}
	prefix, ok := ArrayPrefix([]byte("x"), a, n, raw)
	long := func(v []byte) bool { return v[0] == '[' && rawjson.Len(v) >= n && n > 0 }
	if ok != long(a) || !ok && string(prefix) != "x" {
		t.Fatalf("%s at level %d: %q, %v", a, n, prefix, ok)
	}
	if !ok {
		return
	}
	want := long(b) && compare(firstElements(a, n), firstElements(b, n)) == 0
	if got := bytes.HasPrefix(appendKey(nil, b), prefix[1:]); got != want {
		t.Fatalf("%s in the group of %s at level %d (raw: %v): %v, want %v", b, a, n, raw, got, want)
	}
}

// firstElements cuts an array.
func firstElements(v []byte, n int) []byte {
	out := []byte{'['}
	for x := range rawjson.Elements(v) {
		if n--; n < 0 {
			break
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, x...)
	}
	return append(out, ']')
}

// TestArrayPrefix checks random keys, and arrays that begin alike.
func TestArrayPrefix(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(10, 10))
	for range 30000 {
		a, b := randomValue(r, 3), randomValue(r, 3)
		n, raw := r.IntN(5), r.IntN(2) == 0
		if a[0] == '[' && r.IntN(2) == 0 {
			// The same beginning and another end.
			b = firstElements(a, r.IntN(4))
			if more := randomValue(r, 1); len(b) > 2 {
				b = append(append(append(b[:len(b)-1], ','), more...), ']')
			}
		}
		checkPrefix(t, a, b, n, raw)
	}
}

// FuzzArrayPrefix feeds arbitrary keys and levels.
func FuzzArrayPrefix(f *testing.F) {
	f.Add([]byte(`[1,2,3]`), []byte(`[1,2]`), 2, false)
	f.Add([]byte(`["a","b"]`), []byte(`["a","bc"]`), 2, true)
	f.Add([]byte(`["a",{}]`), []byte(`["a"]`), 1, false)
	f.Add([]byte(`[[],1]`), []byte(`[[1],1]`), 1, true)
	f.Fuzz(func(t *testing.T, x, y []byte, n int, raw bool) {
		a, err := rawjson.Normalize(nil, x, 50)
		if err != nil {
			return
		}
		b, err := rawjson.Normalize(nil, y, 50)
		if err != nil {
			return
		}
		checkPrefix(t, a, b, n, raw)
	})
}
