package httpapi_test

import (
	"bytes"
	"crypto/pbkdf2"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

const userID = "/_users/org.couchdb.user:"

// login opens a session and gives its cookie.
func login(t testing.TB, s *testserver.Server, name, password string) string {
	t.Helper()
	r := s.Do(t, "POST", "/_session", map[string]string{"name": name, "password": password}, "Authorization", "").Want(200)
	cookie, _, _ := strings.Cut(r.Header.Get("Set-Cookie"), ";")
	if !strings.HasPrefix(cookie, "AuthSession=") || len(cookie) < 40 {
		t.Fatalf("Set-Cookie %q", r.Header.Get("Set-Cookie"))
	}
	return cookie
}

// sessionOf gives the name and roles that GET /_session shows for a header.
func sessionOf(t testing.TB, s *testserver.Server, header ...string) string {
	t.Helper()
	who := s.Do(t, "GET", "/_session", nil, append([]string{"Authorization", ""}, header...)...).Want(200).Object()["userCtx"].(map[string]any)
	return fmt.Sprintf("%v%v", who["name"], who["roles"])
}

// A user is made by an administrator, is stored without its password, gets in with
// basic credentials and by cookie, and sees its own document only.
func TestUserLife(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	s.Do(t, "PUT", userID+"ann", `{"name":"ann","type":"user","roles":["clerk"],"password":"clear-one","colour":"red"}`).Want(201)
	stored := s.Do(t, "GET", userID+"ann", nil).Want(200)
	doc := stored.Object()
	if doc["password_scheme"] != "pbkdf2" || doc["pbkdf2_prf"] != "sha256" || len(doc["salt"].(string)) != 32 || doc["iterations"] != 10.0 ||
		len(doc["derived_key"].(string)) != 64 || doc["password"] != nil || doc["colour"] != "red" {
		t.Errorf("%s", stored.Body)
	}
	ann := as{t, s, "Basic " + "YW5uOmNsZWFyLW9uZQ=="}
	if got := sessionOf(t, s, "Authorization", ann.auth); got != "ann[clerk]" {
		t.Errorf("basic: %s", got)
	}
	cookie := login(t, s, "ann", "clear-one")
	if got := sessionOf(t, s, "Cookie", cookie); got != "ann[clerk]" {
		t.Errorf("cookie: %s", got)
	}
	s.Do(t, "POST", "/_session", "name=ann&password=clear-one", "Authorization", "", "Content-Type", "application/x-www-form-urlencoded").Want(200)
	s.Do(t, "POST", "/_session", "name=ann&password=clear", "Authorization", "", "Content-Type", "application/x-www-form-urlencoded").Want(401)

	addUser(t, s, "bob", "clerk")
	for _, path := range []string{userID + "bob", userID + "nobody-at-all"} {
		for _, method := range []string{"GET", "PUT", "DELETE"} {
			if r := ann.do(method, path, `{"name":"bob","type":"user","roles":[],"password":"x"}`).Want(404); r.Str("reason") != "missing" {
				t.Errorf("%s %s: %s", method, path, r.Body)
			}
		}
	}
	for _, c := range [][3]string{
		{"GET", "/_users/_all_docs", ""}, {"GET", "/_users/_all_docs?include_docs=true&key=%22org.couchdb.user:ann%22", ""}, {"POST", "/_users/_all_docs", `{"keys":["org.couchdb.user:bob"]}`},
		{"GET", "/_users/_changes?include_docs=true", ""}, {"POST", "/_users/_changes?filter=_doc_ids", `{"doc_ids":["org.couchdb.user:ann"]}`},
		{"POST", "/_users/_bulk_get", `{"docs":[{"id":"org.couchdb.user:ann"}]}`}, {"POST", "/_users/_bulk_docs", `{"docs":[]}`}, {"GET", "/_users", ""},
		{"GET", "/_users/_design_docs", ""}, {"GET", "/_users/_security", ""}, {"POST", "/_users/_revs_diff", `{}`}, {"POST", "/_users", `{}`},
	} {
		ann.do(c[0], c[1], c[2]).Want(403)
	}

	// Its own document: a new password, and no other roles.
	own := ann.do("GET", userID+"ann", nil).Want(200)
	rev := own.Str("_rev")
	for body, reason := range map[string]string{
		`{"name":"ann","type":"user","roles":["clerk","boss"],"password":"clear-two"}`:             "Only _admin may edit roles",
		`{"name":"ann","type":"user","roles":[],"password":"clear-two"}`:                           "Only _admin may edit roles",
		`{"name":"ann","type":"user","roles":["clerk"],"roles":["boss"],"password":"clear-two"}`:   "Only _admin may edit roles",
		`{"name":"ann","type":"user","roles":["clerk","_admin"],"password":"clear-two"}`:           "No system roles (starting with underscore) in users db.",
		`{"name":"ann","type":"user","Roles":["clerk"],"password":"clear-two"}`:                    "doc.roles must exist",
		`{"name":"ann","name":"bob","type":"user","roles":["clerk"],"password":"clear-two"}`:       "Doc ID must be of the form org.couchdb.user:name",
		`{"name":"ann","type":"user","roles":["clerk"],"\u0072oles":["boss"],"password":"clear2"}`: "Only _admin may edit roles",
	} {
		if r := ann.do("PUT", userID+"ann?rev="+rev, body).Want(403); r.Str("reason") != reason {
			t.Errorf("%s: %s", body, r.Body)
		}
	}
	ann.do("PUT", userID+"ann?rev="+rev, `{"name":"ann","type":"user","roles":["boss"],"roles":["clerk"],"ROLES":["_admin"],"Roles":["boss"],"password":"clear-two"}`).Want(201)
	// The new password counts at once, and sessions of the old one are over.
	s.Do(t, "GET", "/_session", nil, "Authorization", ann.auth).Want(401)
	if got := sessionOf(t, s, "Cookie", cookie); got != "<nil>[]" {
		t.Errorf("the session of an old password: %s", got)
	}
	cookie = login(t, s, "ann", "clear-two")
	if got := sessionOf(t, s, "Cookie", cookie); got != "ann[clerk]" {
		t.Errorf("duplicate roles: %s", got)
	}
}

// What administrators change counts for the next request, sessions included.
func TestUserChangesCountAtOnce(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	db := "/" + s.DB(t)
	s.Do(t, "PUT", db+"/d", `{}`).Want(201)
	s.Do(t, "PUT", db+"/_security", `{"members":{"roles":["staff"]}}`).Want(200)
	addUser(t, s, "ann")
	cookie := login(t, s, "ann", "ann-pw")
	read := func(want int) {
		t.Helper()
		s.Do(t, "GET", db+"/d", nil, "Authorization", basic("ann")).Want(want)
		s.Do(t, "GET", db+"/d", nil, "Authorization", "", "Cookie", cookie).Want(want)
	}
	change := func(member string, value any) {
		t.Helper()
		doc := s.Do(t, "GET", userID+"ann", nil).Want(200).Object()
		doc[member] = value
		s.Do(t, "PUT", userID+"ann", doc).Want(201)
	}
	read(403)
	change("roles", []string{"staff"})
	read(200)
	change("roles", []string{})
	read(403)
	s.Do(t, "PUT", db+"/_security", `{"service":{"ann":["_reader"]}}`).Want(200)
	read(200)
	s.Do(t, "PUT", db+"/_security", `{}`).Want(200)
	read(403)
	s.Do(t, "PUT", db+"/_security", `{"service":{"ann":["_reader"]}}`).Want(200)
	rev := s.Do(t, "GET", userID+"ann", nil).Want(200).Str("_rev")
	s.Do(t, "DELETE", userID+"ann?rev="+rev, nil).Want(200)
	read(401)
	// Whoever comes after with the same name is somebody else.
	s.Do(t, "PUT", userID+"ann", `{"name":"ann","type":"user","roles":[],"password":"another"}`).Want(201)
	s.Do(t, "GET", db+"/d", nil, "Authorization", "", "Cookie", cookie).Want(401)
	// The name stays named by the security object: that is the administrator's to change.
	s.Do(t, "GET", db+"/d", nil, "Cookie", login(t, s, "ann", "another"), "Authorization", "").Want(200)
}

// The rules of user documents, whoever writes them.
func TestUserRules(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	for _, c := range []struct{ id, body, reason string }{
		{"org.couchdb.user:r1", `{"type":"user","roles":[]}`, "doc.name is required"},
		{"org.couchdb.user:r1", `{"name":"","type":"user","roles":[]}`, "doc.name is required"},
		{"org.couchdb.user:r1", `{"name":5,"type":"user","roles":[]}`, "doc.name is required"},
		{"org.couchdb.user:r1", `{"Name":"r1","type":"user","roles":[]}`, "doc.name is required"},
		{"org.couchdb.user:r1", `{"name":"r1","roles":[]}`, "doc.type must be user"},
		{"org.couchdb.user:r1", `{"name":"r1","type":"User","roles":[]}`, "doc.type must be user"},
		{"org.couchdb.user:r1", `{"name":"r1","type":"user"}`, "doc.roles must exist"},
		{"org.couchdb.user:r1", `{"name":"r1","type":"user","ROLES":[]}`, "doc.roles must exist"},
		{"org.couchdb.user:r1", `{"name":"r1","type":"user","roles":"boss"}`, "doc.roles must be an array"},
		{"org.couchdb.user:r1", `{"name":"r1","type":"user","roles":[["_admin"]]}`, "doc.roles can only contain strings"},
		{"org.couchdb.user:r1", `{"name":"r1","type":"user","roles":["a",null]}`, "doc.roles can only contain strings"},
		{"org.couchdb.user:r1", `{"name":"r1","type":"user","roles":[],"roles":["_admin"]}`, "No system roles (starting with underscore) in users db."},
		{"org.couchdb.user:r1", `{"name":"r1","type":"user","roles":["_admin"]}`, "No system roles (starting with underscore) in users db."},
		{"org.couchdb.user:r1", `{"name":"r1","type":"user","roles":["\u005fadmin"]}`, "No system roles (starting with underscore) in users db."},
		{"org.couchdb.user:r1", `{"name":"r2","type":"user","roles":[]}`, "Doc ID must be of the form org.couchdb.user:name"},
		{"org.couchdb.user:R1", `{"name":"r1","type":"user","roles":[]}`, "Doc ID must be of the form org.couchdb.user:name"},
		{"r1", `{"name":"r1","type":"user","roles":[]}`, "Doc ID must be of the form org.couchdb.user:name"},
		{"org.couchdb.user:_r1", `{"name":"_r1","type":"user","roles":[]}`, "Username may not start with underscore."},
		{"org.couchdb.user:r:1", `{"name":"r:1","type":"user","roles":[]}`, "Character `:` is not allowed in usernames."},
		{"org.couchdb.user:r1", `{"name":"r1","type":"user","roles":[],"password":5}`, "Password must be a string."},
		{"org.couchdb.user:r1", `{"name":"r1","type":"user","roles":[],"password":["x"]}`, "Password must be a string."},
	} {
		roads := map[string]*testserver.Response{
			"PUT":       s.Do(t, "PUT", "/_users/"+c.id, c.body),
			"POST":      s.Do(t, "POST", "/_users", `{"_id":"`+c.id+`",`+c.body[1:]),
			"new_edits": s.Do(t, "PUT", "/_users/"+c.id+"?new_edits=false", `{"_rev":"1-a",`+c.body[1:]),
		}
		for road, r := range roads {
			if r.Status != 403 || r.Str("reason") != c.reason {
				t.Errorf("%s %s %s: %d %s", road, c.id, c.body, r.Status, r.Body)
			}
		}
		for _, newEdits := range []string{"true", "false"} {
			r := s.Do(t, "POST", "/_users/_bulk_docs", `{"new_edits":`+newEdits+`,"docs":[{"_id":"`+c.id+`","_rev":"1-a",`+c.body[1:]+`]}`).Want(201)
			if e, _ := r.JSON().([]any)[0].(map[string]any); e["error"] != "forbidden" || e["reason"] != c.reason {
				t.Errorf("bulk %s %s: %s", c.id, c.body, r.Body)
			}
		}
		s.Do(t, "GET", "/_users/"+c.id, nil).Want(404)
	}
	s.Do(t, "PUT", "/_users/org.couchdb.user:r1", `{"name":"r1","type":"user","roles":[],"password":""}`).Want(400)
}

// Whatever the road of a user document, its clear password reaches no file.
func TestClearPasswordIsNeverStored(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	const clear = "cl34r-t3xt-p4ssw0rd"
	body := func(name string) string {
		return `{"name":"` + name + `","type":"user","roles":[],"password":"` + clear + `"}`
	}
	with := func(name, more string) string { return `{` + more + `,` + body(name)[1:] }
	s.Do(t, "PUT", userID+"put", body("put")).Want(201)
	s.Do(t, "POST", "/_users", with("post", `"_id":"org.couchdb.user:post"`)).Want(201)
	s.Do(t, "PUT", userID+"batch?batch=ok", body("batch")).Want(202)
	s.Do(t, "PUT", userID+"replicated?new_edits=false", with("replicated", `"_rev":"3-abc"`)).Want(201)
	s.Do(t, "POST", "/_users/_bulk_docs", `{"docs":[`+with("bulk", `"_id":"org.couchdb.user:bulk"`)+`]}`).Want(201)
	s.Do(t, "POST", "/_users/_bulk_docs", `{"new_edits":false,"docs":[`+with("bulkrep", `"_id":"org.couchdb.user:bulkrep","_rev":"2-abc"`)+`]}`).Want(201)
	s.Do(t, "PUT", userID+"inline", with("inline", `"_attachments":{"a":{"data":"aGk="}}`)).Want(201)
	form := "--x\r\nContent-Disposition: form-data; name=\"_doc\"\r\n\r\n" + body("form") + "\r\n--x--\r\n"
	s.Do(t, "POST", userID+"form", form, "Content-Type", "multipart/form-data; boundary=x").Want(201)
	related := "--x\r\nContent-Type: application/json\r\n\r\n" + with("parts", `"_attachments":{"a":{"follows":true,"length":2,"content_type":"text/plain"}}`) + "\r\n--x\r\n\r\nhi\r\n--x--\r\n"
	s.Do(t, "PUT", userID+"parts", related, "Content-Type", `multipart/related; boundary="x"`).Want(201)
	s.Do(t, "PUT", "/_users/_design/made", map[string]any{"updates": map[string]string{
		"u": "function(doc, req) { return [{_id: 'org.couchdb.user:update', name: 'update', type: 'user', roles: [], password: 'cl34r-' + 't3xt-' + 'p4ssw0rd'}, 'ok']; }"}}).Want(201)
	s.Do(t, "POST", "/_users/_design/made/_update/u", nil).Want(201)
	rev := s.Do(t, "GET", userID+"put", nil).Want(200).Str("_rev")
	s.Do(t, "PUT", userID+"put/att?rev="+rev, "hi", "Content-Type", "text/plain").Want(201)
	// Deletions that say more than that.
	rev = s.Do(t, "GET", userID+"post", nil).Want(200).Str("_rev")
	s.Do(t, "PUT", userID+"post?rev="+rev, with("post", `"_deleted":true`)).Want(200)
	rev = s.Do(t, "GET", userID+"bulk", nil).Want(200).Str("_rev")
	s.Do(t, "POST", "/_users/_bulk_docs", `{"docs":[`+with("bulk", `"_id":"org.couchdb.user:bulk","_deleted":true,"_rev":"`+rev+`"`)+`]}`).Want(201)
	// Refused ones.
	s.Do(t, "PUT", userID+"refused", `{"name":"other","type":"user","roles":[],"password":"`+clear+`"}`).Want(403)

	for _, name := range []string{"put", "post", "batch", "replicated", "bulk", "bulkrep", "inline", "form", "parts", "update"} {
		r := s.Do(t, "GET", userID+name+"?open_revs=all", nil, "Accept", "application/json").Want(200)
		deleted := name == "post" || name == "bulk"
		if bytes.Contains(r.Body, []byte(clear)) || bytes.Contains(r.Body, []byte("derived_key")) == deleted {
			t.Errorf("%s: %s", name, r.Body)
		}
		want := 200
		if deleted {
			want = 401
		}
		s.Do(t, "POST", "/_session", map[string]string{"name": name, "password": clear}, "Authorization", "").Want(want)
	}
	s.Stop(t)
	looked := 0
	err := filepath.WalkDir(s.Data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		looked++
		if bytes.Contains(data, []byte(clear)) {
			t.Errorf("%s holds the clear password", path)
		}
		return err
	})
	if err != nil || looked == 0 {
		t.Errorf("%d files: %v", looked, err)
	}
}

