package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// as sends requests as a user of a test's own.
type as struct {
	t    *testing.T
	s    *testserver.Server
	auth string
}

func (u as) do(method, path string, body any, header ...string) *testserver.Response {
	u.t.Helper()
	return u.s.Do(u.t, method, path, body, append([]string{"Authorization", u.auth}, header...)...)
}

// grant makes a database with a document, a design document and a local document, and
// a user for each list of roles, whose name is that list.
func grant(t *testing.T, s *testserver.Server, roles ...string) (db string, users []as) {
	t.Helper()
	name := s.DB(t)
	db = "/" + name
	service := map[string][]string{}
	for _, list := range roles {
		user := name + strings.NewReplacer("_", "-", " ", "").Replace(list)
		addUser(t, s, user)
		service[user] = strings.Fields(list)
		users = append(users, as{t, s, basic(user)})
	}
	s.Do(t, "PUT", db+"/_security", map[string]any{"service": service}).Want(200)
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"secret","text":"hidden","_attachments":{"a.txt":{"data":"aGlkZGVu"}}},`+
		`{"_id":"_design/d","language":"javascript","views":{"v":{"map":"function(d) { emit(null, {_id: 'secret'}); }"}},`+
		`"shows":{"doc":"function(doc) { return toJSON(doc); }"},"lists":{"l":"function() { return toJSON(getRow()); }"},`+
		`"updates":{"read":"function(doc) { return [null, toJSON(doc)]; }","design":"function() { return [{_id: '_design/made'}, 'made']; }"}},`+
		`{"_id":"_local/l","text":"hidden"}]}`).Want(201)
	return db, users
}

// Whoever may write and not read learns nothing of what is there.
func TestWriterReadsNothing(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db, users := grant(t, s, "_writer", "_reader", "_reader _writer")
	writer, reader, both := users[0], users[1], users[2]
	rev := s.Do(t, "GET", db+"/secret", nil).Want(200).Str("_rev")
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
	}{
		{"GET", "/secret", "", nil, 403},
		{"HEAD", "/secret", "", nil, 403},
		{"GET", "/secret/a.txt", "", nil, 403},
		{"GET", "/_local/l", "", nil, 403},
		{"GET", "/_local%2Fl", "", nil, 403},
		{"COPY", "/secret", "", []string{"Destination", "copy"}, 403},
		{"COPY", "/_local/l", "", []string{"Destination", "copy"}, 403},
		{"POST", "/_design/d/_update/read/secret", "", nil, 403},
		{"POST", "/_bulk_get", `{"docs":[{"id":"secret"}]}`, nil, 403},
		{"POST", "/_revs_diff", `{"secret":["1-a"]}`, nil, 403},
		{"POST", "/_missing_revs", `{"secret":["1-a"]}`, nil, 403},
		{"GET", "", "", nil, 403},
		{"PUT", "/secret", `{}`, nil, 409},
		{"PUT", "/secret?rev=1-" + strings.Repeat("0", 32), `{}`, nil, 409},
		{"PUT", "/secret/a.txt", `{}`, nil, 409},
		{"DELETE", "/secret", "", nil, 409},
		{"POST", "", `{"_id":"secret"}`, nil, 409},
		{"POST", "/_bulk_docs", `{"docs":[{"_id":"secret"},{"_id":"secret","_rev":"1-` + strings.Repeat("0", 32) + `"}]}`, nil, 201},
		{"POST", "/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"secret","_rev":"1-aa","_attachments":{"a.txt":{"stub":true}}}]}`, nil, 201},
	} {
		r := writer.do(c.method, db+c.path, c.body, c.header...)
		if r.Status != c.status || strings.Contains(string(r.Body), "hidden") || strings.Contains(string(r.Body), rev[2:]) || strings.Contains(r.Header.Get("Etag"), rev) {
			t.Errorf("%s %s %s: %d %v %s", c.method, c.path, c.body, r.Status, r.Header, r.Body)
		}
	}
	s.Do(t, "GET", db+"/copy", nil).Want(404)
	// What it is there for.
	made := writer.do("PUT", db+"/new", `{"by":"writer"}`).Want(201).Str("rev")
	writer.do("PUT", db+"/new/att?rev="+made, "text", "Content-Type", "text/plain").Want(201)
	writer.do("PUT", db+"/_local/w", `{}`).Want(201)
	writer.do("POST", db+"/_ensure_full_commit", `{}`).Want(201)
	writer.do("DELETE", db+"/secret?rev="+rev, nil).Want(200)

	both.do("COPY", db+"/new", nil, "Destination", "copy").Want(201)
	reader.do("COPY", db+"/new", nil, "Destination", "copy2").Want(403)
	reader.do("POST", db+"/_design/d/_update/read/new", nil).Want(403)
	if r := both.do("POST", db+"/_design/d/_update/read/new", nil).Want(200); !strings.Contains(string(r.Body), "by") {
		t.Errorf("%s", r.Body)
	}
}

