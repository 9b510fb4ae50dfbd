package jsvm_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/jsvm"
)

// runaways are scripts that would hurt a server, and how each of them ends: by the
// time limit ("time"), the memory limit ("memory"), either of them ("limit"), any limit
// ("killed"), any error ("any"), or an exception of that name.
var runaways = []struct{ name, fn, end string }{
	{"endless loop", `function(doc){ while (true); }`, "time"},
	{"endless loop with try", `function(doc){ while (true) { try { nothing(); } catch (e) {} } }`, "time"},
	{"endless recursion with try", `function(doc){ function f(){ try { f(); } catch (e) { f(); } } f(); }`, "limit"},
	{"deep recursion", `function(doc){ function f(n){ return f(n + 1) + 1; } emit(f(0)); }`, "any"},
	{"deep recursion of natives", `function(doc){ var a = []; for (var i = 0; i < 200000; i++) a = [a]; emit(a); }`, "any"},
	{"deep recursion of toString", `function(doc){ var o = {toString: function(){ return "" + o; }}; emit("" + o); }`, "any"},
	{"endless allocation", `function(doc){ var a = []; while (true) a.push(new Array(1000).fill(0)); }`, "limit"},
	{"endless allocation with try", `function(doc){ var a = []; while (true) { try { a.push({x: [1, 2, 3]}); } catch (e) {} } }`, "limit"},
	{"endless string", `function(doc){ var s = "x"; while (true) s += s; }`, "InternalError"},
	{"huge string", `function(doc){ emit("x".repeat(1 << 29)); }`, "limit"},
	{"huge array", `function(doc){ emit(new Array(1 << 28).fill(1)); }`, "limit"},
	{"huge buffer", `function(doc){ emit(new ArrayBuffer(1 << 30).byteLength); }`, "memory"},
	{"huge emit", `function(doc){ var s = "x".repeat(70 << 20); emit(s); }`, "killed"},
	{"endless emit", `function(doc){ while (true) emit(doc, doc); }`, "limit"},
	{"catastrophic regular expression", `function(doc){ emit(/^(a+)+$/.test("a".repeat(60) + "b")); }`, "time"},
	{"endless comparator", `function(doc){ [1, 2, 3].sort(function(){ while (true); }); }`, "time"},
	{"sort of a hostile length", `function(doc){ Array.prototype.sort.call({length: Math.pow(2, 53) - 1}); }`, "limit"},
	{"reverse of a hostile length", `function(doc){ Array.prototype.reverse.call({length: Math.pow(2, 53) - 1}); }`, "limit"},
	{"join of a hostile length", `function(doc){ emit(Array.prototype.join.call({length: Math.pow(2, 40)}, "")); }`, "limit"},
	{"indexOf of a hostile length", `function(doc){ Array.prototype.indexOf.call({length: Math.pow(2, 53) - 1}, 1); }`, "time"},
	{"endless proxy", `function(doc){ emit(new Proxy({}, {get: function(){ while (true); }, ownKeys: function(){ while (true); }})); }`, "time"},
	{"endless getter", `function(doc){ emit({get x(){ while (true); }}); }`, "time"},
	{"endless toJSON", `function(doc){ emit({toJSON: function(){ while (true); }}); }`, "time"},
	{"toJSON that grows", `function(doc){ function O(){} O.prototype.toJSON = function(){ return {o: new O()}; }; emit(new O()); }`, "any"},
	{"endless message", `function(doc){ throw {get name(){ while (true); }}; }`, "time"},
	{"endless promises", `function(doc){ function f(){ Promise.resolve().then(f); } f(); while (true); }`, "time"},
	{"endless iterator", `function(doc){ var it = {[Symbol.iterator]: function(){ return {next: function(){ return {done: false}; }}; }}; Array.from(it); }`, "limit"},
	{"huge number", `function(doc){ emit(String(2n ** 100000000n).length); }`, "RangeError"},
	{"endless finally", `function(doc){ function f(){ try { while (true); } finally { f(); } } f(); }`, "limit"},
	{"endless code", `function(doc){ var s = "1"; while (true) { s += "+1"; try { eval(s + s + s); } catch (e) {} } }`, "limit"},
	{"cyclic object", `function(doc){ var o = {}; o.o = o; emit(o); }`, "TypeError"},
	{"big integer", `function(doc){ emit(1n); }`, "TypeError"},
}

// TestRunaways lets each of them run in a batch with other documents, while other
// calls go on in the same pool.
func TestRunaways(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{CallTime: 60 * time.Millisecond, Memory: 96 << 20, Workers: 3})
	ctx, cancel := context.WithCancel(context.Background())
	var others sync.WaitGroup
	calls := 0
	others.Go(func() {
		for ctx.Err() == nil {
			out, err := p.Map(context.Background(), program("others", `{}`), []string{`function(doc){ emit(doc.n); }`}, texts(`{"n":1}`, `{"n":2}`))
			if err != nil || rowsOf(out[1][0]) != `[[2,null]]` {
				t.Errorf("another call failed: %v %v", out, err)
				return
			}
			calls++
		}
	})
	var all sync.WaitGroup
	next := make(chan int)
	for range 2 {
		all.Go(func() {
			for i := range next {
				t.Run(runaways[i].name, func(t *testing.T) { runAway(t, p, i) })
			}
		})
	}
	for i := range runaways {
		next <- i
	}
	close(next)
	all.Wait()
	cancel()
	others.Wait()
	if calls < 10 {
		t.Errorf("only %d other calls went through", calls)
	}
}

