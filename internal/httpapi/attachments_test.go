package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"crypto/md5"
	"encoding/base64"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"mime"
	"mime/multipart"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/testserver"
)

// noise makes bytes that do not compress and are the same for the same seed.
func noise(seed uint64, n int) []byte {
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	b := make([]byte, n)
	_, _ = r.Read(b)
	return b
}

func etagOf(stored []byte) string {
	sum := md5.Sum(stored)
	return `"` + base64.StdEncoding.EncodeToString(sum[:]) + `"`
}

func gzipBytes(t *testing.T, b []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	zw := gzip.NewWriter(&out)
	if _, err := zw.Write(b); err != nil {
		t.Fatal(err)
	}
	if err := zw.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// attInfo reads the entry of an attachment in a document.
func attInfo(t *testing.T, doc map[string]any, name string) map[string]any {
	t.Helper()
	atts, _ := doc["_attachments"].(map[string]any)
	info, _ := atts[name].(map[string]any)
	if info == nil {
		t.Fatalf("no attachment %q in %v", name, doc)
	}
	return info
}

func TestAttachmentRoundTrip(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t, "q=2")
	for _, doc := range []string{"/plain", "/_design/app", "/with%2Fslash"} {
		rev := s.Do(t, "PUT", db+doc, `{"keep":[1.0,"x"]}`).Want(201).Str("rev")
		for i, name := range []string{"a.bin", "deep/er/b.bin", "%C3%BCn%C3%AF%20c%C3%B6de.bin", "q%3F%23%25.bin", "empty"} {
			body := noise(uint64(i), []int{100, 5000, 300_000, 1_500_000, 0}[i])
			r := s.Do(t, "PUT", db+doc+"/"+name+"?rev="+rev, body, "Content-Type", "image/x-test").Want(201)
			rev = r.Str("rev")
			if loc := r.Header.Get("Location"); !strings.HasPrefix(loc, "http://"+s.Addr+db+doc+"/") {
				t.Errorf("Location %q", loc)
			} else if back := s.Do(t, "GET", strings.TrimPrefix(loc, "http://"+s.Addr), nil).Want(200); !bytes.Equal(back.Body, body) {
				t.Errorf("%s gives other bytes", loc)
			}
			got := s.Do(t, "GET", db+doc+"/"+name, nil).Want(200)
			if !bytes.Equal(got.Body, body) {
				t.Errorf("%s%s: other bytes", doc, name)
			}
			want := map[string]string{
				"Etag": etagOf(body), "Content-Type": "image/x-test", "Accept-Ranges": "bytes",
				"Content-Length": fmt.Sprint(len(body)), "Content-Security-Policy": "sandbox",
				"X-Content-Type-Options": "nosniff", "Cache-Control": "must-revalidate", "Content-Encoding": "",
			}
			head := s.Do(t, "HEAD", db+doc+"/"+name, nil).Want(200)
			for k, v := range want {
				if got.Header.Get(k) != v || head.Header.Get(k) != v {
					t.Errorf("%s: GET %q, HEAD %q, want %q", k, got.Header.Get(k), head.Header.Get(k), v)
				}
			}
			if len(head.Body) != 0 {
				t.Error("HEAD has a body")
			}
			s.Do(t, "GET", db+doc+"/"+name, nil, "If-None-Match", want["Etag"]).Want(304)
			s.Do(t, "GET", db+doc+"/"+name, nil, "If-None-Match", `"x", W/`+want["Etag"]).Want(304)
			s.Do(t, "GET", db+doc+"/"+name, nil, "If-None-Match", `"x"`).Want(200)
		}
		full := s.Do(t, "GET", db+doc, nil).Want(200).Object()
		if fmt.Sprint(full["keep"]) != "[1 x]" {
			t.Errorf("the body changed: %v", full)
		}
		for i, name := range []string{"a.bin", "deep/er/b.bin", "ünï cöde.bin", "q?#%.bin", "empty"} {
			if info := attInfo(t, full, name); info["revpos"] != float64(i+2) || info["stub"] != true {
				t.Errorf("%s: %v", name, info)
			}
		}
		gone := s.Do(t, "DELETE", db+doc+"/deep/er/b.bin?rev="+rev, nil).Want(200)
		if rest := s.Do(t, "GET", db+doc, nil).Object(); rest["_rev"] != gone.Str("rev") || len(rest["_attachments"].(map[string]any)) != 4 {
			t.Errorf("%v", rest)
		}
		if e := s.Do(t, "GET", db+doc+"/deep/er/b.bin", nil).Want(404); e.Str("reason") != "Document is missing attachment" {
			t.Errorf("%s", e.Body)
		}
		if old := s.Do(t, "GET", db+doc+"/deep/er/b.bin?rev="+rev, nil).Want(200); len(old.Body) != 5000 {
			t.Errorf("the old revision has %d bytes", len(old.Body))
		}
	}
}

