package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// exchange is one request of a transcript and what CouchDB answered.
type exchange struct {
	title      string
	method     string
	path       string
	header     http.Header
	body       []byte
	status     string
	respHeader http.Header
	respBody   string
}

// differences lists, by file and title, where we answer otherwise on purpose, and
// why. One that is no difference any more fails the test, so that the list hides
// nothing.
var differences = map[string]string{
	"databases/root":                                "greeting: both keys, no git_sha, our vendor and features",
	"databases/bad name":                            "403, not 400 (the interface says so)",
	"databases/its info":                            "purge_seq is a number, instance_start_time \"0\", aliases of sizes (the interface says so)",
	"databases/info of an empty database":           "as above",
	"databases/missing":                             "reason no_db_file (the interface says so)",
	"databases/dbs_info":                            "database information as above",
	"databases/set wrongly":                         "400 with a reason instead of 500",
	"databases/full commit":                         "instance_start_time is always \"0\" (the interface says so)",
	"databases/wrong method":                        "PUT is allowed on a database too and is named",
	"databases/security of a fresh database":        "a database without a security object is closed, and shows an empty one",
	"databases/delete again":                        "reason no_db_file (the interface says so)",
	"databases/temp view":                           "the reason does not name CouchDB",
	"databases/unknown scheme":                      "greeting as above",
	"databases/no Accept":                           "greeting as above; text/plain without Accept",
	"databases/Accept any":                          "as above",
	"databases/Accept text":                         "as above",
	"databases/partition info":                      "active counts what we store",
	"databases/shards":                              "another node name",
	"databases/shard of a document":                 "as above",
	"databases/membership":                          "another node name",
	"documents/get":                                 "number spelling is kept: 1000.0, not 1.0e3",
	"documents/old revision":                        "as above",
	"documents/local put":                           "Location keeps the slash of _local/",
	"documents/local update":                        "as above",
	"documents/local_seq":                           "the sequence counts within a range",
	"revisions/missing_revs":                        "both spellings of the key",
	"bulk/queries":                                  "offset of a keys query is null as everywhere else",
	"bulk/bulk_get multipart":                       "boundaries are random; compared by another test",
	"changes/empty":                                 "reason no_db_file (the interface says so)",
	"changes/design filter":                         "pending is what comes after last_seq, which is nothing",
	"changes/doc_ids":                               "as above",
	"changes/doc_ids by GET":                        "as above",
	"changes/since":                                 "which documents come after is free",
	"views/design document":                         "Location keeps the slash of _design/",
	"views/contradictory range":                     "no rows instead of an error (the interface says so)",
	"views/info":                                    "our own sizes, sequence and version of the collation; nothing waits for a commit",
	"views/syntax error":                            "the words of another engine",
	"views/sum of text":                             "Location as above",
	"views/validation":                              "as above",
	"views/update, show, list":                      "as above",
	"sessions/as stored (secrets replaced by dots)": "servers of tests hash with few rounds",
	"sessions/security get":                         "with _id (the interface says so)",
	"sessions/security bad":                         "400 with a reason instead of 500",
}

func TestTranscripts(t *testing.T) {
	// Files of one group were recorded one after the other on the same databases.
	for _, group := range [][]string{{"databases"}, {"documents"}, {"revisions", "bulk", "attachments"}, {"changes", "views"}, {"sessions"}} {
		t.Run(group[0], func(t *testing.T) {
			t.Parallel()
			r := newReplayer(t, group[0])
			for _, name := range group {
				r.replay(t, name, readTranscript(t, filepath.Join("testdata", "transcripts", name+".txt")))
			}
		})
	}
}

// replayer holds what was learned so far: how our revisions, ids, sequences and
// database names correspond to theirs.
type replayer struct {
	srv     *testserver.Server
	prefix  string
	known   map[string]string
	created map[string]bool
}

