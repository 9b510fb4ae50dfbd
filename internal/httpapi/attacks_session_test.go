package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divandb/divan/internal/server"
	"github.com/divandb/divan/internal/testserver"
)

// A session cookie that somebody made, cut, changed or kept too long opens nothing.
func TestForgedCookies(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64 // seconds that the server's clock is ahead
	s := testserver.Start(t, testserver.Parts(func(o *server.Options) {
		o.Auth.Now = func() time.Time { return time.Now().Add(time.Duration(clock.Load()) * time.Second) }
	}))
	addUser(t, s, "ann")
	addUser(t, s, "ann2")
	db := "/" + s.DB(t)
	s.Do(t, "PUT", db+"/d", `{}`).Want(201)
	s.Do(t, "PUT", db+"/_security", `{"service":{"ann":["_reader"]}}`).Want(200)
	cookie := login(t, s, "ann", "ann-pw")
	value := strings.TrimPrefix(cookie, "AuthSession=")
	status := func(cookie string) int {
		t.Helper()
		r := s.Do(t, "GET", db+"/d", nil, "Authorization", "", "Cookie", cookie)
		if r.Status != 200 && r.Header.Get("Set-Cookie") != "" {
			t.Errorf("%q is refused, and renewed: %v", cookie, r.Header)
		}
		return r.Status
	}
	if got := status(cookie); got != 200 {
		t.Fatalf("the cookie itself: %d", got)
	}
	if got := status("other=1; " + cookie + "; third=2"); got != 200 {
		t.Errorf("among others: %d", got)
	}
	text, err := base64.RawURLEncoding.DecodeString(value)
	if err != nil {
		t.Fatal(err)
	}
	for i := range value {
		if got := status("AuthSession=" + value[:i]); got != 400 && got != 401 {
			t.Errorf("cut to %d bytes: %d", i, got)
		}
	}
	for i := range text {
		changed := bytes.Clone(text)
		changed[i] ^= 1
		if got := status("AuthSession=" + base64.RawURLEncoding.EncodeToString(changed)); got != 400 && got != 401 {
			t.Errorf("byte %d changed: %d", i, got)
		}
	}
	rest := text[len("ann"):]
	for _, name := range []string{testserver.AdminName, "ann2", "", "ann\x00", "ANN"} {
		if got := status("AuthSession=" + base64.RawURLEncoding.EncodeToString(append([]byte(name), rest...))); got != 400 && got != 401 {
			t.Errorf("as %q: %d", name, got)
		}
	}
	for _, bad := range []string{value + "A", value + "=", value + value, "\"" + value + "\"x", strings.Repeat("A", 5000), "ann:ann-pw", "null"} {
		if got := status("AuthSession=" + bad); got != 400 && got != 401 {
			t.Errorf("%.60q: %d", bad, got)
		}
	}

	// Over after ten minutes, renewed before that, and no longer by a clock set back.
	clock.Store(590)
	r := s.Do(t, "GET", db+"/d", nil, "Authorization", "", "Cookie", cookie).Want(200)
	renewed, _, _ := strings.Cut(r.Header.Get("Set-Cookie"), ";")
	if renewed == cookie || !strings.HasPrefix(renewed, "AuthSession=") {
		t.Errorf("not renewed: %v", r.Header)
	}
	clock.Store(601)
	if got := status(cookie); got != 401 {
		t.Errorf("after its time: %d", got)
	}
	if got := status(renewed); got != 200 {
		t.Errorf("the renewed one: %d", got)
	}
	clock.Store(-3600)
	if got := status(cookie); got != 401 {
		t.Errorf("of the future: %d", got)
	}
}

