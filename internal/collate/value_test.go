package collate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/rawjson"
)

// ordered is a ladder of values, each lower than the next.
var ordered = []string{
	`null`, `false`, `true`,
	`-1e400`, `-2` + strings.Repeat("0", 400), `-1` + strings.Repeat("0", 400), `-` + strings.Repeat("9", 309), `-100000000000000000000000000000001`, `-100000000000000000000000000000000`, `-9007199254740993`, `-9007199254740992`, `-10`, `-1.5`, `-1`, `-1e-300`,
	`0`, `5e-324`, `0.1`, `1`, `1.5`, `2`, `10`, `9007199254740991`, `9007199254740992`, `9007199254740993`, `9007199254740994`,
	`12345678901234567890`, `12345678901234567891`, `1e20`, `100000000000000000001`, `1.7976931348623157e308`, strings.Repeat("9", 309), `1` + strings.Repeat("0", 309), `1` + strings.Repeat("0", 400), `1e999`,
	`""`, `" "`, `"_"`, `"0"`, `"1"`, `"a"`, `"A"`, `"aa"`, `"aA"`, `"Aa"`, `"AA"`, `"ab"`, `"b"`, `"B"`, `"ba"`, `"z"`, `"ä\u4e00"`, `"\u00e9"`, `"\u4e00"`, `"\ud83d\ude00\u4e00"`,
	`[]`, `[null]`, `[1]`, `[1,null]`, `[1,2]`, `["a"]`, `["a",[]]`, `["b"]`, `["b","c"]`, `[[]]`, `[{}]`,
	`{}`, `{"a":1}`, `{"a":1,"b":1}`, `{"a":2}`, `{"b":1}`, `{"b":2}`, `{"b":2,"a":1}`, `{"b":2,"c":2}`,
}

// TestLadder checks every pair of the ladder, by comparison and by key.
func TestLadder(t *testing.T) {
	t.Parallel()
	var values [][]byte
	for _, s := range ordered {
		v, err := rawjson.Normalize(nil, []byte(s), 100)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		values = append(values, v)
	}
	// Text is ordered by the golden test; here only that the ladder stays sorted
	// by its own comparison, types and numbers and structure as written.
	text := slices.IndexFunc(values, func(v []byte) bool { return v[0] == '"' })
	end := slices.IndexFunc(values, func(v []byte) bool { return v[0] == '[' })
	slices.SortFunc(values[text:end], Compare)
	for i, a := range values {
		for j, b := range values {
			want := 0
			if i < j {
				want = -1
			} else if i > j {
				want = 1
			}
			if got := Compare(a, b); got != want {
				t.Errorf("Compare(%.40s, %.40s) = %d, want %d", a, b, got, want)
			}
			if got := bytes.Compare(AppendKey(nil, a), AppendKey(nil, b)); got != want {
				t.Errorf("keys of %.40s and %.40s: %d, want %d", a, b, got, want)
			}
		}
	}
}

// TestEqualSpellings checks values that are one value in two spellings.
func TestEqualSpellings(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{`1`, `1.0`}, {`1`, `1e0`}, {`0`, `-0`}, {`0`, `-0.0`}, {`100`, `1E2`}, {`9007199254740992`, `9007199254740992.0`},
		{`"\u0061"`, `"a"`}, {`"\u00e9"`, `"e\u0301"`}, {`"a\u0000"`, `"a"`}, {`[1]`, `[1.0]`}, {`{"a":1}`, `{"\u0061":1e0}`},
		{`"\uac00"`, `"\u1100\u1161"`},
	} {
		a, b := []byte(pair[0]), []byte(pair[1])
		if c := Compare(a, b); c != 0 {
			t.Errorf("Compare(%s, %s) = %d", a, b, c)
		}
		if !bytes.Equal(AppendKey(nil, a), AppendKey(nil, b)) {
			t.Errorf("%s and %s have different keys", a, b)
		}
	}
}

