package httpapi_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"net/textproto"
	"regexp"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// related builds a multipart/related body: parts come as headers and bytes.
func related(newline string, parts ...[2]string) string {
	var b strings.Builder
	for _, p := range parts {
		b.WriteString("--zz" + newline + strings.ReplaceAll(p[0], "\n", newline))
		if p[0] != "" {
			b.WriteString(newline)
		}
		b.WriteString(newline + p[1] + newline)
	}
	b.WriteString("--zz--")
	return b.String()
}

func putRelated(t *testing.T, s *testserver.Server, path, body string) *testserver.Response {
	t.Helper()
	return s.Do(t, "PUT", path, body, "Content-Type", `multipart/related; boundary="zz"`)
}

func TestMultipartWrite(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	doc := `{"n":1,"_attachments":{"one":{"follows":true,"content_type":"text/plain","length":3},` +
		`"in":{"data":"aGk=","content_type":"image/png"},"dir/two":{"follows":true,"content_type":"image/png","length":4}}}`
	for i, c := range []struct{ kind, body string }{
		{`multipart/related; boundary="zz"`, related("\r\n", [2]string{"Content-Type: application/json", doc}, [2]string{"", "abc"}, [2]string{"", "\x01\r\n\x04"})},
		{`multipart/related;boundary=zz`, related("\n", [2]string{"Content-Type: application/json", doc}, [2]string{"", "abc"}, [2]string{"", "\x01\r\n\x04"})},
		{`Multipart/Related; type="application/json"; boundary=zz`, "a preamble\r\n" + related("\r\n", [2]string{"", doc},
			[2]string{"Content-Disposition: attachment; filename=\"dir/two\"\nContent-Length: 4", "\x01\r\n\x04"},
			[2]string{"Content-Disposition: attachment; filename=\"one\"", "abc"}) + "\r\nan epilogue"},
		{`multipart/related;boundary="zz"`, related("\r\n", [2]string{"", doc}, [2]string{"", "abc"}, [2]string{"", "\x01\r\n\x04"}) + "epilogue"},
		{`multipart/related; boundary="zz"`, related("\r\n", [2]string{"", doc}, [2]string{"Content-Disposition: attachment; filename=\"other\"", "abc"}, [2]string{"Content-Type: text/x", "\x01\r\n\x04"})},
	} {
		path := fmt.Sprintf("%s/d%d", db, i)
		r := s.Do(t, "PUT", path, c.body, "Content-Type", c.kind).Want(201)
		if r.Header.Get("Location") == "" || r.Header.Get("Etag") != `"`+r.Str("rev")+`"` {
			t.Errorf("%v", r.Header)
		}
		for name, want := range map[string]string{"one": "abc", "dir/two": "\x01\r\n\x04", "in": "hi"} {
			if got := s.Do(t, "GET", path+"/"+name, nil).Want(200); string(got.Body) != want {
				t.Errorf("%d %s: %q", i, name, got.Body)
			}
		}
		got := s.Do(t, "GET", path, nil).Object()
		if got["n"] != 1.0 || attInfo(t, got, "dir/two")["content_type"] != "image/png" || attInfo(t, got, "one")["length"] != 3.0 {
			t.Errorf("%v", got)
		}
	}
	// A later revision keeps one by a stub, drops one and brings another.
	rev := s.Do(t, "GET", db+"/d0", nil).Str("_rev")
	next := fmt.Sprintf(`{"_rev":%q,"_attachments":{"new":{"follows":true},"one":{"stub":true,"revpos":1}}}`, rev)
	putRelated(t, s, db+"/d0", related("\r\n", [2]string{"", next}, [2]string{"", ""})).Want(201)
	got := s.Do(t, "GET", db+"/d0", nil).Object()
	if info := attInfo(t, got, "new"); info["revpos"] != 2.0 || info["length"] != 0.0 || info["content_type"] != "application/octet-stream" {
		t.Errorf("%v", info)
	}
	if attInfo(t, got, "one")["revpos"] != 1.0 || len(got["_attachments"].(map[string]any)) != 2 {
		t.Errorf("%v", got)
	}
}

