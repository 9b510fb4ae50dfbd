package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// docList is an answer of _all_docs.
type docList struct {
	TotalRows *int64 `json:"total_rows"`
	Offset    *int64 `json:"offset"`
	UpdateSeq string `json:"update_seq"`
	Rows      []struct {
		ID    string         `json:"id"`
		Key   any            `json:"key"`
		Error string         `json:"error"`
		Value map[string]any `json:"value"`
		Doc   map[string]any `json:"doc"`
	} `json:"rows"`
}

// ids gives the ids of the rows, or the error in the place of one.
func (l *docList) ids() string {
	var out []string
	for _, r := range l.Rows {
		id := r.ID
		if r.Error != "" {
			id = fmt.Sprint(r.Key, "!", r.Error)
		}
		if r.Value["deleted"] == true {
			id += "-"
		}
		out = append(out, id)
	}
	return strings.Join(out, " ")
}

// getList asks for a list.
func getList(t *testing.T, s *testserver.Server, method, path string, body any) *docList {
	t.Helper()
	r := s.Do(t, method, path, body).Want(200)
	l := &docList{}
	if err := json.Unmarshal(r.Body, l); err != nil {
		t.Fatalf("%s: %v: %s", path, err, r.Body)
	}
	return l
}

// number shows a number or null.
func number(n *int64) string {
	if n == nil {
		return "null"
	}
	return fmt.Sprint(*n)
}

// The bytes of lists.
func TestListLayout(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	empty := "{\"total_rows\":0,\"offset\":0,\"rows\":[\r\n\r\n]}\n"
	if got := string(s.Do(t, "GET", db+"/_all_docs", nil).Want(200).Body); got != empty {
		t.Errorf("empty: %q", got)
	}
	a := s.Do(t, "PUT", db+"/a", `{"x":1}`).Want(201).Str("rev")
	b := s.Do(t, "PUT", db+"/b%22", `{}`).Want(201).Str("rev")
	d := s.Do(t, "PUT", db+"/_design/d", `{}`).Want(201).Str("rev")
	s.Do(t, "PUT", db+"/_local/l", `{"y":2}`).Want(201)
	gone := s.Do(t, "PUT", db+"/gone", `{}`).Want(201).Str("rev")
	gone = s.Do(t, "DELETE", db+"/gone?rev="+gone, nil).Want(200).Str("rev")
	row := func(id, rev string) string { return `{"id":` + id + `,"key":` + id + `,"value":{"rev":"` + rev + `"}}` }
	rowA, rowB, rowD := row(`"a"`, a), row(`"b\""`, b), row(`"_design/d"`, d)
	list := func(head string, rows ...string) string {
		return "{" + head + ",\"rows\":[\r\n" + strings.Join(rows, ",\r\n") + "\r\n]}"
	}
	docA := rowA[:len(rowA)-1] + `,"doc":{"_id":"a","_rev":"` + a + `","x":1}}`
	for _, x := range []struct{ method, path, body, want string }{
		{"GET", "/_all_docs", "", list(`"total_rows":3,"offset":0`, rowD, rowA, rowB)},
		{"GET", "/_all_docs?limit=1&skip=1&include_docs=true", "", list(`"total_rows":3,"offset":1`, docA)},
		{"POST", "/_all_docs", `{"keys":["a","none","gone",7]}`, list(`"total_rows":3,"offset":null`, rowA, `{"key":"none","error":"not_found"}`,
			`{"id":"gone","key":"gone","value":{"rev":"`+gone+`","deleted":true}}`, `{"key":7,"error":"not_found"}`)},
		{"POST", "/_all_docs?include_docs=true", `{"keys":["gone","a"]}`, list(`"total_rows":3,"offset":null`,
			`{"id":"gone","key":"gone","value":{"rev":"`+gone+`","deleted":true},"doc":null}`, docA)},
		{"GET", "/_design_docs", "", list(`"total_rows":1,"offset":0`, rowD)},
		{"POST", "/_design_docs", `{"keys":["_design/d","a"]}`, list(`"total_rows":1,"offset":null`, rowD, `{"key":"a","error":"not_found"}`)},
		{"GET", "/_local_docs", "", list(`"total_rows":null,"offset":null`, row(`"_local/l"`, "0-1"))},
		{"GET", "/_local_docs?include_docs=true", "", list(`"total_rows":null,"offset":null`,
			`{"id":"_local/l","key":"_local/l","value":{"rev":"0-1"},"doc":{"_id":"_local/l","_rev":"0-1","y":2}}`)},
		{"POST", "/_local_docs", `{"keys":["_local/l","_local/m"]}`, list(`"total_rows":null,"offset":null`, row(`"_local/l"`, "0-1"), `{"key":"_local/m","error":"not_found"}`)},
		{"POST", "/_all_docs/queries", `{"queries":[{"key":"a"},{"limit":1,"descending":true}]}`,
			"{\"results\":[\r\n" + list(`"total_rows":3,"offset":1`, rowA) + ",\r\n" + list(`"total_rows":3,"offset":0`, rowB) + "\r\n]}"},
		{"POST", "/_all_docs", `{"queries":[{"limit":0}]}`, "{\"results\":[\r\n" + list(`"total_rows":3,"offset":0`) + "\r\n]}"},
		{"POST", "/_design_docs/queries", `{"queries":[{}]}`, "{\"results\":[\r\n" + list(`"total_rows":1,"offset":0`, rowD) + "\r\n]}"},
		{"POST", "/_local_docs/queries", `{"queries":[{}]}`, "{\"results\":[\r\n" + list(`"total_rows":null,"offset":null`, row(`"_local/l"`, "0-1")) + "\r\n]}"},
	} {
		var body any
		if x.body != "" {
			body = x.body
		}
		r := s.Do(t, x.method, db+x.path, body).Want(200)
		if got := string(r.Body); got != x.want+"\n" {
			t.Errorf("%s %s %s\ngot  %q\nwant %q", x.method, x.path, x.body, got, x.want+"\n")
		}
		if r.Header.Get("ETag") == "" || r.Header.Get("Content-Type") != "text/plain;charset=utf-8" {
			t.Errorf("%s: %v", x.path, r.Header)
		}
	}
	if head := s.Do(t, "HEAD", db+"/_all_docs", nil).Want(200); len(head.Body) != 0 {
		t.Errorf("HEAD: %s", head.Body)
	}
	one, two := s.Do(t, "GET", db+"/_all_docs", nil), s.Do(t, "GET", db+"/_all_docs", nil)
	if one.Header.Get("ETag") == two.Header.Get("ETag") {
		t.Error("the ETags of two lists are the same")
	}
	if l := getList(t, s, "GET", db+"/_all_docs?update_seq=true&limit=0", nil); l.UpdateSeq != s.Do(t, "GET", db, nil).Str("update_seq") {
		t.Errorf("update_seq %s", l.UpdateSeq)
	}
}

