package reduce

import (
	"context"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/rawjson"
)

var allNames = []string{"_sum", "_count", "_stats", "_approx_count_distinct", "_first", "_last", "_top_1", "_top_5", "_bottom_3", "_bottom_100"}

// reduceTree reduces rows by way of a random tree of states; with shuffle the
// states of each level come in random order, as those of several copies do.
func reduceTree(t testing.TB, r Reducer, rows []Row, rnd *rand.Rand, shuffle bool) []byte {
	var runs []Run
	for len(rows) > 0 {
		n := 1 + rnd.IntN(min(len(rows), 7))
		runs = append(runs, Run{Rows: rows[:n]})
		rows = rows[n:]
	}
	for {
		states, err := r.Reduce(context.Background(), runs)
		if err != nil {
			t.Fatal(err)
		}
		if len(states) == 1 {
			return states[0]
		}
		if shuffle {
			rnd.Shuffle(len(states), func(i, j int) { states[i], states[j] = states[j], states[i] })
		}
		runs = nil
		for len(states) > 0 {
			n := 1 + rnd.IntN(min(len(states), 5))
			runs = append(runs, Run{States: states[:n]})
			states = states[n:]
		}
	}
}

// randomNumber makes numbers of all sizes and spellings.
func randomNumber(r *rand.Rand) string {
	switch r.IntN(8) {
	case 0:
		return fmt.Sprint(r.Int64() - r.Int64())
	case 1:
		n := new(big.Int).Lsh(big.NewInt(r.Int64()), uint(r.IntN(200)))
		if r.IntN(2) == 0 {
			n.Neg(n)
		}
		return n.String()
	case 2:
		return fmt.Sprintf("%d.%02d", r.IntN(2000)-1000, r.IntN(100))
	case 3:
		for {
			if f := math.Float64frombits(r.Uint64()); !math.IsNaN(f) && math.Abs(f) < 1e150 {
				return strings.Replace(strconv.FormatFloat(f, 'e', -1, 64), "e", ".0e", strings.Count(strconv.FormatFloat(f, 'e', -1, 64), ".")^1)
			}
		}
	case 4:
		return fmt.Sprintf("%de-%d", r.IntN(100)-50, r.IntN(320))
	}
	return fmt.Sprint(r.IntN(200) - 100)
}