// A login gives a new session, whatever cookie came with it, and a session of one
// server is none of another, even of one with the same users.
func TestSessionFixation(t *testing.T) {
	t.Parallel()
	a, b := testserver.Start(t, testserver.Config(asItIs)), testserver.Start(t, testserver.Config(asItIs))
	for _, s := range []*testserver.Server{a, b} {
		s.Do(t, "PUT", "/_users/org.couchdb.user:ann?new_edits=false", `{"_rev":"1-a","name":"ann","type":"user","roles":[],"password_scheme":"pbkdf2","iterations":1,`+
			`"salt":"s","derived_key":"0123456789012345678901234567890123456789"}`).Want(201)
		addUser(t, s, "eve")
	}
	eve := login(t, a, "eve", "eve-pw")
	if got := sessionOf(t, a, "Cookie", eve); got != "eve[]" {
		t.Fatalf("%s", got)
	}
	if got := sessionOf(t, b, "Cookie", eve); got != "<nil>[]" {
		t.Errorf("a session of another server: %s", got)
	}
	admin := login(t, a, testserver.AdminName, testserver.AdminPassword)
	b.Do(t, "GET", "/_all_dbs", nil, "Authorization", "", "Cookie", admin).Want(401)
	// The reader of eve's page has eve's cookie, and logs in.
	r := a.Do(t, "POST", "/_session", map[string]string{"name": testserver.AdminName, "password": testserver.AdminPassword}, "Authorization", "", "Cookie", eve).Want(200)
	set := r.Header["Set-Cookie"]
	mine, attributes, _ := strings.Cut(set[len(set)-1], ";")
	if mine == eve || sessionOf(t, a, "Cookie", mine) != "admin[_admin]" || sessionOf(t, a, "Cookie", eve) != "eve[]" {
		t.Errorf("%v", set)
	}
	for _, word := range []string{"Path=/", "HttpOnly", "SameSite=Lax", "Max-Age=600"} {
		if !strings.Contains(attributes, word) {
			t.Errorf("no %s in %q", word, attributes)
		}
	}
	// Credentials in the query string are none: they would be in every log.
	a.Do(t, "GET", "/_all_dbs?name=admin&password=test-password", nil, "Authorization", "").Want(401)
	a.Do(t, "POST", "/_session?name=admin&password=test-password", `{}`, "Authorization", "").Want(401)
}

