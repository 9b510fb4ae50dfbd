package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/testserver"
)

// tokens finds sequence tokens, which no test can foretell.
var tokens = regexp.MustCompile(`("seq":|"last_seq":|id: )"[0-9]+-[A-Za-z0-9_-]+"`)

// framed gives the text of a feed with its tokens made alike.
func framed(body []byte) string { return tokens.ReplaceAllString(string(body), `$1"T"`) }

// change is a row of _changes.
type change struct {
	Seq     any                 `json:"seq"`
	ID      string              `json:"id"`
	Changes []map[string]string `json:"changes"`
	Deleted bool                `json:"deleted"`
	Doc     map[string]any      `json:"doc"`
}

// changesList is a whole answer of _changes.
type changesList struct {
	Results []change `json:"results"`
	LastSeq string   `json:"last_seq"`
	Pending *int64   `json:"pending"`
}

// ids gives the ids of the rows in order.
func (l *changesList) ids() []string {
	out := make([]string, 0, len(l.Results))
	for _, r := range l.Results {
		out = append(out, r.ID)
	}
	slices.Sort(out)
	return out
}

// getChanges asks and reads.
func getChanges(t *testing.T, s *testserver.Server, method, path string, body any) *changesList {
	t.Helper()
	r := s.Do(t, method, path, body).Want(200)
	l := &changesList{}
	if err := json.Unmarshal(r.Body, l); err != nil {
		t.Fatalf("%s: %v: %s", path, err, r.Body)
	}
	if l.Pending == nil || l.LastSeq == "" {
		t.Fatalf("%s: no pending or last_seq: %s", path, r.Body)
	}
	return l
}

// threeChanges makes a database with a, b (deleted) and c; the rows of a and c
// have the revisions that are given back.
func threeChanges(t *testing.T, s *testserver.Server, query string) (db, a, b, c string) {
	t.Helper()
	db = "/" + s.DB(t, query)
	a = s.Do(t, "PUT", db+"/a", `{"type":"x"}`).Want(201).Str("rev")
	b = s.Do(t, "PUT", db+"/b", `{"type":"x"}`).Want(201).Str("rev")
	b = s.Do(t, "DELETE", db+"/b?rev="+b, nil).Want(200).Str("rev")
	c = s.Do(t, "PUT", db+"/c", `{"type":"y","n":1.50}`).Want(201).Str("rev")
	return db, a, b, c
}

// The bytes of every kind of feed.
func TestChangesLayout(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db, a, b, c := threeChanges(t, s, "q=1")
	rowA := `{"seq":"T","id":"a","changes":[{"rev":"` + a + `"}]}`
	rowB := `{"seq":"T","id":"b","changes":[{"rev":"` + b + `"}],"deleted":true}`
	rowC := `{"seq":"T","id":"c","changes":[{"rev":"` + c + `"}]}`
	whole := "{\"results\":[\n" + rowA + ",\r\n" + rowB + ",\r\n" + rowC + "\n],\n\"last_seq\":\"T\",\"pending\":0}\n\n"
	event := func(row string) string { return "data: " + row + "\nid: \"T\"\n\n" }
	for _, x := range []struct{ query, want string }{
		{"", whole},
		{"?feed=normal", whole},
		{"?feed=longpoll", whole},
		{"?limit=0", "{\"results\":[\n\n],\n\"last_seq\":\"T\",\"pending\":3}\n\n"},
		{"?limit=2", "{\"results\":[\n" + rowA + ",\r\n" + rowB + "\n],\n\"last_seq\":\"T\",\"pending\":1}\n\n"},
		{"?descending=true", "{\"results\":[\n" + rowC + ",\r\n" + rowB + ",\r\n" + rowA + "\n],\n\"last_seq\":\"T\",\"pending\":0}\n\n"},
		{"?since=now", "{\"results\":[\n\n],\n\"last_seq\":\"T\",\"pending\":0}\n\n"},
		{"?feed=longpoll&since=now&timeout=20", "{\"results\":[\n\n\n],\n\"last_seq\":\"T\",\"pending\":0}\n\n"},
		{"?feed=continuous&timeout=20", rowA + "\n" + rowB + "\n" + rowC + "\n{\"last_seq\":\"T\",\"pending\":0}\n\n"},
		{"?feed=live&timeout=20", rowA + "\n" + rowB + "\n" + rowC + "\n{\"last_seq\":\"T\",\"pending\":0}\n\n"},
		{"?feed=continuous&limit=2", rowA + "\n" + rowB + "\n{\"last_seq\":\"T\",\"pending\":1}\n\n"},
		{"?feed=eventsource&timeout=20", event(rowA) + event(rowB) + event(rowC)},
		{"?include_docs=true&limit=1", "{\"results\":[\n" + rowA[:len(rowA)-1] + `,"doc":{"_id":"a","_rev":"` + a + "\",\"type\":\"x\"}}\n],\n\"last_seq\":\"T\",\"pending\":2}\n\n"},
		{"?seq_interval=2", "{\"results\":[\n" + rowA + ",\r\n" + strings.Replace(rowB, `"T"`, "null", 1) + ",\r\n" + rowC + "\n],\n\"last_seq\":\"T\",\"pending\":0}\n\n"},
	} {
		r := s.Do(t, "GET", db+"/_changes"+x.query, nil, "Accept", "application/json").Want(200)
		if got := framed(r.Body); got != x.want {
			t.Errorf("%s\ngot  %q\nwant %q", x.query, got, x.want)
		}
		kind := "application/json"
		if strings.Contains(x.query, "eventsource") {
			kind = "text/event-stream"
		}
		if got := r.Header.Get("Content-Type"); got != kind {
			t.Errorf("%s: Content-Type %s", x.query, got)
		}
		head := s.Do(t, "HEAD", db+"/_changes"+x.query, nil).Want(200)
		if len(head.Body) != 0 {
			t.Errorf("HEAD %s: %q", x.query, head.Body)
		}
	}
	one := s.Do(t, "GET", db+"/_changes", nil).Header.Get("ETag")
	if two := s.Do(t, "GET", db+"/_changes", nil).Header.Get("ETag"); one == "" || one == two {
		t.Errorf("ETags %q and %q", one, two)
	}
}

