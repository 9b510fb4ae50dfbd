package document

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// normal passes a test's JSON through the same gate as a client's.
func normal(t testing.TB, s string) []byte {
	t.Helper()
	b, err := rawjson.Normalize(nil, []byte(s), 100)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return b
}

// describe gives a Parsed in one line.
func describe(p *Parsed) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s", p.Body)
	if p.HasID {
		fmt.Fprintf(&b, " id=%s", p.ID)
	}
	if !p.Rev.IsZero() {
		fmt.Fprintf(&b, " rev=%v", p.Rev)
	}
	if p.Path != nil {
		fmt.Fprintf(&b, " path=%v", p.Path)
	}
	if p.Deleted {
		b.WriteString(" deleted")
	}
	for _, a := range p.Atts {
		fmt.Fprintf(&b, " att=%s:%s", a.Name, a.ContentType)
	}
	return b.String()
}

func TestParse(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in   string
		o    ParseOptions
		want string
	}{
		{`{}`, ParseOptions{}, `{}`},
		{`{"b": 1, "A": [1, 2.5]}`, ParseOptions{}, `{"b":1,"A":[1,2.5]}`},
		{`{"_id":"a"}`, ParseOptions{}, `{} id=a`},
		{`{"_id":"a","x":1}`, ParseOptions{}, `{"x":1} id=a`},
		{`{"x":1,"_id":"a"}`, ParseOptions{}, `{"x":1} id=a`},
		{`{"x":1,"_id":"a","y":2,"z":3,"_rev":"1-b","_deleted":true,"w":{"_id":4}}`, ParseOptions{},
			`{"x":1,"y":2,"z":3,"w":{"_id":4}} id=a rev=1-b deleted`},
		{`{"_id":"c"}`, ParseOptions{ID: "b"}, `{} id=b`},
		{`{"_rev":"3-c"}`, ParseOptions{}, `{} rev=3-c`},
		{`{"_rev":"3-c"}`, ParseOptions{Replicated: true}, `{} rev=3-c path=[3-c]`},
		{`{"_rev":"0-1"}`, ParseOptions{}, `{} rev=0-1`},
		{`{"_revisions":{"start":3,"ids":["c","b","a"]}}`, ParseOptions{}, `{} rev=3-c path=[3-c 2-b 1-a]`},
		{`{"_rev":"9-x","_revisions":{"start":4,"ids":["f4","f3"]}}`, ParseOptions{Replicated: true}, `{} rev=4-f4 path=[4-f4 3-f3]`},
		{`{"_revisions":{"ids":["f4"],"start":4},"_rev":"9-x"}`, ParseOptions{}, `{} rev=4-f4 path=[4-f4]`},
		{`{"_revisions":{"start":0,"ids":[]}}`, ParseOptions{}, `{}`},
		{`{"_revisions":{"start":0,"ids":["1"]}}`, ParseOptions{}, `{} rev=0-1`},
		{`{"_id":"_local/a","_revisions":{"start":0,"ids":["1"]}}`, ParseOptions{Replicated: true}, `{} id=_local/a rev=0-1`},
		{`{"_rev":"0-2","_revisions":{"start":0,"ids":["1"]}}`, ParseOptions{}, `{} rev=0-2`},
		{`{"_revisions":{"start":0,"ids":["1"]},"_rev":"0-2"}`, ParseOptions{}, `{} rev=0-2`},
		{`{"_deleted":false}`, ParseOptions{}, `{}`},
		{`{"\u005fid":"a","\u0061":1,"q\"":2}`, ParseOptions{}, `{"\u0061":1,"q\"":2} id=a`},
		{`{"_revs_info":[],"_local_seq":4,"_conflicts":["1-a"],"_deleted_conflicts":1,"k":1}`, ParseOptions{}, `{"k":1}`},
		{`{"_access":["a"],"_id":"x"}`, ParseOptions{}, `{"_access":["a"]} id=x`},
		{`{"_replication_state":"completed","_id":"x","_replication_stats":{}}`, ParseOptions{},
			`{"_replication_state":"completed","_replication_stats":{}} id=x`},
		{`{"_attachments":{}}`, ParseOptions{}, `{}`},
		{`{"_attachments":{"a/b":{"data":""},"c":{"stub":true,"content_type":"text/plain"}},"k":1}`, ParseOptions{},
			`{"k":1} att=a/b:application/octet-stream att=c:text/plain`},
		{`{"_id":"p:x"}`, ParseOptions{Partitioned: true}, `{} id=p:x`},
		{`{"":1,"_id":"a"}`, ParseOptions{}, `{"":1} id=a`},
		{`{"x":12}`, ParseOptions{MaxSize: 8}, `{"x":12}`},
		{`{"_id":"long enough","x":1,"_attachments":{"a":{"data":"aGk="}}}`, ParseOptions{MaxSize: 8},
			`{"x":1} id=long enough att=a:application/octet-stream`},
	}
	for _, test := range tests {
		in := normal(t, test.in)
		before := string(in)
		p, err := Parse(in, test.o)
		if err != nil {
			t.Errorf("%s: %v", test.in, err)
			continue
		}
		if got := describe(p); got != test.want {
			t.Errorf("%s\ngot  %s\nwant %s", test.in, got, test.want)
		}
		if string(in) != before {
			t.Errorf("%s: Parse changed its input", test.in)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	t.Parallel()
	tests := []struct {
		in           string
		o            ParseOptions
		name, reason string
	}{
		{`[1]`, ParseOptions{}, "bad_request", "Document must be a JSON object"},
		{`null`, ParseOptions{}, "bad_request", "Document must be a JSON object"},
		{`{"_foo":1}`, ParseOptions{}, "doc_validation", "Bad special document member: _foo"},
		{`{"\u005ffoo":1}`, ParseOptions{}, "doc_validation", "Bad special document member: _foo"},
		{`{"_":1}`, ParseOptions{}, "doc_validation", "Bad special document member: _"},
		{`{"_ID":"a"}`, ParseOptions{}, "doc_validation", "Bad special document member: _ID"},
		{`{"_replication_x":"x"}`, ParseOptions{}, "doc_validation", "Bad special document member: _replication_x"},
		{`{"_id":1}`, ParseOptions{}, "illegal_docid", "Document id must be a string"},
		{`{"_id":null}`, ParseOptions{}, "illegal_docid", "Document id must be a string"},
		{`{"_id":""}`, ParseOptions{}, "illegal_docid", "Document id must not be empty"},
		{`{"_id":"_b"}`, ParseOptions{}, "illegal_docid", "Only reserved document ids may start with underscore."},
		{`{"_id":"_b"}`, ParseOptions{ID: "a"}, "illegal_docid", "Only reserved document ids may start with underscore."},
		{`{"_id":"x"}`, ParseOptions{Partitioned: true}, "illegal_docid", "Doc id must be of form partition:id"},
		{`{"_rev":1}`, ParseOptions{}, "bad_request", "Invalid rev format"},
		{`{"_rev":"0-1"}`, ParseOptions{Replicated: true}, "bad_request", "Invalid rev format"},
		{`{"_rev":"x"}`, ParseOptions{}, "bad_request", "Invalid rev format"},
		{`{"_deleted":"yes"}`, ParseOptions{}, "doc_validation", "Bad special document member: _deleted"},
		{`{"_deleted":null}`, ParseOptions{}, "doc_validation", "Bad special document member: _deleted"},
		{`{"_revisions":[]}`, ParseOptions{}, "doc_validation", "Bad special document member: _revisions"},
		{`{"_revisions":{"start":"1","ids":["a"]}}`, ParseOptions{}, "doc_validation", "_revisions.start isn't an integer."},
		{`{"_revisions":{"ids":["a"]}}`, ParseOptions{}, "doc_validation", "_revisions.start isn't an integer."},
		{`{"_revisions":{"start":1.5,"ids":["a"]}}`, ParseOptions{}, "doc_validation", "_revisions.start isn't an integer."},
		{`{"_revisions":{"start":1,"ids":"a"}}`, ParseOptions{}, "doc_validation", "_revisions.ids isn't a array."},
		{`{"_revisions":{"start":1}}`, ParseOptions{}, "doc_validation", "_revisions.ids isn't a array."},
		{`{"_revisions":{"start":1,"ids":[1]}}`, ParseOptions{}, "doc_validation", "RevId isn't a string"},
		{`{"_revisions":{"start":1,"ids":[""]}}`, ParseOptions{}, "bad_request", "Invalid rev format"},
		{`{"_revisions":{"start":0,"ids":["1"]}}`, ParseOptions{Replicated: true}, "bad_request", "Invalid rev format"},
		{`{"_revisions":{"start":0,"ids":["b","a"]}}`, ParseOptions{}, "doc_validation", "_revisions.start doesn't fit the number of _revisions.ids."},
		{`{"_revisions":{"start":0,"ids":[1]}}`, ParseOptions{}, "doc_validation", "RevId isn't a string"},
		{`{"_revisions":{"start":1,"ids":["b","a"]}}`, ParseOptions{}, "doc_validation", "_revisions.start doesn't fit the number of _revisions.ids."},
		{`{"_revisions":{"start":3,"ids":[]}}`, ParseOptions{}, "doc_validation", "_revisions.start doesn't fit the number of _revisions.ids."},
		{`{"_revisions":{"start":9000000000000000000,"ids":["a"]}}`, ParseOptions{}, "doc_validation", "_revisions.start doesn't fit the number of _revisions.ids."},
		{`{"_attachments":[]}`, ParseOptions{}, "doc_validation", "Bad special document member: _attachments"},
		{`{"_attachments":{"i":{"data":"%%"}}}`, ParseOptions{}, "bad_request", "Invalid attachment data for i"},
		{`{"_attachments":{"i":{"data":"aGk"}}}`, ParseOptions{}, "bad_request", "Invalid attachment data for i"},
		{`{"_attachments":{"i":{"data":1}}}`, ParseOptions{}, "bad_request", "Invalid attachment data for i"},
		{`{"_attachments":{"i":{}}}`, ParseOptions{}, "bad_request", "Invalid attachment data for i"},
		{`{"_attachments":{"i":1}}`, ParseOptions{}, "bad_request", "Invalid attachment data for i"},
		{`{"_attachments":{"i":{"stub":true,"revpos":-1}}}`, ParseOptions{}, "bad_request", "Invalid attachment data for i"},
		{`{"_attachments":{"i":{"follows":true,"length":-1}}}`, ParseOptions{}, "bad_request", "Invalid attachment data for i"},
		{`{"_attachments":{"i":{"follows":true,"encoding":"br"}}}`, ParseOptions{}, "bad_request", "Invalid attachment data for i"},
		{`{"_attachments":{"i":{"data":"","content_type":"a\r\nX: y"}}}`, ParseOptions{}, "bad_request", "Invalid attachment data for i"},
		{`{"_attachments":{"_i":{"data":"aGk="}}}`, ParseOptions{}, "bad_request", "Attachment name '_i' starts with prohibited character '_'"},
		{`{"_id":"big","x":123}`, ParseOptions{MaxSize: 8}, "document_too_large", "big"},
		{`{"x":123}`, ParseOptions{MaxSize: 8, ID: "url"}, "document_too_large", "url"},
	}
	for _, test := range tests {
		_, err := Parse(normal(t, test.in), test.o)
		var e *model.Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", test.in, err)
			continue
		}
		kind := model.KindBadRequest
		if e.Name == "document_too_large" {
			kind = model.KindTooLarge
		}
		if e.Kind != kind || e.Name != test.name || e.Reason != test.reason {
			t.Errorf("%s\ngot  %v %q: %s\nwant %q: %s", test.in, e.Kind, e.Name, e.Reason, test.name, test.reason)
		}
	}
}

