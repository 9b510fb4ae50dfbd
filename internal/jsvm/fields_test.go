package jsvm

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/rawjson"
)

// ReadFields and Project are for the tests with real workers.
var (
	ReadFields = readFields
	Project    = project
)

// readable are functions and the fields they read.
var readable = []struct{ fn, fields string }{
	{`function(doc) { emit(doc._id, null); }`, `_id`},
	{`function (doc) { if (doc.type == "post" && doc.tags) { emit([doc.type, doc["i"]], doc.tags.length); } }`, `type tags i`},
	{`(function(doc){ emit(doc.a.b.c) });`, `a`},
	{`function map(d, x) { emit(d.a, d.b) };`, `a b`},
	{`doc => emit(doc.x)`, `x`},
	{`(doc) => { emit(doc?.x, doc?.["y"]) }`, `x y`},
	{`(doc, _) => emit(doc.x ? doc.y : [doc.z])`, `x y z`},
	{`function() { emit(1, 2) }`, ``},
	{`() => emit(1)`, ``},
	{`function(doc) { emit(null) }`, ``},
	{"function(doc) { // all of doc\n /* doc */ emit('doc', \"doc\", `doc ${doc.x + `${doc.y}`} doc`, /doc[/]doc/g.test(doc.z)); }", `x y z`},
	{`function(doc) { emit(doc.a / 2 / doc.b, (doc.c) / 3, [doc.d][0] / 4) }`, `a b c d`},
	{`function(doc) { if (doc.a) /doc/.test(doc.b) && emit(1) }`, `a b`},
	{`function(doc) { return /x/.exec(doc.a) }`, `a`},
	{`function(doc) { emit({doc: doc.a, x: {doc: 1}}, q.doc, q?.doc) }`, `a`},
	{`function(doc) { for (var i = 0; i < doc.items.length; i++) { emit(doc.items[i].sku, doc.items[i + 1], doc.items[i - 1]) } }`, `items`},
	{`function(doc) { var i, n = 0; for (i = 0; i < 3; i += 2) emit(doc.a[i][0]["x"][doc.a.length - 1]) }`, `a`},
	{`function(doc) { for (var k in doc.items) { emit(k, doc.items[k]) } }`, `items`},
	{`function(doc) { for (const k of Object.keys(doc.a.b)) emit(k, doc.a.b[k].c) }`, `a`},
	{`function(doc) { Object.keys(doc.items).forEach(function(k) { emit(k, doc.items[k]) }) }`, `items`},
	{`doc => { Object.keys(doc.items).map(k => emit(k, doc.items[k])); Object.keys(doc.items).forEach((k, i) => emit(doc.items[k])) }`, `items`},
	{`function(doc) { doc.tags.forEach(function(tag) { emit(tag.toLowerCase(), 1) }) }`, `tags`},
	{`function(doc) { if (doc && doc.a) emit(1); if (!doc) return; if (x && doc && doc.b) emit(2) }`, `a b`},
	{`function(doc) { if (doc.hasOwnProperty("a")) emit(doc.b) }`, `hasOwnProperty a b`},
	{`function(doc) { emit(new Date(doc.at).getTime(), Math.max.apply(null, doc.list)) }`, `at list`},
	{`function(doc) { var key = {}; key.x = doc.a; emit(key) }`, `a`},
	{`function(doc) { emit(doc["gr\u00f6\u00dfe"], doc['größe'], doc["a\"b"]) }`, `größe a"b`},
	{`function(doc) { switch (doc.type) { case "a": emit(1); break; default: emit(doc.b) } }`, `type b`},
	{`function(doc) { try { emit(doc.a.b) } catch (e) { emit(String(e)) } }`, `a`},
	{`function(doc) { var f = function(x) { return x.y + doc.z }; emit(f(doc.a)) }`, `z a`},
	{`function(doc) { emit(doc.x - -1, 0x1F, 1e-5, .5, 1_000, 5n.toString()) }`, `x`},
	{`function(doc) { emit(x?.5:1, 1..toFixed(2), doc.a) }`, `a`},
	{`function(doc) { "use strict"; emit(doc.a) }`, `a`},
	{`function(doc) { for (let x of doc.list) { let [a, b] = x; emit(a, b) } for (const y of ["a", "b"]) emit(y) }`, `list`},
	{`function(doc) { emit(...doc.pair) }`, `pair`},
	{`function(doc) { delta(doc.x), emit(typeof doc.y) }`, `x y`},
}