func TestMultipartRefused(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	db := "/" + s.DB(t)
	big := string(noise(5, 200_000))
	att := func(members string) [2]string {
		return [2]string{"Content-Type: application/json", `{"_attachments":{"first":{"follows":true},"a":{"follows":true,"content_type":"image/png"` + members + `}}}`}
	}
	first := [2]string{"", big}
	whole := related("\r\n", att(""), first, [2]string{"", "abc"})
	for name, c := range map[string]struct {
		body   string
		status int
		error  string
	}{
		"shorter":      {related("\r\n", att(`,"length":3`), first, [2]string{"", "ab"}), 400, "bad_request"},
		"longer":       {related("\r\n", att(`,"length":3`), first, [2]string{"", "abcd"}), 400, "bad_request"},
		"digest":       {related("\r\n", att(`,"digest":"md5-1B2M2Y8AsgTpgAmY7PhCfg=="`), first, [2]string{"", "abc"}), 400, "content_md5_mismatch"},
		"digesttext":   {related("\r\n", att(`,"content_type":"text/plain","digest":"md5-1B2M2Y8AsgTpgAmY7PhCfg=="`), first, [2]string{"", "abc"}), 400, "content_md5_mismatch"},
		"nogzip":       {related("\r\n", att(`,"encoding":"gzip"`), first, [2]string{"", "abc"}), 400, "bad_request"},
		"announced":    {related("\r\n", att(`,"length":5000000000`), first, [2]string{"", "abc"}), 413, "attachment_too_large"},
		"missing":      {related("\r\n", att(""), first), 400, "bad_request"},
		"more":         {related("\r\n", att(""), first, [2]string{"", "abc"}, [2]string{"", "def"}), 400, "bad_request"},
		"noend":        {strings.TrimSuffix(whole, "--"), 400, "bad_request"},
		"noend2":       {strings.TrimSuffix(whole, "\r\n--zz--"), 400, "bad_request"},
		"headers":      {related("\r\n", att(""), [2]string{"no header at all", "x"}, first), 400, "bad_request"},
		"empty":        {"", 400, "bad_request"},
		"nothing":      {"--zz--", 400, "bad_request"},
		"json":         {related("\r\n", [2]string{"", "{"}), 400, "bad_request"},
		"list":         {related("\r\n", [2]string{"", "[]"}), 400, "bad_request"},
		"special":      {related("\r\n", [2]string{"", `{"_x":1}`}), 400, "doc_validation"},
		"badstub":      {related("\r\n", [2]string{"", `{"_attachments":{"first":{"follows":true},"s":{"stub":true}}}`}, first), 412, "missing_stub"},
		"underscore":   {related("\r\n", [2]string{"", `{"_attachments":{"_a":{"follows":true}}}`}, first), 400, "bad_request"},
		"conflict":     {related("\r\n", [2]string{"", `{"_rev":"1-abc","_attachments":{"first":{"follows":true}}}`}, first), 409, "conflict"},
		"headersize":   {related("\r\n", att(""), [2]string{"X: " + strings.Repeat("x", 11<<20), "x"}), 400, "bad_request"},
		"twoboundary":  {"--yy\r\n\r\n{}\r\n--yy--", 400, "bad_request"},
		"nestedlength": {related("\r\n", att(`,"length":-1`), first, [2]string{"", "abc"}), 400, "bad_request"},
	} {
		if r := putRelated(t, s, db+"/"+name, c.body).Want(c.status); r.Str("error") != c.error {
			t.Errorf("%s: %s", name, r.Body)
		}
		if name != "conflict" {
			s.Do(t, "GET", db+"/"+name, nil).Want(404)
		}
	}
	for _, kind := range []string{"multipart/related", `multipart/related; boundary=""`, `multipart/related; boundary="` + strings.Repeat("z", 300) + `"`} {
		s.Do(t, "PUT", db+"/d", whole, "Content-Type", kind).Want(400)
	}
	s.Do(t, "PUT", db+"/d", `{"_attachments":{"a":{"follows":true}}}`).Want(400)
	noLeftovers(t, s, 0)
	// The connection is good, and so is the body that all the others were made of.
	putRelated(t, s, db+"/d", whole).Want(201)
	putRelated(t, s, db+"/d", whole).Want(409)
	noLeftovers(t, s, 1)
}