func newReplayer(t *testing.T, name string) *replayer {
	r := &replayer{srv: testserver.Shared(t), prefix: fmt.Sprintf("tr_%s_%d_", name, os.Getpid()), known: map[string]string{}, created: map[string]bool{}}
	t.Cleanup(func() {
		for db := range r.created {
			r.srv.Do(t, "DELETE", "/"+db, nil)
		}
	})
	if name == "databases" {
		return r // it creates its own
	}
	for _, db := range []string{"t1", "t2", "t5"} {
		r.srv.Do(t, "PUT", "/"+r.prefix+db, nil).Want(201)
		r.created[r.prefix+db] = true
	}
	return r
}

func (r *replayer) replay(t *testing.T, name string, list []exchange) {
	for i := range list {
		x := &list[i]
		key := name + "/" + x.title
		path := r.path(x.path)
		if x.method == "PUT" && strings.Count(strings.Split(path, "?")[0], "/") == 1 {
			r.created[strings.Split(path[1:], "?")[0]] = true
		}
		var problems []string
		resp := r.send(t, x, path)
		problems = append(problems, r.compare(x, resp)...)
		reason, expected := differences[key]
		switch {
		case len(problems) > 0 && !expected:
			t.Errorf("%s (%s %s):\n  %s\n  ours: %d %s", key, x.method, path, strings.Join(problems, "\n  "), resp.Status, bytes.TrimSpace(resp.Body))
		case len(problems) > 0:
			t.Logf("%s differs: %s", key, reason)
		case expected:
			t.Errorf("%s differs no more: %s", key, reason)
		}
	}
}

// path puts our own names into a path of the transcript.
func (r *replayer) path(p string) string {
	p = r.translate(p)
	if strings.HasPrefix(p, "/_") || p == "/" || strings.HasPrefix(p, "/T1") {
		return p
	}
	return "/" + r.prefix + p[1:]
}

func (r *replayer) translate(s string) string {
	for theirs, ours := range r.known {
		s = strings.ReplaceAll(s, theirs, ours)
	}
	return s
}

func (r *replayer) send(t *testing.T, x *exchange, path string) *testserver.Response {
	var header []string
	for k, vs := range x.header {
		for _, v := range vs {
			header = append(header, k, r.translate(v))
		}
	}
	if x.header.Get("Accept") == "" && x.title != "no Accept" {
		header = append(header, "Accept", "application/json")
	}
	switch x.title {
	case "anonymous", "up, no credentials", "who am I, no credentials", "wrong password", "unknown scheme":
		header = append(header, "Authorization", x.header.Get("Authorization"))
	}
	body := []byte(r.translate(r.adminNames().Replace(string(x.body))))
	if strings.Contains(x.path, "_dbs_info") {
		body = bytes.ReplaceAll(body, []byte(`"t1"`), []byte(`"`+r.prefix+`t1"`))
	}
	path = strings.NewReplacer(`"`, "%22", "[", "%5B", "]", "%5D", " ", "%20").Replace(path)
	path = strings.ReplaceAll(path, `startkey=%22a%22&endkey=%22t1%22`, `startkey=%22`+r.prefix+`a%22&endkey=%22`+r.prefix+`t1%22`)
	return r.srv.Do(t, x.method, path, body, header...)
}

// adminNames puts the administrator of our server in the place of theirs.
func (r *replayer) adminNames() *strings.Replacer {
	name, password, _ := strings.Cut(strings.TrimPrefix(r.srv.URL[:strings.LastIndex(r.srv.URL, "@")], "http://"), ":")
	return strings.NewReplacer("name=adm&password=pass", "name="+name+"&password="+password, `"adm"`, `"`+name+`"`, `"pass"`, `"`+password+`"`)
}

var comparedHeaders = []string{"Content-Type", "ETag", "Location", "Allow", "Accept-Ranges", "Content-Range",
	"Content-Security-Policy", "Content-Encoding", "Cache-Control"}

// learnable is what names the same thing on both sides: revisions, tokens, generated
// ids, and digests, which are of gzipped bytes where the type is compressible.
var learnable = regexp.MustCompile(`^("?[0-9]+-[0-9a-f]{32}"?|[0-9]+-g1AAAA[A-Za-z0-9_-]+|[0-9a-f]{32}|md5-[A-Za-z0-9+/]{22}==)$`)