// TestReadFields checks functions that can be understood.
func TestReadFields(t *testing.T) {
	t.Parallel()
	for _, c := range readable {
		fields, ok := readFields(c.fn)
		if got := strings.Join(fields, " "); !ok || got != c.fields {
			t.Errorf("%s:\n%q %v, want %q", c.fn, got, ok, c.fields)
		}
	}
}

// hostile are functions that can see more of the document than its members by
// name, or might.
var hostile = []string{
	// The document itself.
	`function(doc) { emit(doc) }`,
	`function(doc) { emit(doc._id, doc) }`,
	`function(doc) { for (var k in doc) emit(k) }`,
	`function(doc) { emit({...doc}) }`,
	`function(doc) { emit([...doc]) }`,
	`function(doc) { emit({doc}) }`,
	`function(doc) { emit({a: doc}) }`,
	`function(doc) { emit(JSON.stringify(doc)) }`,
	`function(doc) { var d = doc; emit(d.x) }`,
	`function(doc) { var {a, ...rest} = doc; emit(rest) }`,
	`function(doc) { emit("x" in doc) }`,
	`function(doc) { emit(typeof doc, doc.x) }`,
	`function(doc) { emit(doc == 1) }`,
	"function(doc) { emit(`${doc}`) }",
	"function(doc) { tag`${doc}` }",
	`function(doc) { return doc }`,
	`doc => doc`,
	`function(doc) { emit(a ? doc : b) }`,
	`function(doc) { switch (a) { case 1, doc: emit(1) } }`,
	`function(doc) { emit(1 + doc && 2) }`,
	`function(doc) { emit(doc && 1) || doc }`,
	`function(doc) { emit((doc).x, (0, doc).y) }`,
	`function(doc) { emit(doc[x], doc[0]) }`,
	`function(doc) { emit(doc["a" + "b"]) }`,
	"function(doc) { emit(doc[`a`]) }",
	`function(doc) { emit(doc["\x61"]) }`,
	`function(doc) { emit(doc["\u{61}"]) }`,
	// Methods get it as this.
	`function(doc) { emit(doc.valueOf()) }`,
	`function(doc) { emit((doc.valueOf)()) }`,
	`function(doc) { var v = doc.valueOf; emit(v) }`,
	`function(doc) { emit(doc["valueOf"]) }`,
	`function(doc) { emit(doc.toString()) }`,
	`function(doc) { emit(doc.x()) }`,
	`function(doc) { emit(doc.x?.()) }`,
	"function(doc) { emit(doc.x`a`) }",
	`function(doc) { emit(doc.constructor.keys) }`,
	`function(doc) { emit(doc.__proto__) }`,
	`function(doc) { emit(doc.hasOwnProperty(x)) }`,
	`function(doc) { emit(doc.hasOwnProperty("a" + b)) }`,
	`function(doc) { var h = doc.hasOwnProperty; emit(h) }`,
	`function(doc) { emit(doc.hasOwnProperty) }`,
	// Assignments.
	`function(doc) { doc.x = 1 }`,
	`function(doc) { doc.x += 1; doc.y++ }`,
	`function(doc) { --doc.x }`,
	`function(doc) { delete doc.x }`,
	`function(doc) { doc = {} }`,
	// What a function was called with.
	`function(doc) { emit(arguments[0]) }`,
	`function f(doc) { emit(f.arguments, f["arguments"], f.caller) }`,
	`function(doc) { eval("emit(doc)") }`,
	`function(doc) { new Function("emit(1)")() }`,
	`function(doc) { with (doc) { emit(x) } }`,
	`function(doc) { emit(this) }`,
	`function(doc) { emit(globalThis) }`,
	`function(doc) { require("views/lib/x").f(doc.x) }`,
	`function(doc) { emit(new.target) }`,
	// Getters on what all objects inherit from.
	`function(doc) { Object.defineProperty(Object.prototype, "z", {get: f}); emit(doc.z) }`,
	`function(doc) { var O = Object; emit(doc.z) }`,
	`function(doc) { ({}).__proto__.x = 1; emit(doc.z) }`,
	`function(doc) { ({})["__proto__"].x = 1; emit(doc.z) }`,
	`function(doc) { ({})["__pro" + "to__"].x = 1; emit(doc.z) }`,
	`function(doc) { ({})[doc.a][doc.b](doc.c); emit(doc.z) }`,
	`function(doc) { var k = "const" + "ructor"; emit(({})[k]) }`,
	`function(doc) { ({})["\u0063onstructor"] }`,
	`function(doc) { ({}).c\u006fnstructor }`,
	`function(doc) { var {constructor: O} = {}; emit(doc.z) }`,
	`function(doc) { var {"constructor": O} = {}; emit(doc.z) }`,
	`function(doc) { var {["con" + "structor"]: O} = {}; emit(doc.z) }`,
	`function(doc) { var {a, ["con" + x]: O} = {}; emit(doc.z) }`,
	`function(doc) { for (var k in doc.a) emit(x[k]) }`,
	`function(doc) { for (var k in doc.a) emit(doc.b[k]) }`,
	`function(doc) { for (var k in doc.a) { k = doc.x; emit(doc.a[k]) } }`,
	`function(doc) { for (var k in doc.a) { k += "x"; emit(doc.a[k]) } }`,
	`function(doc) { for (var k in doc.a) for (var k in doc.b) emit(doc.a[k]) }`,
	`function(doc) { for (var k in doc.a) (function(k) { emit(doc.a[k]) })(doc.x) }`,
	`function(doc) { for (var k in doc.a) { [k] = doc.x; emit(doc.a[k]) } }`,
	`function(doc) { for (var k in doc.a) { ({k} = doc.x); emit(doc.a[k]) } }`,
	`function(doc) { for (k in doc.a) emit(doc.a[k]) }`,
	`function(doc) { for (var k in doc.a || doc.b) emit(doc.a[k]) }`,
	`function(doc) { emit(doc.a[k]) }`,
	`function(doc) { Object.keys(doc.a).forEach(function f(k) { emit(doc.a[k]); f(doc.x) }) }`,
	`function(doc) { Object.keys(doc.b).forEach(k => emit(doc.a[k])) }`,
	`function(doc) { Object.keys(doc.a).forEach((x, k) => emit(doc.a[k])) }`,
	`function(doc) { Object.keys(doc.a).reduce(k => emit(doc.a[k])) }`,
	`function(doc) { var i = 0; i = doc.x; emit(y[i]) }`,
	`function(doc) { var i = 0; i += doc.x; emit(y[i]) }`,
	`function(doc) { var i = 0 + doc.x; emit(y[i]) }`,
	`function(doc) { var i = 0; i ||= doc.x; emit(y[i]) }`,
	`function(doc) { var i = 0; [i] = doc.x; emit(y[i]) }`,
	`function(doc) { var i = 0; (function(i) { emit(y[i]) })(doc.x) }`,
	`function(doc) { var i = 0; (i => emit(y[i]))(doc.x) }`,
	`function(doc) { var i = 0; try { throw doc.x } catch (i) { emit(y[i]) } }`,
	`function(doc) { var i = 0; for (i of doc.x) { emit(y[i]) } }`,
	`function(doc) { emit(y[i]) }`,
	`function(doc) { i = 0; emit(y[i]) }`,
	`function(doc) { emit(y[doc.n.length]) }`,
	`function(doc) { var i = 0; emit(y[i + doc.n]) }`,
	`function(doc) { var of = {}; emit(of[doc.x]) }`,
	`function(doc, of) { emit(of[doc.x]) }`,
	"function(doc) { x\nof = {}\ny\nof[doc.x] }",
	`function(doc) { var let = {}; emit(let[doc.x]) }`,
	`function(doc) { let = {}; emit(let[doc.x]) }`,
	`function(doc) { emit(y?.[doc.x]) }`,
	`function(doc) { emit(Symbol.iterator, doc.x) }`,
	`function(doc) { class A {} emit(doc.x) }`,
	`function(doc) { emit({get a() { return 1 }}, doc.x) }`,
	`function(doc) { emit({a() { return 1 }}, doc.x) }`,
	`function(doc) { emit(Iterator, doc.x) }`,
	`function(doc) { Object.assign({}, doc.x) }`,
	`function(doc) { Object["keys"](doc.x) }`,
	// No single function with plain parameters.
	``, `1`, `doc`, `function`, `function(doc)`, `{}`, `=>`, `doc =>`,
	`function({a}) { emit(a) }`,
	`function([a]) { emit(a) }`,
	`function(...doc) { emit(doc.x) }`,
	`function(doc = 1) { emit(doc.x) }`,
	`function(a, doc = a) { emit(doc.x) }`,
	`function(doc, doc) { emit(doc.x) }`,
	`function doc(doc) { emit(doc.x) }`,
	`async function(doc) { emit(doc.x) }`,
	`async doc => emit(doc.x)`,
	`function*(doc) { emit(doc.x) }`,
	`function(doc) { emit(doc.x) }, function(d) { emit(d) }`,
	`doc => emit(doc.x), d => emit(d)`,
	`function(doc) { emit(doc.x) } function f(d) { emit(d) }`,
	`function(doc) { emit(doc.x) }(1)`,
	`var f = function(doc) { emit(doc.x) }`,
	`function(let) { emit(let.x) }`,
	// Another meaning under the same name.
	`function(doc) { var doc; emit(doc.x) }`,
	`function(doc) { function doc() {} emit(doc.x) }`,
	`function(doc) { try {} catch (doc) { emit(doc.x) } }`,
	`function(doc) { (doc => emit(doc.x))(1) }`,
	// Text that a tokenizer and an engine may read differently.
	"function(doc) { emit(doc.x) <!-- emit(1)\n }",
	"function(doc) { emit(doc.x)\n--> emit(doc)\n }",
	"function(doc) { // \u2028 emit(doc)\n emit(doc.x) }",
	"function(doc) { // \r emit(doc)\n emit(doc.x) }",
	`function(doc) { {} /doc/g; emit(doc.x) }`,
	`function(doc) { i++ /doc.x/ 1 }`,
	`function(doc) { emit(doc.x) /* }`,
	`function(doc) { emit("doc.x }`,
	"function(doc) { emit(`doc.x }",
	"function(doc) { emit(`${doc.x }",
	`function(doc) { emit(d\u006fc) }`,
	`function(doc) { emit(docé.x, doc.x) }`,
	`function(doc) { emit(010, doc.x) }`,
	`function(doc) { emit(#x in y) }`,
	`function(doc) { emit(doc.x)) }`,
	`function(doc) { emit([doc.x)] }`,
}

