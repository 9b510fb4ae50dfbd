package jsvm_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/rawjson"
)

// TestEnvironment evaluates expressions within a map function.
func TestEnvironment(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	prog := program("env", `{"views":{"lib":{"m":"exports.x = 5"}}}`)
	for _, c := range [][2]string{
		{`sum([1, 2, 3.5])`, `6.5`},
		{`isArray([]) && !isArray({length: 0}) && Array.isArray([])`, `true`},
		{`toJSON({a: [1, null], b: undefined})`, `"{\"a\":[1,null]}"`},
		{`JSON.stringify(JSON.parse('{"x":1}'))`, `"{\"x\":1}"`},
		{`new Date(Date.UTC(2024, 0, 2)).toISOString()`, `"2024-01-02T00:00:00.000Z"`},
		{`new Date(86400000)`, `"1970-01-02T00:00:00.000Z"`},
		{`Math.max(1, 2)`, `2`},
		{`"a-b-c".replace(/-/g, "+").match(/(?<first>a).(?=b)/).groups.first`, `"a"`},
		{`require("views/lib/m").x`, `5`},
		{`[3, 1, 2].toSorted().at(-1)`, `3`},
		{`[1, [2, [3]]].flat(Infinity)`, `[1,2,3]`},
		{`doc?.a?.b ?? "none"`, `"none"`},
		{`((a, {b, ...c} = {b: 1, d: 2}) => [a, b, c])(0)`, `[0,1,{"d":2}]`},
		{"`${1 + 1}`", `"2"`},
		{`Object.fromEntries([["a", 1]])`, `{"a":1}`},
		{`Object.groupBy === undefined`, `false`},
		{`[undefined, NaN, Infinity, function(){}]`, `[null,null,null,null]`},
		{`undefined`, `null`},
		{`"é\u00e9😀"`, `"éé😀"`},
		{`"\ud83d"`, `"\ufffd"`},
		{`"\ude00x" + "\ud83d\ude00"`, `"\ufffdx😀"`},
		{`"\\ud83d"`, `"\\ud83d"`},
		{`"\u0000\u001f"`, `"\u0000\u001f"`},
		{`({"__proto__x": 1, ["__proto__"]: 2})`, `{"__proto__x":1,"__proto__":2}`},
		{`(function(){ return typeof this })()`, `"object"`},
		{`9007199254740993`, `9007199254740992`},
		{`1e21`, `1e+21`},
		{`-0`, `0`},
	} {
		e := mapOne(t, p, prog, "function(doc) { emit("+c[0]+") }", `{"_id":"a"}`)
		if got, want := rowsOf(e), "[["+c[1]+",null]]"; got != want {
			t.Errorf("%s: got %s, want %s", c[0], got, want)
		}
	}
}

// TestNothingLeadsOutside looks for each way to the world outside.
func TestNothingLeadsOutside(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	prog := program("outside", `{}`)
	names := []string{"std", "os", "print", "console", "setTimeout", "setInterval", "setImmediate", "queueMicrotask",
		"fetch", "XMLHttpRequest", "WebSocket", "Worker", "process", "Deno", "Bun", "load", "loadScript", "scriptArgs",
		"readline", "quit", "gc", "evalcx", "bjson", "navigator", "performance", "Atomics", "SharedArrayBuffer",
		"__host", "__loadScript", "__date_clock", "host", "module", "exports", "structuredClone"}
	fn := "function(doc) { for (const n of " + toJSON(names) + ") if (typeof globalThis[n] !== 'undefined') emit(n); }"
	if got := rowsOf(mapOne(t, p, prog, fn, `{}`)); got != "" {
		t.Errorf("scripts see %s", got)
	}
	// Every global is one that is known: a new version of the engine adds none unseen.
	known := "Error EvalError RangeError ReferenceError SyntaxError TypeError URIError InternalError AggregateError Array Object " +
		"Function Iterator parseInt parseFloat isNaN isFinite decodeURI decodeURIComponent encodeURI encodeURIComponent escape " +
		"unescape Infinity NaN undefined eval Number Boolean String Math Reflect Symbol globalThis BigInt Date RegExp JSON Proxy " +
		"Map Set WeakMap WeakSet ArrayBuffer Uint8ClampedArray Int8Array Uint8Array Int16Array Uint16Array Int32Array Uint32Array " +
		"BigInt64Array BigUint64Array Float16Array Float32Array Float64Array DataView Promise WeakRef FinalizationRegistry " +
		"emit sum log toJSON isArray require registerType provides start send getRow"
	fn = `function(doc) { const known = new Set(` + toJSON(strings.Fields(known)) + `);
		for (const n of Object.getOwnPropertyNames(globalThis)) if (!known.has(n)) emit(n); }`
	if got := rowsOf(mapOne(t, p, prog, fn, `{}`)); got != "" {
		t.Errorf("unknown globals %s", got)
	}
	for _, module := range []string{"std", "os", "fs", "/etc/passwd", "./x.js"} {
		fn := fmt.Sprintf(`function(doc) { import(%q).then(function(m){ globalThis.got = Object.keys(m); }, function(e){ globalThis.got = "no"; }); emit(typeof globalThis.got); }`, module)
		mapOne(t, p, prog, fn, `{}`)
		if got := rowsOf(mapOne(t, p, prog, `function(doc) { emit(globalThis.got); }`, `{}`)); got != `[["no",null]]` {
			t.Errorf("import(%q) gave %s", module, got)
		}
	}
}

