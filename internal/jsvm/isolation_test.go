package jsvm_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/divandb/divan/internal/jsvm"
)

// TestProgramsShareNothing has one program spoil all it can reach, and another one
// look for traces in the same worker.
func TestProgramsShareNothing(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{Workers: 1})
	spoiler := program("spoiler", `{"lib":{"m":"exports.who = 'spoiler'"}}`)
	victim := program("victim", `{"lib":{"m":"exports.who = 'victim'"}}`)
	mapOne(t, p, spoiler, `function(doc){
		globalThis.leak = 1; Object.prototype.leak = 1; Array.prototype.push = function(){}; JSON.stringify = function(){ return "0"; };
		String.prototype.trim = null; Math.max = null; require("lib/m").leak = 1; Date.now = null; globalThis.sum = null; }`, `{}`)
	fn := `function(doc){ emit([typeof leak, ({}).leak === undefined, [1].concat(2), JSON.stringify([1]), " a ".trim(), Math.max(1, 2), require("lib/m").who, require("lib/m").leak === undefined, typeof Date.now, sum([1, 2])]); }`
	want := `[[["undefined",true,[1,2],"[1]","a",2,"victim",true,"function",3],null]]`
	if got := rowsOf(mapOne(t, p, victim, fn, `{}`)); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	// The same key is the same engine, and has its globals still.
	if got := rowsOf(mapOne(t, p, spoiler, `function(doc){ emit(leak); }`, `{}`)); got != `[[1,null]]` {
		t.Errorf("got %s", got)
	}
}

// TestSpoiledBuiltins: a script that overwrites what the dispatcher is made of harms
// at most itself. Its own results must be right, or an error, and never another's.
func TestSpoiledBuiltins(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{Workers: 1})
	for i, c := range []struct {
		spoil string
		sound bool // results must be right nevertheless
	}{
		{`JSON.stringify = function(){ return "[[7,7]]"; }`, true},
		{`JSON.parse = function(){ return []; }`, true},
		{`JSON = null`, true},
		{`Array.prototype.push = function(){ throw 1; }`, true},
		{`Array.prototype.join = function(){ return "x"; }`, true},
		{`Array.prototype.map = Array.prototype.forEach = null`, true},
		{`emit = function(){ }`, true},
		{`globalThis.emit = null`, true},
		{`Object.freeze = function(){ throw 1; }`, true},
		{`Object.keys = Object.getPrototypeOf = Object.hasOwn = null`, true},
		{`Array.isArray = function(){ return false; }`, true},
		{`String.prototype.slice = String.prototype.split = null; String = null`, true},
		{`Function.prototype.call = Function.prototype.apply = Function.prototype.bind = null`, true},
		{`Map.prototype.get = Map.prototype.has = null; Map = null`, true},
		{`Reflect.apply = null; Reflect = null`, true},
		{`Error = TypeError = SyntaxError = InternalError = null`, true},
		{`eval = null`, true},
		{`Object.defineProperty(Array.prototype, "0", {set: function(v){ }, configurable: true})`, false},
		{`Array.prototype.toJSON = function(){ return "x"; }`, false},
		{`Array.prototype.toJSON = function(){ return undefined; }`, false},
		{`Array.prototype.toJSON = function(){ throw 1; }`, false},
		{`Object.prototype.toJSON = function(){ return [[1, 2], [3, 4]]; }`, false},
		{`String.prototype.toJSON = function(){ return 5; }`, true},
		{`Object.defineProperty(Object.prototype, "e", {get: function(){ return ["a", "b"]; }})`, false},
		{`Array.prototype[Symbol.iterator] = null`, false},
		{`Object.prototype.then = function(){ }; Object.prototype.length = 5`, false},
		{`Object.freeze(Object.prototype); Object.freeze(Array.prototype)`, true},
		{`Object.freeze(globalThis)`, true},
		{`Object.setPrototypeOf(Array.prototype, null)`, true},
		{`for (const n of Object.getOwnPropertyNames(globalThis)) try { delete globalThis[n]; } catch (e) { }`, true},
	} {
		prog := program(fmt.Sprint("spoiled ", i), `{}`)
		mapOne(t, p, prog, `function(doc){ `+c.spoil+` }`, `{}`)
		out := mapAll(t, p, prog, []string{`function(doc){ emit(doc.n, doc.n); }`, `function(doc){ if (doc.n == 1) throw "mine"; }`}, `{"n":1}`, `{"n":2}`)
		sound := rowsOf(out[0][0]) == `[[1,1]]` && rowsOf(out[1][0]) == `[[2,2]]` && rowsOf(out[0][1]) == "error: mine" && rowsOf(out[1][1]) == ""
		if c.sound && !sound {
			t.Errorf("after %s: %v", c.spoil, out)
		}
		if got := rowsOf(mapOne(t, p, program("clean", `{}`), `function(doc){ emit(doc.n, [doc.n]); }`, `{"n":1}`)); got != `[[1,[1]]]` {
			t.Errorf("after %s another program gave %s", c.spoil, got)
		}
	}
}