// randomValue makes values that reductions take, and now and then some they do not.
func randomValue(r *rand.Rand, sort int) string {
	array := func(n int) string {
		items := make([]string, n)
		for i := range items {
			items[i] = randomNumber(r)
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	switch sort {
	case 0:
		return randomNumber(r)
	case 1:
		return array(3)
	case 2:
		if r.IntN(3) == 0 {
			return randomNumber(r)
		}
		return array(r.IntN(4))
	case 3:
		return fmt.Sprintf(`{"min":%s,"sum":%s,"count":%d,"sumsqr":%s,"max":%s}`, randomNumber(r), randomNumber(r), r.IntN(9), randomNumber(r), randomNumber(r))
	case 4:
		var members []string
		for _, name := range []string{"b", "a", "c", "é", "\\n"} {
			if r.IntN(2) == 0 {
				members = append(members, fmt.Sprintf(`"%s":%s`, name, randomNumber(r)))
			}
		}
		if r.IntN(2) == 0 {
			members = append(members, `"list":`+array(r.IntN(3)))
		}
		if r.IntN(3) == 0 {
			members = append(members, `"in":`+randomValue(r, 4))
		}
		return "{" + strings.Join(members, ",") + "}"
	}
	return []string{"null", `"x"`, "true", randomNumber(r), randomNumber(r), `{"a":1}`, `[1]`}[r.IntN(7)]
}

// TestAnySplit checks that every way of dividing and ordering gives one value.
func TestAnySplit(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(3, 4))
	for i := range 400 {
		sort := i % 6
		var rows []Row
		for k := range 1 + rnd.IntN(40) {
			key := fmt.Sprint(k / 3)
			rows = append(rows, row(key, fmt.Sprintf("id%03d", k), randomValue(rnd, sort)))
		}
		for _, name := range allNames {
			r := must(t, name)
			want := show(t, r, reduceRun(t, r, Run{Rows: rows}))
			for _, shuffle := range []bool{false, true} {
				got := show(t, r, reduceTree(t, r, rows, rnd, shuffle))
				if got == want || isFault(got) && isFault(want) {
					continue // which of several faults is shown may depend on the way
				}
				t.Fatalf("%s (shuffled: %v) of %s:\n%s, in one go\n%s", name, shuffle, spelled(rows), got, want)
			}
		}
	}
}

// isFault tells whether a value is the fault of a reduction.
func isFault(v string) bool {
	return strings.HasPrefix(v, `{"error":"builtin_reduce_error"`) || strings.HasPrefix(v, "invalid_value: ")
}

// spelled lists the values of rows.
func spelled(rows []Row) string {
	var b strings.Builder
	for _, r := range rows {
		fmt.Fprintf(&b, "%s ", r.Value)
	}
	return b.String()
}

// TestModel compares sums and statistics of numbers with exact arithmetic, and
// the ranks with sorting everything.
func TestModel(t *testing.T) {
	t.Parallel()
	rnd := rand.New(rand.NewPCG(5, 6))
	sum, stats, top, bottom := must(t, "_sum"), must(t, "_stats"), must(t, "_top_5"), must(t, "_bottom_3")
	for range 500 {
		var rows []Row
		var values [][]byte
		total, squares, isFloat := new(big.Rat), new(big.Rat), false
		for k := range 1 + rnd.IntN(30) {
			v := randomNumber(rnd)
			x, float := exact(t, v)
			total.Add(total, x)
			square := new(big.Rat).Mul(x, x)
			if float {
				isFloat = true
				f, _ := x.Float64()
				square.SetFloat64(f * f)
			}
			squares.Add(squares, square)
			rows = append(rows, row(fmt.Sprint(k), "id", v))
			values = append(values, []byte(v))
		}
		slices.SortStableFunc(values, collate.Compare)
		if got, want := show(t, sum, reduceTree(t, sum, rows, rnd, true)), printed(total, isFloat); got != want {
			t.Fatalf("sum of %s: %s, want %s", spelled(rows), got, want)
		}
		five := show(t, stats, reduceTree(t, stats, rows, rnd, true))
		for name, want := range map[string]string{"sum": printed(total, isFloat), "sumsqr": printed(squares, isFloat), "count": fmt.Sprint(len(rows))} {
			if got, _ := rawjson.Get([]byte(five), name); string(got) != want {
				t.Fatalf("%s of %s: %s, want %s", name, spelled(rows), got, want)
			}
		}
		for name, want := range map[string][]byte{"min": values[0], "max": values[len(values)-1]} {
			if got, _ := rawjson.Get([]byte(five), name); collate.Compare(got, want) != 0 {
				t.Fatalf("%s of %s: %s, want %s", name, spelled(rows), got, want)
			}
		}
		values = slices.CompactFunc(values, func(a, b []byte) bool { return collate.Compare(a, b) == 0 })
		checkRank(t, show(t, bottom, reduceTree(t, bottom, rows, rnd, true)), values[:min(3, len(values))])
		slices.Reverse(values)
		checkRank(t, show(t, top, reduceTree(t, top, rows, rnd, true)), values[:min(5, len(values))])
	}
}

// checkRank compares a list of values.
func checkRank(t *testing.T, got string, want [][]byte) {
	t.Helper()
	if collate.Compare([]byte(got), []byte("["+string(slices.Concat(joined(want)...))+"]")) != 0 {
		t.Fatalf("%s, want %s", got, want)
	}
}

// joined puts commas between values.
func joined(values [][]byte) [][]byte {
	var out [][]byte
	for i, v := range values {
		if i > 0 {
			out = append(out, []byte(","))
		}
		out = append(out, v)
	}
	return out
}

// exact gives the value a JSON number stands for, and whether it is a float.
func exact(t *testing.T, v string) (*big.Rat, bool) {
	t.Helper()
	if !strings.ContainsAny(v, ".eE") {
		x, ok := new(big.Rat).SetString(v)
		if !ok {
			t.Fatal(v)
		}
		return x, false
	}
	f, err := strconv.ParseFloat(v, 64)
	if err != nil {
		t.Fatal(err)
	}
	return new(big.Rat).SetFloat64(f), true
}

// printed spells the exact result as the reductions shall.
func printed(x *big.Rat, isFloat bool) string {
	if !isFloat {
		return x.Num().String()
	}
	f, _ := x.Float64()
	return string(appendFloat(nil, f))
}

// FuzzValues reduces arbitrary values in one go and divided.
func FuzzValues(f *testing.F) {
	for _, s := range []string{`[1,2.5,-3e10]`, `[[1],[2,3],4]`, `[{"a":1},{"a":{"b":[1]}}]`, `["x",null]`, `[{"sum":1,"count":1,"min":1,"max":1,"sumsqr":1},3]`, `[123456789012345678901234567890,0.1]`} {
		f.Add([]byte(s), uint64(1))
	}
	f.Fuzz(func(t *testing.T, values []byte, seed uint64) {
		v, err := rawjson.Normalize(nil, values, 50)
		if err != nil || v[0] != '[' || v[1] == ']' {
			return
		}
		rows := rowsOf(t, string(v))
		rnd := rand.New(rand.NewPCG(seed, 0))
		for _, name := range allNames {
			r := must(t, name)
			want := show(t, r, reduceRun(t, r, Run{Rows: rows}))
			got := show(t, r, reduceTree(t, r, rows, rnd, false))
			if got != want && !(isFault(got) && isFault(want)) && len(v) < overflowSize {
				t.Fatalf("%s of %s: %s, in one go %s", name, v, got, want)
			}
			if _, err := rawjson.Normalize(nil, []byte(want), 60); err != nil && !isFault(want) {
				t.Fatalf("%s of %s: %s: %v", name, v, want, err)
			}
		}
	})
}

// FuzzStates gives arbitrary bytes as states: they are refused or read, and never
// end the process.
func FuzzStates(f *testing.F) {
	for _, name := range allNames {
		r, _ := Builtin(name)
		for _, values := range []string{`[1,2.5]`, `[[1],[2]]`, `[{"a":1},{"a":2}]`, `["x"]`} {
			states, err := r.Reduce(context.Background(), []Run{{Rows: rowsOf(f, values)}})
			if err != nil {
				f.Fatal(err)
			}
			f.Add(states[0], states[0])
		}
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		for _, name := range allNames {
			r := must(t, name)
			if states, err := r.Reduce(context.Background(), []Run{{States: [][]byte{a, b}}}); err == nil {
				if _, err := r.Final(states[0]); err != nil && strings.HasPrefix(err.Error(), "corrupt") {
					t.Fatalf("%s: made a bad state of %q and %q: %q", name, a, b, states[0])
				}
			}
		}
		s := script{}
		_, _ = s.Final(a)
	})
}

// BenchmarkRun measures one run of 32 rows.
func BenchmarkRun(b *testing.B) {
	for name, value := range map[string]func(i int) string{
		"int":    func(i int) string { return fmt.Sprint(i * 7) },
		"float":  func(i int) string { return fmt.Sprintf("%d.%02d", i*7, i) },
		"array":  func(i int) string { return fmt.Sprintf("[%d,%d,%d]", i, 2*i, 3*i) },
		"object": func(i int) string { return fmt.Sprintf(`{"a":%d,"b":%d}`, i, 2*i) },
	} {
		var rows []Row
		for i := range 32 {
			rows = append(rows, row(fmt.Sprintf(`["type-%d",%d]`, i%4, i), fmt.Sprintf("doc-%08d", i), value(i)))
		}
		for _, fn := range allNames[:7] {
			if name != "int" && fn != "_sum" && fn != "_stats" {
				continue
			}
			b.Run(fn+"/"+name, func(b *testing.B) {
				r := must(b, fn)
				runs := make([]Run, 64)
				for i := range runs {
					runs[i].Rows = rows
				}
				b.ReportAllocs()
				for range b.N/len(runs) + 1 {
					if _, err := r.Reduce(context.Background(), runs); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