// toJSON writes a list of strings.
func toJSON(list []string) string {
	b := []byte{'['}
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, s)
	}
	return string(append(b, ']'))
}

func TestCompile(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	prog := program("compile", `{}`)
	good := []string{
		`function(doc) { emit(1) }`,
		`function name(doc) { emit(1) }`,
		`(function(doc) { emit(1) })`,
		`(function(doc) { emit(1) });`,
		`function(doc) { emit(1) };`,
		"  \n\tfunction(doc) { emit(1) } ;; \n",
		"// a comment\nfunction(doc) { emit(1) }",
		"/* a\n comment */ function(doc) { emit(1) } // at the end",
		`doc => emit(1)`,
		`(doc) => { emit(1) };`,
		`function(doc) { emit(1) }; var left = "over";`,
		`var one = 1; var f = function(doc) { emit(one) }; f`,
		"function helper() { return 1 }\n(function(doc) { emit(helper()) })",
		`"use strict"; (function(doc) { emit(1) })`,
		`(function() { var one = 1; return function(doc) { emit(one) } })()`,
	}
	errs, err := p.Check(context.Background(), prog, good)
	if err != nil {
		t.Fatal(err)
	}
	for i, fn := range good {
		if errs[i] != nil {
			t.Errorf("%q: %v", fn, errs[i])
		}
		if got := rowsOf(mapOne(t, p, prog, fn, `{}`)); got != `[[1,null]]` {
			t.Errorf("%q: %s", fn, got)
		}
	}
	bad := [][2]string{
		{`function(doc){ emit( }`, `SyntaxError: unexpected token in expression: '}' at line 1, column 22 (function(doc){ emit( })`},
		{"function(doc){\n  emit(;\n}", "at line 2, column 8 (function(doc){\n  emit(;"},
		{`var x = ; function(doc){}`, `at line 1, column 9 (var x`},
		{`42`, `Expression does not eval to a function. (42)`},
		{`"function"`, `does not eval to a function`},
		{`{"a": 1}`, `(`},
		{``, `(`},
		{`function(doc){`, `(function(doc){)`},
		{`not_there`, `ReferenceError: 'not_there' is not defined (not_there)`},
		{`throw "x"`, `(throw "x")`},
		{`async function(doc){ emit(1) }`, `async`},
		{`async doc => emit(1)`, `async`},
		{`function* (doc){ emit(1) }`, `generator`},
		{"function(doc){ emit(`}", `(function`},
		{`function(doc){ "\u0000 é 😀 }`, `(function`},
	}
	texts := make([]string, len(bad))
	for i := range bad {
		texts[i] = bad[i][0]
	}
	if errs, err = p.Check(context.Background(), prog, texts); err != nil {
		t.Fatal(err)
	}
	for i, c := range bad {
		wantThrown(t, errs[i], "compilation_error", c[1])
		// Called all the same, it says the same.
		wantThrown(t, mapOne(t, p, prog, c[0], `{}`).Err, "compilation_error", c[1])
	}
	long := "function(doc){ " + strings.Repeat("x", 1<<20) + " ;;; } }"
	if errs, err = p.Check(context.Background(), prog, []string{long}); err != nil {
		t.Fatal(err)
	}
	if len(errs[0].Error()) > 4096 {
		t.Errorf("the reason has %d bytes", len(errs[0].Error()))
	}
}

