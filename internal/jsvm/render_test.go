package jsvm_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/divandb/divan/internal/jsvm"
)

func TestShow(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	ctx := context.Background()
	prog := program("show", `{"title":"T","lib":{"x":"exports.y = 'z'"}}`)
	plain := `{"method":"GET","path":["db","_design","d","_show","s"],"headers":{},"query":{}}`
	accept := func(a string) string {
		return `{"method":"GET","path":[],"headers":{"Accept":"` + a + `"},"query":{}}`
	}
	both := `function(doc, req){ provides("html", function(){ return "<b>"; }); provides("json", function(){ return {body: "{}", code: 404}; }); }`
	for _, c := range []struct{ fn, doc, req, want string }{
		{`function(doc, req){ return "hello " + doc._id; }`, `{"_id":"a"}`, plain, `{"body":"hello a","headers":{}}`},
		{`function(doc, req){ return {code: 201, headers: {"X-A": "b"}, body: "x"}; }`, ``, plain, `{"code":201,"headers":{"X-A":"b"},"body":"x"}`},
		{`function(doc, req){ return {base64: "eA==", stop: true}; }`, ``, plain, `{"base64":"eA==","stop":true,"headers":{}}`},
		{`function(doc, req){ return {json: {a: [1]}}; }`, ``, plain, `{"json":{"a":[1]},"headers":{}}`},
		{`function(doc, req){ }`, ``, plain, `{"headers":{}}`},
		{`function(doc, req){ return this.title + require("lib/x").y + req.method; }`, ``, plain, `{"body":"TzGET","headers":{}}`},
		{`function(doc, req){ start({code: 202, headers: {"X-B": "c"}}); send("a"); send(1); return "z"; }`, ``, plain, `{"body":"a1z","code":202,"headers":{"X-B":"c"}}`},
		{`function(doc, req){ throw {redirect: "/there"}; }`, ``, plain, `{"code":302,"headers":{"Location":"/there"},"body":""}`},
		{both, ``, accept("text/html"), `{"body":"<b>","headers":{"Content-Type":"text/html; charset=utf-8"}}`},
		{both, ``, accept("application/json"), `{"body":"{}","headers":{"Content-Type":"application/json"}}`},
		{both, ``, accept("text/html;q=0.2, application/json;q=0.8"), `{"body":"{}","headers":{"Content-Type":"application/json"}}`},
		{both, ``, accept("*/*"), `{"body":"<b>","headers":{"Content-Type":"text/html; charset=utf-8"}}`},
		{both, ``, accept("text/*, */*;q=0.1"), `{"body":"<b>","headers":{"Content-Type":"text/html; charset=utf-8"}}`},
		{both, ``, plain, `{"body":"<b>","headers":{"Content-Type":"text/html; charset=utf-8"}}`},
		{both, ``, `{"headers":{"Accept":"text/html"},"path":[],"query":{"format":"json"}}`, `{"body":"{}","headers":{"Content-Type":"application/json"}}`},
		{`function(doc, req){ registerType("mine", "text/mine"); provides("mine", function(){ return "m"; }); provides("xml", function(){ return "x"; }); }`, ``, accept("text/mine"), `{"body":"m","headers":{"Content-Type":"text/mine"}}`},
		{`function(doc, req){ provides("text", function(){ send("s"); return "r"; }); return {headers: {"X-A": "b"}}; }`, ``, plain, `{"headers":{"X-A":"b","Content-Type":"text/plain; charset=utf-8"},"body":"sr"}`},
	} {
		var doc []byte
		if c.doc != "" {
			doc = []byte(c.doc)
		}
		got, err := p.Show(ctx, prog, c.fn, doc, []byte(c.req))
		if err != nil || string(got) != c.want {
			t.Errorf("%s with %s:\n got %s %v\nwant %s", c.fn, c.req, got, err, c.want)
		}
	}
	for _, c := range []struct{ fn, req, name, reason string }{
		{`function(doc, req){ return doc.name; }`, plain, "render_error", "function raised error: TypeError"},
		{`function(doc, req){ return doc.name; }`, `{"path":["db","_design","d","_show","s","id"]}`, "not_found", "document not found"},
		{`function(doc, req){ return 5; }`, plain, "render_error", "undefined response from show function"},
		{`function(doc, req){ return ["a"]; }`, plain, "render_error", "undefined response"},
		{`function(doc, req){ throw ["error", "my_error", "why"]; }`, plain, "my_error", "why"},
		{`function(doc, req){ throw {error: "my_error", reason: "why"}; }`, plain, "my_error", "why"},
		{`function(doc, req){ throw {forbidden: "why"}; }`, plain, "forbidden", "why"},
		{`function(doc, req){ throw {unauthorized: "why"}; }`, plain, "unauthorized", "why"},
		{`function(doc, req){ throw "text"; }`, plain, "render_error", "text"},
		{`function(doc, req){ getRow(); }`, plain, "render_error", "list functions"},
		{both, accept("image/png"), "not_acceptable", "Content-Type image/png not supported, try one of: text/html; charset=utf-8, application/json"},
		{both, `{"headers":{},"path":[],"query":{"format":"nothing"}}`, "not_acceptable", "nothing"},
		{`function(doc, req){`, plain, "compilation_error", ""},
	} {
		_, err := p.Show(ctx, prog, c.fn, nil, []byte(c.req))
		wantThrown(t, err, c.name, c.reason)
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	prog := program("update", `{}`)
	for _, c := range []struct{ fn, doc, newDoc, response string }{
		{`function(doc, req){ doc.n++; return [doc, "done"]; }`, `{"_id":"a","n":1}`, `{"_id":"a","n":2}`, `{"body":"done","headers":{}}`},
		{`function(doc, req){ return [null, {code: 201, json: {a: doc}}]; }`, ``, ``, `{"code":201,"json":{"a":null},"headers":{}}`},
		{`function(doc, req){ return [{_id: req.uuid}, {headers: {a: "b"}, body: req.body}]; }`, ``, `{"_id":"u"}`, `{"headers":{"a":"b"},"body":"text"}`},
		{`function(doc, req){ return [false, "no"]; }`, ``, ``, `{"body":"no","headers":{}}`},
	} {
		var doc []byte
		if c.doc != "" {
			doc = []byte(c.doc)
		}
		newDoc, response, err := p.Update(context.Background(), prog, c.fn, doc, []byte(`{"method":"POST","uuid":"u","body":"text"}`))
		if err != nil || string(newDoc) != c.newDoc || string(response) != c.response {
			t.Errorf("%s: %s %s %v", c.fn, newDoc, response, err)
		}
	}
	for _, c := range []struct{ fn, req, name, reason string }{
		{`function(doc, req){ return [null, "x"]; }`, `{"method":"GET"}`, "method_not_allowed", "do not allow GET"},
		{`function(doc, req){ return [null]; }`, `{"method":"PUT"}`, "render_error", "undefined response from update function"},
		{`function(doc, req){ }`, `{"method":"PUT"}`, "render_error", "TypeError"},
		{`function(doc, req){ throw {forbidden: "no"}; }`, `{"method":"PUT"}`, "forbidden", "no"},
	} {
		_, _, err := p.Update(context.Background(), prog, c.fn, nil, []byte(c.req))
		wantThrown(t, err, c.name, c.reason)
	}
}

func TestRewrite(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	prog := program("rewrite", `{}`)
	for fn, want := range map[string]string{
		`function(req){ return "../../_all_docs"; }`:              `{"path":"../../_all_docs","method":"PUT"}`,
		`function(req){ return {path: "x", headers: {a: "b"}}; }`: `{"path":"x","headers":{"a":"b"}}`,
		`function(req){ }`: `null`,
	} {
		got, err := p.Rewrite(context.Background(), prog, fn, []byte(`{"method":"PUT"}`))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s %v", fn, got, err)
		}
	}
	_, err := p.Rewrite(context.Background(), prog, `function(req){ nothing(); }`, []byte(`{}`))
	wantThrown(t, err, "render_error", "nothing")
}

