package jsvm_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/jsvm"
)

// wholeMap needs the whole document: with it among the functions of a call nothing
// can be left out.
const wholeMap = `function(doc) { emit(Object.keys(doc).length, doc) }`

// usualMaps are map functions as people write them.
var usualMaps = []string{
	`function(doc) { emit(doc._id, null); }`,
	`function(doc) { if (doc.type === "post" && doc.tags && Array.isArray(doc.tags)) { doc.tags.forEach(function(tag) { emit(tag, 1); }); } }`,
	`function(doc) { if (doc.type) emit([doc.type, doc.i], doc.i); }`,
	`doc => { if (doc.amount > 10) emit(doc.amount / 2, {doc: doc.type, a: doc["größe"]}) }`,
	`function(doc) { for (var i = 0; i < doc.items.length; i++) { emit(doc.items[i].sku, doc.items[i].qty * 2 || null) } }`,
	`function(doc) { for (var k in doc.address) { emit(k, doc.address[k]) } }`,
	`(doc) => Object.keys(doc.address).forEach(k => emit([k, doc.address[k]], doc._rev))`,
	`function(doc) { emit(new Date(doc.at).getTime(), typeof doc.missing) }`,
	`function(doc) { if (doc.hasOwnProperty("amount")) emit("has", doc.amount); else emit("has not") }`,
	`function(doc) { if (!doc) return; if (doc && doc.address && doc.address.city) emit(doc.address.city.toLowerCase()) }`,
	"function(doc) { emit(`${doc.type}-${doc.i ?? \"none\"}`, /^p/.test(doc.type)) }",
	`function(doc) { throw new Error("no " + doc.type) }`,
	`function(doc) { try { emit(doc.address.city.length) } catch (e) { emit(e.name, e.message) } }`,
	`function(doc) { switch (doc.type) { case "post": emit(1, doc.i); break; case "user": emit(2, doc.address); break; default: emit(3, doc._id) } }`,
	`function(doc) { var total = 0; (doc.items || []).forEach(function(x) { total += x.qty; }); emit(doc.type, total) }`,
	`function(doc) { var {city, zip} = doc.address || {}; emit([city, zip]) }`,
	`function(doc) { const [first, ...rest] = doc.tags || []; emit(first, rest) }`,
	`function() { emit("constant", 1) }`,
	`function(doc) { emit(JSON.stringify(doc.address), JSON.stringify([doc.tags, doc.items])) }`,
	`function(doc) { emit(doc.__weird__, doc.then, doc.length, doc.name) }`,
	`function(doc) { count = (typeof count === "undefined" ? 0 : count) + 1; emit(doc._id, doc.i) }`,
	`function(doc) { var f = function(n) { return n <= 1 ? 1 : n * f(n - 1) }; emit(f(doc.i % 10), doc.amount) }`,
	`function(doc) { emit(doc.list[doc.list.length - 1], doc.list[0]) }`,
	`function(doc) { "use strict"; emit(doc.type, undefinedName) }`,
	`function(doc) { emit(doc.address?.city?.length, doc?.["type"]) }`,
}

// pieces of functions that are made up. Those that need the document are among
// them: functions with one are refused, and that is checked by what others give.
var (
	madeExpressions = []string{
		"doc.type", "doc.i", "doc.amount", "doc.tags", "doc.address", "doc.items", `doc["größe"]`, "doc?.list", "doc.address.city", "doc.tags[0]", "doc.items.length - 1",
		"doc.type == 'post'", "doc.i / 2", "doc.amount + doc.i", "typeof doc.at", "!doc.tags", "[doc.type, doc.i]", "{doc: doc.i, b: [doc.at]}", "`<${doc.type}>`", "(doc.i)", "doc.list && doc.list[1]",
		"doc.type ? doc.i : doc.amount", "String(doc.type).length", "/s/.test(doc.type)", "Object.keys(doc.address || {})", "JSON.stringify(doc.items)", "[1, 2].map(x => x + doc.i)", `doc.hasOwnProperty("tags")`,
		"null", "1", `"doc"`, "doc", "{...doc}", "Object.keys(doc)", "doc.valueOf()", "JSON.stringify(doc)", `"type" in doc`, "doc[doc.type]", "(doc.valueOf)()", "arguments[0]",
	}
	madeStatements = []string{
		"emit(E, E);", "if (E) emit(E);", "var x = E; emit(x);", "for (var i = 0; i < 2; i++) emit(i, E);", "for (const y of E || []) emit(y);", "for (var k in doc.address) emit(k, doc.address[k]);",
		"try { emit(E.x.y) } catch (e) { emit(String(e)) }", "(function (a) { emit(a, E) })(E);", "while (E) { emit(E); break }", "emit(E) // doc\n", "/* doc */ emit(E);", "for (var n in doc) emit(n);", "var z = doc; emit(z.at);",
	}
)

