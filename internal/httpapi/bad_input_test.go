package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/testserver"
)

// Every sort of bad input is a 4xx with error and reason, writes nothing, and
// leaves the connection usable.
func TestBadInput(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	deep := strings.Repeat("[", 100_000) + strings.Repeat("]", 100_000)
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"PUT", db + "/x", `{x`, 400},
		{"PUT", db + "/x", ``, 400},
		{"PUT", db + "/x", `[1]`, 400},
		{"PUT", db + "/x", `"text"`, 400},
		{"PUT", db + "/x", `{"a":1}}`, 400},
		{"PUT", db + "/x", "{\"a\":\"\xff\"}", 400},
		{"PUT", db + "/x", `{"a":"\ud800"}`, 400},
		{"PUT", db + "/x", `{"a":` + deep + `}`, 400},
		{"PUT", db + "/x", `{"a":` + deep[:1000] + deep[len(deep)-1000:] + `}`, 400},
		{"POST", db + "/_bulk_docs", `{"docs":[{"a":` + deep + `}]}`, 400},
		{"POST", db + "/_bulk_get", `{"docs":` + deep + `}`, 400},
		{"POST", db + "/_all_docs", `{"keys":` + deep + `}`, 400},
		{"POST", db + "/_revs_diff", `{"a":` + deep + `}`, 400},
		{"POST", db + "/_changes?filter=_selector", `{"selector":` + strings.Repeat(`{"$not":`, 2000) + `{}` + strings.Repeat("}", 2000) + `}`, 400},
		{"PUT", db + "/_local/x", `{"a":` + deep + `}`, 400},
		{"POST", db + "/_bulk_docs", "{\"docs\":[{\"a\":\"\xff\"}]}", 400},
		{"POST", db + "/_bulk_get", "\xff", 400},
		{"PUT", db + "/x", `{"a":01}`, 400},
		{"PUT", db + "/x", `{"_attachments":5}`, 400},
		{"PUT", db + "/x", `{"_attachments":{"a":{"data":"%%"}}}`, 400},
		{"PUT", db + "/x", `{"_attachments":{"_a":{"data":"aGk="}}}`, 400},
		{"PUT", db + "/x", `{"_attachments":{"a":{"stub":true}}}`, 412},
		{"PUT", db + "/x", `{"_deleted":"yes"}`, 400},
		{"PUT", db + "/x", `{"_revisions":{"start":1}}`, 400},
		{"PUT", db + "/_x", `{}`, 400},
		{"PUT", db + "/%FF", `{}`, 400},
		{"PUT", db + "/" + strings.Repeat("i", 7900), `{}`, 400},
		{"PUT", db + "/x?new_edits=perhaps", `{}`, 400},
		{"PUT", db + "/x?rev=nonsense", `{}`, 400},
		{"GET", db + "/_all_docs?limit=-1", ``, 400},
		{"GET", db + "/_all_docs?limit=x", ``, 400},
		{"GET", db + "/_all_docs?skip=-1", ``, 400},
		{"GET", db + "/_all_docs?key=x", ``, 400},
		{"GET", db + "/_all_docs?descending=sideways", ``, 400},
		{"GET", db + "?x=%zz", ``, 400},
		{"PUT", db + "/x?x=%2&new_edits=false", `{"_rev":"1-a"}`, 400},
		{"PUT", db + "/x?new_edits=false;a=b", `{"_rev":"1-a"}`, 400},
		{"GET", db + "/_local", ``, 400},
		{"PUT", db + "/_local/", `{}`, 400},
		{"GET", db + "/_changes?feed=x", ``, 400},
		{"GET", db + "/_changes?limit=-1", ``, 400},
		{"GET", db + "/_changes?since=abc", ``, 400},
		{"GET", db + "/_changes?timeout=-1", ``, 400},
		{"POST", db + "/_all_docs", `[]`, 400},
		{"POST", db + "/_all_docs", `{"keys":5}`, 400},
		{"POST", db + "/_all_docs/queries", `{"queries":5}`, 400},
		{"GET", "/" + strings.Repeat("a", 9000), ``, 414},
	} {
		name := fmt.Sprintf("%s %.60s %.40s", c.method, c.path, c.body)
		r := s.Do(t, c.method, c.path, c.body)
		if r.Status != c.status {
			t.Errorf("%s: status %d, want %d: %s", name, r.Status, c.status, r.Body)
			continue
		}
		if r.Str("error") == "" || r.Str("reason") == "" {
			t.Errorf("%s: %s", name, r.Body)
		}
	}
	if n := s.Do(t, "GET", db, nil).Want(200).Object()["doc_count"]; n != 0.0 {
		t.Errorf("%v documents were written by bad input", n)
	}
	s.Do(t, "PUT", db+"/x", `{"a":`+deep[:999]+deep[len(deep)-999:]+`}`).Want(201) // the limit is 1,000 with the document itself
}