// TestHostile checks that functions that are not sure to be understood are refused.
func TestHostile(t *testing.T) {
	t.Parallel()
	for _, fn := range hostile {
		if fields, ok := readFields(fn); ok {
			t.Errorf("%s: reads only %q, it is said", fn, fields)
		}
	}
	if _, ok := readFields("function(doc) { emit(doc.x) " + strings.Repeat(" ", longestAnalysed) + "}"); ok {
		t.Error("a text that is too long")
	}
}

// TestHarmless checks functions that are not map functions.
func TestHarmless(t *testing.T) {
	t.Parallel()
	for fn, want := range map[string]bool{
		`function(keys, values, rereduce) { return sum(values) }`:                                   true,
		`function(doc, req) { return doc.type == req.query.t }`:                                     true,
		`function(n, o, u, s) { if (n.bad) throw({forbidden: "no"}) }`:                              true,
		`function(doc, req) { return JSON.stringify(doc) }`:                                         true,
		`function(k, v) { Object.defineProperty(v, "x", {}) }`:                                      false,
		`function(k, v) { v[k[0]](k[1]) }`:                                                          false,
		`function(doc, req) { for (var k in doc.a) { doc = req; doc.a[k](1) } }`:                    false,
		`function(doc, req) { return this.x }`:                                                      false,
		`function(doc, req) { return require("lib/x").f(doc) }`:                                     false,
		`function(k, v) { for (var i = 0, n = 0; i < v.length; i++) n += v[i]; return n }`:          true,
		`function(k, v) { return v.map(function(x) { return x.__lookupGetter__("a") }) }`:           false,
		`function(k, v) { var o = {}; v.forEach(function(x) { o[x] = 1 }); return o }`:              false,
		`function(k, v) { return Object.entries(v[0]).map(([name, n]) => name + n) }`:               true,
		`function(k, v, r) { return r ? v.reduce((a, b) => a + b, 0) : v.length } // with comments`: true,
	} {
		if got := harmless(fn); got != want {
			t.Errorf("%s: %v", fn, got)
		}
	}
}