// relatedPart is a part of an answer.
type relatedPart struct {
	header textproto.MIMEHeader
	body   []byte
}

// readParts takes a multipart body apart and checks that it ends properly.
func readParts(t *testing.T, contentType string, body []byte) (kind string, parts []relatedPart) {
	t.Helper()
	kind, params, err := mime.ParseMediaType(contentType)
	if err != nil {
		t.Fatalf("%q: %v", contentType, err)
	}
	for r := multipart.NewReader(bytes.NewReader(body), params["boundary"]); ; {
		p, err := r.NextRawPart()
		if err == io.EOF {
			return kind, parts
		}
		if err != nil {
			t.Fatalf("%v in %q", err, body)
		}
		data, err := io.ReadAll(p)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, relatedPart{p.Header, data})
	}
}

func TestMultipartRead(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	text, binary := strings.Repeat("Hello, world\n", 40_000), string(noise(11, 400_000))
	rev1 := s.Do(t, "PUT", db+"/att/hello.txt", text, "Content-Type", "text/plain").Want(201).Str("rev")
	odd := "%C3%A4%22%5C%0A/b.bin" // ä"\<LF>/b.bin
	rev2 := s.Do(t, "PUT", db+"/att/"+odd+"?rev="+rev1, binary, "Content-Type", "image/png").Want(201).Str("rev")

	r := s.Do(t, "GET", db+"/att?attachments=true", nil, "Accept", "multipart/related").Want(200)
	if r.Header.Get("Content-Length") != fmt.Sprint(len(r.Body)) || r.Header.Get("Etag") != `"`+rev2+`"` {
		t.Errorf("%d bytes, %v", len(r.Body), r.Header)
	}
	if !regexp.MustCompile(`^multipart/related; boundary="[0-9a-f]{32}"$`).MatchString(r.Header.Get("Content-Type")) {
		t.Errorf("%v", r.Header)
	}
	head := s.Do(t, "HEAD", db+"/att?attachments=true", nil, "Accept", "multipart/related").Want(200)
	if head.Header.Get("Content-Length") != r.Header.Get("Content-Length") || len(head.Body) != 0 {
		t.Errorf("%v", head.Header)
	}
	_, parts := readParts(t, r.Header.Get("Content-Type"), r.Body)
	checkRelated(t, parts, text, binary)

	// What was read can be written elsewhere as it is, and is the same.
	other := "/" + s.DB(t)
	s.Do(t, "PUT", other+"/att?new_edits=false", r.Body, "Content-Type", r.Header.Get("Content-Type")).Want(201)
	want, got := s.Do(t, "GET", db+"/att?att_encoding_info=true", nil), s.Do(t, "GET", other+"/att?att_encoding_info=true", nil)
	if !bytes.Equal(want.Body, got.Body) {
		t.Errorf("got  %swant %s", got.Body, want.Body)
	}

	// Only what is younger comes in a part.
	r = s.Do(t, "GET", db+`/att?attachments=true&atts_since=["`+rev1+`"]`, nil, "Accept", "multipart/related").Want(200)
	if _, parts = readParts(t, r.Header.Get("Content-Type"), r.Body); len(parts) != 2 || string(parts[1].body) != binary {
		t.Errorf("%d parts", len(parts))
	}
	r = s.Do(t, "GET", db+`/att?attachments=true&atts_since=["`+rev2+`"]`, nil, "Accept", "multipart/related").Want(200)
	if attInfo(t, r.Object(), "hello.txt")["stub"] != true || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", r.Body, r.Header)
	}
	// JSON where the client takes it.
	for _, query := range []string{"attachments=true", `atts_since=["` + rev1 + `"]`} {
		doc := s.Do(t, "GET", db+"/att?att_encoding_info=true&"+query, nil, "Accept", "application/json").Want(200).Object()
		old, young := attInfo(t, doc, "hello.txt"), attInfo(t, doc, "ä\"\\\n/b.bin")
		if all := strings.HasPrefix(query, "attachments"); all && old["data"] != base64.StdEncoding.EncodeToString([]byte(text)) || !all && (old["stub"] != true || old["data"] != nil) {
			t.Errorf("%s: %.200v", query, old)
		}
		if young["data"] != base64.StdEncoding.EncodeToString([]byte(binary)) || old["encoding"] != "gzip" || young["encoding"] != nil {
			t.Errorf("%s: %.200v", query, young)
		}
	}
}