// A feed goes on from any token, whatever the number of ranges, and each document
// is told once.
func TestChangesSince(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	for _, q := range []int{1, 2, 5} {
		db := "/" + s.DB(t, fmt.Sprintf("q=%d", q))
		var docs []string
		var ids []string
		for i := range 40 {
			docs = append(docs, fmt.Sprintf(`{"_id":"d%02d"}`, i))
			ids = append(ids, fmt.Sprintf("d%02d", i))
		}
		s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[`+strings.Join(docs, ",")+`]}`).Want(201)
		all := getChanges(t, s, "GET", db+"/_changes", nil)
		if !slices.Equal(all.ids(), ids) {
			t.Fatalf("q=%d: %v", q, all.ids())
		}
		for i, row := range all.Results {
			since := url.QueryEscape(row.Seq.(string))
			for _, quoted := range []string{since, "%22" + since + "%22"} {
				rest := getChanges(t, s, "GET", db+"/_changes?since="+quoted, nil)
				if len(rest.Results) != len(ids)-1-i {
					t.Errorf("q=%d after row %d: %d rows", q, i, len(rest.Results))
				}
			}
		}
		var got []string
		since, left := "0", int64(len(ids))
		for range ids {
			page := getChanges(t, s, "GET", db+"/_changes?limit=7&since="+url.QueryEscape(since), nil)
			got = append(got, page.ids()...)
			since = page.LastSeq
			left -= int64(len(page.Results))
			if *page.Pending != left {
				t.Errorf("q=%d: pending %d, want %d", q, *page.Pending, left)
			}
			if left == 0 {
				break
			}
		}
		slices.Sort(got)
		if !slices.Equal(got, ids) {
			t.Errorf("q=%d in pages: %v", q, got)
		}
		if seq := s.Do(t, "GET", db, nil).Str("update_seq"); seq != all.LastSeq {
			t.Errorf("q=%d: update_seq %s, last_seq %s", q, seq, all.LastSeq)
		}
		back := getChanges(t, s, "GET", db+"/_changes?descending=true", nil)
		if !slices.Equal(back.ids(), ids) {
			t.Errorf("q=%d descending: %v", q, back.ids())
		}
		// The token of another instance of the database starts at the beginning.
		s.Do(t, "DELETE", db, nil).Want(200)
		s.Do(t, "PUT", fmt.Sprintf("%s?q=%d", db, q), nil).Want(201)
		s.Do(t, "PUT", db+"/new", `{}`).Want(201)
		if again := getChanges(t, s, "GET", db+"/_changes?since="+url.QueryEscape(since), nil); !slices.Equal(again.ids(), []string{"new"}) {
			t.Errorf("q=%d: another instance: %v", q, again.ids())
		}
	}
}

func TestChangesStyleAndDocs(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	s.Do(t, "POST", db+"/_bulk_docs", `{"new_edits":false,"docs":[
		{"_id":"x","_rev":"2-b","v":"b","_attachments":{"f":{"content_type":"image/png","data":"AQID"}}},
		{"_id":"x","_rev":"2-a","v":"a"},{"_id":"x","_rev":"1-0","_deleted":true}]}`).Want(201)
	main := getChanges(t, s, "GET", db+"/_changes", nil)
	if len(main.Results) != 1 || len(main.Results[0].Changes) != 1 || main.Results[0].Changes[0]["rev"] != "2-b" {
		t.Errorf("main_only: %+v", main.Results)
	}
	for _, feed := range []string{"normal", "longpoll"} {
		all := getChanges(t, s, "GET", db+"/_changes?style=all_docs&feed="+feed, nil)
		if got := fmt.Sprint(all.Results[0].Changes); got != "[map[rev:2-b] map[rev:2-a] map[rev:1-0]]" {
			t.Errorf("all_docs: %s", got)
		}
	}
	docs := getChanges(t, s, "GET", db+"/_changes?include_docs=true&conflicts=true", nil).Results[0].Doc
	if docs["v"] != "b" || fmt.Sprint(docs["_conflicts"]) != "[2-a]" {
		t.Errorf("include_docs: %v", docs)
	}
	if f := docs["_attachments"].(map[string]any)["f"].(map[string]any); f["stub"] != true {
		t.Errorf("stub: %v", f)
	}
	docs = getChanges(t, s, "GET", db+"/_changes?include_docs=true&attachments=true", nil).Results[0].Doc
	if f := docs["_attachments"].(map[string]any)["f"].(map[string]any); f["data"] != "AQID" || docs["_conflicts"] != nil {
		t.Errorf("attachments: %v", docs)
	}
}

func TestChangesFilters(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db, _, _, _ := threeChanges(t, s, "q=3")
	s.Do(t, "PUT", db+"/_design/d", `{"filters":{"f":"function(doc){return true}"},"views":{"v":{"map":"function(doc){emit(1)}"}}}`).Want(201)
	for _, x := range []struct {
		method, query, body, want string
	}{
		{"POST", "?filter=_doc_ids", `{"doc_ids":["c","a","none"]}`, "a c"},
		{"GET", `?filter=_doc_ids&doc_ids=["b"]`, "", "b"},
		{"POST", `?filter=_doc_ids&doc_ids=["b"]`, "", "b"},
		{"POST", "?filter=_doc_ids", `{"doc_ids":[]}`, ""},
		{"POST", "?filter=_selector", `{"selector":{"type":"x"}}`, "a"},
		{"POST", "?filter=_selector", `{"selector":{"n":{"$gt":1}},"fields":["n"]}`, "c"},
		{"POST", "?filter=_selector", `{"selector":{"_deleted":true}}`, "b"},
		{"POST", "?filter=_selector&include_docs=true&limit=1", `{"selector":{"type":"y"}}`, "c"},
		{"POST", "?filter=_selector", `{"selector":{}}`, "_design/d a b c"},
		{"GET", "?filter=_design", "", "_design/d"},
		{"POST", "", "", "_design/d a b c"},
		{"POST", "", "{}", "_design/d a b c"},
		{"GET", "?filter=", "", "_design/d a b c"},
	} {
		for _, feed := range []string{"normal", "longpoll&timeout=20", "continuous&timeout=20"} {
			sep := "?"
			if x.query != "" {
				sep = x.query + "&"
			}
			var body any
			if x.body != "" {
				body = x.body
			}
			r := s.Do(t, x.method, db+"/_changes"+sep+"feed="+feed, body).Want(200)
			var ids []string
			for _, m := range regexp.MustCompile(`"id":"([^"]*)"`).FindAllSubmatch(r.Body, -1) {
				ids = append(ids, string(m[1]))
			}
			slices.Sort(ids)
			if got := strings.Join(slices.Compact(ids), " "); got != x.want {
				t.Errorf("%s %s %s %s: %s, want %s", x.method, x.query, feed, x.body, got, x.want)
			}
		}
	}
}

