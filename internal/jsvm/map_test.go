package jsvm_test

import (
	"strings"
	"testing"

	"github.com/divandb/divan/internal/jsvm"
)

func TestMap(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	prog := program("db/_design/d@1", `{"views":{"lib":{"twice":"exports.of = function(n){ return 2 * n; };"}}}`)
	fns := []string{
		`function(doc) { emit(doc._id, doc.n); }`,
		`doc => { if (doc.n > 1) { emit(doc.n); emit([doc.n, null], {a: doc.n}); } }`,
		`function (doc) { emit(require("views/lib/twice").of(doc.n), null); }`,
		`function (doc) { throw new TypeError("no " + doc._id); }`,
	}
	out := mapAll(t, p, prog, fns, `{"_id":"a","n":1}`, `{"_id":"b","n":2}`)
	want := [][]string{
		{`[["a",1]]`, ``, `[[2,null]]`, `TypeError: no a`},
		{`[["b",2]]`, `[[2,null],[[2,null],{"a":2}]]`, `[[4,null]]`, `TypeError: no b`},
	}
	for i := range want {
		for k := range want[i] {
			if got := rowsOf(out[i][k]); got != want[i][k] {
				t.Errorf("document %d, function %d: %s, want %s", i, k, got, want[i][k])
			}
		}
	}
}

// TestLongStrings are strings of all lengths and sorts, through all ways of a document.
func TestLongStrings(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	long := strings.Repeat("0123456789", 40)
	var docs []string
	for _, text := range []string{long, "x" + long + "é", long + `\n\"`, long + `\u0041`, "", "short", long[:198], long[:199], long[:200]} {
		docs = append(docs, `{"_id":"a","t":"`+text+`","in":{"t":"`+text+`"},"u":"`+text+`","n":1}`)
	}
	docs = append(docs, `{"__proto__":"`+long+`"}`, `{"a\"b":"`+long+`","constructor":"`+long+`"}`, `{}`, `{"t":"`+long+`"}`)
	for i, e := range mapAll(t, p, program("long strings", `{}`), []string{`function(doc){ var d = doc; emit(d); }`, `function(doc){ doc.x = 1; emit(doc); }`}, docs...) {
		want := strings.ReplaceAll("[["+docs[i]+",null]]", `\u0041`, "A")
		for k := range e {
			if got := rowsOf(e[k]); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
	}
}