// checkRelated checks the document of TestMultipartRead.
func checkRelated(t *testing.T, parts []relatedPart, text, binary string) {
	t.Helper()
	if len(parts) != 3 {
		t.Fatalf("%d parts", len(parts))
	}
	var doc map[string]any
	if err := json.Unmarshal(parts[0].body, &doc); err != nil {
		t.Fatal(err)
	}
	name := "ä\"\\\n/b.bin"
	if parts[0].header.Get("Content-Type") != "application/json" || attInfo(t, doc, name)["follows"] != true || attInfo(t, doc, "hello.txt")["encoding"] != "gzip" {
		t.Errorf("%v %s", parts[0].header, parts[0].body)
	}
	for i, want := range []struct{ disposition, kind, encoding string }{
		{`attachment; filename="ä\"\\%0A/b.bin"`, "image/png", ""}, {`attachment; filename="hello.txt"`, "text/plain", "gzip"}} {
		p := parts[i+1]
		if p.header.Get("Content-Disposition") != want.disposition || p.header.Get("Content-Type") != want.kind ||
			p.header.Get("Content-Encoding") != want.encoding || p.header.Get("Content-Length") != fmt.Sprint(len(p.body)) {
			t.Errorf("%v", p.header)
		}
	}
	if string(parts[1].body) != binary || gunzip(t, parts[2].body) != text {
		t.Error("other bytes")
	}
}

func TestOpenRevsMultipart(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	for _, doc := range []string{`{"_rev":"2-bb","v":2,"_revisions":{"start":2,"ids":["bb","aa"]}}`,
		`{"_rev":"2-cc","v":3,"_revisions":{"start":2,"ids":["cc","aa"]},"_attachments":{"x":{"data":"AQIDBA==","content_type":"image/png"}}}`} {
		s.Do(t, "PUT", db+"/d?new_edits=false", doc).Want(201)
	}
	r := s.Do(t, "GET", db+`/d?open_revs=["2-bb","9-zz"]`, nil, "Accept", "multipart/mixed").Want(200)
	boundary := strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Content-Type"), `multipart/mixed; boundary="`), `"`)
	want := "--B\r\nContent-Type: application/json\r\n\r\n" + `{"_id":"d","_rev":"2-bb","v":2}` + "\r\n--B\r\nContent-Type: application/json; error=\"true\"\r\n\r\n" + `{"missing":"9-zz"}` + "\r\n--B--"
	if got := strings.ReplaceAll(string(r.Body), boundary, "B"); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	// A replicator gets attachments without asking, unless it has them.
	for query, atts := range map[string]int{"open_revs=all&revs=true": 1, "open_revs=all&attachments=true": 1, `open_revs=all&atts_since=["2-cc"]`: 0} {
		r := s.Do(t, "GET", db+"/d?"+query, nil, "Accept", "multipart/mixed").Want(200)
		kind, parts := readParts(t, r.Header.Get("Content-Type"), r.Body)
		if kind != "multipart/mixed" || len(parts) != 2 {
			t.Fatalf("%s: %q", query, r.Body)
		}
		inner := parts[1] // after 2-bb
		if atts == 0 {
			if inner.header.Get("Content-Type") != "application/json" || !bytes.Contains(inner.body, []byte(`"stub":true`)) {
				t.Errorf("%s: %q", query, inner.body)
			}
			continue
		}
		kind, nested := readParts(t, inner.header.Get("Content-Type"), inner.body)
		if kind != "multipart/related" || len(nested) != 2 || string(nested[1].body) != "\x01\x02\x03\x04" {
			t.Errorf("%s: %q", query, inner.body)
		}
		if strings.Contains(query, "revs=true") != bytes.Contains(nested[0].body, []byte(`"_revisions":{"start":2,"ids":["cc","aa"]}`)) {
			t.Errorf("%s: %s", query, nested[0].body)
		}
		if parts[0].header.Get("Content-Type") != "application/json" {
			t.Errorf("%v", parts[0].header)
		}
	}
	s.Do(t, "GET", db+"/none?open_revs=all", nil, "Accept", "multipart/mixed").Want(404)
}