func TestChangesRefused(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db, _, _, _ := threeChanges(t, s, "")
	s.Do(t, "PUT", db+"/_design/d", `{"filters":{"f":"function(doc){return true}"},"views":{"v":{"map":"function(doc){emit(1)}"}}}`).Want(201)
	token := getChanges(t, s, "GET", db+"/_changes", nil).LastSeq
	for _, x := range []struct {
		method, query, body string
		status              int
		reason              string
	}{
		{"GET", "?feed=x", "", 400, "Supported `feed` types: normal, continuous, live, longpoll, eventsource"},
		{"GET", "?style=x", "", 400, ""},
		{"GET", "?limit=x", "", 400, "The limit parameter should be a non-negative integer"},
		{"GET", "?limit=-1", "", 400, "The limit parameter should be a non-negative integer"},
		{"GET", "?heartbeat=x&feed=continuous", "", 400, "Invalid heartbeat value. Expecting a positive integer value (in milliseconds)."},
		{"GET", "?heartbeat=0&feed=continuous", "", 400, "The heartbeat value should be a positive integer (in milliseconds)."},
		{"GET", "?timeout=x", "", 400, ""},
		{"GET", "?timeout=-1", "", 400, ""},
		{"GET", "?seq_interval=0", "", 400, "invalid_seq_interval"},
		{"GET", "?descending=x", "", 400, ""},
		{"GET", "?since=abc", "", 400, "Malformed sequence supplied in 'since' parameter."},
		{"GET", "?since=2", "", 400, "Malformed sequence supplied in 'since' parameter."},
		{"GET", "?since=" + token[:len(token)-1], "", 400, "Malformed sequence supplied in 'since' parameter."},
		{"GET", "?feed=continuous&since=2", "", 400, "Malformed sequence supplied in 'since' parameter."},
		{"GET", "?filter=_foo", "", 400, "unknown builtin filter name"},
		{"GET", "?filter=x", "", 400, "`filter` must be of the form `designname/filtername`"},
		{"GET", "?filter=nope/f", "", 404, "missing"},
		{"GET", "?filter=d/nope", "", 404, "missing json key: nope"},
		{"GET", "?filter=_view", "", 400, "`view` filter parameter is not provided."},
		{"GET", "?filter=_view&view=x", "", 400, "`view` must be of the form `designname/viewname`"},
		{"GET", "?filter=_view&view=d/nope", "", 404, "missing json key: nope"},
		{"GET", "?filter=_doc_ids", "", 400, "`doc_ids` filter parameter is not a list."},
		{"POST", "?filter=_doc_ids", `{"doc_ids":{}}`, 400, "`doc_ids` filter parameter is not a list."},
		{"POST", "?filter=_doc_ids", `{"doc_ids":[1]}`, 400, "`doc_ids` filter parameter is not a list of doc ids."},
		{"GET", "?filter=_doc_ids&doc_ids=[", "", 400, "invalid UTF-8 JSON"},
		{"GET", "?filter=_selector", "", 400, "Selector must be specified in POST payload"},
		{"POST", "?filter=_selector", `{}`, 400, "Selector error: expected a JSON object"},
		{"POST", "?filter=_selector", `{"selector":[]}`, 400, "Selector error: expected a JSON object"},
		{"POST", "?filter=_selector", `{"selector":{"a":{"$nope":1}}}`, 400, "Invalid operator: $nope"},
		{"POST", "", `[]`, 400, "Request body must be a JSON object"},
		{"POST", "", `{`, 400, "invalid UTF-8 JSON"},
	} {
		var body any
		if x.body != "" {
			body = x.body
		}
		r := s.Do(t, x.method, db+"/_changes"+x.query, body)
		if r.Status != x.status || x.reason != "" && r.Str("reason") != x.reason {
			t.Errorf("%s %s %s: %d %s", x.method, x.query, x.body, r.Status, r.Body)
		}
	}
	s.Do(t, "POST", db+"/_changes", `{"doc_ids":[]}`, "Content-Type", "text/plain").Want(415)
	s.Do(t, "GET", "/none-"+db[1:]+"/_changes", nil).Want(404)
	s.Do(t, "PUT", db+"/_changes", `{}`).Want(405)
}

