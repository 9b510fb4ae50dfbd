package httpapi_test

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/testserver"
)

// traceScript is statements for a function of any kind: they look for traces of
// others in what scripts can reach, as JSON text in found, and leave traces
// everywhere if told to.
const traceScript = `
	var found = [];
	var places = {Object: {}, Array: [], String: "", Number: 0, Boolean: true, Function: function(){}, RegExp: /x/, Date: new Date(0),
		Error: new Error(), Map: new Map(), Set: new Set(), Symbol: Symbol.iterator, Promise: Promise.resolve(), BigInt: 1n,
		"JSON object": JSON, "Math object": Math, module: require("views/lib/m"), "inner module": require("views/lib/outer").inner};
	for (var name in places) if (places[name].leak !== undefined) found.push(name);
	if (typeof leak !== "undefined" || globalThis.leaked || typeof implicit !== "undefined") found.push("global");
	if (JSON.stringify([1]) !== "[1]" || JSON.parse("[1]")[0] !== 1) found.push("JSON functions");
	if ([3, 1].sort()[0] !== 1 || [1].map(function(x){ return x + 1; })[0] !== 2 || [1].concat([2]).length !== 2) found.push("Array functions");
	if (" a ".trim() !== "a" || "a,b".split(",").length !== 2) found.push("String functions");
	if (sum([1, 2]) !== 3 || isArray([]) !== true || toJSON({a: 1}) !== '{"a":1}' || typeof log !== "function") found.push("functions of the environment");
	if (Math.max(1, 2) !== 2 || typeof Date.now() !== "number" || Object.keys({a: 1})[0] !== "a") found.push("other functions");
	if (require("views/lib/m").word !== WORD) found.push("the module of another");
	found = JSON.stringify(found);
	if (SPOIL) {
		globalThis.leaked = 1; var leak = 1; eval("var leak = 1"); implicit = 1; Function("leak = 1")();
		require("views/lib/m").leak = 1; require("views/lib/outer").inner.leak = 1; require("views/lib/m").word = "spoiled";
		[Object, Array, String, Number, Boolean, Function, RegExp, Date, Error, Map, Set, Symbol, Promise, BigInt].forEach(function(o){
			Object.defineProperty(o.prototype, "leak", {value: 1, configurable: true}); });
		JSON.leak = Math.leak = 1; Math.max = Date.now = function(){ return "spoiled"; };
		Array.prototype.sort = Array.prototype.map = Array.prototype.concat = function(){ return ["spoiled"]; };
		String.prototype.trim = String.prototype.split = function(){ return "spoiled"; };
		globalThis.sum = globalThis.isArray = globalThis.toJSON = globalThis.log = globalThis.emit = globalThis.require = globalThis.send = null;
		JSON.stringify = JSON.parse = function(){ return "spoiled"; };
	}`

// tracing is a design document in which every function looks for traces, and leaves
// some where it is told name.
func tracing(name, word string) map[string]any {
	script := func(spoil, end string) string {
		s := strings.ReplaceAll(traceScript, "SPOIL", spoil+" === "+fmt.Sprintf("%q", name))
		return strings.ReplaceAll(s, "WORD", fmt.Sprintf("%q", word)) + "\n" + end
	}
	return map[string]any{
		"views": map[string]any{
			"lib": map[string]any{"m": fmt.Sprintf("exports.word = %q;", word), "outer": `exports.inner = require("./m");`},
			"v": map[string]any{
				"map":    `function(doc){` + script("doc.spoil", `emit(doc._id, doc.spoil === "`+name+`" ? doc.spoil : found);`) + `}`,
				"reduce": `function(keys, values, rereduce){` + strings.ReplaceAll(script(`values[0]`, `return [found].join();`), `require("views/lib/`, `(function(){ return {word: "`+word+`", inner: {}}; })("`) + `}`,
			},
		},
		"filters":             map[string]any{"f": `function(doc, req){` + script("req.query.spoil", `throw({forbidden: found});`) + `}`},
		"validate_doc_update": `function(doc){` + `if (doc.look !== "` + name + `") return;` + script("doc.spoil", `throw({forbidden: found});`) + `}`,
		"shows":               map[string]any{"f": `function(doc, req){` + script("req.query.spoil", `return found;`) + `}`},
		"lists":               map[string]any{"f": `function(head, req){` + script("req.query.spoil", `return found;`) + `}`},
		"updates":             map[string]any{"f": `function(doc, req){` + script("req.query.spoil", `return [null, found];`) + `}`},
		"rewrites":            `function(req){` + script("req.query.spoil", `return {code: 200, body: found};`) + `}`,
	}
}