func TestBulkGetMultipart(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	rev := s.Do(t, "PUT", db+"/k1", `{"n":1}`).Want(201).Str("rev")
	attRev := s.Do(t, "PUT", db+"/odd%0A%0Did/x", "\x01\x02", "Content-Type", "image/png").Want(201).Str("rev")
	ask := fmt.Sprintf(`{"docs":[{"id":"k1"},{"id":"odd\n\rid"},{"id":"odd\n\rid","atts_since":[%q]},{"id":"k1","rev":"9-zz"},{"id":"none"},{"id":""}]}`, attRev)
	for _, accept := range []string{"multipart/mixed", "multipart/related"} {
		r := s.Do(t, "POST", db+"/_bulk_get", ask, "Accept", accept).Want(200)
		kind, parts := readParts(t, r.Header.Get("Content-Type"), r.Body)
		if kind != accept || len(parts) != 6 {
			t.Fatalf("%s, %d parts: %q", kind, len(parts), r.Body)
		}
		if got := string(parts[0].body); got != fmt.Sprintf(`{"_id":"k1","_rev":"%s","n":1}`, rev) {
			t.Errorf("%s", got)
		}
		if h := parts[1].header; h.Get("X-Doc-Id") != "odd%0A%0Did" || h.Get("X-Rev-Id") != attRev {
			t.Errorf("%v", h)
		}
		if kind, nested := readParts(t, parts[1].header.Get("Content-Type"), parts[1].body); kind != "multipart/related" || len(nested) != 2 || string(nested[1].body) != "\x01\x02" {
			t.Errorf("%q", parts[1].body)
		}
		if !bytes.Contains(parts[2].body, []byte(`"stub":true`)) {
			t.Errorf("%s", parts[2].body)
		}
		for i, want := range []string{`{"rev":"9-zz","error":"not_found","reason":"missing"}`,
			`{"id":"none","rev":"undefined","error":"not_found","reason":"missing"}`} {
			if p := parts[i+3]; string(p.body) != want || p.header.Get("Content-Type") != `application/json; error="true"` {
				t.Errorf("%v %s", p.header, p.body)
			}
		}
		if !bytes.Contains(parts[5].body, []byte(`"error":"illegal_docid"`)) {
			t.Errorf("%s", parts[5].body)
		}
		boundary := strings.TrimSuffix(strings.TrimPrefix(r.Header.Get("Content-Type"), accept+`; boundary="`), `"`)
		if !strings.HasPrefix(string(r.Body), "\r\n--"+boundary+"\r\nContent-Type: application/json\r\n\r\n{") || !strings.HasSuffix(string(r.Body), "\r\n--"+boundary+"--\r\n") {
			t.Errorf("layout: %q", r.Body)
		}
	}
}

