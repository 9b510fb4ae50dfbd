package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/server"
	"github.com/divandb/divan/internal/testserver"
)

// withAudit gives a server whose log has what was administered.
func withAudit(t *testing.T) (*testserver.Server, *testserver.LogBuffer) {
	t.Helper()
	log := &testserver.LogBuffer{}
	return testserver.Start(t, testserver.Parts(func(o *server.Options) { o.Log = slog.New(slog.NewTextHandler(log, nil)) })), log
}

// A key works like a user that may do nothing until it is named, and is no way into
// the dashboard.
func TestAPIKeys(t *testing.T) {
	t.Parallel()
	s, log := withAudit(t)
	made := s.Do(t, "POST", "/_api/v2/api_keys", nil).Want(201)
	key, password := made.Str("key"), made.Str("password")
	if !regexp.MustCompile(`^\{"password":"[0-9a-f]{40}","key":"[a-z]{24}","ok":true\}\n$`).Match(made.Body) || made.Header.Get("Cache-Control") != "no-store" {
		t.Errorf("%v %s", made.Header, made.Body)
	}
	if other := s.Do(t, "POST", "/_api/v2/api_keys", `{}`).Want(201); other.Str("key") == key || other.Str("password") == password {
		t.Errorf("the same key twice: %s", other.Body)
	}
	s.Do(t, "POST", "/_api/v2/api_keys", "x=y", "Content-Type", "application/x-www-form-urlencoded").Want(415)
	if text := log.String(); !strings.Contains(text, `action="API key created"`) || !strings.Contains(text, "key="+key) || strings.Contains(text, password) {
		t.Errorf("the log: %s", text)
	}

	db := "/" + s.DB(t)
	holder := as{t, s, "Basic " + base64.StdEncoding.EncodeToString([]byte(key+":"+password))}
	cookie := login(t, s, key, password)
	for name, header := range map[string][]string{"basic": {"Authorization", holder.auth}, "cookie": {"Authorization", "", "Cookie", cookie}} {
		if got := sessionOf(t, s, header...); got != key+"[]" {
			t.Errorf("%s: %s", name, got)
		}
		s.Do(t, "GET", db, nil, header...).Want(403)
		s.Do(t, "GET", "/_all_dbs", nil, header...).Want(403)
		s.Do(t, "POST", "/_api/v2/api_keys", nil, header...).Want(403)
	}
	for _, path := range []string{"/_api/v2/db" + db + "/_security", db + "/_security"} {
		s.Do(t, "PUT", path, map[string]any{"service": map[string]any{key: []string{"_reader"}}}).Want(200)
		holder.do("GET", db, nil).Want(200)
		s.Do(t, "GET", db, nil, "Authorization", "", "Cookie", cookie).Want(200)
		holder.do("PUT", db+"/x", `{}`).Want(403)
		// Out of the list is out.
		s.Do(t, "PUT", path, `{"service":{}}`).Want(200)
		holder.do("GET", db, nil).Want(403)
		s.Do(t, "GET", db, nil, "Authorization", "", "Cookie", cookie).Want(403)
	}

	credentials := map[string]string{"name": key, "password": password}
	r := s.Do(t, "POST", "/_session?dashboard=true", credentials, "Authorization", "").Want(403)
	if r.Header.Get("Set-Cookie") != "" {
		t.Errorf("%v", r.Header)
	}
	s.Do(t, "POST", "/_session?dashboard=false", credentials, "Authorization", "").Want(200)
	s.Do(t, "POST", "/_session?dashboard=true", map[string]string{"name": testserver.AdminName, "password": testserver.AdminPassword}, "Authorization", "").Want(200)
	s.Do(t, "GET", db, nil, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte(key+":"+strings.Repeat("0", 40)))).Want(401)
}