// Whoever has no rights finds no other way in.
func TestNoWayAround(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db, users := grant(t, s, "", "_reader")
	name := strings.TrimPrefix(db, "/")
	open := "/" + s.DB(t)
	s.Do(t, "PUT", open+"/_security", `{"service":{"nobody":["_reader","_writer"]}}`).Want(200)
	s.Do(t, "PUT", open+"/d", `{}`).Want(201)
	target := "../../../" + name + "/secret"
	s.Do(t, "PUT", open+"/_design/d", map[string]any{
		"views":    map[string]any{"v": map[string]string{"map": "function(d) { emit(d._id, {_id: '" + name + "/secret'}); emit(d._id, {_id: '../" + name + "/secret'}); }"}},
		"rewrites": []any{map[string]string{"from": "*", "to": target}},
		"shows":    map[string]string{"s": "function(doc) { return toJSON(doc); }"},
		"lists":    map[string]string{"l": "function() { var r, out = []; while (r = getRow()) out.push(r); return toJSON(out); }"},
		"filters":  map[string]string{"f": "function() { return true; }"},
	}).Want(201)
	s.Do(t, "PUT", open+"/_design/f", map[string]string{"rewrites": "function(req) { return {path: req.query.to, method: req.query.method || 'GET'}; }"}).Want(201)

	paths := []string{
		"/" + db + "/secret", db + "//secret", "//" + name + "/secret", db + "/./secret", db + "/x/../secret", open + "/../" + name + "/secret", "/%2e%2e" + db + "/secret",
		db + "/secret/", db + "/secret?callback=x", db + "/secret?_method=GET", db + "/%73ecret", "/" + strings.ToUpper(name) + "/secret",
		db + "%2Fsecret", open + "/" + name + "%2Fsecret", open + "/..%2F" + name + "%2Fsecret", db + "/_local%2Fl", db + "/_local/l", db + "/%5flocal%2fl", db + "//_local/l",
		db + "/_local_docs?include_docs=true", db + "/_design%2Fd/_view/v?include_docs=true", db + "/_design/d/_view/v?include_docs=true",
		db + "/_design/d/_show/doc/secret", db + "/_design%2Fd/_show/doc/secret", db + "/_design/d/_list/l/v?include_docs=true", db + "/_design/d/_list/l/d/v?include_docs=true",
		db + "/_changes?include_docs=true", db + "/_changes?filter=_view&view=d/v&include_docs=true", db + "/_all_docs?include_docs=true",
		open + "/_design/d/_rewrite/x", open + "/_design/f/_rewrite?to=" + target, open + "/_design/f/_rewrite?to=../../../_all_dbs", open + "/_design/f/_rewrite?to=../../../../" + name + "/secret",
		open + "/_design/d/_view/v?include_docs=true", open + "/_design/d/_list/l/v?include_docs=true", open + "/_design/d/_show/s/..%2F" + name + "%2Fsecret",
		open + "/_changes?filter=" + name + "/f", open + "/_changes?filter=d/f&include_docs=true", "/_users/_all_docs", "/_db_updates", "/_all_dbs", "/_dbs_info", "/_active_tasks",
	}
	posts := map[string]string{
		db + "/_bulk_get": `{"docs":[{"id":"secret"}]}`, db + "/_all_docs": `{"keys":["secret"],"include_docs":true}`, db + "/_changes?filter=_doc_ids&include_docs=true": `{"doc_ids":["secret"]}`,
		db + "/_revs_diff": `{"secret":["1-a"]}`, open + "/_bulk_get": `{"docs":[{"id":"../` + name + `/secret"},{"id":"/` + name + `/secret"}]}`, "/_dbs_info": `{"keys":["` + name + `"]}`,
		open + "/_all_docs": `{"keys":["../` + name + `/secret"],"include_docs":true}`,
	}
	for _, who := range []as{{t, s, ""}, users[0]} {
		check := func(what string, r *testserver.Response) {
			t.Helper()
			if strings.Contains(string(r.Body), "hidden") || strings.Contains(string(r.Body), `"`+name+`"`) && r.Status < 400 {
				t.Errorf("%s as %q: %d %s", what, who.auth, r.Status, r.Body)
			}
			if strings.HasPrefix(what, db+"/") && r.Status != 401 && r.Status != 403 && r.Status != 404 {
				t.Errorf("%s as %q: %d %s", what, who.auth, r.Status, r.Body)
			}
		}
		for _, path := range paths {
			check(path, who.do("GET", path, nil))
			check(path, who.do("POST", path, `{}`, "X-HTTP-Method-Override", "GET"))
			check(path, who.do("GET", path, nil, "X-Original-URL", db+"/secret", "X-Rewrite-URL", db+"/secret", "X-Forwarded-Prefix", db, "Host", "x"))
		}
		for path, body := range posts {
			check(path, who.do("POST", path, body))
		}
		// Names of others in headers that some servers believe.
		r := who.do("GET", db+"/secret", nil, "X-Auth-CouchDB-UserName", "admin", "X-Auth-CouchDB-Roles", "_admin", "X-Forwarded-User", "admin", "X-Forwarded-For", "127.0.0.1", "Proxy-Authorization", adminAuth())
		check(db+"/secret", r)
	}
	// An administrator's browser is not to be led elsewhere by a database's functions.
	for _, to := range []string{"../../../_all_dbs", "../../../_users/_all_docs", target, "../../.."} {
		if r := s.Do(t, "GET", open+"/_design/f/_rewrite?to="+to, nil).Want(400); r.Str("error") != "insecure_rewrite_rule" {
			t.Errorf("%s: %s", to, r.Body)
		}
	}
	// A rewritten request has the rights of its sender: the reader does not write.
	s.Do(t, "PUT", db+"/_design/f", map[string]string{"rewrites": "function(req) { return {path: '../../made', method: 'PUT', body: '{}'}; }"}).Want(201)
	users[1].do("GET", db+"/_design/f/_rewrite", nil).Want(403)
	s.Do(t, "GET", db+"/made", nil).Want(404)
	if r := users[1].do("GET", db+"/secret", nil).Want(200); r.Str("text") != "hidden" {
		t.Errorf("%s", r.Body)
	}
}

// Only POST may name another method, and then needs the rights of that one.
func TestMethodOverride(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db, users := grant(t, s, "_reader", "_reader _writer")
	rev := s.Do(t, "GET", db+"/secret", nil).Str("_rev")
	for _, method := range []string{"GET", "HEAD", "PUT"} {
		r := users[1].do(method, db+"/secret?rev="+rev, nil, "X-HTTP-Method-Override", "DELETE")
		if method != "PUT" && r.Status != 200 || method == "PUT" && r.Status != 400 {
			t.Errorf("%s: %d %s", method, r.Status, r.Body)
		}
	}
	users[0].do("POST", db+"/secret?rev="+rev, nil, "X-HTTP-Method-Override", "DELETE").Want(403)
	users[0].do("POST", db+"/new", `{}`, "X-HTTP-Method-Override", "PUT").Want(403)
	users[0].do("POST", db+"/secret", nil, "X-HTTP-Method-Override", "GET").Want(200)
	for _, odd := range []string{"TRACE", "CONNECT", "PATCH", "x", "DELETE, GET", "GET\tDELETE"} {
		users[1].do("POST", db+"/secret?rev="+rev, nil, "X-HTTP-Method-Override", odd).Want(405)
	}
	users[1].do("POST", db+"/secret?rev="+rev, nil, "X-HTTP-Method-Override", "delete").Want(200)
}

