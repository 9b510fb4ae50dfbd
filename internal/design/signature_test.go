package design

import (
	"testing"
)

// sig gives the signature of the view v.
func sig(t *testing.T, in string, o Options) string {
	t.Helper()
	d, err := Parse("_design/d", normal(t, in), o)
	if err != nil {
		t.Fatalf("%s: %v", in, err)
	}
	v, ok := d.View("v")
	if !ok || len(v.Sig) != hashDigits {
		t.Fatalf("%s: %+v", in, v)
	}
	return v.Sig
}

// TestSignature changes everything that rows depend on, and everything that they
// do not.
func TestSignature(t *testing.T) {
	t.Parallel()
	const plain = `{"views":{"v":{"map":"M"}}}`
	base := sig(t, plain, Options{})
	for _, same := range []string{
		`{"views":{"v":{"map":"M"},"w":{"map":"other","reduce":"_sum"}}}`,
		`{"views":{"w":{"map":"N"},"v":{"map":"M","note":1}},"filters":{"f":"F"},"validate_doc_update":"V"}`,
		`{"language":"javascript","autoupdate":false,"options":{"local_seq":false,"note":1},"views":{"v":{"map":"M"}}}`,
	} {
		if got := sig(t, same, Options{}); got != base {
			t.Errorf("%s has another signature than %s", same, plain)
		}
	}
	seen := map[string]string{base: plain}
	for _, other := range []string{
		`{"views":{"v":{"map":"M "}}}`,
		`{"views":{"v":{"map":"M","reduce":"R"}}}`,
		`{"views":{"v":{"map":"MR"}}}`,
		`{"views":{"v":{"map":"M","reduce":"_sum"}}}`,
		`{"views":{"v":{"map":"M"},"lib":{}}}`,
		`{"views":{"v":{"map":"M"},"lib":{"a":"1"}}}`,
		`{"views":{"v":{"map":"M"},"lib":{"a":"2"}}}`,
		`{"options":{"local_seq":true},"views":{"v":{"map":"M"}}}`,
		`{"options":{"include_design":true},"views":{"v":{"map":"M"}}}`,
		`{"options":{"collation":"raw"},"views":{"v":{"map":"M"}}}`,
	} {
		got := sig(t, other, Options{})
		if first, dup := seen[got]; dup {
			t.Errorf("%s and %s have the same signature", other, first)
		}
		seen[got] = other
	}
	if got := sig(t, plain, Options{Partitioned: true}); seen[got] != "" {
		t.Errorf("a partitioned view has the signature of %s", seen[got])
	}
	if a, b := sig(t, `{"options":{"collation":"raw"},"views":{"v":{"map":"M"}}}`, Options{}),
		sig(t, `{"views":{"v":{"map":"M","options":{"collation":"raw"}}}}`, Options{}); a != b {
		t.Error("it matters where the collation is named")
	}
}

// TestViewsDesign shows what views see of their document.
func TestViewsDesign(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"views":{"v":{"map":"M"},"lib":{"a": "x"}},"lib":{"b":"y"}}`: `{"views":{"lib":{"a":"x"}}}`,
		`{"views":{"v":{"map":"M"}},"lib":{"b":"y"}}`:                  `{}`,
	} {
		d := parse(t, in)
		if string(d.ViewsDesign) != want || (d.LibHash == "") != (d.Lib == nil) {
			t.Errorf("%s: %s, %q", in, d.ViewsDesign, d.LibHash)
		}
	}
}
