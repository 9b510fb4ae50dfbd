package design

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// normal passes a test's JSON through the same gate as a client's.
func normal(t testing.TB, s string) []byte {
	t.Helper()
	b, err := rawjson.Normalize(nil, []byte(s), 100)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return b
}

func parse(t testing.TB, s string) *Doc {
	t.Helper()
	d, err := Parse("_design/d", normal(t, s), Options{})
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return d
}

// describe gives a document in one line.
func describe(d *Doc) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", d.Language)
	for _, v := range d.Views {
		fmt.Fprintf(&b, " %s=%s", v.Name, v.Map)
		if v.Reduce != "" {
			fmt.Fprintf(&b, "/%s", v.Reduce)
		}
		for name, on := range map[string]bool{"design": v.IncludeDesign, "seq": v.LocalSeq, "raw": v.RawCollation, "part": v.Partitioned} {
			if on {
				fmt.Fprintf(&b, "+%s", name)
			}
		}
	}
	if d.Lib != nil {
		fmt.Fprintf(&b, " lib=%s", d.Lib)
	}
	if !d.AutoUpdate {
		b.WriteString(" cold")
	}
	if d.Validate != "" {
		fmt.Fprintf(&b, " validate=%s", d.Validate)
	}
	for _, m := range []map[string]string{d.Filters, d.Updates, d.Shows, d.Lists} {
		if len(m) > 0 {
			fmt.Fprintf(&b, " %v", m)
		}
	}
	if d.Rewrites != nil {
		fmt.Fprintf(&b, " rewrites=%s", d.Rewrites)
	}
	return b.String()
}