// Users that come from CouchDB get in with the passwords they had there.
func TestForeignHashes(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	key, err := pbkdf2.Key(sha1.New, "old-secret", []byte("pepper"), 10, 20)
	if err != nil {
		t.Fatal(err)
	}
	simple := sha1.Sum([]byte("old-secret" + "pepper"))
	for name, secrets := range map[string]string{
		"pbkdf2":    `"password_scheme":"pbkdf2","iterations":10,"salt":"pepper","derived_key":"` + hex.EncodeToString(key) + `"`,
		"named-prf": `"password_scheme":"pbkdf2","pbkdf2_prf":"sha","iterations":10,"salt":"pepper","derived_key":"` + hex.EncodeToString(key) + `"`,
		"simple":    `"password_scheme":"simple","salt":"pepper","password_sha":"` + hex.EncodeToString(simple[:]) + `"`,
		"ancient":   `"salt":"pepper","password_sha":"` + hex.EncodeToString(simple[:]) + `"`,
	} {
		doc := `{"_id":"org.couchdb.user:` + name + `","_rev":"7-abc","name":"` + name + `","type":"user","roles":["old"],` + secrets + `}`
		s.Do(t, "POST", "/_users/_bulk_docs", `{"new_edits":false,"docs":[`+doc+`]}`).Want(201)
		if got := sessionOf(t, s, "Cookie", login(t, s, name, "old-secret")); got != name+"[old]" {
			t.Errorf("%s: %s", name, got)
		}
		s.Do(t, "POST", "/_session", map[string]string{"name": name, "password": "old-secre"}, "Authorization", "").Want(401)
		// A new password is hashed our way, and nothing of the old one stays.
		rev := s.Do(t, "GET", userID+name, nil).Str("_rev")
		s.Do(t, "PUT", userID+name+"?rev="+rev, `{"name":"`+name+`","type":"user","roles":[],`+secrets+`,"password":"new-secret"}`).Want(201)
		if r := s.Do(t, "GET", userID+name, nil); r.Str("pbkdf2_prf") != "sha256" || bytes.Contains(r.Body, []byte("pepper")) || r.Object()["password_sha"] != nil {
			t.Errorf("%s", r.Body)
		}
		login(t, s, name, "new-secret")
		s.Do(t, "POST", "/_session", map[string]string{"name": name, "password": "old-secret"}, "Authorization", "").Want(401)
	}
	for _, secrets := range []string{
		`"password_scheme":"pbkdf2","iterations":2000000000,"salt":"p","derived_key":"` + hex.EncodeToString(key) + `"`,
		`"password_scheme":"pbkdf2","iterations":10,"salt":"p","derived_key":"abc"`,
		`"password_scheme":"pbkdf2","iterations":10,"salt":"p","derived_key":"` + strings.Repeat("ab", 5000) + `"`,
		`"password_scheme":"none"`, `"password_scheme":5`, `"salt":"p","password_sha":"ab"`,
	} {
		s.Do(t, "PUT", userID+"bad", `{"name":"bad","type":"user","roles":[],`+secrets+`}`).Want(403)
	}
}

