package rawjson

import (
	"fmt"
	"strings"
	"testing"
)

// TestEqual checks pairs in both orders.
func TestEqual(t *testing.T) {
	t.Parallel()
	zeros := strings.Repeat("0", 40)
	for _, c := range []struct {
		a, b string
		want bool
	}{
		{`null`, `null`, true}, {`null`, `false`, false}, {`true`, `false`, false},
		{`1`, `1.0`, true}, {`1`, `1e0`, true}, {`10`, `1E+1`, true}, {`100`, `1e2`, true}, {`0.1`, `1e-1`, true}, {`1`, `-1`, false},
		{`0`, `-0`, true}, {`0`, `0.000e99`, true}, {`0`, `1`, false}, {`0e99999999999999999999`, `0`, true},
		{`12.5`, `125e-1`, true}, {`12.5`, `0.125e2`, true}, {`12.5`, `1.25e1`, true}, {`12.5`, `12.50`, true}, {`12.5`, `12.51`, false},
		{`0.0012`, `12e-4`, true}, {`1200`, `0.0012e6`, true}, {`101`, `1.01e2`, true}, {`101`, `10.1e2`, false},
		{`9007199254740993`, `9007199254740992`, false}, {`9007199254740993`, `9007199254740993.0`, true},
		{`1` + zeros, `1e40`, true}, {`1` + zeros + `1`, `1` + zeros + `2`, false}, {`1e400`, `1e401`, false}, {`1e400`, `10e399`, true},
		{`1e999999999999999999`, `10e999999999999999998`, true}, {`1e1000000000000000000`, `10e999999999999999999`, true},
		{`0.1e1000000000000000000`, `1e999999999999999999`, true}, {`1e99999999999999999999`, `0.1e100000000000000000000`, true},
		{`1e99999999999999999999`, `1e99999999999999999998`, false}, {`1e-100000000000000000000`, `10e-100000000000000000001`, true},
		{`10e-100000000000000000000`, `1e-99999999999999999999`, true}, {`1e-99999999999999999999`, `1e99999999999999999999`, false},
		{`"a"`, `"\u0061"`, true}, {`"\/"`, `"/"`, true}, {`"😀"`, `"\ud83d\uDE00"`, true}, {`"a"`, `"b"`, false}, {`"\\u0061"`, `"a"`, false}, {`"1"`, `1`, false},
		{`[]`, `[]`, true}, {`[]`, `{}`, false}, {`[1,2]`, `[1.0,2e0]`, true}, {`[1,2]`, `[2,1]`, false}, {`[1]`, `[1,2]`, false}, {`[1,2]`, `[1]`, false}, {`[[]]`, `[[[]]]`, false},
		{`{}`, `{}`, true}, {`{"a":1}`, `{}`, false}, {`{"a":1}`, `{"a":2}`, false}, {`{"a":1}`, `{"A":1}`, false},
		{`{"a":1,"b":2}`, `{"b":2,"a":1}`, true}, {`{"a":1,"b":2,"c":3}`, `{"a":1,"c":3.0,"\u0062":2}`, true},
		{`{"a":1,"b":2}`, `{"a":1}`, false}, {`{"a":1,"b":2}`, `{"b":2}`, false}, {`{"a":1,"b":2}`, `{"b":2,"c":1}`, false}, {`{"a":1,"b":2}`, `{"b":1,"a":2}`, false},
		{`{"x":{"a":[{"p":1,"q":2}],"b":0},"y":1}`, `{"y":1,"x":{"b":0,"a":[{"q":2,"p":1}]}}`, true},
		{`[{"a":1,"b":2},3]`, `[{"b":2,"a":1},4]`, false}, {`[{"a":1,"b":2},3]`, `[{"b":2,"a":1},3]`, true},
		{``, ``, false}, {`1`, ``, false},
	} {
		if got := Equal([]byte(c.a), []byte(c.b)); got != c.want {
			t.Errorf("Equal(%s, %s) = %t", c.a, c.b, got)
		}
		if got := Equal([]byte(c.b), []byte(c.a)); got != c.want {
			t.Errorf("Equal(%s, %s) = %t", c.b, c.a, got)
		}
	}
}

// TestEqualLargeReordered compares a large object with its reverse.
func TestEqualLargeReordered(t *testing.T) {
	t.Parallel()
	var forth, back []string
	for i := range 50000 {
		m := fmt.Sprintf(`"member %d":{"n":%d}`, i, i)
		forth = append(forth, m)
		back = append(back, m)
	}
	for i, j := 0, len(back)-1; i < j; i, j = i+1, j-1 {
		back[i], back[j] = back[j], back[i]
	}
	a := []byte("{" + strings.Join(forth, ",") + "}")
	b := []byte("{" + strings.Join(back, ",") + "}")
	if !Equal(a, b) {
		t.Error("the reverse differs")
	}
	back[17] = `"member 17":null`
	if Equal(a, []byte("{"+strings.Join(back, ",")+"}")) {
		t.Error("a changed member was not noticed")
	}
}

// FuzzEqual compares Equal with a model on decoded values.
func FuzzEqual(f *testing.F) {
	for i, s := range seeds {
		f.Add([]byte(s), []byte(s))
		f.Add([]byte(s), []byte(seeds[(i+1)%len(seeds)]))
	}
	f.Add([]byte(`{"a":1.50,"b":[1e2]}`), []byte(`{"b":[100],"a":15e-1}`))
	f.Add([]byte(`1e99999999999999999999`), []byte(`10e99999999999999999998`))
	f.Fuzz(func(t *testing.T, a, b []byte) {
		x, errX := Normalize(nil, a, 100)
		y, errY := Normalize(nil, b, 100)
		if errX != nil || errY != nil {
			return
		}
		if !Equal(x, x) || !Equal(y, y) {
			t.Fatalf("%s or %s is not equal to itself", x, y)
		}
		got := Equal(x, y)
		if got != Equal(y, x) {
			t.Fatalf("Equal(%s, %s) is not symmetric", x, y)
		}
		want, decided := sameValue(decode(t, x), decode(t, y))
		if decided && got != want {
			t.Fatalf("Equal(%s, %s) = %t, want %t", x, y, got, want)
		}
	})
}
