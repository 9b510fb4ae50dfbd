package rawjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// TestMembers checks names, values, order and the early end.
func TestMembers(t *testing.T) {
	t.Parallel()
	obj := []byte(`{"a":1,"":"}","\u0062\n":{"x":[1,"]"]},"long name \" of many bytes":[[],{}],"z":-1.5e3,"n":null}`)
	want := []Member{
		{"a", []byte(`1`)}, {"", []byte(`"}"`)}, {"b\n", []byte(`{"x":[1,"]"]}`)},
		{`long name " of many bytes`, []byte(`[[],{}]`)}, {"z", []byte(`-1.5e3`)}, {"n", []byte(`null`)},
	}
	if got := AppendMembers(nil, obj); !reflect.DeepEqual(got, want) {
		t.Errorf("got %q", got)
	}
	if Len(obj) != len(want) {
		t.Errorf("Len = %d", Len(obj))
	}
	for name := range Members(obj) {
		if string(name) != "a" {
			t.Errorf("went on to %q after the loop was left", name)
		}
		break
	}
	for _, v := range []string{``, `{`, `{}`, `[]`, `[1]`, `"{}"`, `1`, `null`} {
		for name := range Members([]byte(v)) {
			t.Errorf("%s has the member %q", v, name)
		}
	}
	for _, value := range Members([]byte(`{"a":1,"b":2}`)) {
		if cap(value) != len(value) {
			t.Error("appending to a value would overwrite the text behind it")
		}
	}
}

// TestElements checks values and order.
func TestElements(t *testing.T) {
	t.Parallel()
	arr := []byte(`[1,"a,]\\",[2,[3]],{"a":[]},true,null,""]`)
	want := []string{`1`, `"a,]\\"`, `[2,[3]]`, `{"a":[]}`, `true`, `null`, `""`}
	var got []string
	for v := range Elements(arr) {
		got = append(got, string(v))
	}
	if !slices.Equal(got, want) || Len(arr) != len(want) {
		t.Errorf("got %q, Len %d", got, Len(arr))
	}
	for _, v := range []string{``, `[`, `[]`, `{}`, `{"a":1}`, `"[]"`, `1`} {
		for e := range Elements([]byte(v)) {
			t.Errorf("%s has the element %s", v, e)
		}
	}
}

// TestGetAndPath checks exact, decoded comparison of names.
func TestGetAndPath(t *testing.T) {
	t.Parallel()
	obj := []byte(`{"A":1,"a":{"b":{"c":"deep"},"0":[{"x":1}]},"\u00e9\/":2,"q\"":3,"back\\":4,"end":5}`)
	for _, c := range []struct{ name, want string }{
		{"A", "1"}, {"é/", "2"}, {`q"`, "3"}, {`back\`, "4"}, {"end", "5"},
		{"", ""}, {"b", ""}, {`\u00e9\/`, ""}, {`q\"`, ""}, {`q\`, ""}, {"en", ""}, {"endd", ""}, {"deep", ""},
	} {
		got, ok := Get(obj, c.name)
		if string(got) != c.want || ok != (c.want != "") {
			t.Errorf("Get(%q) = %s, %t", c.name, got, ok)
		}
	}
	for _, c := range []struct{ path, want string }{
		{"a b c", `"deep"`}, {"a 0", `[{"x":1}]`}, {"a 0 0", ""}, {"a b c d", ""}, {"A x", ""}, {"", string(obj)},
	} {
		got, ok := Path(obj, strings.Fields(c.path))
		if string(got) != c.want || ok != (c.want != "") {
			t.Errorf("Path(%q) = %s, %t", c.path, got, ok)
		}
	}
	if _, ok := Get([]byte(`["a"]`), "a"); ok {
		t.Error("Get found a member in an array")
	}
}

// TestKinds checks KindOf and Len of scalars.
func TestKinds(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]Kind{
		`null`: KindNull, `true`: KindBool, `false`: KindBool, `-1`: KindNumber, `0`: KindNumber, `9.5`: KindNumber,
		`""`: KindString, `[]`: KindArray, `{}`: KindObject, ``: KindInvalid, `}`: KindInvalid, `x`: KindInvalid, `+1`: KindInvalid,
	} {
		if got := KindOf([]byte(text)); got != want {
			t.Errorf("KindOf(%q) = %v, want %v", text, got, want)
		}
		if Len([]byte(text)) != 0 {
			t.Errorf("Len(%q) is not 0", text)
		}
	}
}