func TestAttachmentRevisions(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	rev1 := s.Do(t, "PUT", db+"/d/a", "1", "Content-Type", "").Want(201).Str("rev")
	if got := s.Do(t, "GET", db+"/d/a", nil).Header.Get("Content-Type"); got != "application/octet-stream" {
		t.Errorf("type %q", got)
	}
	unknown := "1-0123456789abcdef0123456789abcdef"
	for _, c := range []struct {
		method, path string
		header       []string
		status       int
		name, reason string
	}{
		{"PUT", "/d/b", nil, 409, "conflict", "Document update conflict."},
		{"PUT", "/d/b?rev=" + unknown, nil, 409, "not_found", "missing_rev"},
		{"PUT", "/new/b?rev=" + unknown, nil, 409, "not_found", "missing_rev"},
		{"PUT", "/d/b?rev=x", nil, 400, "bad_request", "Invalid rev format"},
		{"PUT", "/d/b?rev=" + rev1, []string{"If-Match", unknown}, 400, "bad_request", "Document rev and etag have different values"},
		{"PUT", "/d/_b?rev=" + rev1, nil, 400, "bad_request", "Attachment name '_b' starts with prohibited character '_'"},
		{"PUT", "/d/%ff?rev=" + rev1, nil, 400, "bad_request", "Attachment name is not UTF-8 encoded"},
		{"PUT", "/_d/b", nil, 400, "illegal_docid", "Only reserved document ids may start with underscore."},
		{"PUT", "/d/b?rev=" + rev1, []string{"Content-Encoding", "br"}, 415, "bad_content_type", "Only gzip and identity content-encodings are supported"},
		{"PUT", "/d/b?rev=" + rev1, []string{"Content-Encoding", "gzip"}, 400, "bad_request", "The attachment b is not valid gzip data."},
		{"PUT", "/d/b?rev=" + rev1, []string{"Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg=="}, 400, "content_md5_mismatch", "Possible message corruption."},
		{"PUT", "/d/b?rev=" + rev1, []string{"Content-MD5", "1B2M2Y8AsgTpgAmY7PhCfg==", "Content-Type", "text/plain"}, 400, "content_md5_mismatch", "Possible message corruption."},
		{"PUT", "/d/b?rev=" + rev1, []string{"Content-MD5", "zz"}, 400, "bad_request", "The Content-MD5 header is malformed."},
		{"DELETE", "/d/a", nil, 409, "conflict", "Document update conflict."},
		{"DELETE", "/d/a?rev=" + unknown, nil, 409, "not_found", "missing_rev"},
		{"DELETE", "/d/none?rev=" + rev1, nil, 404, "not_found", "Document is missing attachment"},
		{"DELETE", "/none/a?rev=" + rev1, nil, 409, "not_found", "missing_rev"},
		{"GET", "/d/none", nil, 404, "not_found", "Document is missing attachment"},
		{"GET", "/none/a", nil, 404, "not_found", "missing"},
		{"GET", "/d/a?rev=" + unknown, nil, 404, "not_found", "missing"},
	} {
		r := s.Do(t, c.method, db+c.path, "2", c.header...).Want(c.status)
		if r.Str("error") != c.name || r.Str("reason") != c.reason {
			t.Errorf("%s %s: %s", c.method, c.path, r.Body)
		}
	}
	if doc := s.Do(t, "GET", db+"/d", nil).Object(); doc["_rev"] != rev1 {
		t.Errorf("a refused request changed the document: %v", doc)
	}
	s.Do(t, "GET", db+"/new", nil).Want(404)
	rev2 := s.Do(t, "PUT", db+"/d/a", "22", "If-Match", `"`+rev1+`"`, "Content-MD5", strings.Trim(etagOf([]byte("22")), `"`)).Want(201).Str("rev")
	if r := s.Do(t, "PUT", db+"/d/a?rev="+rev1, "3").Want(409); r.Str("error") != "conflict" {
		t.Errorf("stale revision: %s", r.Body)
	}
	s.Do(t, "DELETE", db+"/d/a?rev="+rev1, nil).Want(409)
	s.Do(t, "DELETE", db+"/d?rev="+rev2, nil).Want(200)
	if e := s.Do(t, "GET", db+"/d/a", nil).Want(404); e.Str("reason") != "deleted" {
		t.Errorf("%s", e.Body)
	}
	s.Do(t, "PUT", db+"/d/again", "4").Want(201)
	s.Do(t, "PUT", db+"/w/a?w=9", "4").Want(202)
}