// Functions of design documents are told who asks: the name, the user's roles, and
// those that the security object gives.
func TestFunctionsSeeTheUser(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	ann := strings.TrimPrefix(db, "/") + "-ann"
	addUser(t, s, ann, "clerk")
	s.Do(t, "PUT", db+"/_security", `{"service":{"`+ann+`":["_reader","_writer","editor"],"nobody":["_reader"]}}`).Want(200)
	s.Do(t, "PUT", db+"/_design/d", map[string]any{
		"validate_doc_update": "function(doc, old, ctx, sec) { if (doc.ask) throw {forbidden: JSON.stringify([ctx.name, ctx.roles, ctx.db, Object.keys(sec.service || {}).length])}; }",
		"shows":               map[string]string{"who": "function(doc, req) { return JSON.stringify([req.userCtx.name, req.userCtx.roles, req.userCtx.db, Object.keys(req.secObj.service).length]); }"},
		"filters":             map[string]string{"mine": "function(doc, req) { return doc.of == req.userCtx.name && req.userCtx.roles.indexOf(req.query.role) >= 0; }"},
		"updates":             map[string]string{"who": "function(doc, req) { return [null, JSON.stringify([req.userCtx.name, req.userCtx.roles, req.userCtx.db, 2])]; }"},
		"lists":               map[string]string{"who": "function(head, req) { return JSON.stringify([req.userCtx.name, req.userCtx.roles, req.userCtx.db, 2]); }"},
		"views":               map[string]any{"v": map[string]string{"map": "function(doc) { emit(typeof userCtx, null); }"}},
	}).Want(201)
	s.Do(t, "PUT", db+"/x", map[string]string{"of": ann}).Want(201)
	want := fmt.Sprintf(`["%s",["clerk","_reader","_writer","editor"],"%s",2]`, ann, db[1:])
	u := as{t, s, basic(ann)}
	if r := u.do("PUT", db+"/y", `{"ask":1}`).Want(403); r.Str("reason") != want {
		t.Errorf("validation: %s, want %s", r.Str("reason"), want)
	}
	for _, c := range [][2]string{{"GET", "_show/who"}, {"POST", "_update/who"}, {"GET", "_list/who/v"}} {
		if r := u.do(c[0], db+"/_design/d/"+c[1], nil).Want(200); string(r.Body) != want {
			t.Errorf("%s: %s, want %s", c[1], r.Body, want)
		}
	}
	for role, rows := range map[string]int{"clerk": 1, "editor": 1, "other": 0} {
		if r := u.do("GET", db+"/_changes?filter=d/mine&role="+role, nil).Want(200); len(r.Object()["results"].([]any)) != rows {
			t.Errorf("filter for %s: %s", role, r.Body)
		}
	}
	if r := s.Do(t, "GET", db+"/_design/d/_show/who", nil, "Authorization", "").Want(200); string(r.Body) != fmt.Sprintf(`[null,["_reader"],"%s",2]`, db[1:]) {
		t.Errorf("nobody: %s", r.Body)
	}
	if r := s.Do(t, "GET", db+"/_design/d/_show/who", nil).Want(200); !strings.Contains(string(r.Body), `["_admin"]`) {
		t.Errorf("server: %s", r.Body)
	}
	if r := u.do("GET", db+"/_design/d/_view/v", nil).Want(200); !strings.Contains(string(r.Body), `"key":"undefined"`) {
		t.Errorf("a view must not depend on who asks: %s", r.Body)
	}
}