// bytesOf begins a body that is no text; other tests look at those.
var bytesOf = regexp.MustCompile(`^<[0-9]+ bytes, base64>`)

// compare gives what differs, after learning how their names correspond to ours.
func (r *replayer) compare(x *exchange, resp *testserver.Response) []string {
	var problems []string
	if !strings.HasPrefix(x.status, fmt.Sprint(resp.Status)) {
		problems = append(problems, fmt.Sprintf("status %d, want %s", resp.Status, x.status))
	}
	want := r.adminNames().Replace(strings.TrimRight(x.respBody, "\n"))
	got := strings.TrimRight(string(resp.Body), "\n")
	if x.path == "/_all_dbs" {
		got = r.ownNames(resp)
	}
	got = strings.ReplaceAll(got, r.prefix, "")
	if theirs, ours := x.respHeader.Get("X-Couch-Id"), resp.Header.Get("X-Couch-Id"); theirs != "" {
		r.learn(theirs, ours, &problems, "X-Couch-Id")
	}
	if x.method != "HEAD" && !bytesOf.MatchString(want) && !strings.HasPrefix(want, "--") {
		problems = append(problems, r.compareBodies(want, got)...)
	}
	for _, h := range comparedHeaders {
		w, g := x.respHeader.Get(h), resp.Header.Get(h)
		switch {
		case w == g, w == "" && h != "Allow", h == "ETag" && !strings.Contains(w, "-"):
		case h == "Location":
			w = r.translate(strings.TrimPrefix(w, "http://host"))
			if _, rest, ok := strings.Cut(g, "://"); ok {
				g = rest[strings.Index(rest, "/"):]
			}
			if g = strings.ReplaceAll(g, r.prefix, ""); g != w {
				problems = append(problems, fmt.Sprintf("Location %q, want %q", g, w))
			}
		case h == "Cache-Control" && strings.Contains(g, w):
		case h == "ETag" && learnable.MatchString(w):
			r.learn(strings.Trim(w, `"`), strings.Trim(g, `"`), &problems, "ETag")
		case strings.HasPrefix(w, "multipart/"):
		default:
			problems = append(problems, fmt.Sprintf("%s %q, want %q", h, g, w))
		}
	}
	return problems
}

// ownNames leaves the databases of other tests out of a list of names.
func (r *replayer) ownNames(resp *testserver.Response) string {
	var names, own []string
	if json.Unmarshal(resp.Body, &names) != nil {
		return string(resp.Body)
	}
	for _, n := range names {
		if strings.HasPrefix(n, "_") || strings.HasPrefix(n, r.prefix) {
			own = append(own, n)
		}
	}
	b, _ := json.Marshal(own)
	return string(b)
}

func (r *replayer) compareBodies(want, got string) []string {
	var problems []string
	wl, gl := jsonLines(want), jsonLines(got)
	if len(wl) > 1 || len(gl) > 1 {
		byID(wl)
		byID(gl)
	}
	if len(wl) != len(gl) {
		return []string{fmt.Sprintf("%d JSON values, want %d: %s", len(gl), len(wl), got)}
	}
	for i := range wl {
		r.walk("", wl[i], gl[i], &problems)
	}
	return problems
}

// jsonLines decodes one value, or one per line for feeds.
func jsonLines(s string) []any {
	dec := json.NewDecoder(strings.NewReader(strings.NewReplacer("data: ", "", "id: ", "").Replace(s)))
	dec.UseNumber()
	var out []any
	for {
		var v any
		err := dec.Decode(&v)
		if err == io.EOF {
			return out
		}
		if err != nil {
			return append(out, s)
		}
		if _, isText := v.(string); !isText || len(out) == 0 {
			out = append(out, v)
		}
	}
}

// byID puts rows into an order that both sides share: rows of different ranges may
// come in any order.
func byID(rows []any) {
	key := func(v any) string {
		m, _ := v.(map[string]any)
		id, _ := m["id"].(string)
		return id
	}
	sort.SliceStable(rows, func(i, j int) bool { return key(rows[i]) < key(rows[j]) })
}

