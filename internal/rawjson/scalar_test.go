package rawjson

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestString checks decoding, and that other kinds are refused.
func TestString(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`""`: "", `"plain"`: "plain", `"\"\\\/\b\f\n\r\t"`: "\"\\/\b\f\n\r\t", `"\u0000\u00e9\u20AC"`: "\x00é€",
		`"a\ud83d\ude00b"`: "a😀b", `"é\u00e9é"`: "ééé",
	} {
		if got, ok := String([]byte(in)); !ok || got != want {
			t.Errorf("String(%s) = %q, %t", in, got, ok)
		}
		if got, ok := AppendUnquoted([]byte("x"), []byte(in)); !ok || string(got) != "x"+want {
			t.Errorf("AppendUnquoted(%s) = %q, %t", in, got, ok)
		}
	}
	for _, in := range []string{``, `"`, `1`, `null`, `["a"]`, `{"a":"b"}`} {
		if got, ok := String([]byte(in)); ok || got != "" {
			t.Errorf("String(%s) = %q", in, got)
		}
		if got, ok := AppendUnquoted([]byte("x"), []byte(in)); ok || string(got) != "x" {
			t.Errorf("AppendUnquoted(%s) = %q", in, got)
		}
	}
}

// TestNumbers checks the limits of Int and Float.
func TestNumbers(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]int64{
		`0`: 0, `-0`: 0, `42`: 42, `-7`: -7, `9223372036854775807`: math.MaxInt64, `-9223372036854775808`: math.MinInt64,
	} {
		if got, ok := Int([]byte(in)); !ok || got != want {
			t.Errorf("Int(%s) = %d, %t", in, got, ok)
		}
	}
	for _, in := range []string{``, `-`, `1.0`, `1e3`, `9223372036854775808`, `-9223372036854775809`, `18446744073709551617`, `"1"`, `true`} {
		if got, ok := Int([]byte(in)); ok || got != 0 {
			t.Errorf("Int(%s) = %d", in, got)
		}
	}
	for in, want := range map[string]float64{`0`: 0, `1e3`: 1000, `-0.5`: -0.5, `1e-999`: 0, `12345678901234567890123`: 12345678901234567890123} {
		if got, ok := Float([]byte(in)); !ok || got != want {
			t.Errorf("Float(%s) = %v, %t", in, got, ok)
		}
	}
	if got, ok := Float([]byte(`-1e999`)); ok || !math.IsInf(got, -1) {
		t.Errorf("Float(-1e999) = %v, %t", got, ok)
	}
	for _, in := range []string{``, `-`, `-inf`, `0x1p4`, `1_0`, `"1"`, `null`} {
		if got, ok := Float([]byte(in)); ok {
			t.Errorf("Float(%s) = %v", in, got)
		}
	}
	for in, want := range map[string][2]bool{`true`: {true, true}, `false`: {false, true}, `null`: {}, `1`: {}, `"true"`: {}} {
		if val, ok := Bool([]byte(in)); val != want[0] || ok != want[1] {
			t.Errorf("Bool(%s) = %t, %t", in, val, ok)
		}
	}
}

// TestAppendString checks the spelling of escapes.
func TestAppendString(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"": `""`, "plain text of some length": `"plain text of some length"`, "a\"b\\c/": `"a\"b\\c/"`,
		"\b\f\n\r\t\x00\x1f\x7f": `"\b\f\n\r\t\u0000\u001f` + "\x7f\"", "é€😀\u2028<>&": "\"é€😀\u2028<>&\"",
		"0123456789\n0123456789\"": `"0123456789\n0123456789\""`, "a\xffb\xc3\"": "\"a\uFFFDb\uFFFD\\\"\"",
	} {
		if got := AppendString([]byte("x"), in); string(got) != "x"+want {
			t.Errorf("AppendString(%q) = %s, want %s", in, got[1:], want)
		}
	}
}

// FuzzAppendString checks that every string survives the way there and back.
func FuzzAppendString(f *testing.F) {
	for _, s := range seeds {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		quoted := AppendString(nil, s)
		norm, err := Normalize(nil, quoted, 0)
		if err != nil || string(norm) != string(quoted) {
			t.Fatalf("%q became %s: %v", s, quoted, err)
		}
		var want string
		if err := json.Unmarshal(quoted, &want); err != nil {
			t.Fatal(err)
		}
		got, ok := String(quoted)
		if !ok || got != want {
			t.Fatalf("%s decodes to %q, want %q", quoted, got, want)
		}
		if utf8.ValidString(s) && got != s {
			t.Fatalf("%q came back as %q", s, got)
		}
		if !utf8.ValidString(s) && got != string([]rune(s)) {
			t.Fatalf("%q was repaired to %q, want %q", s, got, strings.ToValidUTF8(s, "\uFFFD"))
		}
	})
}