func TestParseAttachments(t *testing.T) {
	t.Parallel()
	p, err := Parse(normal(t, `{"_attachments":{
		"inline":{"content_type":"text/plain","data":"aGk\/ \r\naGk/","revpos":3,"encoding":"gzip","length":99,"digest":"md5-A1i+mIDX+Yjk7/iEJhLdyA=="},
		"stub":{"stub":true,"data":"%","revpos":2,"length":12,"digest":"md5-A1i+mIDX+Yjk7/iEJhLdyA==","content_type":"text/plain"},
		"gz":{"follows":true,"length":12,"encoding":"gzip","encoded_length":32,"digest":"sha-x"},
		"plain":{"follows":true,"length":5,"encoding":"identity","encoded_length":7}
	}}`), ParseOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Atts) != 4 {
		t.Fatalf("%d attachments", len(p.Atts))
	}
	in, stub, gz, plain := &p.Atts[0], &p.Atts[1], &p.Atts[2], &p.Atts[3]
	if !in.Inline || in.Stub || in.Follows || string(in.Data) != "hi?hi?" || in.Length != 6 || in.EncodedLength != 6 ||
		in.Encoding != "" || in.RevPos != 3 || in.HasDigest || in.ContentType != "text/plain" {
		t.Errorf("inline: %+v", *in)
	}
	if !stub.Stub || stub.Inline || stub.Data != nil || stub.RevPos != 2 || !stub.HasDigest || stub.Digest[0] != 0x03 || stub.Length != 12 {
		t.Errorf("stub: %+v", *stub)
	}
	if !gz.Follows || gz.Stub || gz.Length != 12 || gz.EncodedLength != 32 || gz.Encoding != "gzip" || gz.HasDigest ||
		gz.ContentType != DefaultContentType || gz.RevPos != 0 {
		t.Errorf("gzip: %+v", *gz)
	}
	if plain.Encoding != "" || plain.EncodedLength != 5 || !plain.HasLength {
		t.Errorf("identity: %+v", *plain)
	}
}