func (r *replayer) learn(theirs, ours string, problems *[]string, at string) {
	if strings.Contains(theirs, "-g1AAAA") {
		// Tokens of several ranges are not comparable one by one: the last learned counts.
		r.known[theirs] = ours
		return
	}
	if have, ok := r.known[theirs]; ok && have != ours {
		*problems = append(*problems, fmt.Sprintf("%s: %q, but it was %q before", at, ours, have))
		return
	}
	r.known[theirs] = ours
}

func (r *replayer) walk(at string, want, got any, problems *[]string) {
	switch w := want.(type) {
	case string:
		g, ok := got.(string)
		if !ok {
			*problems = append(*problems, fmt.Sprintf("%s: %v, want %q", at, got, w))
			return
		}
		if learnable.MatchString(w) {
			r.learn(w, g, problems, at)
			return
		}
		if w == "…" && g != "" {
			return // a secret, left out of the transcript
		}
		if r.translate(w) != g {
			*problems = append(*problems, fmt.Sprintf("%s: %q, want %q", at, g, w))
		}
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok || len(g) != len(w) {
			*problems = append(*problems, fmt.Sprintf("%s: %v, want %v", at, got, want))
			return
		}
		for k := range w {
			if _, has := g[k]; !has {
				*problems = append(*problems, fmt.Sprintf("%s: no member %q in %v", at, k, got))
				continue
			}
			r.walk(at+"."+k, w[k], g[k], problems)
		}
	case []any:
		g, ok := got.([]any)
		if !ok || len(g) != len(w) {
			*problems = append(*problems, fmt.Sprintf("%s: %v, want %v", at, got, want))
			return
		}
		if at == ".results" {
			byID(w)
			byID(g)
		}
		for i := range w {
			r.walk(fmt.Sprintf("%s[%d]", at, i), w[i], g[i], problems)
		}
	default:
		if !reflect.DeepEqual(want, got) {
			*problems = append(*problems, fmt.Sprintf("%s: %v, want %v", at, got, want))
		}
	}
}

// readTranscript parses a file of exchanges.
func readTranscript(t *testing.T, file string) []exchange {
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []exchange
	for _, block := range strings.Split(string(data), "\n=== ")[1:] {
		title, rest, _ := strings.Cut(block, "\n")
		req, answer, ok := strings.Cut(rest, "\n--- ")
		if !ok {
			t.Fatalf("%s: %q has no answer", file, title)
		}
		x := exchange{title: title}
		line, req, _ := strings.Cut(req, "\n")
		x.method, x.path, _ = strings.Cut(line, " ")
		var body string
		x.header, body = readHeader(req)
		x.body = decodeBody(body)
		x.status, answer, _ = strings.Cut(answer, "\n")
		x.respHeader, x.respBody = readHeader(answer)
		x.respBody = strings.ReplaceAll(x.respBody, "\\r\n", "\r\n")
		out = append(out, x)
	}
	return out
}

func readHeader(s string) (http.Header, string) {
	h := http.Header{}
	for s != "" && s[0] != '\n' {
		line, rest, _ := strings.Cut(s, "\n")
		k, v, ok := strings.Cut(line, ": ")
		if !ok {
			return h, s
		}
		h.Add(k, v)
		s = rest
	}
	return h, strings.TrimPrefix(s, "\n")
}

func decodeBody(s string) []byte {
	if rest, ok := strings.CutPrefix(s, "<"); ok {
		if _, b64, ok := strings.Cut(rest, "base64> "); ok {
			if data, err := base64.StdEncoding.DecodeString(strings.TrimSpace(b64)); err == nil {
				return data
			}
		}
	}
	s = strings.TrimRight(s, "\n")
	return []byte(strings.NewReplacer(`\x01`, "\x01", `\x02`, "\x02", `\x03`, "\x03", `\x04`, "\x04").Replace(s))
}
