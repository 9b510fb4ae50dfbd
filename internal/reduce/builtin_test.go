package reduce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// rowsOf makes rows of a JSON array of values; the key is the place, the id too.
func rowsOf(t testing.TB, values string) []Row {
	t.Helper()
	v, err := rawjson.Normalize(nil, []byte(values), 1000)
	if err != nil {
		t.Fatalf("%s: %v", values, err)
	}
	var rows []Row
	for x := range rawjson.Elements(v) {
		rows = append(rows, row(fmt.Sprint(len(rows)), fmt.Sprintf("id%04d", len(rows)), string(x)))
	}
	return rows
}

// row makes a row.
func row(key, id, value string) Row {
	return Row{Sort: collate.AppendKey(nil, []byte(key)), Key: []byte(key), ID: id, Value: []byte(value)}
}

// must gives a built-in reducer.
func must(t testing.TB, name string) Reducer {
	t.Helper()
	r, err := Builtin(name)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// reduceRun gives the state of one run.
func reduceRun(t testing.TB, r Reducer, run Run) []byte {
	t.Helper()
	states, err := r.Reduce(context.Background(), []Run{run})
	if err != nil || len(states) != 1 {
		t.Fatalf("%d states, %v", len(states), err)
	}
	return states[0]
}

// show gives the value of a state, or the words of its error.
func show(t testing.TB, r Reducer, state []byte) string {
	t.Helper()
	v, err := r.Final(state)
	var e *model.Error
	if errors.As(err, &e) && e.Kind == model.KindInternal {
		return e.Name + ": " + e.Reason
	}
	if err != nil {
		t.Fatalf("state %q: %v", state, err)
	}
	return string(v)
}

const sumError = `{"error":"builtin_reduce_error","reason":"The _sum function requires that map values be numbers, arrays of numbers, or objects. Objects cannot be mixed with other data structures. Objects can be arbitrarily nested, provided that the values for all fields are themselves numbers, arrays of numbers, or objects.","caused_by":`

// TestValues checks what CouchDB's code and documentation say of single runs.
func TestValues(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ name, values, want string }{
		{"_sum", `[1,2,3]`, `6`},
		{"_sum", `[]`, `0`},
		{"_sum", `[0.1,0.2]`, `0.30000000000000004`},
		{"_sum", `[1.5,1.5]`, `3.0`},
		{"_sum", `[1,0.5]`, `1.5`},
		{"_sum", `[1e21,0.0]`, `1e+21`},
		{"_sum", `[1e-7]`, `1e-7`},
		{"_sum", `[0.000001]`, `0.000001`},
		{"_sum", `[-0.0]`, `0.0`},
		{"_sum", `[123456789012345680000.0]`, `123456789012345680000.0`},
		{"_sum", `[9223372036854775807,1]`, `9223372036854775808`},
		{"_sum", `[-9223372036854775808,-1]`, `-9223372036854775809`},
		{"_sum", `[123456789012345678901234567890,1]`, `123456789012345678901234567891`},
		{"_sum", `[9007199254740993,0.5,-0.5]`, `9007199254740992.0`},
		{"_sum", `[2,[3,5,7],[0,0,0,42],1,3]`, `[9,5,7,42]`},
		{"_sum", `[[],[]]`, `[0]`},
		{"_sum", `[[1],[2,3.5]]`, `[3,3.5]`},
		{"_sum", `[{"b":1,"a":2}]`, `{"b":1,"a":2}`},
		{"_sum", `[{"b":1,"a":2},{"a":1,"c":{"z":1,"y":2}}]`, `{"a":3,"b":1,"c":{"z":1,"y":2}}`},
		{"_sum", `[{"a":1,"b":[1,2],"c":{"d":3},"g":1},{"a":2,"b":3,"c":{"e":5},"f":1,"g":1}]`, `{"a":3,"b":[4,2],"c":{"d":3,"e":5},"f":1,"g":2}`},
		{"_sum", `["x"]`, sumError + `"x"}`},
		{"_sum", `[1,null,"x"]`, sumError + `null}`},
		{"_sum", `[["x"]]`, sumError + `["x"]}`},
		{"_sum", `[[1,"x"]]`, `[1,"x"]`},
		{"_sum", `[[1,"x"],[1,2]]`, sumError + `[1,2]}`},
		{"_sum", `[{"a":"x"}]`, `{"a":"x"}`},
		{"_sum", `[{"a":"x"},{"b":1}]`, `{"a":"x","b":1}`},
		{"_sum", `[{"a":"x"},{"a":1}]`, sumError + `{"a":1}}`},
		{"_sum", `[{"a":1},2]`, sumError + `2}`},
		{"_sum", `[2,{"a":1}]`, sumError + `{"a":1}}`},
		{"_sum", `[0,{"a":1}]`, sumError + `{"a":1}}`},
		{"_sum", `[{"a":1},[1]]`, sumError + `[1]}`},
		{"_sum", `[1,{"error":"builtin_reduce_error","reason":"r"},3]`, `{"error":"builtin_reduce_error","reason":"r"}`},
		{"_sum", `[{"error":3},{"error":4}]`, `{"error":7}`},
		{"_sum", `[1e308,1e308]`, `{"error":"builtin_reduce_error","reason":"The sum is beyond the range of floating point numbers."}`},
		{"_sum", `[1e308,1e308,-1e308]`, `1e+308`},
		{"_sum", `[1e999]`, sumError + `1e999}`},
		{"_sum\n", `[1,2]`, `3`},

		{"_count", `[1,null,"x",{}]`, `4`},
		{"_count", `[]`, `0`},

		{"_stats", `[2]`, `{"sum":2,"count":1,"min":2,"max":2,"sumsqr":4}`},
		{"_stats", `[2,0]`, `{"sum":2,"count":2,"min":0,"max":2,"sumsqr":4}`},
		{"_stats", `[1,10]`, `{"sum":11,"count":2,"min":1,"max":10,"sumsqr":101}`},
		{"_stats", `[1.5,-2]`, `{"sum":-0.5,"count":2,"min":-2,"max":1.5,"sumsqr":6.25}`},
		{"_stats", `[1.0,1]`, `{"sum":2.0,"count":2,"min":1,"max":1,"sumsqr":2.0}`},
		{"_stats", `[[2,3,5],[7,11,13]]`, `[{"sum":9,"count":2,"min":2,"max":7,"sumsqr":53},{"sum":14,"count":2,"min":3,"max":11,"sumsqr":130},{"sum":18,"count":2,"min":5,"max":13,"sumsqr":194}]`},
		{"_stats", `[{"sum":10,"count":3,"min":1,"max":6,"sumsqr":46,"x":"ignored"},2]`, `{"sum":12,"count":4,"min":1,"max":6,"sumsqr":50}`},
		{"_stats", `[[]]`, `[]`},
		{"_stats", `[]`, `{"sum":0,"count":0,"min":0,"max":0,"sumsqr":0}`},
		{"_stats", `[4294967296,4294967296123]`, `{"sum":4299262263419,"count":2,"min":4294967296,"max":4294967296123,"sumsqr":18446762521510187280382745}`},
		{"_stats", `[123456789012345678901234567890]`, `{"sum":123456789012345678901234567890,"count":1,"min":123456789012345678901234567890,"max":123456789012345678901234567890,"sumsqr":15241578753238836750495351562536198787501905199875019052100}`},
		{"_stats", `["x"]`, `invalid_value: The _stats function requires that map values be numbers or arrays of numbers, not '"x"'`},
		{"_stats", `[[1],[1,2]]`, `invalid_value: The _stats function requires that map values be numbers or arrays of numbers, not '[1,2]'`},
		{"_stats", `[1,[1]]`, `invalid_value: The _stats function requires that map values be numbers or arrays of numbers, not '[1]'`},
		{"_stats", `[{"sum":1}]`, `invalid_value: user _stats input missing required field count ({"sum":1})`},
		{"_stats", `[{"sum":1,"count":"x"}]`, `invalid_value: non-numeric _stats input received for count: "x"`},
		{"_stats", `[1e200]`, `invalid_value: The square of 1e200 is beyond the range of floating point numbers.`},

		{"_approx_count_distinct", `[1,1,1]`, `3`}, // of the keys
		{"_approx_count_distinct", `[]`, `0`},

		{"_first", `["a","b","c"]`, `"a"`},
		{"_last", `["a","b","c"]`, `"c"`},
		{"_top_2", `[3,1,3,2]`, `[3,2]`},
		{"_bottom_2", `[3,1,3,2]`, `[1,2]`},
		{"_top_3", `[1,"a",null,[1],{"a":1}]`, `[{"a":1},[1],"a"]`},
		{"_bottom_100", `[1,"a",null,[1],{"a":1}]`, `[null,1,"a",[1],{"a":1}]`},
		{"_top_2", `[1.0,1]`, `[1]`},
		{"_top_1", `[]`, `[]`},
	} {
		r := must(t, c.name)
		if got := show(t, r, reduceRun(t, r, Run{Rows: rowsOf(t, c.values)})); got != c.want {
			t.Errorf("%s of %s:\n%s, want\n%s", c.name, c.values, got, c.want)
		}
	}
}