func TestListParameters(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	for _, q := range []string{"q=1", "q=4"} {
		db := "/" + s.DB(t, q)
		s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"a"},{"_id":"b"},{"_id":"c"},{"_id":"d"},{"_id":"B"},{"_id":"é"}]}`).Want(201)
		// In the order of bytes: B a b c d é
		for _, x := range []struct{ query, ids, offset string }{
			{``, "B a b c d é", "0"},
			{`startkey="b"`, "b c d é", "2"},
			{`start_key="b"&end_key="c"`, "b c", "2"},
			{`startkey="b"&endkey="c"&inclusive_end=false`, "b", "2"},
			{`startkey="bb"&endkey="zz"`, "c d", "3"},
			{`key="c"`, "c", "3"},
			{`key="none"`, "", "5"},
			{`key="c"&inclusive_end=false`, "", "3"},
			{`startkey="d"&endkey="a"`, "", "4"},
			{`startkey="d"&endkey="b"&descending=true`, "d c b", "1"},
			{`startkey="d"&endkey="b"&descending=true&inclusive_end=false`, "d c", "1"},
			{`descending=true&limit=2&skip=1`, "d c", "1"},
			{`limit=0`, "", "0"},
			{`limit=2&skip=5`, "é", "5"},
			{`skip=100`, "", "6"},
			{`startkey=1`, "B a b c d é", "0"},
			{`startkey=null&endkey={}`, "B a b c d é", "0"},
			{`startkey={}`, "", "6"},
			{`endkey=1`, "", "0"},
			{`endkey=[]&descending=true`, "", "0"},
			{`startkey=[]&descending=true`, "é d c b a B", "0"},
			{`startkey=5&descending=true`, "", "6"},
			{`keys=["c","a","x","a"]`, "c a x!not_found a", "null"},
			{`keys=["c","a","x"]&limit=1&skip=1`, "a", "null"},
			{`keys=["c","a","x"]&descending=true`, "x!not_found a c", "null"},
			{`keys=[]`, "", "null"},
			{`startkey="c"&startkey_docid=x&reduce=false&stable=true&r=2`, "c d é", "3"},
		} {
			path := db + "/_all_docs"
			values := url.Values{}
			for _, p := range strings.Split(x.query, "&") {
				if name, v, ok := strings.Cut(p, "="); ok {
					values.Set(name, v)
				}
			}
			// The same question as a GET, in the body of a POST, and as one of several.
			var members []string
			for name := range values {
				v := values.Get(name)
				if !json.Valid([]byte(v)) {
					v = `"` + v + `"`
				}
				members = append(members, `"`+name+`":`+v)
			}
			object := "{" + strings.Join(members, ",") + "}"
			many := s.Do(t, "POST", path+"/queries", `{"queries":[`+object+`]}`).Want(200)
			var several struct{ Results []docList }
			if err := json.Unmarshal(many.Body, &several); err != nil || len(several.Results) != 1 {
				t.Fatalf("%s: %v: %s", object, err, many.Body)
			}
			for how, l := range map[string]*docList{
				"GET":     getList(t, s, "GET", path+"?"+values.Encode(), nil),
				"POST":    getList(t, s, "POST", path, object),
				"queries": &several.Results[0],
			} {
				if l.ids() != x.ids || number(l.Offset) != x.offset || number(l.TotalRows) != "6" {
					t.Errorf("%s %s %s: %s, offset %s, total %s", q, how, x.query, l.ids(), number(l.Offset), number(l.TotalRows))
				}
			}
		}
		for _, x := range []struct{ query, name string }{
			{`keys=["a"]&key="a"`, "query_parse_error"},
			{`keys=["a"]&startkey="a"`, "query_parse_error"},
			{`keys=5`, "bad_request"},
			{`limit=-1`, "query_parse_error"},
			{`skip=x`, "query_parse_error"},
			{`include_docs=x`, "query_parse_error"},
			{`startkey=x`, "bad_request"},
		} {
			r := s.Do(t, "GET", db+"/_all_docs?"+strings.ReplaceAll(x.query, `"`, "%22"), nil).Want(400)
			if r.Str("error") != x.name {
				t.Errorf("%s: %s", x.query, r.Body)
			}
		}
		s.Do(t, "POST", db+"/_all_docs/queries", `{}`).Want(400)
		s.Do(t, "POST", db+"/_all_docs/queries", `{"queries":[1]}`).Want(400)
		s.Do(t, "POST", db+"/_all_docs", `{"keys":["a"]}`, "Content-Type", "text/plain").Want(415)
	}
}

