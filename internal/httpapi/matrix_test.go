package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/httpapi"
	"github.com/divandb/divan/internal/testserver"
)

var rewriteRights = flag.Bool("update", false, "rewrite testdata/rights*.txt; read every changed line before it is committed")

// caller is somebody who sends every request of a matrix.
type caller struct {
	column string // its heading
	auth   string // value of Authorization; empty for anonymous
}

// asked is one request of a matrix, with what a route leaves open filled in.
type asked struct {
	path   string
	body   any
	header []string
	as     string // Authorization, where it is not the same for all requests of a caller
}

// matrix is a table of expected answers: a line for each route, a column for each
// caller.
type matrix struct {
	file    string
	callers []caller
	rows    []string // "METHOD shape"
	cells   map[string][]string
}

// basic is the Authorization of a user of these tests, whose password is its name
// and "-pw".
func basic(name string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte(name+":"+name+"-pw"))
}

// addUser creates a user.
func addUser(t testing.TB, s *testserver.Server, name string, roles ...string) {
	t.Helper()
	if roles == nil {
		roles = []string{}
	}
	s.Do(t, "PUT", "/_users/org.couchdb.user:"+name,
		map[string]any{"name": name, "type": "user", "roles": roles, "password": name + "-pw"}).Want(201)
}

// read reads the expected answers. Lines that begin with # and empty ones say
// nothing; the first other line has the headings.
func (m *matrix) read(t *testing.T) {
	text, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	m.cells = map[string][]string{}
	var columns []string
	for n, line := range strings.Split(string(text), "\n") {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || strings.HasPrefix(line, "#"):
		case columns == nil:
			columns = fields
			if want := m.headings(); !slices.Equal(columns, want) {
				t.Fatalf("%s has the columns %v, want %v", m.file, columns, want)
			}
		case len(fields) != len(columns)+2:
			t.Errorf("%s:%d has %d fields, want %d", m.file, n+1, len(fields), len(columns)+2)
		default:
			route := fields[0] + " " + fields[1]
			if m.cells[route] != nil {
				t.Errorf("%s:%d: %s is there twice", m.file, n+1, route)
			}
			m.cells[route] = fields[2:]
		}
	}
}

func (m *matrix) headings() []string {
	var columns []string
	for _, c := range m.callers {
		columns = append(columns, c.column)
	}
	return columns
}