// TestHostileTime checks that no text costs much more than its length.
func TestHostileTime(t *testing.T) {
	t.Parallel()
	for _, piece := range []string{"a[i];", "doc.x[k];", "A;", "(", "[", "{", "`${", "a=>", "i++;", "for(var k in doc.x)doc.x[k];", "function(a)", "/", "//", "'", "]", "(a)=>"} {
		readFields("function(doc) { var i = 0; " + strings.Repeat(piece, longestAnalysed/len(piece)-20) + "}")
	}
	var b strings.Builder
	for i := 0; b.Len() < longestAnalysed-200; i++ {
		fmt.Fprintf(&b, "for(var k%d in doc.a%d)doc.a%d[k%d];", i, i, i, i)
	}
	if fields, ok := readFields("function(doc) { " + b.String() + "}"); !ok || len(fields) < 500 {
		t.Errorf("many keys: %d fields, %v", len(fields), ok)
	}
}

// TestProject compares projections with picking member by member.
func TestProject(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ doc, fields, want string }{
		{`{}`, `a`, `{}`},
		{`{"a":1}`, ``, `{}`},
		{`{"a":1,"b":[1,{"a":2}],"c":"x"}`, `c b`, `{"b":[1,{"a":2}],"c":"x"}`},
		{`{"\u0061":1,"A":2}`, `a`, `{"a":1}`},
		{`{"a\"b":1,"größe":2}`, `größe a"b`, `{"a\"b":1,"größe":2}`},
		{`{"a":{"b":1},"b":2}`, `b x`, `{"b":2}`},
	} {
		if got := project([]byte("x"), []byte(c.doc), strings.Fields(c.fields)); string(got) != "x"+c.want {
			t.Errorf("%s of %s: %s, want %s", c.fields, c.doc, got, c.want)
		}
	}
	rnd := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		doc := randomObject(rnd, 3)
		fields := []string{"a", "_id", "größe", "x\n"}[:rnd.IntN(5)]
		got := project(nil, doc, fields)
		if n, err := rawjson.Normalize(nil, got, 100); err != nil || string(n) != string(got) {
			t.Fatalf("%s of %s: %s: %v", fields, doc, got, err)
		}
		count := 0
		for name, value := range rawjson.Members(doc) {
			v, ok := rawjson.Get(got, string(name))
			if want := slices.Contains(fields, string(name)); ok != want || ok && string(v) != string(value) {
				t.Fatalf("%s of %s: %s", fields, doc, got)
			} else if want {
				count++
			}
		}
		if rawjson.Len(got) != count {
			t.Fatalf("%s of %s: %s", fields, doc, got)
		}
	}
}