// TestKnownText checks a few orders everybody knows.
func TestKnownText(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{"a", "A"}, {"A", "b"}, {"cote", "coté"}, {"coté", "côte"}, {"résumé", "resumes"}, {"a b", "ab"}, {"1", "a"}, {"z", "α"}, {"z", "日本"}, {"\U00020000", "日"}, {"一", "丁"}, {"\u4e00", "\u3400"},
		{"и", "й"}, {"ия", "йа"},
	} {
		if CompareStrings(pair[0], pair[1]) != -1 || CompareStrings(pair[1], pair[0]) != 1 {
			t.Errorf("%q is not before %q", pair[0], pair[1])
		}
	}
}

// TestDiscontiguousContraction checks that a mark of another class between the
// parts of a contraction does not break it.
func TestDiscontiguousContraction(t *testing.T) {
	t.Parallel()
	// U+0438 U+0306 contracts; U+0323 (below) may stand between, another mark above not.
	ws := root().weigh(nil, []byte("\u0438\u0323\u0306"))
	want := append(root().weigh(nil, []byte("\u0438\u0306")), root().weigh(nil, []byte("\u0323"))...)
	if !slices.Equal(ws, want) {
		t.Errorf("%x, want %x", ws, want)
	}
	blocked := root().weigh(nil, []byte("\u0438\u0301\u0306"))
	want = slices.Concat(root().weigh(nil, []byte("\u0438")), root().weigh(nil, []byte("\u0301")), root().weigh(nil, []byte("\u0306")))
	if !slices.Equal(blocked, want) {
		t.Errorf("%x, want %x", blocked, want)
	}
}

// randomText makes short text of mixed scripts with many near misses.
func randomText(r *rand.Rand) string {
	alphabet := []rune("aAbBeEzZ 01_-\u0000é\u0301\u0323äÄßœ" + "ий\u0306αΩ日本\u4e00\U00020000가\u1100\u1161😀\uffff\ufffd\u0f71\u0f72\u0f74")
	n := r.IntN(6)
	out := make([]rune, n)
	for i := range out {
		out[i] = alphabet[r.IntN(len(alphabet))]
	}
	return string(out)
}

// randomNumber makes numbers near the places where float64 and integers part.
func randomNumber(r *rand.Rand) string {
	switch r.IntN(6) {
	case 0:
		return fmt.Sprint(r.IntN(5) - 2)
	case 1:
		n := new(big.Int).Lsh(big.NewInt(1), uint(50+r.IntN(60)))
		n.Add(n, big.NewInt(int64(r.IntN(5)-2)))
		if r.IntN(2) == 0 {
			n.Neg(n)
		}
		return n.String()
	case 2:
		return fmt.Sprintf("%d.%d", r.IntN(3), r.IntN(3))
	case 3:
		return fmt.Sprintf("%de%d", r.IntN(3)-1, r.IntN(40)-20)
	case 4:
		return fmt.Sprintf("%d.0", int64(1)<<53+int64(r.IntN(4)))
	}
	return fmt.Sprint(int64(1)<<53 + int64(r.IntN(4)))
}

// randomValue makes a normalised value.
func randomValue(r *rand.Rand, depth int) []byte {
	kinds := 7
	if depth == 0 {
		kinds = 5
	}
	switch r.IntN(kinds) {
	case 0:
		return []byte([]string{"null", "false", "true"}[r.IntN(3)])
	case 1, 2:
		return []byte(randomNumber(r))
	case 3, 4:
		return rawjson.AppendString(nil, randomText(r))
	case 5:
		out := []byte{'['}
		for i := range r.IntN(4) {
			if i > 0 {
				out = append(out, ',')
			}
			out = append(out, randomValue(r, depth-1)...)
		}
		return append(out, ']')
	}
	out := []byte{'{'}
	for i := range r.IntN(3) {
		if i > 0 {
			out = append(out, ',')
		}
		out = rawjson.AppendString(out, string(rune('a'+i+r.IntN(2)*5)))
		out = append(append(out, ':'), randomValue(r, depth-1)...)
	}
	return append(out, '}')
}