// lines reads a feed line by line; a test must not hang on one that says nothing.
type lines struct {
	t    *testing.T
	next chan string
}

func readLines(t *testing.T, res *http.Response) *lines {
	t.Helper()
	if res.StatusCode != 200 {
		body, err := io.ReadAll(res.Body)
		t.Fatalf("status %d: %s %v", res.StatusCode, body, err)
	}
	l := &lines{t: t, next: make(chan string, 1000)}
	go func() {
		defer close(l.next)
		for sc := bufio.NewScanner(res.Body); sc.Scan(); {
			l.next <- sc.Text()
		}
	}()
	return l
}

// line gives the next line; ok is false at the end.
func (l *lines) line() (text string, ok bool) {
	l.t.Helper()
	select {
	case text, ok = <-l.next:
		return text, ok
	case <-time.After(30 * time.Second):
		l.t.Fatal("the feed says nothing")
	}
	return "", false
}

// want reads up to the next line that is not empty and compares it.
func (l *lines) want(want string) {
	l.t.Helper()
	for {
		text, ok := l.line()
		if !ok {
			l.t.Fatalf("the feed ended, want %s", want)
		}
		if text == "" {
			continue
		}
		if got := framed([]byte(text)); got != want {
			l.t.Fatalf("got  %s\nwant %s", got, want)
		}
		return
	}
}