// listed runs a list function over n rows and gives the head and the body.
func listed(p *jsvm.Pool, fn, req string, n int) (head, body string, taken int, err error) {
	var b strings.Builder
	err = p.List(context.Background(), program("list", `{"title":"T"}`), fn, []byte(`{"total_rows":3,"offset":0}`), []byte(req), jsvm.ListIO{
		Row: func() ([]byte, error) {
			if taken == n {
				return nil, nil
			}
			taken++
			return fmt.Appendf(nil, `{"id":"r%d","key":%d,"value":null}`, taken, taken), nil
		},
		Start: func(response []byte) error {
			if head != "" || b.Len() > 0 {
				return errors.New("started late or twice")
			}
			head = string(response)
			return nil
		},
		Send: func(piece []byte) error {
			b.Write(piece)
			return nil
		},
	})
	return head, b.String(), taken, err
}

func TestList(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{})
	req := `{"path":[],"headers":{},"query":{}}`
	for _, c := range []struct {
		fn         string
		n          int
		head, body string
	}{
		{`function(head, req){ start({code: 202, headers: {"X-A": "b"}}); send(head.total_rows); var row; while (row = getRow()) send("," + row.key); return "end"; }`, 3, `{"code":202,"headers":{"X-A":"b"}}`, `3,1,2,3end`},
		{`function(head, req){ var row, n = 0; while (row = getRow()) n += row.key; send(n); }`, 1000, `{"headers":{}}`, `500500`},
		{`function(head, req){ return this.title; }`, 3, `{"headers":{}}`, `T`},
		{`function(head, req){ }`, 3, `{"headers":{}}`, ``},
		{`function(head, req){ getRow(); start({headers: {"X-Late": "1"}}); send("x"); getRow(); }`, 3, `{"headers":{"X-Late":"1"}}`, `x`},
		{`function(head, req){ while (getRow()); return String(getRow()) + getRow(); }`, 2, `{"headers":{}}`, `nullnull`},
		{`function(head, req){ provides("html", function(){ send("<i>"); var r; while (r = getRow()) send(r.id); return "</i>"; }); }`, 2, `{"headers":{"Content-Type":"text/html; charset=utf-8"}}`, `<i>r1r2</i>`},
		{`function(head, req){ send("é😀\ud800"); }`, 0, `{"headers":{}}`, "é😀\uFFFD"},
		{`function(head, req){ for (var i = 0; i < 3000; i++) send("0123456789"); }`, 0, `{"headers":{}}`, strings.Repeat("0123456789", 3000)},
	} {
		head, body, _, err := listed(p, c.fn, req, c.n)
		if err != nil || head != c.head || body != c.body {
			t.Errorf("%s: %s %.100s %v", c.fn, head, body, err)
		}
	}
	// Rows are not taken long before they are needed.
	if _, _, taken, err := listed(p, `function(head, req){ getRow(); return "x"; }`, req, 1000); err != nil || taken > 100 {
		t.Errorf("%d rows were taken for one, %v", taken, err)
	}
	for _, c := range [][3]string{
		{`function(head, req){ getRow(); nothing(); }`, "render_error", "nothing"},
		{`function(head, req){ throw ["error", "mine", "why"]; }`, "mine", "why"},
		{`function(head, req){ send(); }`, "render_error", "TypeError"},
		{`function(head, req){`, "compilation_error", ""},
	} {
		_, _, _, err := listed(p, c[0], req, 3)
		wantThrown(t, err, c[1], c[2])
	}
}