// modelCompare is the order spelled out over decoded values; text alone is left
// to CompareStrings, which the golden file checks.
func modelCompare(a, b any) int {
	rank := func(v any) int {
		switch v := v.(type) {
		case nil:
			return 0
		case bool:
			if v {
				return 2
			}
			return 1
		case json.Number:
			return 3
		case string:
			return 4
		case []any:
			return 5
		}
		return 6
	}
	if ra, rb := rank(a), rank(b); ra != rb {
		if ra < rb {
			return -1
		}
		return 1
	}
	switch a := a.(type) {
	case json.Number:
		return modelNumber(a).Cmp(modelNumber(b.(json.Number)))
	case string:
		return CompareStrings(a, b.(string))
	case []any:
		return slices.CompareFunc(a, b.([]any), modelCompare)
	}
	return 0
}

// modelNumber gives the exact value a number stands for.
func modelNumber(n json.Number) *big.Rat {
	if !strings.ContainsAny(n.String(), ".eE") {
		r, _ := new(big.Rat).SetString(n.String())
		return r
	}
	f, _ := n.Float64()
	return new(big.Rat).SetFloat64(f)
}

// decodeModel decodes a value for the model.
func decodeModel(t testing.TB, v []byte) any {
	dec := json.NewDecoder(bytes.NewReader(v))
	dec.UseNumber()
	var out any
	if err := dec.Decode(&out); err != nil {
		t.Fatalf("%s: %v", v, err)
	}
	return out
}

// TestModel compares random values with the model, keys with the comparison,
// and checks antisymmetry and transitivity.
func TestModel(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 60000 {
		a, b, c := randomValue(r, 3), randomValue(r, 3), randomValue(r, 3)
		ab, bc, ac := Compare(a, b), Compare(b, c), Compare(a, c)
		if Compare(b, a) != -ab || Compare(a, a) != 0 {
			t.Fatalf("not antisymmetric: %s %s", a, b)
		}
		if ab <= 0 && bc <= 0 && ac > 0 || ab >= 0 && bc >= 0 && ac < 0 {
			t.Fatalf("not transitive: %s %s %s", a, b, c)
		}
		if k := bytes.Compare(AppendKey(nil, a), AppendKey(nil, b)); k != ab {
			t.Fatalf("keys of %s and %s: %d, Compare %d", a, b, k, ab)
		}
		if !bytes.ContainsRune(a, '{') && !bytes.ContainsRune(b, '{') {
			if m := modelCompare(decodeModel(t, a), decodeModel(t, b)); m != ab {
				t.Fatalf("Compare(%s, %s) = %d, the model says %d", a, b, ab, m)
			}
		}
	}
}

// FuzzCompare feeds arbitrary JSON: keys must order as the comparison does.
func FuzzCompare(f *testing.F) {
	for i, s := range ordered {
		f.Add([]byte(s), []byte(ordered[(i+1)%len(ordered)]))
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
		c := Compare(a, b)
		if Compare(b, a) != -c {
			t.Fatalf("not antisymmetric: %s %s", a, b)
		}
		if k := bytes.Compare(AppendKey(nil, a), AppendKey(nil, b)); k != c {
			t.Fatalf("keys of %s and %s: %d, Compare %d", a, b, k, c)
		}
	})
}

// BenchmarkKeyASCII measures the key of a short ASCII string.
func BenchmarkKeyASCII(b *testing.B) {
	v := []byte(`"order-2024-00012345"`)
	dst := make([]byte, 0, 128)
	for b.Loop() {
		dst = AppendKey(dst[:0], v)
	}
}

// BenchmarkKeyMixed measures the key of a string that is not ASCII.
func BenchmarkKeyMixed(b *testing.B) {
	v := []byte(`"Größe 12 naïve 日本"`)
	dst := make([]byte, 0, 128)
	for b.Loop() {
		dst = AppendKey(dst[:0], v)
	}
}

// BenchmarkCompareASCII measures the comparison of two short ASCII strings.
func BenchmarkCompareASCII(b *testing.B) {
	x, y := []byte(`"order-2024-00012345"`), []byte(`"order-2024-00012346"`)
	for b.Loop() {
		Compare(x, y)
	}
}