// TestStringEnds puts a closing quote at every distance, behind every number of
// backslashes, to cover all the ways in which the scanners find it.
func TestStringEnds(t *testing.T) {
	t.Parallel()
	for size := range 150 {
		for escapes := range 4 {
			text := strings.Repeat("x", size) + strings.Repeat(`\\`, escapes) + strings.Repeat(`\"`, escapes/2)
			for _, behind := range []string{"", `,"y":"0123456789"`} {
				obj := []byte(`{"` + text + `":"` + text + `"` + behind + `}`)
				value, ok := []byte(nil), false
				for _, v := range Members(obj) {
					value, ok = v, true
					break
				}
				if !ok || string(value) != `"`+text+`"` {
					t.Fatalf("%s: got %s", obj, value)
				}
			}
		}
	}
}

// FuzzMembers compares the scanners with encoding/json on normalised text, and
// checks on any text at all that they come to an end inside it.
func FuzzMembers(f *testing.F) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Add([]byte(`{"a`))
	f.Add([]byte(`["a\`))
	f.Fuzz(func(t *testing.T, src []byte) {
		walk(src)
		norm, err := Normalize(nil, src, 1000)
		if err != nil {
			return
		}
		if err := agrees(norm, decode(t, norm)); err != nil {
			t.Fatalf("%s: %v", norm, err)
		}
	})
}

// walk calls every reader on bytes that may be damaged.
func walk(v []byte) {
	AppendMembers(nil, v)
	for e := range Elements(v) {
		KindOf(e)
	}
	Get(v, "a")
	Path(v, []string{"a", "b"})
	Len(v)
	String(v)
	AppendUnquoted(nil, v)
	Bool(v)
	Int(v)
	Float(v)
	Equal(v, v)
	Equal(v, []byte(`{"b":[1],"a":{}}`))
	Equal([]byte(`{"b":[1],"a":{}}`), v)
}

// agrees checks that reading v with this package gives the decoded value want.
func agrees(v []byte, want any) error {
	switch want := want.(type) {
	case map[string]any:
		count := 0
		for name, value := range Members(v) {
			count++
			w, ok := want[string(name)]
			if !ok {
				return fmt.Errorf("no member %q", name)
			}
			if got, ok := Get(v, string(name)); !ok || !bytes.Equal(got, value) {
				return fmt.Errorf("Get(%q) = %s", name, got)
			}
			if err := agrees(value, w); err != nil {
				return err
			}
		}
		if count != len(want) || Len(v) != count || KindOf(v) != KindObject {
			return fmt.Errorf("%d members, want %d", count, len(want))
		}
	case []any:
		count := 0
		for value := range Elements(v) {
			if count >= len(want) {
				return fmt.Errorf("more than %d elements", count)
			}
			if err := agrees(value, want[count]); err != nil {
				return err
			}
			count++
		}
		if count != len(want) || Len(v) != count || KindOf(v) != KindArray {
			return fmt.Errorf("%d elements, want %d", count, len(want))
		}
	case string:
		if s, ok := String(v); !ok || s != want {
			return fmt.Errorf("%s decodes to %q, want %q", v, s, want)
		}
	case json.Number:
		if string(v) != string(want) || KindOf(v) != KindNumber {
			return fmt.Errorf("%s, want the number %s", v, want)
		}
		if i, ok := Int(v); ok {
			if j, err := want.Int64(); err != nil || i != j {
				return fmt.Errorf("Int(%s) = %d", v, i)
			}
		} else if _, err := want.Int64(); err == nil {
			return fmt.Errorf("Int(%s) failed", v)
		}
		x, ok := Float(v)
		if y, err := want.Float64(); ok != (err == nil) || x != y {
			return fmt.Errorf("Float(%s) = %v, %t", v, x, ok)
		}
	case bool:
		if b, ok := Bool(v); !ok || b != want {
			return fmt.Errorf("%s, want %t", v, want)
		}
	case nil:
		if string(v) != "null" || KindOf(v) != KindNull {
			return fmt.Errorf("%s, want null", v)
		}
	}
	return nil
}