func TestValidateID(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", MaxIDLength)
	tests := []struct {
		id          string
		partitioned bool
		want        string // name: reason, "" if the id is good
	}{
		{"a", false, ""},
		{"é/ :", false, ""},
		{long, false, ""},
		{"_design/a", false, ""},
		{"_local/a", true, ""},
		{"_design/a", true, ""},
		{"p:a", true, ""},
		{"p:a:b", true, ""},
		{"", false, "illegal_docid: Document id must not be empty"},
		{"_design/", false, "illegal_docid: Illegal document id `_design/`"},
		{"_local/", false, "illegal_docid: Illegal document id `_local/`"},
		{"_design", false, "illegal_docid: Only reserved document ids may start with underscore."},
		{"_", false, "illegal_docid: Only reserved document ids may start with underscore."},
		{"a\xff", false, "illegal_docid: Document id must be valid UTF-8"},
		{long + "x", false, "illegal_docid: Document id is too long"},
		{"a", true, "illegal_docid: Doc id must be of form partition:id"},
		{":a", true, "illegal_partition: Partition must not be empty"},
		{"p:", true, "illegal_docid: Document id must not be empty"},
		{"p:_a", true, "illegal_docid: Only reserved document ids may start with underscore."},
	}
	for _, test := range tests {
		got := ""
		if err := ValidateID(test.id, test.partitioned); err != nil {
			got = err.Error()
		}
		if got != test.want {
			t.Errorf("%.20q, %v: %q, want %q", test.id, test.partitioned, got, test.want)
		}
	}
	for p, want := range map[string]string{
		"p": "", "é": "",
		"":      "illegal_partition: Partition must not be empty",
		"_p":    "illegal_partition: Partition must not start with an underscore",
		"p\xff": "illegal_partition: Partition must be valid UTF-8",
		"a:b":   "illegal_partition: Partition must not contain a colon",
	} {
		got := ""
		if err := ValidatePartition(p); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("partition %q: %q, want %q", p, got, want)
		}
	}
}