// end wants nothing but the last line, and the end.
func (l *lines) end(last string) {
	l.t.Helper()
	if last != "" {
		l.want(last)
	}
	for {
		text, ok := l.line()
		if !ok {
			return
		}
		if text != "" {
			l.t.Fatalf("%s, want the end", text)
		}
	}
}

// Who listens hears at once of everything after the head of the answer.
func TestContinuousChanges(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	for _, query := range []string{"q=1", "q=3"} {
		db, _, _, _ := threeChanges(t, s, query)
		ctx := context.Background()
		plain := readLines(t, s.Stream(t, ctx, "GET", db+"/_changes?feed=continuous&since=now&heartbeat=600000", nil))
		docs := readLines(t, s.Stream(t, ctx, "GET", db+"/_changes?feed=continuous&since=now&include_docs=true", nil))
		chosen := readLines(t, s.Stream(t, ctx, "POST", db+"/_changes?feed=continuous&since=now&filter=_doc_ids", `{"doc_ids":["e7","e8"]}`))
		match := readLines(t, s.Stream(t, ctx, "POST", db+"/_changes?feed=continuous&since=now&filter=_selector", `{"selector":{"n":8}}`))
		source := readLines(t, s.Stream(t, ctx, "GET", db+"/_changes?feed=eventsource&since=now", nil))
		few := readLines(t, s.Stream(t, ctx, "GET", db+"/_changes?feed=continuous&since=now&limit=3", nil))
		poll := readLines(t, s.Stream(t, ctx, "GET", db+"/_changes?feed=longpoll&since=now", nil))
		all := readLines(t, s.Stream(t, ctx, "GET", db+"/_changes?feed=continuous&style=all_docs", nil))
		for range 3 {
			if text, ok := all.line(); !ok || text == "" {
				t.Fatalf("%q where a row should be", text)
			}
		}
		for i := range 10 {
			rev := s.Do(t, "PUT", fmt.Sprintf("%s/e%d", db, i), fmt.Sprintf(`{"n":%d}`, i)).Want(201).Str("rev")
			row := fmt.Sprintf(`{"seq":"T","id":"e%d","changes":[{"rev":"%s"}]`, i, rev)
			plain.want(row + "}")
			all.want(row + "}")
			docs.want(fmt.Sprintf(`%s,"doc":{"_id":"e%d","_rev":"%s","n":%d}}`, row, i, rev, i))
			source.want("data: " + row + "}")
			source.want(`id: "T"`)
			switch {
			case i == 0:
				poll.want(`{"results":[`)
				poll.want(row + "}")
				poll.want("],")
				poll.end(`"last_seq":"T","pending":0}`)
			case i == 7:
				chosen.want(row + "}")
			case i == 8:
				chosen.want(row + "}")
				match.want(row + "}")
			}
			if i < 3 {
				few.want(row + "}")
			}
			if i == 2 {
				few.end(`{"last_seq":"T","pending":0}`)
			}
		}
		// A deleted database ends its feeds, all of them.
		s.Do(t, "DELETE", db, nil).Want(200)
		for _, l := range []*lines{plain, docs, chosen, match, all} {
			l.end(`{"last_seq":"T","pending":0}`)
		}
		source.end("")
	}
}