// TestListLimits: a list is stopped for its own time, not for that of others.
func TestListLimits(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{CallTime: shortTime, Workers: 1})
	prog := program("list", `{}`)
	_, _, _, err := listed(p, `function(head, req){ getRow(); while (true); }`, `{}`, 3)
	wantKilled(t, err, "time limit")
	_, _, _, err = listed(p, `function(head, req){ getRow(); /^(a+)+$/.test("a".repeat(60) + "b"); }`, `{}`, 3)
	wantKilled(t, err, "time limit")

	// A client that reads slowly, and rows that come slowly.
	rows := 0
	err = p.List(context.Background(), prog, `function(head, req){ while (getRow()) send("x".repeat(40000)); }`, []byte(`{}`), []byte(`{}`), jsvm.ListIO{
		Row: func() ([]byte, error) {
			if rows++; rows > 3 {
				return nil, nil
			}
			time.Sleep(shortTime) // the time itself is what is tested
			return []byte(`{}`), nil
		},
		Start: func([]byte) error { return nil },
		Send: func([]byte) error {
			time.Sleep(shortTime)
			// While the list waits for its client, other calls go on.
			if got := rowsOf(mapOne(t, p, prog, `function(doc){ emit(1); }`, `{}`)); got != `[[1,null]]` {
				t.Error(got)
			}
			return nil
		},
	})
	if err != nil {
		t.Error(err)
	}

	// Errors of the two ends come back as they are, and the next list works.
	failed := errors.New("the client left")
	for _, io := range []jsvm.ListIO{
		{Row: func() ([]byte, error) { return nil, failed }, Start: func([]byte) error { return nil }, Send: func([]byte) error { return nil }},
		{Row: func() ([]byte, error) { return nil, nil }, Start: func([]byte) error { return failed }, Send: func([]byte) error { return nil }},
		{Row: func() ([]byte, error) { return nil, nil }, Start: func([]byte) error { return nil }, Send: func([]byte) error { return failed }},
	} {
		if err := p.List(context.Background(), prog, `function(head, req){ getRow(); return "x"; }`, []byte(`{}`), []byte(`{}`), io); !errors.Is(err, failed) {
			t.Errorf("got %v", err)
		}
	}
	if _, body, _, err := listed(p, `function(head, req){ return "fine"; }`, `{}`, 0); err != nil || body != "fine" {
		t.Error(body, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err = p.List(ctx, prog, `function(head, req){ getRow(); while (true); }`, []byte(`{}`), []byte(`{}`), jsvm.ListIO{
		Row:   func() ([]byte, error) { cancel(); return nil, nil },
		Start: func([]byte) error { return nil }, Send: func([]byte) error { return nil },
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}