// randomObject makes a normalised object.
func randomObject(r *rand.Rand, depth int) []byte {
	out := []byte{'{'}
	for _, name := range []string{"_id", "a", "b", "größe", "x\n", "type", "items"} {
		if r.IntN(3) == 0 {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(rawjson.AppendString(out, name), ':')
		switch k := r.IntN(6); {
		case k == 0 && depth > 0:
			out = append(out, randomObject(r, depth-1)...)
		case k == 1 && depth > 0:
			out = append(append(append(out, '['), randomObject(r, depth-1)...), `,"}",1]`...)
		case k == 2:
			out = rawjson.AppendString(out, "text \" \\ }{")
		case k == 3:
			out = append(out, "null"...)
		default:
			out = fmt.Appendf(out, "%d", r.IntN(1000))
		}
	}
	return append(out, '}')
}

// FuzzReadFields checks that no text ends the process, and that a text that is
// understood has the same tokens, and reads the same, when they are written anew.
func FuzzReadFields(f *testing.F) {
	for _, c := range readable {
		f.Add(c.fn)
	}
	for _, fn := range hostile {
		f.Add(fn)
	}
	f.Fuzz(func(t *testing.T, fn string) {
		harmless(fn)
		fields, ok := readFields(fn)
		if !ok {
			return
		}
		tokens, _ := tokenize(fn)
		var b strings.Builder
		for _, tok := range tokens {
			b.WriteString(tok.text)
			b.WriteByte(' ')
		}
		again, ok := tokenize(b.String())
		if !ok || !slices.Equal(tokens, again) {
			t.Fatalf("%q:\n%v, again\n%v", fn, tokens, again)
		}
		if anew, ok := readFields(b.String()); b.Len() < longestAnalysed && (!ok || !slices.Equal(fields, anew)) {
			t.Fatalf("%q: %q, again %q %v", fn, fields, anew, ok)
		}
	})
}

// BenchmarkProject measures three fields of a document of 1 KB.
func BenchmarkProject(b *testing.B) {
	doc := []byte(`{"_id":"order-00012345","_rev":"1-967a00dff5e02add41819138abb3284d","type":"order","customer":{"name":"Ada Lovelace","street":"12 St James's Square","city":"London"},"created":"2024-03-01T12:00:00Z","items":[`)
	for i := range 12 {
		doc = fmt.Appendf(doc, `{"sku":"sku-%04d","qty":%d,"price":%d.95},`, i, i, 10*i)
	}
	doc = append(doc[:len(doc)-1], `],"note":"`+strings.Repeat("lorem ipsum ", 20)+`","total":1234.56,"paid":true}`...)
	dst := make([]byte, 0, 2048)
	b.SetBytes(int64(len(doc)))
	for b.Loop() {
		dst = project(dst[:0], doc, []string{"type", "total", "created"})
	}
}

// BenchmarkReadFields measures the look at a usual map function.
func BenchmarkReadFields(b *testing.B) {
	for b.Loop() {
		readFields(readable[1].fn)
	}
}