// traces asks every kind of function of a design document what it has found.
func traces(t *testing.T, s *testserver.Server, db, name, spoil string) map[string]string {
	t.Helper()
	base, query := db+"/_design/"+name, "?spoil="+spoil
	reason := func(r *testserver.Response) string {
		var e struct{ Error, Reason string }
		if err := json.Unmarshal(r.Body, &e); err != nil || e.Error != "forbidden" {
			return fmt.Sprintf("%d %.300s", r.Status, r.Body)
		}
		return e.Reason
	}
	body := func(r *testserver.Response) string { return string(r.Body) }
	out := map[string]string{
		"filter":     reason(s.Do(t, "GET", db+"/_changes?filter="+name+"/f&spoil="+spoil, nil)),
		"validation": reason(s.Do(t, "PUT", db+"/x", map[string]string{"look": name, "spoil": spoil})),
		"show":       body(s.Do(t, "GET", base+"/_show/f"+query, nil)),
		"list":       body(s.Do(t, "GET", base+"/_list/f/v"+query+"&reduce=false", nil)),
		"update":     body(s.Do(t, "POST", base+"/_update/f"+query, nil)),
		"rewrite":    body(s.Do(t, "GET", base+"/_rewrite/"+query, nil)),
	}
	for kind, query := range map[string]string{"map": "?reduce=false&limit=1", "reduce": "?group=true&limit=1"} {
		r := s.Do(t, "GET", base+"/_view/v"+query, nil)
		var v viewAnswer
		out[kind] = fmt.Sprintf("%d %.300s", r.Status, r.Body)
		if err := json.Unmarshal(r.Body, &v); err == nil && len(v.Rows) == 1 {
			var text string
			if err := json.Unmarshal(v.Rows[0].Value, &text); err == nil {
				out[kind] = text
			}
		}
	}
	return out
}

// TestScriptsShareNothing has the functions of one design document spoil all that
// they can reach, in the one worker there is, and those of others look for traces:
// of the same name in another database, with the same text and with another, and of
// another name in the same database.
func TestScriptsShareNothing(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(func(c *config.Config) { c.JSWorkers = 1 }))
	a, b, c := "/"+s.DB(t), "/"+s.DB(t), "/"+s.DB(t)
	s.Do(t, "PUT", a+"/doc", `{"spoil":"d"}`).Want(201)
	s.Do(t, "PUT", b+"/doc", `{}`).Want(201)
	s.Do(t, "PUT", c+"/doc", `{}`).Want(201)
	s.Do(t, "PUT", a+"/_design/d", tracing("d", "one")).Want(201)
	s.Do(t, "PUT", a+"/_design/e", tracing("e", "one")).Want(201)
	s.Do(t, "PUT", b+"/_design/d", tracing("d", "one")).Want(201)
	s.Do(t, "PUT", c+"/_design/d", tracing("d", "two")).Want(201)
	for round := range 3 {
		spoiled := traces(t, s, a, "d", "d")
		own := traces(t, s, a, "d", "no")
		if own["show"] == "[]" || own["filter"] == "[]" {
			t.Errorf("round %d: those who spoil see nothing of it, so nobody could: %v, %v", round, spoiled, own)
		}
		for what, found := range map[string]map[string]string{
			"another database":                traces(t, s, b, "d", "no"),
			"a database with another module":  traces(t, s, c, "d", "no"),
			"another design document beside":  traces(t, s, a, "e", "no"),
			"a design document that was made": traces(t, s, b, newTracing(t, s, b, round), "no"),
		} {
			for kind, text := range found {
				if text != "[]" {
					t.Errorf("round %d, %s, %s: %s", round, what, kind, text)
				}
			}
		}
	}
	// A new revision of the design document begins anew.
	rev := s.Do(t, "GET", a+"/_design/d", nil).Str("_rev")
	again := tracing("d", "three")
	again["_rev"] = rev
	s.Do(t, "PUT", a+"/_design/d", again).Want(201)
	for kind, text := range traces(t, s, a, "d", "no") {
		// The document that tells the map function to spoil is still there.
		if text != "[]" && kind != "map" && kind != "reduce" {
			t.Errorf("a new revision, %s: %s", kind, text)
		}
	}
}

// newTracing writes a design document that was not there before.
func newTracing(t *testing.T, s *testserver.Server, db string, round int) string {
	t.Helper()
	name := fmt.Sprint("new", round)
	s.Do(t, "PUT", db+"/_design/"+name, tracing(name, "one")).Want(201)
	return name
}

// rawRequest sends a request as it stands, so that names keep their spelling, and
// gives the body of the answer.
func rawRequest(t *testing.T, s *testserver.Server, head, body string) (int, string) {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, strings.ReplaceAll(head, "\n", "\r\n")+"\r\nConnection: close\r\n\r\n"+body); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatalf("%s: %v", head, err)
	}
	data, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(data)
}

