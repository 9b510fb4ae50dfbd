package server_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// Administrative actions are in the log with who did them and from where, and no line
// of it, at any level, holds a secret.
func TestAudit(t *testing.T) {
	t.Parallel()
	p := testserver.StartProcess(t, "--log-level", "debug", "--log-format", "json", "--password-rounds", "1000", "--lockout", "2", "--default-q", "3")
	secrets := []string{"s3cret", testserver.AdminPassword}
	user := func(name, password string) string {
		return `{"name":"` + name + `","type":"user","roles":[],"password":"` + password + `"}`
	}
	as := func(name, password string) []string {
		header := basic(name + ":" + password)
		secrets = append(secrets, strings.TrimPrefix(header, "Basic "))
		return []string{"Authorization", header}
	}
	login := func(name, password string, header ...string) *testserver.Response {
		t.Helper()
		return p.Do(t, "POST", "/_session", map[string]string{"name": name, "password": password}, append([]string{"Authorization", ""}, header...)...)
	}

	p.Do(t, "PUT", "/db", nil).Want(201)
	p.Do(t, "PUT", "/db", nil).Want(412)
	p.Do(t, "PUT", "/db/_security", `{"members":{"names":["anna"],"roles":[]}}`).Want(200)
	p.Do(t, "PUT", "/db/_revs_limit", `50`).Want(200)
	rev := p.Do(t, "PUT", "/db/_design/d", `{"language":"javascript","x":"doc-s3cret"}`).Want(201).Str("rev")
	p.Do(t, "PUT", "/db/_design/d", `{}`).Want(409)
	p.Do(t, "POST", "/db/_bulk_docs", `{"docs":[{"_id":"_design/e"},{"_id":"plain"}]}`).Want(201)
	p.Do(t, "DELETE", "/db/_design/d?rev="+rev, nil).Want(200)
	p.Do(t, "PUT", "/_users/org.couchdb.user:anna", user("anna", "anna-s3cret")).Want(201)
	p.Do(t, "PUT", "/_users/org.couchdb.user:bad", `{"name":"bad","password":"bad-s3cret"`).Want(400)
	p.Do(t, "PUT", "/_users/org.couchdb.user:bad", user("other", "bad-s3cret")).Want(403)
	doc := p.Do(t, "GET", "/_users/org.couchdb.user:anna", nil).Want(200)
	for _, member := range []string{"derived_key", "salt"} {
		secrets = append(secrets, doc.Str(member))
	}
	// A user's change of the own document is no administrative action.
	p.Do(t, "PUT", "/_users/org.couchdb.user:anna?rev="+doc.Str("_rev"), user("anna", "anna2-s3cret"), as("anna", "anna-s3cret")...).Want(201)
	p.Do(t, "POST", "/_users/_bulk_docs", `{"docs":[`+strings.Replace(user("ben", "ben-s3cret"), "{", `{"_id":"org.couchdb.user:ben",`, 1)+`]}`).Want(201)

	key := p.Do(t, "POST", "/_api/v2/api_keys", nil).Want(201)
	secrets = append(secrets, key.Str("password"))
	p.Do(t, "GET", "/_session", nil, as(key.Str("key"), key.Str("password"))...).Want(200)
	p.Do(t, "GET", "/_session", nil, as(key.Str("key"), "key-s3cret")...).Want(401)
	p.Do(t, "PUT", "/_node/_local/_config/admins/carl", `"carl-s3cret"`).Want(200)
	p.Do(t, "PUT", "/db2", nil, as("carl", "carl-s3cret")...).Want(201)
	p.Do(t, "DELETE", "/db2", nil, "X-Couch-Request-ID", "my-delete").Want(200)
	p.Do(t, "DELETE", "/_node/_local/_config/admins/carl", nil).Want(200)

	good := login("anna", "anna2-s3cret").Want(200)
	cookie, _, _ := strings.Cut(good.Header.Get("Set-Cookie"), ";")
	secrets = append(secrets, strings.TrimPrefix(cookie, "AuthSession="))
	p.Do(t, "GET", "/db/plain", nil, "Authorization", "", "Cookie", cookie).Want(200)
	p.Do(t, "GET", "/db/plain", nil, "Authorization", "", "Cookie", cookie+"x")
	login("typed-into-the-wrong-field-s3cret", "x").Want(401)
	login("anna", "wrong-s3cret").Want(401)
	login("anna", "wrong-s3cret").Want(401)
	login("anna", "wrong-s3cret").Want(403)

	// Credentials in the addresses of replications, in bodies that are taken and in
	// such that are not.
	job := `{"source":"http://u:s3cret@127.0.0.1:1/db","target":{"url":"http://127.0.0.1:1/x","headers":{"Authorization":"Basic s3cret"},"auth":{"basic":{"username":"u","password":"s3cret"}}}}`
	p.Do(t, "PUT", "/_replicator/job", job)
	p.Do(t, "PUT", "/_replicator/job", job+"}").Want(400)
	p.Do(t, "POST", "/_replicate", job)
	p.Do(t, "POST", "/db/_bulk_docs", `{"docs":[{"_id":"x","_bad":"s3cret"}]}`)
	p.Do(t, "PUT", "/db/_security", `{"members":"s3cret"}`).Want(400)
	p.Do(t, "PUT", "/_node/_local/_config/admins/dora", `{"p":"s3cret"}`).Want(400)
	p.Stop()

	log := p.Stderr.String()
	for _, secret := range secrets {
		if strings.Contains(log, secret) {
			t.Errorf("the log holds %q", secret)
		}
	}
	type line struct {
		Msg, Level, Action, User, From, Request, Database, Document, Name string
		Settings                                                          map[string]string
	}
	var got []string
	for text := range strings.Lines(log) {
		var l line
		if err := json.Unmarshal([]byte(text), &l); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if l.Msg != "audit" {
			continue
		}
		if l.Action == "start" {
			if l.Settings["default-q"] != "3 (flag)" || l.Settings["admin"] != "admin:… (environment)" {
				t.Errorf("settings %v", l.Settings)
			}
			continue
		}
		if !strings.HasPrefix(l.From, "127.0.0.1:") || l.Request == "" {
			t.Errorf("where from: %s", text)
		}
		if l.Action == "database deleted" && l.Request != "my-delete" {
			t.Errorf("the id of the request: %s", text)
		}
		got = append(got, strings.Join(strings.Fields(strings.Join([]string{l.Level, l.User + ":", l.Action, l.Database, l.Document, l.Name}, " ")), " "))
	}
	want := []string{
		"INFO admin: database created db",
		"INFO admin: security changed db",
		"INFO admin: revision limit changed db",
		"INFO admin: design document written db _design/d",
		"INFO admin: design document written db _design/e",
		"INFO admin: design document deleted db _design/d",
		"INFO admin: user written _users org.couchdb.user:anna",
		"INFO admin: user written _users org.couchdb.user:ben",
		"INFO admin: API key created",
		"WARN nobody: login failed " + key.Str("key"),
		"INFO admin: administrator added carl",
		"INFO carl: database created db2",
		"INFO admin: database deleted db2",
		"INFO admin: administrator removed carl",
		"WARN nobody: login failed (unknown)",
		"WARN nobody: login failed anna",
		"WARN nobody: login failed anna",
		"WARN nobody: login locked anna",
	}
	if !slices.Equal(got, want) {
		t.Errorf("audit lines:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