// TestDocumentsAreFrozen: what one map function does to a document is not seen by the
// next, nor by itself, as in CouchDB.
func TestDocumentsAreFrozen(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	changes := []string{
		`doc.n = 2`, `doc.a.push(3)`, `doc.o.x.y = 5`, `delete doc.n`, `doc.fresh = 1`, `doc.a.sort(function(a, b){ return b - a; })`,
		`doc["n"] += 1`, `doc.n++`, `--doc.n`, `[doc.n] = [7]`, `({x: doc.n} = {x: 8})`, `for (doc.n in {z: 1});`, `for (doc.n of [9]);`,
		`Object.assign(doc, {n: 3})`, `Object.defineProperty(doc.o, "x", {value: 1})`, `doc.a.length = 0`, `doc.a[0] = 9`, `doc.o.x.y ||= 3`,
		`Reflect.set(doc, "n", 4)`, `doc.a.splice(0, 1)`, `with (doc) { n = 9; }`, `(function(){ arguments[0].n = 4; })(doc)`,
		`doc.o.__proto__ = null`, `var {n} = doc; doc.n = n + 1`, "doc.n /* \n */ = 3", `doc["\x6e"] = 3`, `var d = doc; d.n = 3`,
		`[doc].forEach(function(d){ d.n = 3; })`, `doc.a.fill(0)`, `doc.a.reverse()`, `eval("doc.n = 5")`, `new Function("d", "d.n = 5")(doc)`,
	}
	for i, change := range changes {
		fns := []string{`function(doc){ try { ` + change + ` } catch (e) {} }`, `function(doc){ emit(doc); }`}
		doc := `{"n":1,"a":[1,2],"o":{"x":{"y":null}}}`
		out := mapAll(t, p, program(fmt.Sprint("frozen ", i), `{}`), fns, doc)
		if got := rowsOf(out[0][1]); got != "[["+doc+",null]]" {
			t.Errorf("%s is seen: %s", change, got)
		}
		if jsvm.OnlyReads(fns[0]) {
			t.Errorf("%s is thought to change nothing", change)
		}
	}
	e := mapOne(t, p, program("frozen strict", `{}`), `function(doc){ "use strict"; doc.n = 1; emit(1); }`, `{}`)
	wantThrown(t, e.Err, "TypeError", "")
}

// TestEmittedIsFixed: what is emitted is what it was when the function ended.
func TestEmittedIsFixed(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	fn := `(function(){ var row = {}; return function(doc){ row.n = doc.n; emit(row); row.m = doc.n; }; })()`
	out := mapAll(t, p, program("fixed", `{}`), []string{fn}, `{"n":1}`, `{"n":2}`)
	if a, b := rowsOf(out[0][0]), rowsOf(out[1][0]); a != `[[{"n":1,"m":1},null]]` || b != `[[{"n":2,"m":2},null]]` {
		t.Error(a, b)
	}
}