// TestCredentialsDoNotReachScripts has functions of every kind show the request that
// they are given.
func TestCredentialsDoNotReachScripts(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	db := "/" + s.DB(t)
	s.Do(t, "PUT", db+"/doc", `{}`).Want(201)
	s.Do(t, "PUT", db+"/_design/d", map[string]any{
		"views":    map[string]any{"v": map[string]any{"map": `function(doc){ emit(1); }`}},
		"filters":  map[string]any{"f": `function(doc, req){ throw({forbidden: JSON.stringify(req)}); }`},
		"shows":    map[string]any{"f": `function(doc, req){ return JSON.stringify(req); }`},
		"lists":    map[string]any{"f": `function(head, req){ return JSON.stringify(req); }`},
		"updates":  map[string]any{"f": `function(doc, req){ return [null, JSON.stringify(req)]; }`},
		"rewrites": `function(req){ return {code: 200, body: JSON.stringify(req)}; }`,
	}).Want(201)
	session := s.Do(t, "POST", "/_session", map[string]string{"name": testserver.AdminName, "password": testserver.AdminPassword}, "Authorization", "").Want(200)
	cookie, _, _ := strings.Cut(session.Header.Get("Set-Cookie"), ";")
	_, secret, ok := strings.Cut(cookie, "=")
	if !ok || secret == "" {
		t.Fatalf("no session: %v", session.Header)
	}
	basic := base64.StdEncoding.EncodeToString([]byte(testserver.AdminName + ":" + testserver.AdminPassword))
	secrets := []string{testserver.AdminPassword, basic, secret, "AuthSession", "hidden-"}

	targets := map[string]string{
		"filter":  "GET " + db + "/_changes?filter=d/f",
		"show":    "GET " + db + "/_design/d/_show/f/doc",
		"list":    "GET " + db + "/_design/d/_list/f/v",
		"update":  "POST " + db + "/_design/d/_update/f/doc",
		"rewrite": "GET " + db + "/_design/d/_rewrite/x",
	}
	ways := map[string]string{
		"basic":                 "Authorization: Basic " + basic,
		"basic in lower case":   "authorization: basic " + basic,
		"basic in strange case": "aUTHORIZATION: BaSiC " + basic,
		"cookie":                "Cookie: " + cookie,
		"cookie in lower case":  "cookie: " + cookie,
		"cookie among others":   "COOKIE: first=hidden-1; " + cookie + "; last=hidden-2",
		"two cookie lines":      "Cookie: first=hidden-1\ncookie: " + cookie,
		"both":                  "cookie: " + cookie + "\nauthorization: Basic " + basic,
		"with other secrets": "Authorization: Basic " + basic + "\nproxy-authorization: hidden-1\nx-auth-couchdb-token: hidden-2\n" +
			"X-AUTH-CouchDB-UserName: hidden-3\nx-auth-couchdb-roles: hidden-4\nX-API-Key: hidden-5\nSet-Cookie: x=hidden-6",
	}
	for kind, target := range targets {
		method, path, _ := strings.Cut(target, " ")
		lines := map[string]string{"": path, " to a whole address": "http://" + testserver.AdminName + ":" + testserver.AdminPassword + "@" + s.Addr + path}
		for way, headers := range ways {
			for form, line := range lines {
				if form != "" && way != "basic" {
					continue
				}
				head := method + " " + line + " HTTP/1.1\nHost: " + s.Addr + "\nX-Shown: shown\n" + headers
				if method == "POST" {
					head += "\nContent-Length: 0"
				}
				status, body := rawRequest(t, s, head, "")
				checkShown(t, kind+", "+way+form, status, body, secrets)
			}
		}
	}
}

// checkShown holds the request that a function was given free of secrets, and whole
// otherwise.
func checkShown(t *testing.T, what string, status int, body string, secrets []string) {
	t.Helper()
	text := body
	var e struct{ Error, Reason string }
	if err := json.Unmarshal([]byte(body), &e); err == nil && e.Error == "forbidden" {
		text = e.Reason
	}
	var req struct {
		Headers map[string]string
		Cookie  map[string]any
		UserCtx struct{ Name string }
	}
	if err := json.Unmarshal([]byte(text), &req); err != nil || req.Headers["X-Shown"] != "shown" || req.UserCtx.Name != testserver.AdminName {
		t.Errorf("%s: %d %.500s", what, status, body)
		return
	}
	for _, secret := range secrets {
		if strings.Contains(strings.ToLower(body), strings.ToLower(secret)) {
			t.Errorf("%s: the function saw %q: %s", what, secret, text)
		}
	}
	for name := range req.Headers {
		if slices.Contains([]string{"authorization", "cookie", "proxy-authorization"}, strings.ToLower(name)) {
			t.Errorf("%s: the function saw the header %s", what, name)
		}
	}
	if len(req.Cookie) != 0 {
		t.Errorf("%s: the function saw cookies: %v", what, req.Cookie)
	}
}