// No road leads to a design document without _admin.
func TestOnlyAdminsWriteDesigns(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db, users := grant(t, s, "_reader _writer _replicator _design", "_admin")
	user, admin := users[0], users[1]
	s.Do(t, "PUT", db+"/ordinary", `{}`).Want(201)
	rev := s.Do(t, "GET", db+"/_design/d", nil).Want(200).Str("_rev")
	form := "--x\r\nContent-Disposition: form-data; name=\"_doc\"\r\n\r\n{}\r\n--x--\r\n"
	for _, c := range []struct {
		method, path, body string
		header             []string
	}{
		{"PUT", "/_design/x", `{}`, nil},
		{"PUT", "/_design%2Fx", `{}`, nil},
		{"PUT", "/_design%2fx", `{}`, nil},
		{"PUT", "/%5Fdesign/x", `{}`, nil},
		{"PUT", "/%5fdesign%2Fx", `{}`, nil},
		{"PUT", "/_design/x?new_edits=false", `{"_rev":"1-a"}`, nil},
		{"PUT", "/_design/x/att", `text`, nil},
		{"PUT", "/_design%2Fx/att", `text`, nil},
		{"DELETE", "/_design/d?rev=" + rev, "", nil},
		{"DELETE", "/_design%2Fd?rev=" + rev, "", nil},
		{"DELETE", "/_design/d/att?rev=" + rev, "", nil},
		{"COPY", "/ordinary", "", []string{"Destination", "_design/x"}},
		{"COPY", "/ordinary", "", []string{"Destination", "_design%2Fx"}},
		{"COPY", "/ordinary", "", []string{"Destination", "/_design/x"}},
		{"COPY", "/ordinary", "", []string{"Destination", "_design/d?rev=" + rev}},
		{"COPY", "/_local/l", "", []string{"Destination", "_design/x"}},
		{"COPY", "/_design/d", "", []string{"Destination", "_design/x"}},
		{"POST", "", `{"_id":"_design/x"}`, nil},
		{"POST", "?new_edits=false", `{"_id":"_design/x","_rev":"1-a"}`, nil},
		{"POST", "?batch=ok", `{"_id":"_design/x"}`, nil},
		{"POST", "", `{"_id":"fine","_id":"_design/x"}`, nil},
		{"POST", "/_design%2Fx", form, []string{"Content-Type", "multipart/form-data; boundary=x"}},
		{"POST", "/_design/d/_update/design", "", nil},
		{"POST", "/_design/x", `{}`, []string{"X-HTTP-Method-Override", "PUT"}},
		{"POST", "/_design/d?rev=" + rev, "", []string{"X-HTTP-Method-Override", "DELETE"}},
	} {
		r := user.do(c.method, db+c.path, c.body, c.header...)
		if r.Status != 403 && r.Status != 405 {
			t.Errorf("%s %s %s %v: %d %s", c.method, c.path, c.body, c.header, r.Status, r.Body)
		}
	}
	for i, body := range []string{
		`{"docs":[{"_id":"_design/x"},{"_id":"good%d"}]}`,
		`{"docs":[{"_id":"_design/x","_rev":"1-a"},{"_id":"good%d","_rev":"1-a"}],"new_edits":false}`,
		`{"docs":[{"_id":"_design/d","_rev":"` + rev + `","_deleted":true},{"_id":"good%d"}]}`,
		`{"docs":[{"_id":"_design/x","_attachments":{"a":{"data":"aGk="}}},{"_id":"good%d"}]}`,
	} {
		body = fmt.Sprintf(body, i)
		results := user.do("POST", db+"/_bulk_docs", body).Want(201).JSON().([]any)
		if e := results[0].(map[string]any); e["error"] != "forbidden" || e["id"] == nil {
			t.Errorf("%s: %v", body, results)
		}
		s.Do(t, "GET", fmt.Sprintf("%s/good%d", db, i), nil).Want(200)
	}
	var list struct{ Rows []struct{ ID string } }
	if err := json.Unmarshal(s.Do(t, "GET", db+"/_design_docs", nil).Want(200).Body, &list); err != nil || len(list.Rows) != 1 {
		t.Errorf("%v %v", list, err)
	}
	admin.do("PUT", db+"/_design/x", `{}`).Want(201)
	admin.do("COPY", db+"/ordinary", nil, "Destination", "_design/y").Want(201)
	admin.do("POST", db+"/_design/d/_update/design", nil).Want(201)
}

