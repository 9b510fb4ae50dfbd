package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/design"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// viewSourceOf makes a source of a query string and a body.
func viewSourceOf(t testing.TB, query, body string) *viewSource {
	src := &viewSource{rq: &request{r: &http.Request{URL: &url.URL{RawQuery: query}}}, maxDepth: 100}
	if body != "" {
		var err error
		if src.obj, err = rawjson.Normalize(nil, []byte(body), 100); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
	}
	return src
}

// show writes down what a question asks.
func (q *viewQuery) show() string {
	var b strings.Builder
	for i, r := range q.ranges() {
		if i > 0 {
			b.WriteByte(' ')
		}
		fmt.Fprintf(&b, "%s", r.Start)
		if r.HasStartID {
			fmt.Fprintf(&b, "/%s", r.StartID)
		}
		fmt.Fprintf(&b, "..%s", r.End)
		if r.HasEndID {
			fmt.Fprintf(&b, "/%s", r.EndID)
		}
		if r.ExclusiveEnd {
			b.WriteByte(')')
		}
	}
	part := func(say bool, format string, args ...any) {
		if say {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	part(q.descending, "down")
	part(q.limit >= 0, "limit %d", q.limit)
	part(q.skip > 0, "skip %d", q.skip)
	part(q.reduced, "level %d", q.level)
	part(q.includeDocs, "docs")
	part(q.update == shardapi.UpdateNever, "never")
	part(q.update == shardapi.UpdateAfter, "after")
	part(q.updateSeq, "seq")
	part(!q.sorted, "unsorted")
	part(q.partition != "", "in %s", q.partition)
	return b.String()
}

// Each parameter in a query string and in a body, and what it comes to. "map:" asks a
// view without a reduction, "part:" a partitioned one.
func TestViewParameters(t *testing.T) {
	t.Parallel()
	for _, x := range []struct{ query, body, want string }{
		{``, ``, `.. level 0`},
		{`map:`, ``, `..`},
		{`map:startkey=1&endkey="b"`, ``, `1.."b"`},
		{`map:start_key=1&end_key="b"`, ``, `1.."b"`},
		{`map:key= [1, "a"] `, ``, `[1,"a"]..[1,"a"]`},
		{`map:key=null`, ``, `null..null`},
		{`map:keys=[1,2]`, ``, `1..1 2..2`},
		{`map:keys=[1]`, ``, `1..1`},
		{`map:keys=[]`, ``, ``},
		{`map:keys=[]&startkey=1`, ``, ``},
		{`map:startkey=1&startkey_docid=a&endkey=2&endkey_docid="b"`, ``, `1/a..2/"b"`},
		{`map:startkey=1&start_key_doc_id=a&endkey=2&end_key_doc_id=b`, ``, `1/a..2/b`},
		{`map:keys=[1,2]&startkey_docid=a`, ``, `1/a..1 2/a..2`},
		{`map:endkey=2&inclusive_end=false`, ``, `..2)`},
		{`map:descending=TRUE&limit=0&skip=3`, ``, `.. down limit 0 skip 3`},
		{`map:limit=99999999999999999999`, ``, `.. limit 9223372036854775807`},
		{`map:include_docs=true&conflicts=true&attachments=true&att_encoding_info=true`, ``, `.. docs`},
		{`map:update_seq=true&sorted=false`, ``, `.. seq unsorted`},
		{`map:reduce=false&group=false&group_level=0`, ``, `..`},
		{`reduce=false&include_docs=true`, ``, `.. docs`},
		{`reduce=true`, ``, `.. level 0`},
		{`group=true`, ``, `.. level -1`},
		{`group=false`, ``, `.. level 0`},
		{`group_level=2`, ``, `.. level 2`},
		{`group=true&group_level=2`, ``, `.. level 2`},
		{`group=false&group_level=0`, ``, `.. level 0`},
		{`keys=[1,2]&group=true`, ``, `1..1 2..2 level -1`},
		{`keys=[1]`, ``, `1..1 level 0`},
		{`map:stale=ok`, ``, `.. never`},
		{`map:stale=update_after`, ``, `.. after`},
		{`map:update=true&stable=true`, ``, `..`},
		{`map:update=false&stable=false`, ``, `.. never`},
		{`map:update=lazy`, ``, `.. after`},
		{`map:callback=x&unknown=%FF`, ``, `..`},
		{`part:partition=p`, ``, `.. in p`},

		{`map:`, `{"startkey":1,"end_key":null,"startkey_docid":"a"}`, `1/a..null`},
		{`map:`, `{"key":null,"limit":null,"skip":null,"descending":null,"keys":null,"update":null}`, `null..null`},
		{`map:`, `{"keys":[1,[2]]}`, `1..1 [2]..[2]`},
		{`map:`, `{"limit":1,"descending":true,"inclusive_end":"false","update":false,"stable":true}`, `..) down limit 1 never`},
		{`map:limit=1`, `{"limit":2,"skip":3}`, `.. limit 1 skip 3`},
		{`map:start_key=1`, `{"startkey":2}`, `1..`},
		{`part:`, `{"partition":"p"}`, `.. in p`},

		{`map:limit=x`, ``, `query_parse_error: Invalid value for integer: "x"`},
		{`map:limit=`, ``, `query_parse_error: Invalid value for integer: ""`},
		{`map:limit=1.5`, ``, `query_parse_error: Invalid value for integer: "1.5"`},
		{`map:skip=-1`, ``, `query_parse_error: Invalid value for positive integer: "-1"`},
		{`group_level=-1`, ``, `query_parse_error: Invalid value for positive integer: "-1"`},
		{`map:descending=x`, ``, `query_parse_error: Invalid boolean parameter: "x"`},
		{`map:sorted=1`, ``, `query_parse_error: Invalid boolean parameter: "1"`},
		{`map:attachments=1`, ``, `query_parse_error: Invalid boolean parameter: "1"`},
		{`map:startkey=x`, ``, `bad_request: invalid UTF-8 JSON`},
		{`map:keys=x`, ``, `bad_request: invalid UTF-8 JSON`},
		{`map:keys=5`, ``, "query_parse_error: `keys` must be an array of strings."},
		{`map:stale=no`, ``, "query_parse_error: Invalid value for `stale`."},
		{`map:stable=no`, ``, "query_parse_error: Invalid value for `stable`."},
		{`map:update=no`, ``, "query_parse_error: Invalid value for `update`."},
		{`map:partition=_p`, ``, "illegal_partition: Partition must not start with an underscore"},
		{`map:`, `{"limit":"x"}`, `query_parse_error: Invalid value for integer: "x"`},
		{`map:`, `{"limit":"5"}`, `query_parse_error: Invalid value for integer: "5"`},
		{`map:`, `{"limit":-5}`, `query_parse_error: Invalid value for positive integer: -5`},
		{`map:`, `{"limit":1.5}`, `query_parse_error: Invalid value for integer: 1.5`},
		{`map:`, `{"limit":[` + strings.Repeat("1,", 100) + `1]}`, `query_parse_error: Invalid value for integer: [` + strings.Repeat("1,", 49) + "1…"},
		{`map:`, `{"descending":1}`, `query_parse_error: Invalid boolean parameter: 1`},
		{`map:`, `{"keys":1}`, "bad_request: `keys` body member must be an array."},
		{`map:`, `{"startkey_docid":1}`, "query_parse_error: `start_key_docid` must be a string."},
		{`map:`, `{"end_key_doc_id":1}`, "query_parse_error: `end_key_docid` must be a string."},
		{`map:`, `{"partition":1}`, "query_parse_error: `partition` must be a string."},
		{`map:`, `{"update":1}`, "query_parse_error: Invalid value for `update`."},

		{`map:group=true`, ``, "query_parse_error: Invalid use of grouping on a map view."},
		{`map:group_level=1`, ``, "query_parse_error: Invalid use of grouping on a map view."},
		{`reduce=false&group=true`, ``, "query_parse_error: Invalid use of grouping on a map view."},
		{`map:reduce=true`, ``, "query_parse_error: Reduce is invalid for map-only views."},
		{`group=false&group_level=1`, ``, "query_parse_error: Can't specify group=false and group_level>0 at the same time"},
		{`keys=[1,2]`, ``, "query_parse_error: Multi-key fetches for reduce views must use `group=true`"},
		{`keys=[1,2]&group_level=1`, ``, "query_parse_error: Multi-key fetches for reduce views must use `group=true`"},
		{`map:keys=[1]&key=1`, ``, "query_parse_error: `keys` is incompatible with `key`, `start_key` and `end_key`"},
		{`map:keys=[1,2]&endkey=1`, ``, "query_parse_error: `keys` is incompatible with `key`, `start_key` and `end_key`"},
		{`include_docs=true`, ``, "query_parse_error: `include_docs` is invalid for reduce"},
		{`conflicts=false`, ``, "query_parse_error: `conflicts` is invalid for reduce views."},
		{`part:`, ``, "query_parse_error: `partition` parameter is mandatory for queries to this view."},
		{`map:partition=p`, ``, "query_parse_error: `partition` parameter is not supported in this design doc"},
	} {
		v := &design.View{Reduce: "_count"}
		query := x.query
		if rest, ok := strings.CutPrefix(query, "map:"); ok {
			v.Reduce, query = "", rest
		}
		if rest, ok := strings.CutPrefix(query, "part:"); ok {
			v.Reduce, v.Partitioned, query = "", true, rest
		}
		q, err := readViewQuery(viewSourceOf(t, strings.NewReplacer(" ", "%20", `"`, "%22").Replace(query), x.body))
		if err == nil {
			err = q.fit(v)
		}
		got := ""
		if err != nil {
			got = err.Error()
		} else {
			got = q.show()
		}
		if got != x.want {
			t.Errorf("%s %s:\ngot  %s\nwant %s", x.query, x.body, got, x.want)
		}
	}
}

// One of several queries wins over the query string they have in common.
func TestViewParametersOfQueries(t *testing.T) {
	t.Parallel()
	src := viewSourceOf(t, "limit=1&descending=true&start_key=9", `{"limit":2,"startkey":8}`)
	src.objFirst = true
	q, err := readViewQuery(src)
	if err != nil {
		t.Fatal(err)
	}
	if got := q.show(); got != "8.. down limit 2" {
		t.Errorf("%s", got)
	}
}

// Whatever a client sends is understood or refused with words, and what was
// understood is in bounds.
func FuzzViewParameters(f *testing.F) {
	f.Add(`startkey=[1]&endkey="x"&limit=3&group_level=2&stale=ok`, `{"keys":[1,2],"skip":2}`)
	f.Add(`keys=[1]&update=lazy&partition=p`, `{"start_key_doc_id":"a","sorted":false}`)
	f.Add(`limit=-1`, `{"limit":1e9}`)
	f.Fuzz(func(t *testing.T, query, body string) {
		if _, err := rawjson.Normalize(nil, []byte(body), 100); err != nil && body != "" {
			return // such a body is refused before its parameters are looked at
		}
		src := viewSourceOf(t, query, body)
		for _, first := range []bool{false, true} {
			src.objFirst = first
			q, err := readViewQuery(src)
			for _, v := range []*design.View{{}, {Reduce: "_sum"}, {Partitioned: true}} {
				if err == nil {
					err = q.fit(v)
				}
				if err != nil {
					var e *model.Error
					if !errors.As(err, &e) || e.Reason == "" || e.Kind != model.KindBadRequest && e.Kind != model.KindTooLarge {
						t.Fatalf("%q %q: %v", query, body, err)
					}
					if q == nil {
						continue
					}
					err = nil
				}
				if q.limit < -1 || q.skip < 0 || q.level < shardapi.GroupExact {
					t.Fatalf("%q %q: %s", query, body, q.show())
				}
				for _, r := range q.ranges() {
					for _, key := range [][]byte{r.Start, r.End} {
						if norm, err := rawjson.Normalize(nil, key, 100); key != nil && (err != nil || string(norm) != string(key)) {
							t.Fatalf("%q %q: the key %q is not in normal form", query, body, key)
						}
					}
				}
			}
		}
	})
}