func TestOnlyReads(t *testing.T) {
	t.Parallel()
	for _, fn := range []string{
		`function(doc){ emit([doc.type, doc.created], doc.amount); }`,
		`function(doc) { if (doc.type === "post" && doc.tags) { doc.tags.forEach(function(tag) { emit(tag, 1); }); } }`,
		"function(doc) {\n  // the total\n  var total = 0;\n  for (var i = 0; i < doc.items.length; i++) { total += doc.items[i].price * doc.items[i].n; }\n  emit(doc._id, total);\n}",
		`doc => { if (doc.a >= 1 && doc.b <= 2 && doc.c != 3) emit(doc.a - 1) }`,
		`function(doc){ if (isArray(doc.x)) for (var k in doc.o) emit(k, doc.o[k]); }`,
		`function(doc){ const d = new Date(doc.at); emit([d.getFullYear(), d.getMonth() + 1]); }`,
	} {
		if !jsvm.OnlyReads(fn) {
			t.Errorf("%s is thought to change something", fn)
		}
	}
}

// TestLatePromises: what a promise does later reaches no other document.
func TestLatePromises(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	prog := program("late", `{}`)
	fn := `function(doc){ Promise.resolve().then(function(){ emit("late"); }); emit(doc.n); }`
	for range 3 {
		out := mapAll(t, p, prog, []string{fn}, `{"n":1}`, `{"n":2}`)
		if a, b := rowsOf(out[0][0]), rowsOf(out[1][0]); a != `[[1,null]]` || b != `[[2,null]]` {
			t.Error(a, b)
		}
	}
}