// write writes what was answered; the comment at the head of the file stays.
func (m *matrix) write(t *testing.T, got map[string][]string) {
	old, err := os.ReadFile(m.file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, line := range strings.Split(string(old), "\n") {
		if !strings.HasPrefix(line, "#") {
			break
		}
		b.WriteString(line + "\n")
	}
	width := 0
	for _, row := range m.rows {
		width = max(width, len(strings.Fields(row)[1]))
	}
	line := func(method, shape string, cells []string) {
		text := fmt.Sprintf("%-6s %-*s", method, width, shape)
		for i, c := range cells {
			text += fmt.Sprintf("  %-*s", max(3, len(m.callers[i].column)), c)
		}
		b.WriteString(strings.TrimRight(text, " ") + "\n")
	}
	line("", "", m.headings())
	for _, row := range m.rows {
		f := strings.Fields(row)
		line(f[0], f[1], got[row])
	}
	if err := os.WriteFile(m.file, b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// cell is what a status is called in the file: ok, or the status of an error.
func cell(status int) string {
	if status < 400 {
		return "ok"
	}
	return fmt.Sprint(status)
}

// run sends every request as every caller. ask gives the request of a route for the
// caller of a column.
func (m *matrix) run(t *testing.T, s *testserver.Server, ask func(t *testing.T, row string) func(caller) asked) {
	got := map[string][]string{}
	for _, row := range m.rows {
		method, _, _ := strings.Cut(row, " ")
		request := ask(t, row)
		for _, c := range m.callers {
			a := request(c)
			if a.as != "" {
				c.auth = a.as
			}
			header := append([]string{"Authorization", c.auth, "Accept", "application/json"}, a.header...)
			r := s.Do(t, method, a.path, a.body, header...)
			got[row] = append(got[row], cell(r.Status))
			m.checkRefusal(t, row, c, r)
			if method == "GET" {
				if head := s.Do(t, "HEAD", a.path, nil, header...); head.Status != r.Status {
					t.Errorf("%s as %s: HEAD gives %d, GET %d", row, c.column, head.Status, r.Status)
				}
			}
			if r.Status != 401 && r.Status != 403 {
				continue
			}
			// What is refused is refused under every disguise.
			for _, name := range []string{method, strings.ToLower(method)} {
				header := append(slices.Clone(header), "X-HTTP-Method-Override", name)
				if o := s.Do(t, "POST", a.path, a.body, header...); o.Status != r.Status {
					t.Errorf("%s as %s: %d, but %d as POST with the method in a header: %s", row, c.column, r.Status, o.Status, o.Body)
				}
			}
		}
	}
	if *rewriteRights {
		m.write(t, got)
	}
	m.read(t)
	for _, row := range m.rows {
		want := m.cells[row]
		if want == nil {
			t.Errorf("%s is not in %s: decide who may do it; it is now %v", row, m.file, got[row])
			continue
		}
		for i, c := range m.callers {
			if got[row][i] != want[i] {
				t.Errorf("%s as %s: %s, want %s", row, c.column, got[row][i], want[i])
			}
		}
	}
	for row := range m.cells {
		if !slices.Contains(m.rows, row) {
			t.Errorf("%s has the route %s, which is no more", m.file, row)
		}
	}
}

// checkRefusal looks at the form of refusals: 401 is for those who showed no
// credentials and asks for some, 403 for all others.
func (m *matrix) checkRefusal(t *testing.T, row string, c caller, r *testserver.Response) {
	t.Helper()
	switch {
	case r.Status >= 500 && r.Status != 501:
		t.Errorf("%s as %s: %d %s", row, c.column, r.Status, r.Body)
	case r.Status != 401 && r.Status != 403:
	case (r.Status == 401) != (c.auth == ""):
		t.Errorf("%s as %s: %d", row, c.column, r.Status)
	case r.Status == 401 && r.Header.Get("WWW-Authenticate") == "":
		t.Errorf("%s as %s: no WWW-Authenticate", row, c.column)
	case r.Str("error") == "" || r.Str("reason") == "":
		t.Errorf("%s as %s: %s", row, c.column, r.Body)
	}
}

// fill puts names into a shape. Those of the documents that a request may change are
// the caller's own, so that no caller spoils what another one needs.
func fill(shape, db, own string) string {
	if strings.Contains(shape, "/_partition/") {
		shape = strings.ReplaceAll(shape, "{ddoc}", "d")
	}
	for name, value := range map[string]string{
		"/_show/{func}": "/_show/s", "/_list/{func}": "/_list/l", "/_update/{func}": "/_update/u", "{first}/{second}": "d/v",
		"_partition/{rest...}": "_partition/p/else", "_rewrite/{rest...}": "_rewrite/x",
	} {
		shape = strings.ReplaceAll(shape, name, value)
	}
	return strings.NewReplacer("{db}", db, "{doc}", own, "{doc...}", own, "{ddoc}", "d", "{view}", "v", "{first}", "v",
		"{local}", own, "{partition}", "p", "{node}", "_local", "{name}", "m-other", "{att...}", "att.txt").Replace(shape)
}

// matrixDesign is a design document with one of each function.
const matrixDesign = `"views":{"v":{"map":"function(d) { emit(d._id, 1); }"}},"shows":{"s":"function() { return 's'; }"},` +
	`"lists":{"l":"function() { return 'l'; }"},"updates":{"u":"function(doc) { return [null, 'u']; }"},` +
	`"rewrites":[{"from":"*","to":"../../own"}],"_attachments":{"att.txt":{"content_type":"text/plain","data":"aGk="}}`

// matrixBodies are the bodies of requests that need one of their own.
var matrixBodies = map[string]string{
	"/_session":                                          `{"name":"m-none","password":"m-none-pw"}`,
	"/_dbs_info":                                         `{"keys":[]}`,
	"/_api/v2/user/virtual_hosts":                        `{"host":"m.example"}`,
	"/_node/{node}/_config/admins/{name}":                `"m-other-pw"`,
	"/{db}/_all_docs/queries":                            `{"queries":[{}]}`,
	"/{db}/_design_docs/queries":                         `{"queries":[{}]}`,
	"/{db}/_local_docs/queries":                          `{"queries":[{}]}`,
	"/{db}/_design/{ddoc}/_view/{view}/queries":          `{"queries":[{}]}`,
	"/{db}/_bulk_get":                                    `{"docs":[{"id":"own"}]}`,
	"/{db}/_missing_revs":                                `{"own":["1-a"]}`,
	"/{db}/_revs_diff":                                   `{"own":["1-a"]}`,
	"/{db}/_revs_limit":                                  `1000`,
	"/{db}/_design/{ddoc}/_list/{func}/{first}":          `{}`,
	"/{db}/_partition/{partition}/_all_docs":             `{}`,
	"/{db}/_design/{ddoc}/_list/{func}/{first}/{second}": `{}`,
}

// TestRights walks the whole route table as everybody, against testdata/rights.txt.
func TestRights(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	m := &matrix{file: filepath.Join("testdata", "rights.txt"), callers: []caller{{column: "anonymous"}}, rows: httpapi.RouteNames()}
	service := map[string][]string{}
	for _, role := range []string{"none", "_reader", "_writer", "_admin", "_replicator", "_db_updates", "_design", "_shards", "_security", "member", "admins"} {
		name := "m-" + strings.TrimPrefix(role, "_")
		addUser(t, s, name)
		if strings.HasPrefix(role, "_") {
			service[name] = []string{role}
		}
		m.callers = append(m.callers, caller{role, basic(name)})
	}
	m.callers = append(m.callers, caller{"server", "Basic " + base64.StdEncoding.EncodeToString([]byte(testserver.AdminName+":"+testserver.AdminPassword))})
	security, err := json.Marshal(map[string]any{"service": service,
		"members": map[string][]string{"names": {"m-member"}}, "admins": map[string][]string{"names": {"m-admins"}}})
	if err != nil {
		t.Fatal(err)
	}

	number := 0
	m.run(t, s, func(t *testing.T, row string) func(caller) asked {
		method, shape, _ := strings.Cut(row, " ")
		db, prefix, query := "", "", ""
		var rev, designRev string
		if strings.HasPrefix(shape, "/{db}") || strings.Contains(shape, "/{db}/") || shape == "/_db_updates" {
			if number++; strings.Contains(shape, "/_partition") {
				prefix, query = "p:", "?partitioned=true"
			}
			db = fmt.Sprintf("m%d", number)
			s.Do(t, "PUT", "/"+db+query, nil).Want(201)
			rev, designRev = m.fillDatabase(t, s, db, prefix)
			s.Do(t, "PUT", "/"+db+"/_security", security).Want(200)
		}
		return func(c caller) asked {
			own := prefix + "own-" + c.column
			a := asked{path: fill(shape, db, own)}
			switch {
			case method == "PUT" && shape == "/{db}":
				a.path += "-of-" + strings.Trim(c.column, "_")
			case shape == "/{db}/_design/{ddoc}" || shape == "/{db}/_design/{ddoc}/{att...}":
				a.path = strings.Replace(a.path, "/_design/d", "/_design/own-"+c.column, 1)
				a.path += revOf(method, designRev)
			case strings.HasPrefix(shape, "/{db}/{doc}"):
				a.path += revOf(method, rev)
			}
			switch method {
			case "COPY":
				to := prefix + "copy-" + c.column
				if shape == "/{db}/_design/{ddoc}" || shape == "/{db}/_local/{local}" {
					to = strings.Split(shape, "/")[2] + "/" + to
				}
				a.header = []string{"Destination", to}
			case "POST", "PUT", "DELETE":
				a.body, a.header = m.body(method, shape, own, rev, string(security))
			}
			return a
		}
	})
}

// revOf names the revision of a document that a request changes.
func revOf(method, rev string) string {
	if method == "PUT" || method == "DELETE" {
		return "?rev=" + rev
	}
	return ""
}

// body gives the body of a request that writes.
func (m *matrix) body(method, shape, own, rev, security string) (body any, header []string) {
	if method == "DELETE" && !strings.HasPrefix(shape, "/_api/") {
		return nil, nil
	}
	switch {
	case strings.HasSuffix(shape, "/_security"):
		return security, nil
	case shape == "/{db}/_bulk_docs":
		return `{"docs":[{"_id":"new-` + own + `"}]}`, nil
	case strings.HasSuffix(shape, "{att...}"):
		return "text", []string{"Content-Type", "text/plain"}
	case method == "POST" && shape == "/{db}/{doc}":
		return "--x\r\nContent-Disposition: form-data; name=\"_rev\"\r\n\r\n" + rev + "\r\n--x--\r\n", []string{"Content-Type", "multipart/form-data; boundary=x"}
	case method == "POST" && shape == "/{db}":
		return `{"_id":"new-` + own + `"}`, nil
	}
	if b, ok := matrixBodies[shape]; ok {
		return b, nil
	}
	return "{}", nil
}

// fillDatabase writes documents for every caller and gives the revisions that all of
// them, and all design documents, have.
func (m *matrix) fillDatabase(t *testing.T, s *testserver.Server, db, prefix string) (rev, designRev string) {
	t.Helper()
	const att = `"_attachments":{"att.txt":{"content_type":"text/plain","data":"aGk="}}`
	docs := []string{`{"_id":"_design/d",` + matrixDesign + `}`, `{"_id":"` + prefix + `own"}`}
	for _, c := range m.callers {
		own := "own-" + c.column
		docs = append(docs, `{"_id":"`+prefix+own+`",`+att+`}`, `{"_id":"_design/`+own+`",`+matrixDesign+`}`, `{"_id":"_local/`+own+`"}`)
	}
	r := s.Do(t, "POST", "/"+db+"/_bulk_docs", `{"docs":[`+strings.Join(docs, ",")+`]}`).Want(201)
	results := r.JSON().([]any)
	for i, res := range results {
		if res.(map[string]any)["ok"] != true {
			t.Fatalf("%s: %v", docs[i], res)
		}
	}
	of := func(i int) string { return results[i].(map[string]any)["rev"].(string) }
	return of(2), of(3)
}