// _design alone gives design documents and nothing besides, however it is asked.
func TestDesignRoleReadsDesignsOnly(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db, users := grant(t, s, "_design", "_replicator", "_security", "_shards")
	user := users[0]
	user.do("GET", db+"/_design/d", nil).Want(200)
	user.do("GET", db+"/_design_docs?include_docs=true", nil).Want(200)
	if r := user.do("GET", db+"/_design%2Fd", nil).Want(301); !strings.HasSuffix(r.Header.Get("Location"), db+"/_design/d") {
		t.Errorf("%v", r.Header)
	}
	for _, c := range []struct{ method, path, body string }{
		{"GET", `/_design_docs?include_docs=true&key="secret"`, ""},
		{"GET", `/_design_docs?include_docs=true&keys=["secret","_design/d","_local/l"]`, ""},
		{"GET", `/_design_docs?include_docs=true&startkey="a"&endkey="z"`, ""},
		{"GET", `/_design_docs?include_docs=true&descending=true`, ""},
		{"POST", `/_design_docs?include_docs=true`, `{"keys":["secret","_local/l"]}`},
		{"POST", `/_design_docs`, `{"include_docs":true,"keys":["secret"]}`},
		{"POST", `/_design_docs/queries`, `{"queries":[{"include_docs":true,"keys":["secret"]},{"include_docs":true,"startkey":"a"}]}`},
		{"POST", `/_design_docs`, `{"queries":[{"include_docs":true,"keys":["secret"]}]}`},
	} {
		path, query, _ := strings.Cut(c.path, "?")
		r := user.do(c.method, db+path+"?"+url.PathEscape(query), c.body).Want(200)
		if strings.Contains(string(r.Body), "hidden") || strings.Contains(string(r.Body), `"rev":"1-`) && strings.Contains(string(r.Body), `"id":"secret"`) {
			t.Errorf("%s %s %s: %s", c.method, c.path, c.body, r.Body)
		}
	}
	for _, c := range []struct{ method, path string }{
		{"GET", "/secret"}, {"GET", "/secret/a.txt"}, {"GET", "/_design/../secret"}, {"GET", "/_design%2F../secret"}, {"GET", "/_design/d/../../secret"},
		{"GET", "/_design/d/_view/v?include_docs=true"}, {"GET", "/_design/d/_list/l/v?include_docs=true"}, {"GET", "/_design/d/_show/doc/secret"},
		{"GET", "/_design/d/_show/doc/_local%2Fl"}, {"GET", "/_changes?include_docs=true&filter=_design"}, {"GET", "/_local/l"}, {"GET", "/_all_docs?include_docs=true"},
		{"GET", "/_partition/p"}, {"GET", ""},
	} {
		for i, u := range users {
			r := u.do(c.method, db+c.path, nil)
			if strings.Contains(string(r.Body), "hidden") && !(i == 1 && c.path == "/_local/l") || r.Status == 200 && !(i == 1 && (c.path == "/_local/l" || c.path == "")) {
				t.Errorf("%s %s as %d: %d %s", c.method, c.path, i, r.Status, r.Body)
			}
		}
	}
}

