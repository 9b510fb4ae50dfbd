package httpapi_test

import (
	"encoding/base64"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/httpapi"
	"github.com/divandb/divan/internal/testserver"
)

// TestUsersRights walks the routes of databases again, for the database of users:
// testdata/rights_users.txt.
func TestUsersRights(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	m := &matrix{file: filepath.Join("testdata", "rights_users.txt")}
	for _, row := range httpapi.RouteNames() {
		if _, shape, _ := strings.Cut(row, " "); strings.HasPrefix(shape, "/{db}") && !strings.Contains(shape, "/_partition/") {
			m.rows = append(m.rows, row)
		}
	}
	// What deletes the database comes last.
	slices.SortStableFunc(m.rows, func(a, b string) int {
		return strings.Compare(boolWord(a == "DELETE /{db}"), boolWord(b == "DELETE /{db}"))
	})
	for _, name := range []string{"own", "other", "granted", "boss"} {
		addUser(t, s, name)
	}
	const security = `{"service":{"granted":["_reader","_writer","_replicator","_design"]},"admins":{"names":["boss"]}}`
	s.Do(t, "PUT", "/_users/_security", security).Want(200)
	s.Do(t, "PUT", "/_users/_design/d", `{`+strings.Replace(matrixDesign, "../../own", "../../org.couchdb.user:boss", 1)+`}`).Want(201)
	m.callers = []caller{{"anonymous", ""}, {"own", basic("own")}, {"other", basic("other")}, {"granted", basic("granted")}, {"admins", basic("boss")},
		{"server", "Basic " + base64.StdEncoding.EncodeToString([]byte(testserver.AdminName+":"+testserver.AdminPassword))}}

	number := 0
	m.run(t, s, func(t *testing.T, row string) func(caller) asked {
		method, shape, _ := strings.Cut(row, " ")
		number++
		return func(c caller) asked {
			// Everybody but "own" asks for the document of somebody new.
			name := fmt.Sprintf("u%d-%s", number, c.column)
			doc := fmt.Sprintf(`{"name":%q,"type":"user","roles":[],"password":%q,"_attachments":{"att.txt":{"data":"aGk="}}}`, name, name+"-pw")
			rev := s.Do(t, "PUT", "/_users/org.couchdb.user:"+name, doc).Want(201).Str("rev")
			s.Do(t, "PUT", "/_users/_local/own-"+name, `{}`).Want(201)
			id := "org.couchdb.user:" + name
			if c.column == "own" {
				c.auth = basic(name)
			}
			a := asked{path: fill(shape, "_users", id), as: c.auth}
			switch {
			case strings.HasPrefix(shape, "/{db}/_local/"):
				a.path = strings.Replace(a.path, id, "own-"+name, 1)
			case strings.HasPrefix(shape, "/{db}/_design/{ddoc}") && !strings.Contains(shape, "/_design/{ddoc}/_") && method != "GET":
				dr := s.Do(t, "PUT", "/_users/_design/own-"+name, `{`+matrixDesign+`}`).Want(201).Str("rev")
				a.path = strings.Replace(a.path, "/_design/d", "/_design/own-"+name, 1) + revOf(method, dr)
			case strings.HasPrefix(shape, "/{db}/{doc}"):
				a.path += revOf(method, rev)
			}
			switch method {
			case "COPY":
				a.header = []string{"Destination", "org.couchdb.user:copy-of-" + name}
			case "POST", "PUT", "DELETE":
				a.body, a.header = m.body(method, shape, name, rev, security)
				user := fmt.Sprintf(`{"_id":%q,"name":%q,"type":"user","roles":[],"password":"new"}`, "org.couchdb.user:new-"+name, "new-"+name)
				switch row {
				case "PUT /{db}/{doc}":
					a.body = doc
				case "POST /{db}":
					a.body = user
				case "POST /{db}/_bulk_docs":
					a.body = `{"docs":[` + user + `]}`
				}
			}
			return a
		}
	})
}

func boolWord(b bool) string {
	if b {
		return "1"
	}
	return "0"
}