// A feed that has nothing to say shows life, or ends.
func TestChangesIdle(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db, _, _, _ := threeChanges(t, s, "")
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	l := readLines(t, s.Stream(t, ctx, "GET", db+"/_changes?feed=continuous&since=now&heartbeat=10&timeout=1", nil))
	for range 5 {
		if text, ok := l.line(); text != "" || !ok {
			t.Errorf("%q %v", text, ok)
		}
	}
	l = readLines(t, s.Stream(t, ctx, "GET", db+"/_changes?feed=longpoll&since=now&heartbeat=10", nil))
	l.want(`{"results":[`)
	for range 5 {
		if text, ok := l.line(); text != "" || !ok {
			t.Errorf("%q %v", text, ok)
		}
	}
	rev := s.Do(t, "PUT", db+"/late", `{}`).Want(201).Str("rev")
	l.want(`{"seq":"T","id":"late","changes":[{"rev":"` + rev + `"}]}`)
	l.want("],")
	l.end(`"last_seq":"T","pending":0}`)
	l = readLines(t, s.Stream(t, ctx, "GET", db+"/_changes?feed=eventsource&since=now&heartbeat=10", nil))
	for range 2 {
		l.want("event: heartbeat")
		l.want("data: ")
	}
	l = readLines(t, s.Stream(t, ctx, "GET", db+"/_changes?feed=continuous&since=now&heartbeat=true&timeout=1&limit=1", nil))
	rev = s.Do(t, "PUT", db+"/later", `{}`).Want(201).Str("rev")
	l.want(`{"seq":"T","id":"later","changes":[{"rev":"` + rev + `"}]}`)
	l.end(`{"last_seq":"T","pending":0}`)
}

// A browser that comes back goes on where it was.
func TestLastEventID(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db, _, _, c := threeChanges(t, s, "q=1")
	rows := getChanges(t, s, "GET", db+"/_changes", nil).Results
	id := `"` + rows[1].Seq.(string) + `"`
	r := s.Do(t, "GET", db+"/_changes?feed=eventsource&timeout=10&since=0", nil, "Last-Event-ID", id).Want(200)
	want := `data: {"seq":"T","id":"c","changes":[{"rev":"` + c + "\"}]}\nid: \"T\"\n\n"
	if got := framed(r.Body); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// A selector may come with the fields that the documents shall have.
func TestChangesFields(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db, _, _, c := threeChanges(t, s, "q=2")
	l := getChanges(t, s, "POST", db+"/_changes?filter=_selector&include_docs=true", `{"selector":{"type":"y"},"fields":["n","_rev","none"]}`)
	if len(l.Results) != 1 || len(l.Results[0].Doc) != 2 || l.Results[0].Doc["n"] != 1.5 || l.Results[0].Doc["_rev"] != c {
		t.Errorf("%+v", l.Results)
	}
	for _, bad := range []string{`"n"`, `{}`, `[1]`} {
		s.Do(t, "POST", db+"/_changes?filter=_selector", `{"selector":{},"fields":`+bad+`}`).Want(400)
	}
}

// A database that is deleted ends its live feeds in good order: an answer that has
// begun is whole, wherever the deletion meets it.
func TestDeletedUnderFeeds(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	over := make(chan struct{})
	var feeds sync.WaitGroup
	for range 3 {
		for _, query := range []string{"feed=longpoll", "feed=longpoll&since=now", "feed=continuous", "feed=continuous&include_docs=true"} {
			feeds.Go(func() {
				for {
					select {
					case <-over:
						return
					default:
					}
					r, err := s.Try(context.Background(), "GET", db+"/_changes?timeout=20&"+query, nil)
					if err != nil {
						t.Errorf("%s: %v", query, err)
						return
					}
					if r.Status != 404 && (r.Status != 200 || !strings.Contains(string(r.Body), `"last_seq":`)) {
						t.Errorf("%s: %d %s", query, r.Status, r.Body)
					}
				}
			})
		}
	}
	for range 100 {
		s.Do(t, "POST", db, `{}`).Want(201)
		s.Do(t, "DELETE", db, nil).Want(200)
		s.Do(t, "PUT", db, nil).Want(201)
	}
	close(over)
	feeds.Wait()
}