func TestParse(t *testing.T) {
	t.Parallel()
	partitioned := Options{Partitioned: true}
	tests := []struct {
		in   string
		o    Options
		want string
	}{
		{`{}`, Options{}, `javascript`},
		{`{"language":"javascript","other":null,"views":{}}`, Options{}, `javascript`},
		{`{"views":{"b":{"map":"B"},"a":{"map":"A","reduce":"R"}}}`, Options{}, `javascript a=A/R b=B`},
		{`{"views":{"":{"map":"A"}}}`, Options{}, `javascript =A`},
		{`{"views":{"v":{"map":"A","reduce":"_sum","unknown":1}}}`, Options{}, `javascript v=A/_sum`},
		{`{"views":{"lib":{"a":"x=1","b":{"c":[1, 2]}},"v":{"map":"A"}}}`, Options{}, `javascript v=A lib={"a":"x=1","b":{"c":[1,2]}}`},
		{`{"views":{"lib":{"map":"x"}}}`, Options{}, `javascript lib={"map":"x"}`},
		{`{"options":{"include_design":true},"views":{"v":{"map":"A"}}}`, Options{}, `javascript v=A+design`},
		{`{"options":{"local_seq":true,"x":7},"views":{"v":{"map":"A"}}}`, Options{}, `javascript v=A+seq`},
		{`{"options":{"collation":"raw"},"views":{"v":{"map":"A"}}}`, Options{}, `javascript v=A+raw`},
		{`{"options":{"collation":"other"},"views":{"v":{"map":"A"}}}`, Options{}, `javascript v=A`},
		{`{"views":{"v":{"map":"A","options":{"collation":"raw"}},"w":{"map":"A","options":{"local_seq":true}}}}`, Options{}, `javascript v=A+raw w=A`},
		{`{"views":{"v":{"map":"A"}}}`, partitioned, `javascript v=A+part`},
		{`{"options":{"partitioned":false},"views":{"v":{"map":"A"}}}`, partitioned, `javascript v=A`},
		{`{"options":{"partitioned":true,"include_design":true},"views":{"v":{"map":"A"}}}`, partitioned, `javascript v=A+part`},
		{`{"options":{"partitioned":false},"views":{"v":{"map":"A"}}}`, Options{}, `javascript v=A`},
		{`{"autoupdate":false}`, Options{}, `javascript cold`},
		{`{"autoupdate":{"views":false}}`, Options{}, `javascript cold`},
		{`{"autoupdate":{"indexes":false}}`, Options{}, `javascript`},
		{`{"autoupdate":true}`, Options{}, `javascript`},
		{`{"autoupdate":"no"}`, Options{}, `javascript`},
		{`{"validate_doc_update":"V"}`, Options{}, `javascript validate=V`},
		{`{"filters":{"f":"F","lib":{"a":"x=42"}}}`, Options{}, `javascript map[f:F]`},
		{`{"updates":{"u":"U"},"shows":{"s":"S"},"lists":{"l":"L"}}`, Options{}, `javascript map[u:U] map[s:S] map[l:L]`},
		{`{"rewrites":[{"from": "a"}]}`, Options{}, `javascript rewrites=[{"from":"a"}]`},
		{`{"rewrites":"R"}`, Options{}, `javascript rewrites="R"`},
		{`{"language":"query","views":{"i":{"map":{"fields":{"a":"asc"}},"reduce":"_count","options":{"def":{}}}}}`, Options{}, `query`},
		{`{"language":"query","validate_doc_update":{"newDoc":{}}}`, Options{}, `query`},
		{`{"language":"erlang","views":{"v":{"map":"fun(Doc) -> ok end.","reduce":"_nonsense"}}}`, Options{}, `erlang`},
		{`{"\u0076iews":{"\u0061":{"m\u0061p":"function(doc){\"\\n\"}"}}}`, Options{}, `javascript a=function(doc){"\n"}`},
		{`{"Views":3,"LANGUAGE":4}`, Options{}, `javascript`},
	}
	for _, test := range tests {
		d, err := Parse("_design/d", normal(t, test.in), test.o)
		if err != nil {
			t.Errorf("%s: %v", test.in, err)
			continue
		}
		if got := describe(d); got != test.want {
			t.Errorf("%s\ngot  %s\nwant %s", test.in, got, test.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct{ in, reason string }{
		{`{"views":3}`, "`views` field must have object type"},
		{`{"views":null}`, "`views` field must have object type"},
		{`{"views":[]}`, "`views` field must have object type"},
		{`{"views":{"v":"text"}}`, "`views.v` field must have object type"},
		{`{"views":{"v":null}}`, "`views.v` field must have object type"},
		{`{"views":{"v":{}}}`, "View `v` must contain map function"},
		{`{"views":{"v":{"reduce":"_sum"}}}`, "View `v` must contain map function"},
		{`{"views":{"v":{"map":{}}}}`, "`views.v.map` field must have string type"},
		{`{"views":{"v":{"map":null}}}`, "`views.v.map` field must have string type"},
		{`{"views":{"v":{"map":"A","reduce":null}}}`, "`views.v.reduce` field must have string type"},
		{`{"views":{"v":{"map":"A","reduce":1}}}`, "`views.v.reduce` field must have string type"},
		{`{"views":{"v":{"map":"A","reduce":"_foo"}}}`, "`_foo` is not a supported reduce function."},
		{`{"views":{"v":{"map":"A","options":1}}}`, "`views.v.options` field must have object type"},
		{`{"views":{"lib":"x"}}`, "`views.lib` field must have object type"},
		{`{"views":{"a":{"reduce":1},"b":{"map":1}}}`, "`views.b.map` field must have string type"},
		{`{"language":1}`, "`language` field must have string type"},
		{`{"language":"query","views":{"v":{"map":"text"}}}`, "`views.v.map` field must have object type"},
		{`{"language":"query","views":{"v":{"map":{},"reduce":"_foo"}}}`, "`_foo` is not a supported reduce function."},
		{`{"filters":"x"}`, "`filters` field must have object type"},
		{`{"filters":{"f":1}}`, "`filters.f` field must have string or object type"},
		{`{"lists":[]}`, "`lists` field must have object type"},
		{`{"lists":{"f":null}}`, "`lists.f` field must have string or object type"},
		{`{"shows":1}`, "`shows` field must have object type"},
		{`{"shows":{"f":true}}`, "`shows.f` field must have string or object type"},
		{`{"updates":null}`, "`updates` field must have object type"},
		{`{"updates":{"f":[]}}`, "`updates.f` field must have string or object type"},
		{`{"options":"x"}`, "`options` field must have object type"},
		{`{"options":{"local_seq":1}}`, "`options.local_seq` field must have boolean type"},
		{`{"options":{"include_design":"true"}}`, "`options.include_design` field must have boolean type"},
		{`{"options":{"partitioned":null}}`, "`options.partitioned` field must have boolean type"},
		{`{"options":{"partitioned":true}}`, "partitioned option cannot be true in a non-partitioned database."},
		{`{"rewrites":42}`, "`rewrites` field must have array or string type"},
		{`{"rewrites":{}}`, "`rewrites` field must have array or string type"},
		{`{"validate_doc_update":1}`, "`validate_doc_update` field must have string type"},
		{`{"validate_doc_update":{}}`, "`validate_doc_update` field must have string type"},
		{`{"language":"query","validate_doc_update":1}`, "`validate_doc_update` field must have string or object type"},
		{`{"views":3,"filters":3}`, "`filters` field must have object type"},
	}
	for _, test := range tests {
		_, err := Parse("_design/d", normal(t, test.in), Options{})
		want := &model.Error{Kind: model.KindBadRequest, Name: "invalid_design_doc", Reason: test.reason}
		if !errors.Is(err, want) {
			t.Errorf("%s\ngot  %v\nwant %v", test.in, err, want)
		}
	}
	_, err := Parse("_design/d", normal(t, `{"views":{"v":{"map":"A","reduce":" "}}}`), Options{})
	if e := (*model.Error)(nil); !errors.As(err, &e) || e.Name != "compilation_error" || e.Kind != model.KindBadRequest {
		t.Errorf("a reduce function without text: %v", err)
	}
}

func TestFunctions(t *testing.T) {
	t.Parallel()
	d := parse(t, `{"views":{"b":{"map":"B","reduce":"_sum"},"a":{"map":"A","reduce":"R"},"lib":{"m":"broken("}},
		"filters":{"g":"G","f":"F","lib":{"m":"broken("}},"updates":{"u":"U"},"shows":{"s":"S"},"lists":{"l":"L"},
		"validate_doc_update":"V","rewrites":"W"}`)
	var got []string
	for _, f := range d.Functions() {
		got = append(got, f.CompileError("x").Reason+": "+f.Text)
	}
	want := []string{
		"Compilation of the map function in the 'a' view failed: x: A",
		"Compilation of the reduce function in the 'a' view failed: x: R",
		"Compilation of the map function in the 'b' view failed: x: B",
		"Compilation of the filter function 'f' failed: x: F",
		"Compilation of the filter function 'g' failed: x: G",
		"Compilation of the list function 'l' failed: x: L",
		"Compilation of the show function 's' failed: x: S",
		"Compilation of the update function 'u' failed: x: U",
		"Compilation of the validate_doc_update function failed: x: V",
		"Compilation of the rewrites function failed: x: W",
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	for _, in := range []string{
		`{"rewrites":[]}`,
		`{"language":"erlang","views":{"v":{"map":"M"}},"validate_doc_update":"V","filters":{"f":"F"}}`,
		`{"language":"query","views":{"v":{"map":{}}}}`,
	} {
		if f := parse(t, in).Functions(); len(f) != 0 {
			t.Errorf("%s: %v", in, f)
		}
	}
}

func TestNamedView(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		in   string
		name string
		want string
		kind model.Kind
	}{
		{`{"views":{"v":{"map":"M"}}}`, "v", "", 0},
		{`{"views":{"v":{"map":"M"},"lib":{}}}`, "lib", "not_found", model.KindNotFound},
		{`{}`, "v", "not_found", model.KindNotFound},
		{`{"language":"erlang","views":{"v":{"map":"M"}}}`, "v", "unknown_query_language", model.KindInternal},
		{`{"language":"erlang","views":{"v":{"map":"M"}}}`, "w", "not_found", model.KindNotFound},
		{`{"language":"query","views":{"v":{"map":{}}}}`, "v", "not_implemented", model.KindNotImplemented},
	} {
		v, err := parse(t, test.in).NamedView(test.name)
		if test.want == "" {
			if err != nil || v.Name != test.name {
				t.Errorf("%s: %v, %v", test.in, v, err)
			}
			continue
		}
		if e := (*model.Error)(nil); !errors.As(err, &e) || e.Name != test.want || e.Kind != test.kind {
			t.Errorf("%s, %s: %v", test.in, test.name, err)
		}
	}
}