// After a refusal the same connection serves the next request.
func TestConnectionStaysUsable(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	conn, err := net.Dial("tcp", s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	br := bufio.NewReader(conn)
	user, pass, _ := strings.Cut(strings.TrimPrefix(s.URL[:strings.LastIndex(s.URL, "@")], "http://"), ":")
	auth := base64.StdEncoding.EncodeToString([]byte(user + ":" + pass))
	send := func(method, path, body string) int {
		t.Helper()
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: x\r\nAuthorization: Basic %s\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, auth, len(body), body)
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatalf("%s %s: %v", method, path, err)
		}
		io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		return resp.StatusCode
	}
	big := `{"t":"` + strings.Repeat("x", 9_000_000) + `"}`
	for _, c := range []struct {
		method, path, body string
		status             int
	}{
		{"PUT", db + "/big", big, 413},
		{"PUT", db + "/x", `{x`, 400},
		{"PUT", db + "/x", `{"_foo":1}`, 400},
		{"POST", "/nope/_bulk_docs", big, 404},
		{"PUT", db + "/ok", `{}`, 201},
	} {
		if got := send(c.method, c.path, c.body); got != c.status {
			t.Errorf("%s %s: %d, want %d", c.method, c.path, got, c.status)
		}
	}
}

func TestLimits(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(func(c *config.Config) {
		c.MaxDocument, c.MaxAttachment, c.MaxRequest = 1000, 2000, 10_000
	}))
	db := "/" + s.DB(t)
	body := func(n int) string { return `{"t":"` + strings.Repeat("x", n) + `"}` }
	s.Do(t, "PUT", db+"/a", body(900)).Want(201)
	if e := s.Do(t, "PUT", db+"/b", body(1100)).Want(413); e.Str("error") != "document_too_large" || e.Str("reason") != "b" {
		t.Errorf("%s", e.Body)
	}
	if e := s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"c","t":"`+strings.Repeat("x", 1100)+`"}]}`).Want(413); e.Str("error") != "document_too_large" {
		t.Errorf("%s", e.Body)
	}
	if e := s.Do(t, "PUT", db+"/b", body(11_000)).Want(413); e.Str("error") != "too_large" {
		t.Errorf("%s", e.Body)
	}
	if e := s.Do(t, "PUT", db+"/b/att", strings.Repeat("y", 2100), "Content-Type", "text/plain").Want(413); e.Str("error") != "attachment_too_large" || e.Str("reason") != "att" {
		t.Errorf("%s", e.Body)
	}
	s.Do(t, "PUT", db+"/b/att", strings.Repeat("y", 1900), "Content-Type", "text/plain").Want(201)
	inline := fmt.Sprintf(`{"_attachments":{"i":{"data":%q}}}`, base64.StdEncoding.EncodeToString(make([]byte, 2100)))
	s.Do(t, "PUT", db+"/c", inline).Want(413)
	s.Do(t, "GET", db+"/c", nil).Want(404)
}

// What is sent compressed counts by what it becomes.
func TestCompressionBomb(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(func(c *config.Config) { c.MaxRequest = 1 << 20 }))
	db := "/" + s.DB(t)
	s.Do(t, "PUT", db+"/bomb", gzipped(t, strings.Repeat(" ", 50<<20)), "Content-Encoding", "gzip").Want(413)
	s.Do(t, "PUT", db+"/fine", gzipped(t, `{}`), "Content-Encoding", "gzip").Want(201)
}

func gzipped(t *testing.T, s string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := io.WriteString(w, s); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}