func TestReduce(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	fn := `function(keys, values, rereduce){ if (rereduce) return [keys, sum(values), rereduce]; if (values.length == 0) return; return [keys[0][1], sum(values), rereduce]; }`
	out, err := p.Reduce(context.Background(), program("reduce", `{}`), fn, []jsvm.ReduceCall{
		{Keys: []byte(`[["k","id1"],["k","id2"]]`), Values: []byte(`[1,2]`)},
		{Values: []byte(`[3,4]`), Rereduce: true},
		{Keys: []byte(`[]`), Values: []byte(`[]`)},
		{Keys: []byte(`[]`), Values: []byte(`[1]`)},
	})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{`["id1",3,false]`, `[null,7,true]`, `null`} {
		if out[i].Err != nil || string(out[i].Value) != want {
			t.Errorf("call %d: %s %v, want %s", i, out[i].Value, out[i].Err, want)
		}
	}
	wantThrown(t, out[3].Err, "TypeError", "")

	// A function that looks at its keys in whatever way gets them.
	call := []jsvm.ReduceCall{{Keys: []byte(`[["k","id"]]`), Values: []byte(`[1]`)}, {Values: []byte(`[1]`), Rereduce: true}}
	for fn, want := range map[string][2]string{
		`function(keys, values){ return values; }`:                  {`[1]`, `[1]`},
		`function(keys, values){ return keys ? 1 : 0; }`:            {`1`, `0`},
		`function(keys, values){ return keys && keys.length; }`:     {`1`, `null`},
		`function(keys, values){ return keys; }`:                    {`[["k","id"]]`, `null`},
		`function(){ return arguments[0]; }`:                        {`[["k","id"]]`, `null`},
		`function(keys, values){ return keys === null; }`:           {`false`, `true`},
		`function(k, v){ var a = k; return a && a[0]; }`:            {`["k","id"]`, `null`},
		`function(k, v){ return typeof k + Object.keys(k || {}); }`: {`"object0"`, `"object"`},
		`(...all) => all[0]`:                                        {`[["k","id"]]`, `null`},
		`function(keys, values, rereduce){ return eval("keys"); }`:  {`[["k","id"]]`, `null`},
		`function([first] = [2], values){ return first; }`:          {`["k","id"]`, ``},
		`function(keys, values){ return keys + "" === "k,id"; }`:    {`true`, `false`},
		`function(keys, values){ return JSON.stringify(keys); }`:    {`"[[\"k\",\"id\"]]"`, `"null"`},
		`function(keys, values){ for (var k in keys) return k; }`:   {`"0"`, `null`},
		`function(keys, values){ return (() => keys)(); }`:          {`[["k","id"]]`, `null`},
		`function(keys, values){ return {keys}.keys; }`:             {`[["k","id"]]`, `null`},
	} {
		out, err := p.Reduce(context.Background(), program("keys "+fn, `{}`), fn, call)
		if err != nil {
			t.Fatal(err)
		}
		if string(out[0].Value) != want[0] || string(out[1].Value) != want[1] {
			t.Errorf("%s: %s %v and %s %v", fn, out[0].Value, out[0].Err, out[1].Value, out[1].Err)
		}
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	ctx := context.Background()
	prog := program("filter", `{"_id":"_design/f","word":"yes"}`)
	docs := texts(`{"v":true}`, `{"v":1}`, `{"v":"x"}`, `{"v":[]}`, `{"v":false}`, `{"v":0}`, `{"v":""}`, `{"v":null}`, `{}`)
	out, err := p.Filter(ctx, prog, `function(doc, req){ return doc.v; }`, []byte(`{}`), docs)
	if err != nil {
		t.Fatal(err)
	}
	for i, v := range out {
		if v.Err != nil || v.Pass != (i < 4) {
			t.Errorf("document %s: %v", docs[i], v)
		}
	}
	if out, err = p.Filter(ctx, prog, `function(doc, req){ if (doc.v) throw {forbidden: "x"}; return req.query.a == "b" && this.word == "yes"; }`, []byte(`{"query":{"a":"b"}}`), texts(`{}`, `{"v":1}`)); err != nil {
		t.Fatal(err)
	}
	if !out[0].Pass || out[1].Pass {
		t.Error(out)
	}
	wantThrown(t, out[1].Err, "forbidden", "x")
}

func TestValidate(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	prog := program("validate", `{"limit":3}`)
	fn := `function(newDoc, oldDoc, userCtx, secObj){
		if (newDoc.code) eval(newDoc.code);
		if (newDoc.n > this.limit) throw({forbidden: "over " + this.limit});
		if (oldDoc !== null && userCtx.name != secObj.owner) throw({unauthorized: "not yours"});
		return "ignored"; }`
	call := func(newDoc, oldDoc string) jsvm.ValidateCall {
		c := jsvm.ValidateCall{NewDoc: []byte(newDoc), UserCtx: []byte(`{"name":"eve"}`), Security: []byte(`{"owner":"adam"}`)}
		if oldDoc != "" {
			c.OldDoc = []byte(oldDoc)
		}
		return c
	}
	cases := []struct {
		call         jsvm.ValidateCall
		name, reason string
	}{
		{call(`{"n":1}`, ``), "", ""},
		{call(`{"n":4}`, ``), "forbidden", "over 3"},
		{call(`{"n":1}`, `{}`), "unauthorized", "not yours"},
		{call(`{"code":"throw new TypeError('oops')"}`, ``), "TypeError", "oops"},
		{call(`{"code":"nothing.there"}`, ``), "ReferenceError", "nothing"},
		{call(`{"code":"throw 'text'"}`, ``), "unknown_error", "text"},
		{call(`{"code":"throw {other: 'text'}"}`, ``), "unknown_error", "text"},
		{call(`{"code":"throw {forbidden: {a: 1}}"}`, ``), "forbidden", `{"a":1}`},
		{call(`{"code":"throw {error: 'e', reason: 'r'}"}`, ``), "e", "r"},
		{call(`{"code":"throw null"}`, ``), "error", "null"},
	}
	calls := make([]jsvm.ValidateCall, len(cases))
	for i := range cases {
		calls[i] = cases[i].call
	}
	errs, err := p.Validate(context.Background(), prog, fn, calls)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		if c.name == "" {
			if errs[i] != nil {
				t.Errorf("call %d: %v", i, errs[i])
			}
			continue
		}
		wantThrown(t, errs[i], c.name, c.reason)
	}
	errs, err = p.Validate(context.Background(), prog, `function(newDoc){`, calls[:1])
	if err != nil {
		t.Fatal(err)
	}
	wantThrown(t, errs[0], "compilation_error", "")
}