// TestNames checks which names there are.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"_foo", "_", "_su", "_top_", "_top_0", "_top_101", "_top_x", "_top_1x", "_top_01", "_top_1000", "_bottom_-1", "_bottom_0", "_TOP_1", "sum", ""} {
		_, err := Builtin(name)
		want := &model.Error{Kind: model.KindBadRequest, Name: "invalid_design_doc", Reason: "`" + name + "` is not a supported reduce function."}
		if !errors.Is(err, want) {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"_sum", "_count", "_stats", "_approx_count_distinct", "_first", "_last", "_top_1", "_top_100", "_bottom_7", "_stats "} {
		if v, ok := must(t, name).Empty(); v != nil || ok {
			t.Errorf("%s of nothing is %s", name, v)
		}
	}
	if IsBuiltin("") || IsBuiltin("function(){}") || !IsBuiltin("_sum") {
		t.Error("IsBuiltin")
	}
}

// TestOverflow checks that sums that only grow end as a fault, and that those
// which shrink do not.
func TestOverflow(t *testing.T) {
	t.Parallel()
	r := must(t, "_sum")
	object := func(prefix string, members int) string {
		var b strings.Builder
		for i := range members {
			fmt.Fprintf(&b, `,"%s%04d":1`, prefix, i)
		}
		return "{" + b.String()[1:] + "}"
	}
	state := reduceRun(t, r, Run{Rows: []Row{row(`1`, "a", object("a", 600)), row(`2`, "b", object("b", 600))}})
	if got := show(t, r, state); !strings.HasPrefix(got, `{"error":"builtin_reduce_error","reason":"Reduce output must shrink more rapidly: input size: `) || len(got) > 200 {
		t.Errorf("different members: %.300s", got)
	}
	if got := show(t, r, reduceRun(t, r, Run{States: [][]byte{state, state}})); !strings.Contains(got, "shrink") {
		t.Errorf("two of those: %.300s", got)
	}
	var rows []Row
	for i := range 8 {
		rows = append(rows, row(fmt.Sprint(i), "a", object("a", 600)))
	}
	if got := show(t, r, reduceRun(t, r, Run{Rows: rows})); !strings.Contains(got, `"a0599":8`) {
		t.Errorf("the same members: %.300s", got)
	}
	// A cause that is too long for a message is not kept.
	long := `"` + strings.Repeat("x", 100000) + `"`
	if got := reduceRun(t, r, Run{Rows: []Row{row(`1`, "a", long)}}); len(got) > 1000 {
		t.Errorf("a fault of %d bytes", len(got))
	}
	if got := reduceRun(t, r, Run{Rows: []Row{row(`1`, "a", strings.Repeat("9", 100000))}}); len(got) > 1000 {
		t.Errorf("a fault of %d bytes", len(got))
	}
}

