package jsvm_test

import (
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