// runAway runs a script on the middle one of three documents, beside a function that
// does no harm.
func runAway(t *testing.T, p *jsvm.Pool, i int) {
	c := runaways[i]
	fn := "function(doc){ if (doc.n == 2) (" + c.fn + ")(doc); emit(doc.n); }"
	began := time.Now()
	out := mapAll(t, p, program(fmt.Sprint("runaway ", i), `{}`), []string{`function(doc){ emit(doc.n); }`, fn},
		`{"n":1}`, `{"n":2}`, `{"n":3}`)
	if took := time.Since(began); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	for i, n := range []int{1, 2, 3} {
		want := fmt.Sprintf("[[%d,null]]", n)
		if got := rowsOf(out[i][0]); got != want {
			t.Errorf("the function beside it, document %d: %s", n, got)
		}
		if got := rowsOf(out[i][1]); n != 2 && got != want {
			t.Errorf("document %d: %s", n, got)
		}
	}
	switch err := out[1][1].Err; c.end {
	case "limit", "time", "memory", "killed":
		wantKilled(t, err, map[string]string{"limit": "limit of", "time": "time limit", "memory": "memory limit"}[c.end])
	case "any":
		if err == nil {
			t.Error("it went through")
		}
	default:
		wantThrown(t, err, c.end, "")
	}
}

// TestHugeResult is a result that is too large, and one that is not.
func TestHugeResult(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	prog := program("huge", `{}`)
	fn := `function(doc){ emit("x".repeat(doc.n)); }`
	out := mapAll(t, p, prog, []string{fn}, `{"n":1}`, `{"n":34000000}`, `{"n":5000000}`)
	if got := rowsOf(out[0][0]); got != `[["x",null]]` {
		t.Error(got)
	}
	wantKilled(t, out[1][0].Err, "its result passes 32 MiB")
	if n := len(out[2][0].Rows); n != 5000000+len(`[["",null]]`) {
		t.Errorf("%d bytes of rows, %v", n, out[2][0].Err)
	}
}

// TestLongBatch is a batch whose calls are all within the limit, and not together.
func TestLongBatch(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{CallTime: shortTime})
	prog := program("long", `{}`)
	docs := make([]string, 8)
	for i := range docs {
		docs[i] = fmt.Sprintf(`{"n":%d}`, i)
	}
	fn := `function(doc){ var until = Date.now() + 30; while (Date.now() < until); emit(doc.n); }`
	for range 2 {
		for i, e := range mapAll(t, p, prog, []string{fn}, docs...) {
			if got, want := rowsOf(e[0]), fmt.Sprintf("[[%d,null]]", i); got != want {
				t.Errorf("document %d: %s, want %s", i, got, want)
			}
		}
	}
}

// TestKillsEnd is a batch in which one function always runs away, and another does
// not.
func TestKillsEnd(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{CallTime: 30 * time.Millisecond})
	docs := make([]string, 50)
	for i := range docs {
		docs[i] = `{}`
	}
	out := mapAll(t, p, program("all", `{}`), []string{`function(doc){ emit(1); }`, `function(doc){ while (true); }`}, docs...)
	for i, e := range out {
		if got := rowsOf(e[0]); got != `[[1,null]]` {
			t.Errorf("document %d: %s", i, got)
		}
		want := "time limit of 30ms"
		if i >= 10 {
			want = "not run, since it passed a limit 10 times"
		}
		wantKilled(t, e[1].Err, want)
		var killed *jsvm.Killed
		if errors.As(e[1].Err, &killed) && killed.Skipped != (i >= 10) {
			t.Errorf("document %d: skipped is %v", i, killed.Skipped)
		}
	}
}

// TestOtherKindsRunAway: what is no map function is found out as well.
func TestOtherKindsRunAway(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{CallTime: shortTime})
	ctx := context.Background()
	prog := program("kinds", `{"lib":{"loop":"while (true);"}}`)
	errs, err := p.Check(ctx, prog, []string{`function(doc){}`, `(function(){ while (true); })()`, `function(){`})
	if err != nil || errs[0] != nil {
		t.Fatal(errs, err)
	}
	wantKilled(t, errs[1], "time limit")
	wantThrown(t, errs[2], "compilation_error", "")
	reduced, err := p.Reduce(ctx, prog, `function(k, v){ while (v[0] == 2); return v[0]; }`, []jsvm.ReduceCall{{Values: []byte(`[1]`)}, {Values: []byte(`[2]`)}, {Values: []byte(`[3]`)}})
	if err != nil || string(reduced[0].Value) != "1" || string(reduced[2].Value) != "3" {
		t.Fatal(reduced, err)
	}
	wantKilled(t, reduced[1].Err, "time limit")
	verdicts, err := p.Filter(ctx, prog, `function(doc, req){ while (doc.n == 1); return true; }`, []byte(`{}`), texts(`{"n":1}`, `{"n":2}`))
	if err != nil || !verdicts[1].Pass || verdicts[0].Pass {
		t.Fatal(verdicts, err)
	}
	wantKilled(t, verdicts[0].Err, "time limit")
	if errs, err = p.Validate(ctx, prog, `function(doc){ require("lib/loop"); }`, []jsvm.ValidateCall{{NewDoc: []byte(`{}`)}}); err != nil {
		t.Fatal(err)
	}
	wantKilled(t, errs[0], "time limit")
	_, err = p.Show(ctx, prog, `function(doc, req){ while (true); }`, nil, []byte(`{"path":[]}`))
	wantKilled(t, err, "time limit")
}