// madeMap makes up a map function.
func madeMap(r *rand.Rand) string {
	var b strings.Builder
	for range 1 + r.IntN(3) {
		s := madeStatements[r.IntN(len(madeStatements))]
		for strings.Contains(s, "E") {
			s = strings.Replace(s, "E", "\x00", 1)
			e := madeExpressions[r.IntN(len(madeExpressions))]
			s = strings.Replace(s, "\x00", strings.ReplaceAll(e, "E", "\x01"), 1)
		}
		b.WriteString(s + " ")
	}
	body := strings.ReplaceAll(b.String(), "\x01", "E")
	return []string{"function(doc) { " + body + "}", "(doc) => { " + body + "};", "(function map(doc, x) { " + body + "})"}[r.IntN(3)]
}

// madeDoc makes up a document, with members of surprising names and sorts.
func madeDoc(r *rand.Rand, n int) string {
	pick := func(values ...string) string { return values[r.IntN(len(values))] }
	members := []string{fmt.Sprintf(`"_id":"doc-%d"`, n), `"_rev":"1-abc"`}
	for _, m := range [][]string{
		{"type", `"post"`, `"user"`, `""`, `7`, `null`, `"i"`},
		{"i", `1`, `0`, `-3`, `2.5`, `"text"`, `[1]`},
		{"amount", `5`, `50`, `1e3`, `null`},
		{"tags", `["a","b"]`, `[]`, `"tag"`, `{"0":"x"}`, `null`},
		{"items", `[{"sku":"a","qty":2},{"sku":"b"}]`, `[]`, `{"length":1,"0":{"sku":"z","qty":1}}`, `3`},
		{"address", `{"city":"Bern","zip":3000}`, `{}`, `{"constructor":1,"__proto__":{"city":"X"},"city":"Y"}`, `"street"`},
		{"list", `[1,2,3]`, `[]`, `[[1]]`},
		{"at", `"2024-03-01T12:00:00Z"`, `0`, `"never"`},
		{"größe", `1`, `"groß"`},
		{"hasOwnProperty", `1`}, {"valueOf", `"v"`}, {"toString", `2`}, {"__proto__", `{"type":"post","i":99}`}, {"constructor", `{"keys":1}`},
		{"toJSON", `1`}, {"then", `"t"`}, {"length", `3`}, {"name", `"n"`}, {"__weird__", `true`}, {"other", `{"a":[1,2,3]}`},
	} {
		if r.IntN(3) > 0 || len(m) == 2 && r.IntN(3) > 0 {
			if len(m) > 2 || r.IntN(4) == 0 {
				members = append(members, fmt.Sprintf(`"%s":%s`, m[0], pick(m[1:]...)))
			}
		}
	}
	r.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
	return "{" + strings.Join(members, ",") + "}"
}

// TestSameWithFewerFields runs map functions with whole documents and with only
// the fields that they read: what they emit, and what they throw, must be the same
// to the byte.
func TestSameWithFewerFields(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	rnd := rand.New(rand.NewPCG(7, 8))
	maps := append([]string{}, usualMaps...)
	made := 0
	for len(maps) < len(usualMaps)+100 {
		made++
		if fn := madeMap(rnd); canRead(fn) {
			maps = append(maps, fn)
		}
	}
	t.Logf("%d functions made up for 100 that can be understood", made)
	for _, fn := range usualMaps {
		if !canRead(fn) {
			t.Errorf("not understood: %s", fn)
		}
	}
	var docs []string
	for n := range 200 {
		docs = append(docs, madeDoc(rnd, n))
	}
	const together = 16 // functions in one engine, which see the same documents
	for from := 0; from < len(maps); from += together {
		some := maps[from:min(from+together, len(maps))]
		whole, err := p.Map(context.Background(), program("whole", `{}`), append([]string{wholeMap}, some...), texts(docs...))
		if err != nil {
			t.Fatal(err)
		}
		for k, fn := range some {
			fields, _ := jsvm.ReadFields(fn)
			var fewer [][]byte
			for _, doc := range docs {
				fewer = append(fewer, jsvm.Project(nil, []byte(doc), fields))
			}
			out, err := p.Map(context.Background(), program("fewer", `{}`), []string{fn}, fewer)
			if err != nil {
				t.Fatal(err)
			}
			for i := range docs {
				if want, got := rowsOf(whole[i][k+1]), rowsOf(out[i][0]); got != want {
					t.Fatalf("%s\nof %s\nby %q: %s\nwhole: %s", fn, docs[i], fields, got, want)
				}
				if whole[i][0].Rows == nil {
					t.Fatalf("%s was not run", wholeMap)
				}
			}
		}
	}
}

// canRead tells whether a function is understood.
func canRead(fn string) bool {
	_, ok := jsvm.ReadFields(fn)
	return ok
}