func TestAttachmentRanges(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	for _, size := range []int{16, 700_000} { // in the store, and in a file
		body := noise(7, size)
		path := fmt.Sprintf("%s/d%d/a/b.bin", db, size)
		s.Do(t, "PUT", path, body, "Content-Type", "image/x-test").Want(201)
		for _, c := range []struct {
			header   string
			from, to int // to < 0: no such range; from < 0: the whole
		}{
			{"bytes=2-5", 2, 5}, {"bytes=0-0", 0, 0}, {"bytes=-3", size - 3, size - 1}, {"bytes=-99999999", 0, size - 1},
			{"bytes=10-", 10, size - 1}, {"bytes=4-99999999999999999999", 4, size - 1},
			{fmt.Sprintf("bytes=%d-%d", size-1, size), size - 1, size - 1}, {"Bytes = 2-5", 2, 5},
			{"bytes=9999999-", 0, -1}, {"bytes=5-2", 0, -1}, {"bytes=-0", 0, -1}, {fmt.Sprintf("bytes=%d-", size), 0, -1},
			{"bytes=x-2", -1, 0}, {"lines=1-2", -1, 0}, {"bytes=", -1, 0}, {"bytes", -1, 0}, {"bytes=1", -1, 0},
			{"bytes=0-0,1-1,2-2,3-3,4-4,5-5,6-6,7-7,8-8,9-9", -1, 0}, {"bytes=0-,0-,0-", -1, 0}, {"bytes=0-", -1, 0},
		} {
			r := s.Do(t, "GET", path, nil, "Range", c.header)
			switch {
			case c.from < 0:
				if r.Want(200); !bytes.Equal(r.Body, body) || r.Header.Get("Content-Range") != "" {
					t.Errorf("%s: %d bytes, want the whole", c.header, len(r.Body))
				}
			case c.to < 0:
				if r.Want(416); r.Str("error") != "requested_range_not_satisfiable" || r.Header.Get("Content-Range") != fmt.Sprintf("bytes */%d", size) {
					t.Errorf("%s: %s %v", c.header, r.Body, r.Header)
				}
			default:
				if r.Want(206); !bytes.Equal(r.Body, body[c.from:c.to+1]) ||
					r.Header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", c.from, c.to, size) ||
					r.Header.Get("Content-Length") != fmt.Sprint(c.to-c.from+1) || r.Header.Get("Etag") != etagOf(body) {
					t.Errorf("%s: %d bytes, %v", c.header, len(r.Body), r.Header)
				}
			}
		}
		s.Do(t, "GET", path, nil, "Range", "bytes=2-5", "If-Range", etagOf(body)).Want(206)
		s.Do(t, "GET", path, nil, "Range", "bytes=2-5", "If-Range", `"other"`).Want(200)
		s.Do(t, "HEAD", path, nil, "Range", "bytes=2-5").Want(200)
		several(t, s.Do(t, "GET", path, nil, "Range", "bytes=0-1, 4-5,-2").Want(206), body)
	}
	s.Do(t, "PUT", db+"/text/t", strings.Repeat("text ", 100), "Content-Type", "text/plain").Want(201)
	if r := s.Do(t, "GET", db+"/text/t", nil, "Range", "bytes=0-1").Want(200); r.Header.Get("Accept-Ranges") != "none" || len(r.Body) != 500 {
		t.Errorf("%v", r.Header)
	}
}