// Passwords, keys and cookies are in no log, no list of tasks and no error.
func TestCredentialsStaySecret(t *testing.T) {
	t.Parallel()
	var log testserver.LogBuffer
	s := testserver.Start(t, testserver.Parts(func(o *server.Options) {
		o.Log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	}))
	const clear, wrong = "cl34r-p4ssw0rd", "wr0ng-p4ssw0rd"
	s.Do(t, "PUT", "/_users/org.couchdb.user:ann", `{"name":"ann","type":"user","roles":[],"password":"`+clear+`"}`).Want(201)
	key := s.Do(t, "POST", "/_api/v2/api_keys", nil).Want(201)
	cookie := login(t, s, "ann", clear)
	login(t, s, key.Str("key"), key.Str("password"))
	s.Do(t, "PUT", "/_node/_local/_config/admins/boss", `"`+clear+`"`).Want(200)
	auth := func(name, password string) string {
		return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+password))
	}
	var bodies []string
	keep := func(r *testserver.Response) {
		bodies = append(bodies, fmt.Sprint(r.Status, r.Header, string(r.Body)))
	}
	for _, path := range []string{"/_all_dbs", "/_session", "/nowhere", "/_users/org.couchdb.user:ann", "/_active_tasks"} {
		keep(s.Do(t, "GET", path, nil, "Authorization", auth("ann", wrong)))
		keep(s.Do(t, "GET", path, nil, "Authorization", auth(testserver.AdminName, wrong)))
		keep(s.Do(t, "GET", path, nil, "Authorization", "Bearer "+wrong))
		keep(s.Do(t, "GET", path, nil, "Authorization", "", "Cookie", cookie[:len(cookie)-4]+"AAAA"))
		keep(s.Do(t, "GET", path+"?password="+clear, nil, "Authorization", "", "Cookie", cookie))
	}
	keep(s.Do(t, "POST", "/_session", "name=ann&password="+wrong, "Content-Type", "application/x-www-form-urlencoded", "Authorization", ""))
	keep(s.Do(t, "POST", "/_session", `{"name":"ann","password":"`+wrong+`"`, "Authorization", ""))
	keep(s.Do(t, "PUT", "/_users/org.couchdb.user:bob", `{"name":"ann","type":"user","roles":[],"password":"`+clear+`"}`))
	keep(s.Do(t, "PUT", "/_users/org.couchdb.user:bob", `{"name":"bob","type":"user","roles":[],"password":"`+clear+`"`))
	keep(s.Do(t, "PUT", "/_node/_local/_config/admins/x", `{"password":"`+clear+`"}`))
	keep(s.Do(t, "GET", "/_node/_local/_config/admins/boss", nil))
	keep(s.Do(t, "GET", "/_active_tasks", nil))
	all := strings.Join(bodies, "\n") + log.String()
	for what, secret := range map[string]string{
		"a password": clear, "a wrong password": wrong, "the administrator's password": testserver.AdminPassword, "an encoded password": auth("ann", clear)[6:],
		"an encoded wrong password": auth("ann", wrong)[6:], "a key's password": key.Str("password"), "a cookie": strings.TrimPrefix(cookie, "AuthSession=")[:40],
	} {
		if i := strings.Index(all, secret); i >= 0 {
			t.Errorf("%s shows: %q", what, all[max(0, i-200):min(len(all), i+100)])
		}
	}
	if strings.Contains(log.String(), "derived_key") {
		t.Error("the log has a hash")
	}
	if !strings.Contains(log.String(), "audit") || len(log.String()) < 2000 {
		t.Errorf("the log says too little to tell: %s", log.String())
	}
}