// The global feed shows each listener the databases that grant it, and no trace of
// the others.
func TestDBUpdatesShowsWhatIsGranted(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	seen, users := grant(t, s, "_db_updates")
	listener := users[0]
	hidden := "/" + s.DB(t)
	live := readLines(t, s.Stream(t, context.Background(), "GET", "/_db_updates?feed=continuous&since=now&heartbeat=600000", nil, "Authorization", listener.auth))
	names := func(query string) string {
		r := listener.do("GET", "/_db_updates"+query, nil).Want(200)
		var list struct {
			Results []struct {
				DBName string `json:"db_name"`
				Type   string
			}
		}
		if err := json.Unmarshal(r.Body, &list); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, u := range list.Results {
			if "/"+u.DBName != seen {
				t.Errorf("%s: %s", query, r.Body)
			}
			out = append(out, u.Type)
		}
		return strings.Join(out, " ")
	}
	if got := names(""); got != "created updated" && got != "created updated updated" {
		t.Errorf("all: %s", got)
	}
	for range 3 {
		s.Do(t, "DELETE", "/"+s.DB(t), nil).Want(200)
	}
	s.Do(t, "PUT", hidden+"/x", `{}`).Want(201)
	if got := names("?limit=1"); got != "created" {
		t.Errorf("limit: %s", got)
	}
	if got := names("?descending=true&limit=1"); got != "updated" {
		t.Errorf("descending: %s", got)
	}
	if got := names("?limit=0"); got != "" {
		t.Errorf("limit 0: %s", got)
	}
	s.Do(t, "PUT", seen+"/y", `{}`).Want(201)
	for empty := 0; ; {
		line, ok := live.line()
		if !ok {
			t.Fatal("the feed ended")
		}
		if strings.Contains(line, strings.TrimPrefix(seen, "/")) {
			break
		}
		if empty++; line != "" || empty > 1 { // the first empty line says that the feed is there
			t.Fatalf("a trace of another database: %q", line)
		}
	}
	s.Do(t, "PUT", seen+"/_security", `{}`).Want(200)
	listener.do("GET", "/_db_updates", nil).Want(403)
}

// The two forms of a security object add up, unless one of them is not to count, and
// nobody stands for those without credentials.
func TestSecurityForms(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	name := strings.TrimPrefix(db, "/")
	clerk, plain := name+"-clerk", name+"-plain"
	addUser(t, s, clerk, "clerks")
	addUser(t, s, plain)
	s.Do(t, "PUT", db+"/d", `{}`).Want(201)
	status := func(auth, method, path string) int { return as{t, s, auth}.do(method, db+path, nil).Status }
	for _, c := range []struct {
		object                      string
		nobody, clerkReads, plainIs int
	}{
		{`{}`, 401, 403, 403},
		{`{"members":{"names":[],"roles":[]},"admins":{"names":[],"roles":[]}}`, 401, 403, 403},
		{`{"members":{},"admins":{}}`, 401, 403, 403},
		{`{"service":{"nobody":["_reader"]}}`, 200, 403, 403},
		{`{"service":{"nobody":[]}}`, 401, 403, 403},
		{`{"service":{"Nobody":["_reader"]},"Service":{"nobody":["_reader"]}}`, 401, 403, 403},
		{`{"service":{"nobody":["_reader"]},"service_auth_only":true}`, 401, 403, 403},
		{`{"cloudant":{"nobody":["_reader"]},"couchdb_auth_only":true}`, 401, 403, 403},
		{`{"cloudant":{"nobody":["_reader"]}}`, 200, 403, 403},
		{`{"members":{"roles":["clerks"]}}`, 401, 200, 403},
		{`{"members":{"roles":["clerks"]},"service":{"PLAIN":["_reader"]}}`, 401, 200, 200},
		{`{"members":{"roles":["clerks"]},"service":{"PLAIN":["_reader"]},"service_auth_only":true}`, 401, 200, 403},
		{`{"members":{"names":["PLAIN"]},"service":{"PLAIN":[]}}`, 401, 403, 200},
		{`{"admins":{"names":["PLAIN"]},"service":{"nobody":["_writer"]}}`, 401, 403, 200},
		{`{"Members":{"names":["PLAIN"]},"members":{"Names":["PLAIN"]},"admins":{"NAMES":["PLAIN"],"Roles":["clerks"]}}`, 401, 403, 403},
		{`{"members":{"names":["PLAIN"]},"members":{"names":[]}}`, 401, 403, 403},
		{`{"service":{"nobody":["_reader"]},"service":{"nobody":[]}}`, 401, 403, 403},
		{`{"service":{"nobody":["_reader"],"nobody":[]}}`, 401, 403, 403},
		{`{"members":{"roles":["_admin"]},"admins":{"roles":["_admin"]}}`, 401, 403, 403},
	} {
		object := strings.ReplaceAll(c.object, "PLAIN", plain)
		s.Do(t, "PUT", db+"/_security", object).Want(200)
		if got := status("", "GET", "/d"); got != c.nobody {
			t.Errorf("%s: nobody gets %d, want %d", c.object, got, c.nobody)
		}
		if got := status(basic(clerk), "GET", "/d"); got != c.clerkReads {
			t.Errorf("%s: the clerk gets %d, want %d", c.object, got, c.clerkReads)
		}
		if got := status(basic(plain), "GET", "/d"); got != c.plainIs {
			t.Errorf("%s: the other user gets %d, want %d", c.object, got, c.plainIs)
		}
	}
	for _, object := range []string{
		`[]`, `5`, `"x"`, `null`, ``, `{`, `{"members":5}`, `{"members":{"names":"x"}}`, `{"members":{"names":[1]}}`, `{"admins":{"roles":{}}}`,
		`{"admins":[]}`, `{"service":[]}`, `{"service":{"x":"_reader"}}`, `{"service":{"x":[1]}}`, `{"service":{"x":["_root"]}}`,
		`{"service_auth_only":"yes"}`, `{"service":{},"cloudant":{}}`, `{"service_auth_only":true,"couchdb_auth_only":false}`,
	} {
		if r := s.Do(t, "PUT", db+"/_security", object).Want(400); r.Str("reason") == "" {
			t.Errorf("%s: %s", object, r.Body)
		}
	}
	s.Do(t, "PUT", db+"/_security", `{"_id":"x","service":{"nobody":["_writer"]},"own":1}`).Want(200)
	if r := s.Do(t, "GET", db+"/_security", nil); string(r.Body) != `{"_id":"_security","service":{"nobody":["_writer"]},"own":1}`+"\n" {
		t.Errorf("%s", r.Body)
	}
}