// Lists against a sorted slice, for any number of ranges.
func TestListModel(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	for _, q := range []int{1, 3} {
		rnd := rand.New(rand.NewPCG(7, uint64(q)))
		db := "/" + s.DB(t, fmt.Sprintf("q=%d", q))
		var ids, docs []string
		for i := range 400 {
			id := fmt.Sprintf("%x-%d", rnd.Uint32(), i)
			ids = append(ids, id)
			docs = append(docs, `{"_id":"`+id+`"}`)
		}
		s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[`+strings.Join(docs, ",")+`]}`).Want(201)
		slices.Sort(ids)
		for range 60 {
			low, high := rnd.IntN(len(ids)), rnd.IntN(len(ids))
			if low > high {
				low, high = high, low
			}
			limit, skip, descending := rnd.IntN(len(ids)), rnd.IntN(50), rnd.IntN(2) == 0
			want := slices.Clone(ids[low : high+1])
			start, end, offset := ids[low], ids[high], low
			if descending {
				slices.Reverse(want)
				start, end, offset = end, start, len(ids)-1-high
			}
			offset = min(offset+skip, len(ids))
			want = want[min(skip, len(want)):]
			want = want[:min(limit, len(want))]
			l := getList(t, s, "POST", db+"/_all_docs", fmt.Sprintf(`{"start_key":%q,"end_key":%q,"limit":%d,"skip":%d,"descending":%v}`, start, end, limit, skip, descending))
			if l.ids() != strings.Join(want, " ") || number(l.Offset) != fmt.Sprint(offset) {
				t.Fatalf("q=%d %q to %q limit %d skip %d descending %v: offset %s, want %d\ngot  %s\nwant %s", q, start, end, limit, skip, descending, number(l.Offset), offset, l.ids(), want)
			}
		}
	}
}

// What a row shows of its document.
func TestListDocuments(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	conflicted(t, s, db, "c")
	s.Do(t, "PUT", db+"/a", `{"_attachments":{"f":{"content_type":"image/png","data":"AQID"}}}`).Want(201)
	doc := func(query, id string) map[string]any {
		t.Helper()
		for _, l := range []*docList{getList(t, s, "GET", db+"/_all_docs?include_docs=true&"+query, nil),
			getList(t, s, "POST", db+"/_all_docs?include_docs=true&"+query, `{"keys":["`+id+`"]}`)} {
			for _, r := range l.Rows {
				if r.ID == id {
					return r.Doc
				}
			}
		}
		t.Fatalf("no %s", id)
		return nil
	}
	if d := doc("", "c"); d["_conflicts"] != nil || d["_revs_info"] != nil || d["_id"] != "c" {
		t.Errorf("plain: %v", d)
	}
	if d := doc("conflicts=true", "c"); d["_conflicts"] == nil || d["_deleted_conflicts"] != nil {
		t.Errorf("conflicts: %v", d)
	}
	if d := doc("deleted_conflicts=true", "c"); d["_conflicts"] != nil || d["_deleted_conflicts"] == nil {
		t.Errorf("deleted_conflicts: %v", d)
	}
	if d := doc("meta=true", "c"); d["_conflicts"] == nil || d["_deleted_conflicts"] == nil || d["_revs_info"] == nil {
		t.Errorf("meta: %v", d)
	}
	att := func(d map[string]any) map[string]any { return d["_attachments"].(map[string]any)["f"].(map[string]any) }
	if f := att(doc("", "a")); f["stub"] != true || f["data"] != nil {
		t.Errorf("stub: %v", f)
	}
	if f := att(doc("attachments=true", "a")); f["data"] != "AQID" {
		t.Errorf("attachment: %v", f)
	}
}

func TestPartitions(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t, "partitioned=true", "q=3")
	for _, id := range []string{"o:9", "p:1", "p:2", "p:3", "p:gone", "pq:1", "q:1", "_design/d"} {
		s.Do(t, "PUT", db+"/"+id, `{"n":1}`).Want(201)
	}
	rev := s.Do(t, "GET", db+"/p:gone", nil).Str("_rev")
	s.Do(t, "DELETE", db+"/p:gone?rev="+rev, nil).Want(200)
	info := s.Do(t, "GET", db+"/_partition/p", nil).Want(200).Object()
	if info["doc_count"] != 3.0 || info["doc_del_count"] != 1.0 || info["partition"] != "p" || "/"+info["db_name"].(string) != db {
		t.Errorf("%v", info)
	}
	if sizes := info["sizes"].(map[string]any); sizes["active"].(float64) <= 0 || sizes["external"].(float64) <= 0 {
		t.Errorf("%v", sizes)
	}
	for _, x := range []struct{ query, ids, offset string }{
		{``, "p:1 p:2 p:3", "0"},
		{`?descending=true`, "p:3 p:2 p:1", "0"},
		{`?limit=1&skip=1`, "p:2", "1"},
		{`?startkey="p:2"`, "p:2 p:3", "1"},
		{`?endkey="p:2"`, "p:1 p:2", "0"},
		{`?startkey="o"&endkey="q"`, "p:1 p:2 p:3", "0"},
		{`?startkey="p:2"&descending=true`, "p:2 p:1", "1"},
		{`?startkey="z"&endkey="a"&descending=true`, "p:3 p:2 p:1", "0"},
		{`?key="q:1"`, "", ""},
		{`?keys=["p:2","q:1","p:gone"]`, "p:2 q:1!not_found p:gone-", "null"},
	} {
		l := getList(t, s, "GET", db+"/_partition/p/_all_docs"+strings.ReplaceAll(x.query, `"`, "%22"), nil)
		if l.ids() != x.ids || x.offset != "" && number(l.Offset) != x.offset || number(l.TotalRows) != "3" {
			t.Errorf("%s: %s, offset %s, total %s", x.query, l.ids(), number(l.Offset), number(l.TotalRows))
		}
	}
	if l := getList(t, s, "POST", db+"/_partition/p/_all_docs", `{"limit":1,"include_docs":true}`); l.ids() != "p:1" || l.Rows[0].Doc["n"] != 1.0 {
		t.Errorf("POST: %s", l.ids())
	}
	if l := getList(t, s, "GET", db+"/_partition/none/_all_docs", nil); l.ids() != "" || number(l.TotalRows) != "0" || number(l.Offset) != "0" {
		t.Errorf("an empty partition: %+v", l)
	}
	for _, bad := range []string{"/_partition", "/_partition/", "/_partition//_all_docs", "/_partition/_p", "/_partition/_p/_all_docs", "/_partition/_p/x", "/_partition/a%3Ab"} {
		s.Do(t, "GET", db+bad, nil).Want(400)
	}
	s.Do(t, "GET", db+"/_partition/p/_nothing", nil).Want(404)
	s.Do(t, "GET", db+"/_partition/p/_design/d/_view/v", nil).Want(404)
	if r := s.Do(t, "PUT", "/_replicator?partitioned=true", nil).Want(400); r.Str("reason") != "Cannot partition a system database" {
		t.Errorf("%s", r.Body)
	}
	s.Do(t, "PUT", db+"/nopartition", `{}`).Want(400)
	plain := "/" + s.DB(t)
	for _, path := range []string{"/_partition/p", "/_partition/p/_all_docs"} {
		if r := s.Do(t, "GET", plain+path, nil).Want(400); r.Str("reason") != "database is not partitioned" {
			t.Errorf("%s: %s", path, r.Body)
		}
	}
}