// TestDistinct checks the error of the estimate: 2 % is one standard deviation.
func TestDistinct(t *testing.T) {
	t.Parallel()
	r := must(t, "_approx_count_distinct")
	for _, c := range []struct {
		n       int
		percent float64
	}{{1, 0}, {2, 0}, {10, 0}, {100, 5}, {1000, 6}, {1700, 7}, {2500, 7}, {5000, 7}, {20000, 7}, {100000, 7}} {
		var runs []Run
		for i := 0; i < c.n; i += 1000 {
			var rows []Row
			for k := i; k < min(i+1000, c.n); k++ {
				for range 2 {
					rows = append(rows, Row{Key: fmt.Appendf(nil, `["user-%d",%d]`, k%7, k)})
				}
			}
			runs = append(runs, Run{Rows: rows})
		}
		states, err := r.Reduce(context.Background(), runs)
		if err != nil {
			t.Fatal(err)
		}
		var got float64
		if _, err := fmt.Sscan(show(t, r, reduceRun(t, r, Run{States: states})), &got); err != nil {
			t.Fatal(err)
		}
		if off := 100 * (got - float64(c.n)) / float64(c.n); off > c.percent || -off > c.percent {
			t.Errorf("%d keys: %v, off by %.1f %%", c.n, got, off)
		}
	}
	for i := range 1000 {
		if got := show(t, r, reduceRun(t, r, Run{Rows: []Row{{Key: fmt.Appendf(nil, `%d`, i)}}})); got != "1" {
			t.Fatalf("one key: %s", got)
		}
	}
}

// TestStatesAreKept checks that states do not change when more is reduced, and
// that input is left alone.
func TestStatesAreKept(t *testing.T) {
	t.Parallel()
	for _, name := range allNames {
		r := must(t, name)
		runs := []Run{{Rows: rowsOf(t, `[1,2,0.5]`)}, {Rows: rowsOf(t, `[7,8]`)}, {Rows: rowsOf(t, `[9]`)}}
		states, err := r.Reduce(context.Background(), runs)
		if err != nil {
			t.Fatal(err)
		}
		first := bytes.Clone(states[0])
		one := reduceRun(t, r, Run{States: states[:1]})
		one[0] ^= 1
		_ = append(states[1], "xxxxxxxxxxxx"...)
		reduceRun(t, r, Run{States: states})
		if !bytes.Equal(first, states[0]) {
			t.Errorf("%s: the state changed", name)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := must(t, "_sum").Reduce(ctx, []Run{{}}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