// Replication documents make the server act and hold credentials of others: whatever
// else a security object says, they are for administrators.
func TestReplicatorDatabases(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t) + "%2F_replicator"
	s.Do(t, "PUT", db, nil).Want(201)
	t.Cleanup(func() { s.Do(t, "DELETE", db, nil) })
	name := strings.TrimSuffix(db[1:], "%2F_replicator")
	addUser(t, s, name+"-user")
	addUser(t, s, name+"-admin")
	s.Do(t, "PUT", db+"/_security", `{"service":{"`+name+`-user":["_reader","_writer","_replicator","_design"],"`+name+`-admin":["_admin"]}}`).Want(200)
	s.Do(t, "PUT", db+"/job", `{"source":"http://a:hidden@b/c","target":"d"}`).Want(201)
	s.Do(t, "PUT", db+"/_design/d", `{"views":{"v":{"map":"function(d) { emit(d.source); }"}},"shows":{"s":"function(d) { return d.source; }"},`+
		`"updates":{"u":"function(d) { return [{_id: 'evil'}, 'x']; }"},"rewrites":[{"from":"*","to":"../../job"}]}`).Want(201)
	user, admin := as{t, s, basic(name + "-user")}, as{t, s, basic(name + "-admin")}
	for _, c := range [][3]string{
		{"GET", "/job", ""}, {"GET", "/_all_docs?include_docs=true", ""}, {"GET", "/_changes?include_docs=true", ""}, {"POST", "/_bulk_get", `{"docs":[{"id":"job"}]}`},
		{"GET", "/_design/d/_view/v", ""}, {"GET", "/_design/d/_show/s/job", ""}, {"GET", "/_design/d/_rewrite/x", ""}, {"POST", "/_design/d/_update/u", ""},
		{"PUT", "/evil", `{}`}, {"POST", "", `{"_id":"evil"}`}, {"POST", "/_bulk_docs", `{"docs":[{"_id":"evil"}]}`}, {"PUT", "/evil/att", "x"}, {"COPY", "/job", ""},
	} {
		if r := user.do(c[0], db+c[1], c[2], "Destination", "evil").Want(403); strings.Contains(string(r.Body), "hidden") {
			t.Errorf("%v: %s", c, r.Body)
		}
	}
	user.do("GET", db, nil).Want(200)
	user.do("PUT", db+"/_local/checkpoint", `{}`).Want(201)
	admin.do("GET", db+"/job", nil).Want(200)
	admin.do("PUT", db+"/more", `{}`).Want(201)
	s.Do(t, "GET", db+"/evil", nil).Want(404)
}