func TestNewRev(t *testing.T) {
	t.Parallel()
	att := func(name, typ string, digest byte) []model.Attachment {
		return []model.Attachment{{Name: name, ContentType: typ, Digest: [16]byte{digest}}}
	}
	parent := model.Rev{Pos: 1, Hash: "a"}
	edits := []model.Rev{
		NewRev(model.Rev{}, false, []byte(`{}`), nil),
		NewRev(model.Rev{}, true, []byte(`{}`), nil),
		NewRev(model.Rev{}, false, []byte(`{"a":1}`), nil),
		NewRev(parent, false, []byte(`{}`), nil),
		NewRev(model.Rev{Pos: 1, Hash: "b"}, false, []byte(`{}`), nil),
		NewRev(parent, false, []byte(`{}`), att("a", "b", 1)),
		NewRev(parent, false, []byte(`{}`), att("a", "b", 2)),
		NewRev(parent, false, []byte(`{}`), att("ab", "", 1)),
		NewRev(parent, false, []byte(`{}`), append(att("a", "b", 1), att("a", "b", 1)...)),
	}
	seen := map[string]int{}
	for i, r := range edits {
		want := uint64(2)
		if i < 3 {
			want = 1
		}
		if _, err := model.ParseRev(r.String()); err != nil || r.Pos != want || len(r.Hash) != 32 {
			t.Errorf("edit %d: %v, %v", i, r, err)
		}
		if k, dup := seen[r.Hash]; dup {
			t.Errorf("edits %d and %d are both %v", i, k, r)
		}
		seen[r.Hash] = i
	}
	if again := NewRev(parent, false, []byte(`{}`), att("a", "b", 1)); again != edits[5] {
		t.Errorf("the same edit gave %v and %v", edits[5], again)
	}
	// The copies of a database agree on this across releases: a change here
	// makes conflicts out of equal edits.
	if got := edits[0].String(); got != pinnedEmpty {
		t.Errorf("the empty document is %s, was %s", got, pinnedEmpty)
	}
}

// pinnedEmpty is the first revision of an empty document.
const pinnedEmpty = "1-4c56cc1882d226b78153104b848c9e56"