// Who leaves in the middle of an answer is no fault: nothing in the log, and the
// server stops without waiting for them.
func TestClientLeaves(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	s.Do(t, "PUT", "/db", nil).Want(201)
	docs := make([]string, 200)
	for i := range docs {
		docs[i] = fmt.Sprintf(`{"_id":"d%d","text":%q}`, i, strings.Repeat("x", 100_000))
	}
	s.Do(t, "POST", "/db/_bulk_docs", `{"docs":[`+strings.Join(docs, ",")+`]}`).Want(201)
	for _, path := range []string{"/db/_all_docs?include_docs=true", "/db/_changes?include_docs=true", "/db/_changes?feed=continuous&include_docs=true", "/db/_changes?feed=longpoll&since=now", "/_db_updates?feed=continuous"} {
		ctx, cancel := context.WithCancel(context.Background())
		res := s.Stream(t, ctx, "GET", path, nil)
		if _, err := res.Body.Read(make([]byte, 10)); err != nil {
			t.Errorf("%s: %v", path, err)
		}
		cancel()
	}
	s.Stop(t)
	if log := s.Log(); strings.Contains(log, "failed") || strings.Contains(log, "ERROR") {
		t.Errorf("the log speaks of it:\n%s", log)
	}
}

// Parameters in the body of a POST: those of the query string win, and null is a
// key where a key is asked for.
func TestListBody(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"a"},{"_id":"b"},{"_id":"c"}]}`).Want(201)
	for _, x := range []struct{ query, body, ids string }{
		{``, `{"limit":2}`, "a b"},
		{`?limit=1`, `{"limit":2}`, "a"},
		{`?limit=0`, `{"keys":["a","b"],"limit":2}`, ""},
		{`?limit=1`, `{"keys":["c","b"]}`, "c"},
		{`?descending=true`, `{"descending":false}`, "c b a"},
		{``, `{"limit":null,"skip":null,"descending":null,"keys":null}`, "a b c"},
		{``, `{"startkey":null}`, "a b c"},
		{``, `{"endkey":null}`, ""},
		{``, `{"key":null}`, ""},
	} {
		if l := getList(t, s, "POST", db+"/_all_docs"+x.query, x.body); l.ids() != x.ids {
			t.Errorf("%s %s: %s, want %s", x.query, x.body, l.ids(), x.ids)
		}
	}
	if r := s.Do(t, "POST", db+"/_all_docs", `{"keys":1}`).Want(400); r.Str("reason") != "`keys` body member must be an array." {
		t.Errorf("%s", r.Body)
	}
}