// Both paths of the security object are one object.
func TestSecurityPaths(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	s.Do(t, "PUT", "/_api/v2/db"+db+"/_security", `{"cloudant":{"ann":["_reader"]}}`).Want(200)
	want := `{"_id":"_security","service":{"ann":["_reader"]}}` + "\n"
	for _, path := range []string{"/_api/v2/db" + db + "/_security", db + "/_security"} {
		if got := s.Do(t, "GET", path, nil).Want(200).Body; string(got) != want {
			t.Errorf("%s: %s", path, got)
		}
	}
	s.Do(t, "PUT", "/_api/v2/db"+db+"/_security", `{"service":[]}`).Want(400)
	s.Do(t, "GET", "/_api/v2/db/no-such-db/_security", nil).Want(404)
	s.Do(t, "GET", "/_api/v2/db/no-such-db/_security", nil, "Authorization", "").Want(401)
}

// Administrators are managed where clients of CouchDB manage them, and their hashes
// are not shown.
func TestAdminsOverHTTP(t *testing.T) {
	t.Parallel()
	s, log := withAudit(t)
	const admins = "/_node/_local/_config/admins"
	node := s.Do(t, "GET", "/_membership", nil).Want(200).Object()["all_nodes"].([]any)[0].(string)
	want := func(method, path string, body any, status int, text string) {
		t.Helper()
		if r := s.Do(t, method, path, body).Want(status); text != "" && string(bytes.TrimSpace(r.Body)) != text {
			t.Errorf("%s %s: %s", method, path, r.Body)
		}
	}
	want("GET", admins, nil, 200, `{"admin":"********"}`)
	want("DELETE", admins+"/admin", nil, 400, `{"error":"bad_request","reason":"The last administrator cannot be removed."}`)
	want("GET", admins+"/ann", nil, 404, `{"error":"not_found","reason":"unknown_config_value"}`)
	want("PUT", admins+"/ann", `"ann-pw"`, 200, `""`)
	want("GET", admins+"/ann", nil, 200, `"********"`)
	want("GET", "/_node/"+node+"/_config/admins", nil, 200, `{"admin":"********","ann":"********"}`)
	want("GET", "/_node/elsewhere/_config/admins", nil, 404, `{"error":"not_found","reason":"no such node: elsewhere"}`)
	want("PUT", "/_node/elsewhere/_config/admins/x", `"x"`, 404, "")
	want("DELETE", "/_node/elsewhere/_config/admins/ann", nil, 404, "")

	ann := as{t, s, basic("ann")}
	ann.do("GET", "/_all_dbs", nil).Want(200)
	cookie := login(t, s, "ann", "ann-pw")
	s.Do(t, "GET", "/_all_dbs", nil, "Authorization", "", "Cookie", cookie).Want(200)
	want("PUT", admins+"/ann", `"other-pw"`, 200, `"********"`)
	ann.do("GET", "/_all_dbs", nil).Want(401)
	s.Do(t, "GET", "/_all_dbs", nil, "Authorization", "", "Cookie", cookie).Want(401)

	for name, body := range map[string]string{
		"a": ``, "b": `x`, "c": `{}`, "d": `null`, "e": `""`, "f": `["pw"]`, "g": `"-pbkdf2-abc,salt,10"`, "h": `"-pbkdf2:sha256-abc,salt,10"`, "i": `"-hashed-abc,salt"`,
		"with%3Acolon": `"pw"`, "new%0Aline": `"pw"`, "j": `"` + strings.Repeat("x", 5000) + `"`, strings.Repeat("n", 256): `"pw"`, "%FF": `"pw"`,
	} {
		want("PUT", admins+"/"+name, body, 400, "")
	}
	want("GET", admins, nil, 200, `{"admin":"********","ann":"********"}`)
	want("DELETE", admins+"/ann", nil, 200, `"********"`)
	want("DELETE", admins+"/ann", nil, 404, "")
	s.Do(t, "GET", "/_all_dbs", nil, "Authorization", "Basic "+base64.StdEncoding.EncodeToString([]byte("ann:other-pw"))).Want(401)

	text := log.String()
	for _, action := range []string{"administrator added", "password of an administrator set", "administrator removed"} {
		if !strings.Contains(text, fmt.Sprintf("action=%q user=admin", action)) {
			t.Errorf("no %q in the log: %s", action, text)
		}
	}
	if strings.Contains(text, "ann-pw") || strings.Contains(text, "other-pw") {
		t.Errorf("a password in the log: %s", text)
	}
}