func TestFormUpload(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	db := "/" + s.DB(t)
	form := func(fields [][3]string) (string, string) { // name, file name, value
		var b bytes.Buffer
		w := multipart.NewWriter(&b)
		for _, f := range fields {
			h := textproto.MIMEHeader{}
			h.Set("Content-Disposition", mime.FormatMediaType("form-data", map[string]string{"name": f[0]}))
			if f[1] != "" {
				h.Set("Content-Disposition", mime.FormatMediaType("form-data", map[string]string{"name": f[0], "filename": f[1]}))
				h.Set("Content-Type", "image/png")
			}
			p, err := w.CreatePart(h)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.WriteString(p, f[2]); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String(), w.FormDataContentType()
	}
	post := func(path string, header []string, fields ...[3]string) *testserver.Response {
		t.Helper()
		body, kind := form(fields)
		return s.Do(t, http.MethodPost, db+path, body, append([]string{"Content-Type", kind}, header...)...)
	}
	big := string(noise(21, 100_000))
	rev1 := post("/f", nil, [3]string{"_attachments", "a.png", big}, [3]string{"_doc", "", `{"n":1,"_attachments":{"a.png":{"data":"aGk="},"b.png":{"data":"aGk="}}}`}).Want(201)
	if rev1.Header.Get("Etag") != `"`+rev1.Str("rev")+`"` {
		t.Errorf("%v", rev1.Header)
	}
	if got := s.Do(t, "GET", db+"/f/a.png", nil).Want(200); string(got.Body) != big || got.Header.Get("Content-Type") != "image/png" {
		t.Errorf("%d bytes, %v", len(got.Body), got.Header)
	}
	rev2 := post("/f", []string{"Origin", "http://" + s.Addr}, [3]string{"_rev", "", rev1.Str("rev")}, [3]string{"_attachments", "c.png", "c"}, [3]string{"other", "", "x"}).Want(201).Str("rev")
	doc := s.Do(t, "GET", db+"/f", nil).Object()
	if doc["n"] != 1.0 || doc["_rev"] != rev2 || len(doc["_attachments"].(map[string]any)) != 3 || attInfo(t, doc, "a.png")["revpos"] != 1.0 {
		t.Errorf("%v", doc)
	}
	post("/f", nil, [3]string{"_attachments", "d.png", big + "d"}).Want(409)
	post("/f", nil, [3]string{"_attachments", "d.png", big + "d"}, [3]string{"_rev", "", rev1.Str("rev")}).Want(409)
	post("/f", nil, [3]string{"_attachments", "d.png", big + "d"}, [3]string{"_rev", "", "x"}).Want(400)
	post("/f", nil, [3]string{"_attachments", "d.png", big + "d"}, [3]string{"_doc", "", "{"}).Want(400)
	post("/g", nil, [3]string{"_attachments", "_d.png", big + "d"}).Want(400)
	post("/g", nil, [3]string{"_attachments", "d.png", big + "d"}, [3]string{"_attachments", "d.png", big + "d"}).Want(400)
	post("/g", []string{"Origin", "http://elsewhere.example"}, [3]string{"_attachments", "d.png", "d"}).Want(403)
	post("/g", []string{"Referer", "http://elsewhere.example/" + s.Addr}, [3]string{"_attachments", "d.png", "d"}).Want(403)
	post("/g", []string{"Origin", "null"}, [3]string{"_attachments", "d.png", "d"}).Want(403)
	s.Do(t, "POST", db+"/g", `{}`).Want(415)
	s.Do(t, "GET", db+"/g", nil).Want(404)
	noLeftovers(t, s, 1)
	post("/g", []string{"Referer", "http://" + s.Addr + "/app"}, [3]string{"_attachments", "d.png", "d"}).Want(201)
}