func TestRequire(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	prog := program("require", `{"_id":"_design/r","count":7,
		"lib":{"a":"exports.name = 'a'; exports.b = require('./b').name; exports.id = module.id;",
		       "b":"exports.name = 'b'; exports.up = require('../top');",
		       "deep":{"c":"module.exports = function(x){ return require('../a').name + require('../../top').t + x; };"},
		       "bad":"exports.x = (;","throws":"throw new RangeError('mine')","uses":"require('./throws')",
		       "once":"globalThis.loads = (globalThis.loads || 0) + 1; exports.loads = globalThis.loads"},
		"top":"exports.t = 'top'",
		"cycle":{"x":"exports.early = 1; var y = require('./y'); exports.late = 2; exports.y = y",
		         "y":"var x = require('./x'); exports.saw = [x.early, x.late]"},
		"views":{"lib":{"v":"exports.v = 'v'; // comment at the end"}}}`)
	for _, c := range [][2]string{
		{`require("lib/a").name`, `"a"`},
		{`require("lib/a").b`, `"b"`},
		{`require("lib/a").id`, `"lib/a"`},
		{`require("lib/b").up.t`, `"top"`},
		{`require("lib/deep/c")("!")`, `"atop!"`},
		{`require("views/lib/v").v`, `"v"`},
		{`require("cycle/x").y.saw`, `[1,null]`},
		{`require("cycle/y").saw`, `[1,null]`},
		{`[require("lib/once").loads, require("lib/once").loads, require("lib/../lib/once").loads]`, `[1,1,1]`},
		{`require("lib/a") === require("./lib/a")`, `true`},
	} {
		if got := rowsOf(mapOne(t, p, prog, "function(doc){ emit("+c[0]+") }", `{}`)); got != "[["+c[1]+",null]]" {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
	for _, c := range [][3]string{
		{`lib/nothing`, "invalid_require_path", `require('lib/nothing'): Object has no property "nothing"`},
		{`constructor`, "invalid_require_path", `no property "constructor"`},
		{`lib`, "invalid_require_path", `Must require a JavaScript string, not: object`},
		{`count`, "invalid_require_path", `not: number`},
		{`lib/a/b`, "invalid_require_path", `no property "b"`},
		{`../x`, "invalid_require_path", `leads out`},
		{`lib/bad`, "compilation_error", `Module require('lib/bad') raised error SyntaxError`},
		{`lib/throws`, "compilation_error", `raised error RangeError: mine`},
		{`lib/uses`, "compilation_error", `require('./throws') raised error RangeError: mine`},
	} {
		e := mapOne(t, p, prog, `function(doc){ require("`+c[0]+`"); emit(1) }`, `{}`)
		wantThrown(t, e.Err, c[1], c[2])
	}
}

// TestThrown is what the caller is told of the things scripts throw.
func TestThrown(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	prog := program("thrown", `{}`)
	for _, c := range [][3]string{
		{`new TypeError("wrong")`, "TypeError", "wrong"},
		{`new Error("plain")`, "Error", "plain"},
		{`"a string"`, "error", "a string"},
		{`42`, "error", "42"},
		{`null`, "error", "null"},
		{`undefined`, "error", "undefined"},
		{`Symbol("s")`, "error", "Symbol(s)"},
		{`{forbidden: "no"}`, "forbidden", "no"},
		{`{unauthorized: "who"}`, "unauthorized", "who"},
		{`{forbidden: {a: 1}}`, "forbidden", `{"a":1}`},
		{`["error", "name", "reason"]`, "name", "reason"},
		{`["fatal", "name", "reason"]`, "name", "reason"},
		{`{error: "e", reason: "r"}`, "e", "r"},
		{`{other: 1}`, "error", `{"other":1}`},
		{`function(){}`, "error", "function"},
		{`{get name(){ throw 1 }}`, "error", "cannot be described"},
		{`new Proxy({}, {get(){ throw 1 }})`, "error", "cannot be described"},
		{`"x".repeat(100000)`, "error", "xxx"},
	} {
		e := mapOne(t, p, prog, "function(doc){ emit(1); throw "+c[0]+"; }", `{}`)
		wantThrown(t, e.Err, c[1], c[2])
		if e.Rows != nil {
			t.Errorf("throw %s: rows %s", c[0], e.Rows)
		}
	}
}

func TestLog(t *testing.T) {
	t.Parallel()
	log, text := logOf()
	p := newPool(t, jsvm.Options{Log: log})
	prog := program("db/_design/logs", `{}`)
	mapOne(t, p, prog, `function(doc){ log("hello"); log({a: 1}); log(undefined); log("y".repeat(10000)); for (var i = 0; i < 1000; i++) log("line" + i); emit(1); }`, `{}`)
	for _, want := range []string{"level=INFO", "program=db/_design/logs", "message=hello", `message="{\"a\":1}"`, "message=undefined", "message=line50"} {
		if !strings.Contains(text(), want) {
			t.Errorf("the log lacks %s", want)
		}
	}
	if n := strings.Count(text(), "\n"); n != 100 {
		t.Errorf("%d lines in the log, want 100", n)
	}
	if strings.Contains(text(), strings.Repeat("y", 5000)) {
		t.Error("a line of the log is too long")
	}
}