// several checks the answer to the ranges 0-1, 4-5 and -2.
func several(t *testing.T, r *testserver.Response, body []byte) {
	t.Helper()
	kind, params, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/byteranges" || r.Header.Get("Content-Length") != fmt.Sprint(len(r.Body)) {
		t.Fatalf("%v %v", err, r.Header)
	}
	parts := multipart.NewReader(bytes.NewReader(r.Body), params["boundary"])
	for _, at := range []int{0, 4, len(body) - 2} {
		p, err := parts.NextRawPart()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(p)
		if err != nil || !bytes.Equal(data, body[at:at+2]) || p.Header.Get("Content-Type") != "image/x-test" ||
			p.Header.Get("Content-Range") != fmt.Sprintf("bytes %d-%d/%d", at, at+1, len(body)) {
			t.Errorf("part at %d: %q %v %v", at, data, p.Header, err)
		}
	}
	if _, err := parts.NextRawPart(); err != io.EOF {
		t.Errorf("after the last part: %v", err)
	}
	if !bytes.HasPrefix(r.Body, []byte("--"+params["boundary"]+"\r\nContent-Type:")) || !bytes.HasSuffix(r.Body, []byte("\r\n--"+params["boundary"]+"--")) {
		t.Errorf("layout: %q", r.Body)
	}
}

// Compressible types are stored gzipped; what comes gzipped stays as it came.
func TestAttachmentEncoding(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	text := bytes.Repeat([]byte("Hello, world\n"), 30_000)
	for _, c := range []struct {
		kind, sent string
		stored     string
	}{
		{"text/plain;charset=utf-8", "", "gzip"}, {"application/json", "identity", "gzip"}, {"image/svg+xml", "", "gzip"},
		{"image/png", "", ""}, {"image/png", "gzip", "gzip"}, {"text/css", "gzip", "gzip"},
	} {
		path := db + "/" + strings.NewReplacer("/", "-", ";", "-", "=", "-", "+", "-").Replace(c.kind+c.sent)
		body := text
		if c.sent == "gzip" {
			body = gzipBytes(t, text)
		}
		header := []string{"Content-Type", c.kind, "Content-Encoding", c.sent, "Content-MD5", strings.Trim(etagOf(body), `"`)}
		s.Do(t, "PUT", path+"/a", body, header...).Want(201)
		info := attInfo(t, s.Do(t, "GET", path+"?att_encoding_info=true", nil).Object(), "a")
		if info["length"] != float64(len(text)) || fmt.Sprint(info["encoding"]) != map[string]string{"gzip": "gzip", "": "<nil>"}[c.stored] {
			t.Errorf("%v: %v", c, info)
		}
		plain := s.Do(t, "GET", path+"/a", nil).Want(200)
		if !bytes.Equal(plain.Body, text) || plain.Header.Get("Content-Encoding") != "" || plain.Header.Get("Content-Length") != fmt.Sprint(len(text)) {
			t.Errorf("%v: plain %d bytes, %v", c, len(plain.Body), plain.Header)
		}
		packed := s.Do(t, "GET", path+"/a", nil, "Accept-Encoding", "deflate, gzip;q=0.5").Want(200)
		if packed.Header.Get("Content-Encoding") != c.stored || packed.Header.Get("Etag") != etagOf(packed.Body) ||
			info["digest"] != "md5-"+strings.Trim(packed.Header.Get("Etag"), `"`) {
			t.Errorf("%v: %v", c, packed.Header)
		}
		if c.stored == "gzip" {
			zr, err := gzip.NewReader(bytes.NewReader(packed.Body))
			if err != nil {
				t.Fatal(err)
			}
			if back, err := io.ReadAll(zr); err != nil || !bytes.Equal(back, text) {
				t.Errorf("%v: %v", c, err)
			}
			if info["encoded_length"] != float64(len(packed.Body)) || packed.Header.Get("Accept-Ranges") != "none" {
				t.Errorf("%v: %v", c, info)
			}
		}
		if c.sent == "gzip" && !bytes.Equal(packed.Body, body) {
			t.Errorf("%v: not stored as it came", c)
		}
	}
	s.Do(t, "PUT", db+"/cut/a", gzipBytes(t, text)[:100], "Content-Encoding", "gzip").Want(400)
	s.Do(t, "GET", db+"/cut", nil).Want(404)
}

// A body that ends early writes nothing, whether its length was told or not.
func TestAttachmentCutShort(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t)
	db := "/" + s.DB(t)
	half := string(noise(3, 300_000))
	part := "--b\r\nContent-Type: application/json\r\n\r\n" + `{"_attachments":{"a":{"follows":true,"content_type":"image/png"}}}` + "\r\n--b\r\n\r\n"
	for name, rest := range map[string]string{
		"known":     "Content-Length: 600000\r\n\r\n" + half,
		"knowntext": "Content-Type: text/plain\r\nContent-Length: 600000\r\n\r\n" + half,
		"small":     "Content-Length: 10\r\n\r\nabc",
		"chunked":   "Transfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n", len(half), half),
		"multipart": "Content-Type: multipart/related; boundary=b\r\nContent-Length: 600000\r\n\r\n" + part + half,
		"mpchunked": "Content-Type: multipart/related; boundary=b\r\nTransfer-Encoding: chunked\r\n\r\n" + fmt.Sprintf("%x\r\n%s\r\n", len(part+half), part+half),
	} {
		path := db + "/" + name
		if !strings.HasPrefix(name, "m") {
			path += "/a"
		}
		conn, err := net.Dial("tcp", s.Addr)
		if err != nil {
			t.Fatal(err)
		}
		user := base64.StdEncoding.EncodeToString([]byte(userOf(t, s)))
		if _, err := io.WriteString(conn, "PUT "+path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Basic "+user+"\r\n"+rest); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		// The answer is awaited, so that the server is done with the request.
		if r, err := http.ReadResponse(bufio.NewReader(conn), nil); err == nil {
			if r.StatusCode != 400 {
				t.Errorf("%s: status %d", name, r.StatusCode)
			}
			_ = r.Body.Close()
		} else if err != io.ErrUnexpectedEOF && err != io.EOF {
			t.Errorf("%s: %v", name, err)
		}
		_ = conn.Close()
		s.Do(t, "GET", db+"/"+name, nil).Want(404)
	}
	noLeftovers(t, s, 0)
}

func userOf(t *testing.T, s *testserver.Server) string {
	t.Helper()
	r, err := http.NewRequest("GET", s.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := r.URL.User.Password()
	return r.URL.User.Username() + ":" + password
}

// noLeftovers counts the files of attachments in the data directory, if it is ours
// to look at.
func noLeftovers(t *testing.T, s *testserver.Server, want int) {
	t.Helper()
	if s.Data == "" {
		return
	}
	var found []string
	err := filepath.WalkDir(s.Data, func(path string, d fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(s.Data, path); err == nil && !d.IsDir() && strings.Contains(rel, "blobs"+string(filepath.Separator)) {
			found = append(found, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != want {
		t.Errorf("files of attachments: %q, want %d", found, want)
	}
}

// Identical bytes are stored once; refused uploads leave nothing.
func TestAttachmentFiles(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(func(c *config.Config) { c.MaxAttachment = 1 << 20 }))
	db := "/" + s.DB(t, "q=1")
	body := noise(9, 1<<20)
	for i := range 3 {
		s.Do(t, "PUT", fmt.Sprintf("%s/d%d/a%d", db, i, i), body).Want(201)
	}
	noLeftovers(t, s, 1)
	sizes := s.Do(t, "GET", db, nil).Want(200).Object()["sizes"].(map[string]any)
	if file, active := sizes["file"].(float64), sizes["active"].(float64); sizes["external"].(float64) < 3<<20 || active < 1<<20 || active > file || file > 2<<20 {
		t.Errorf("sizes of three documents that share 1 MiB: %v", sizes)
	}
	for _, big := range []io.Reader{bytes.NewReader(noise(1, 1<<20+1)), struct{ io.Reader }{bytes.NewReader(noise(1, 1<<20+1))}} {
		if r := s.Do(t, "PUT", db+"/big/dir/name", big, "Content-Type", "image/png").Want(413); r.Str("error") != "attachment_too_large" || r.Str("reason") != "dir/name" {
			t.Errorf("%s", r.Body)
		}
	}
	s.Do(t, "PUT", db+"/big/x", gzipBytes(t, noise(1, 1<<20)), "Content-Encoding", "gzip").Want(413)
	s.Do(t, "PUT", db+"/d0/a0", noise(2, 1<<20)).Want(409)
	s.Do(t, "GET", db+"/big", nil).Want(404)
	noLeftovers(t, s, 1)
	s.Do(t, "PUT", db+"/d0/b?rev="+s.Do(t, "GET", db+"/d0", nil).Str("_rev"), noise(4, 500_000)).Want(201)
	noLeftovers(t, s, 2)
}

func gunzip(t *testing.T, b []byte) string {
	t.Helper()
	zr, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	out, err := io.ReadAll(zr)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}
