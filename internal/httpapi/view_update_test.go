package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/divandb/divan/internal/testserver"
)

// lazyViews makes a database whose views nobody builds unasked, with three documents.
func lazyViews(t *testing.T, s *testserver.Server) string {
	t.Helper()
	db := "/" + s.DB(t, "q=2")
	s.Do(t, "PUT", db+"/_design/d", `{"autoupdate":false,"views":{"v":{"map":"function(doc){ emit(doc._id, 1); }","reduce":"_count"}}}`).Want(201)
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"a"},{"_id":"b"},{"_id":"c"}]}`).Want(201)
	return db
}

// awaitView asks until the answer is the wanted one; the question must not itself
// bring it about.
func awaitView(t *testing.T, s *testserver.Server, path, want string) {
	t.Helper()
	got := ""
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		if got = queryView(t, s, "GET", path, nil).show(); got == want {
			return
		}
	}
	t.Fatalf("%s: %s, want %s", path, got, want)
}

// What update, stale and stable mean.
func TestViewFreshness(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	for _, x := range []struct{ never, after string }{{"update=false", "update=lazy"}, {"stale=ok", "stale=update_after"}, {"update=false&stable=true", "update=lazy&stable=false"}} {
		db := lazyViews(t, s)
		view := db + "/_design/d/_view/v?reduce=false&limit=1&"
		never := func(want string) {
			t.Helper()
			if v := queryView(t, s, "GET", view+x.never, nil); v.show() != want {
				t.Errorf("%s: %s, want %s", x.never, v.show(), want)
			}
		}
		never("0 0")
		never("0 0") // to ask so starts nothing
		if v := queryView(t, s, "GET", view+x.after, nil); v.show() != "0 0" {
			t.Errorf("%s: %s", x.after, v.show())
		}
		awaitView(t, s, view+x.never, `3 0 a:"a"=1`)
		s.Do(t, "PUT", db+"/0", `{}`).Want(201)
		never(`3 0 a:"a"=1`)
		if v := queryView(t, s, "GET", view+"update=true", nil); v.show() != `4 0 0:"0"=1` {
			t.Errorf("update=true: %s", v.show())
		}
		never(`4 0 0:"0"=1`)
		s.Do(t, "PUT", db+"/00", `{}`).Want(201)
		if v := queryView(t, s, "GET", view, nil); v.show() != `5 0 0:"0"=1` {
			t.Errorf("no update given: %s", v.show())
		}
		reduced := queryView(t, s, "GET", db+"/_design/d/_view/v?"+x.never, nil)
		if reduced.show() != `null null null=5` {
			t.Errorf("%s of a reduction: %s", x.never, reduced.show())
		}
	}
}

// A view is built when its design document is written, and kept up to date.
func TestViewWarm(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := numbered(t, s, 5)
	view := db + "/_design/d/_view/n?update=false&limit=0"
	awaitView(t, s, view, "5 0")
	s.Do(t, "PUT", db+"/more", `{"n":7}`).Want(201)
	awaitView(t, s, view, "6 0")
}

// Each write that was answered is in the answer of a view asked after it.
func TestViewSeesWrites(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := numbered(t, s, 0, "q=2")
	for i := range 20 {
		s.Do(t, "PUT", fmt.Sprintf("%s/x%02d", db, i), fmt.Sprintf(`{"n":%d,"type":"t"}`, i)).Want(201)
		if v := queryView(t, s, "GET", db+"/_design/d/_view/n?descending=true&limit=1", nil); v.show() != fmt.Sprintf("%d 0 x%02d:%d=null", i+1, i, i) {
			t.Fatalf("after %d: %s", i, v.show())
		}
		if v := queryView(t, s, "GET", db+"/_design/d/_view/type?key=%22t%22", nil); v.show() != fmt.Sprintf("null null null=%d", i+1) {
			t.Fatalf("after %d: %s", i, v.show())
		}
	}
}

// What _info tells.
func TestDesignInfo(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := lazyViews(t, s)
	info := func() map[string]any {
		t.Helper()
		o := s.Do(t, "GET", db+"/_design/d/_info", nil).Want(200).Object()
		if o["name"] != "d" || len(o) != 2 {
			t.Fatalf("%v", o)
		}
		return o["view_index"].(map[string]any)
	}
	before := info()
	pending := before["updates_pending"].(map[string]any)
	if before["update_seq"] != 0.0 || pending["total"] != 4.0 || pending["minimum"] != 4.0 || pending["preferred"] != 4.0 {
		t.Errorf("before: %v", before)
	}
	queryView(t, s, "GET", db+"/_design/d/_view/v", nil)
	after := info()
	pending = after["updates_pending"].(map[string]any)
	sizes := after["sizes"].(map[string]any)
	if after["update_seq"] != 4.0 || pending["total"] != 0.0 || sizes["file"].(float64) <= 0 || sizes["active"].(float64) <= 0 || sizes["external"].(float64) <= 0 {
		t.Errorf("after: %v", after)
	}
	versions, _ := after["collator_versions"].([]any)
	if after["language"] != "javascript" || after["compact_running"] != false || after["updater_running"] != false || after["waiting_clients"] != 0.0 ||
		after["purge_seq"] != 0.0 || len(versions) != 1 || len(after["signature"].(string)) != 32 || len(after) != 11 {
		t.Errorf("%v", after)
	}
	if before["signature"] != after["signature"] {
		t.Error("the signature changed with the rows")
	}
	rev := s.Do(t, "GET", db+"/_design/d", nil).Str("_rev")
	s.Do(t, "PUT", db+"/_design/d?rev="+rev, `{"autoupdate":false,"views":{"v":{"map":"function(doc){ emit(doc._id, 2); }","reduce":"_count"}}}`).Want(201)
	if changed := info(); changed["signature"] == after["signature"] || changed["update_seq"] != 0.0 {
		t.Errorf("after another definition: %v", changed)
	}
	s.Do(t, "PUT", db+"/_design/empty", `{}`).Want(201)
	s.Do(t, "GET", db+"/_design/empty/_info", nil).Want(200)
	s.Do(t, "HEAD", db+"/_design/d/_info", nil).Want(200)
}

// The order of text in a view is the order ICU gives.
func TestViewCollation(t *testing.T) {
	t.Parallel()
	f, err := os.Open("../collate/testdata/collation-golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	type line struct {
		text string
		rank int // the same for what ICU calls equal
	}
	var all []line
	lines := bufio.NewScanner(f)
	lines.Scan() // the first line says what the file is
	for rank := 0; lines.Scan(); {
		raw, tie := strings.CutPrefix(lines.Text(), "=")
		if !tie {
			rank++
		}
		l := line{rank: rank}
		if err := json.Unmarshal([]byte(raw), &l.text); err != nil {
			t.Fatal(err)
		}
		all = append(all, l)
	}
	rnd := rand.New(rand.NewPCG(3, 5))
	picked := map[string]line{}
	var docs []string
	for i := range 600 {
		l := all[rnd.IntN(len(all))]
		id := fmt.Sprintf("t%d", i)
		picked[id] = l
		text, err := json.Marshal(l.text)
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, fmt.Sprintf(`{"_id":%q,"t":%s}`, id, text))
	}
	s := testserver.Shared(t)
	db := "/" + s.DB(t, "q=3")
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[`+strings.Join(docs, ",")+`]}`).Want(201)
	s.Do(t, "PUT", db+"/_design/d", `{"views":{"t":{"map":"function(doc){ emit(doc.t, null); emit([doc.t, 1], null); }"}}}`).Want(201)
	for _, query := range []string{"endkey=[]", "startkey=[]"} {
		v := queryView(t, s, "GET", db+"/_design/d/_view/t?"+query, nil)
		if len(v.Rows) != len(picked) {
			t.Fatalf("%d rows", len(v.Rows))
		}
		for i := 1; i < len(v.Rows); i++ {
			a, b := picked[v.Rows[i-1].ID], picked[v.Rows[i].ID]
			if a.rank > b.rank || a.rank == b.rank && v.Rows[i-1].ID > v.Rows[i].ID {
				t.Errorf("%+q (%s) comes before %+q (%s)", a.text, v.Rows[i-1].ID, b.text, v.Rows[i].ID)
			}
		}
	}
}

// options.collation raw: by bytes, numbers before null, false and true.
func TestViewRawCollation(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t, "q=2")
	var docs []string
	for i, v := range []string{`"a"`, `"B"`, `"b"`, `1`, `2.5`, `null`, `true`, `false`, `["a"]`, `{"a":1}`} {
		docs = append(docs, fmt.Sprintf(`{"_id":"%d","v":%s}`, i, v))
	}
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[`+strings.Join(docs, ",")+`]}`).Want(201)
	s.Do(t, "PUT", db+"/_design/d", `{"views":{"v":{"map":"function(doc){ emit(doc.v, 1); }","reduce":"_count","options":{"collation":"raw"}}}}`).Want(201)
	keys := func(query string) string {
		var out []string
		for _, r := range queryView(t, s, "GET", db+"/_design/d/_view/v?reduce=false&"+escaped(query), nil).Rows {
			out = append(out, string(r.Key))
		}
		return strings.Join(out, " ")
	}
	if got := keys(""); got != `1 2.5 false null true {"a":1} ["a"] "B" "a" "b"` {
		t.Errorf("%s", got)
	}
	if got := keys(`startkey="B"&endkey="a"`); got != `"B" "a"` {
		t.Errorf("%s", got)
	}
	if got := keys(`descending=true&limit=2`); got != `"b" "a"` {
		t.Errorf("%s", got)
	}
}

// A reduction that fails is an error with a reason, and other questions go on.
func TestViewReduceFails(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"a"},{"_id":"b"}]}`).Want(201)
	s.Do(t, "PUT", db+"/_design/d", `{"views":{"v":{"map":"function(doc){ emit(doc._id, 'x'); }","reduce":"function(keys, values){ throw new Error('no way'); }"}}}`).Want(201)
	r := s.Do(t, "GET", db+"/_design/d/_view/v", nil).Want(500)
	if r.Str("error") == "" || !strings.Contains(r.Str("reason"), "no way") {
		t.Errorf("%s", r.Body)
	}
	if v := queryView(t, s, "GET", db+"/_design/d/_view/v?reduce=false", nil); v.show() != `2 0 a:"a"="x" b:"b"="x"` {
		t.Errorf("%s", v.show())
	}
}

// Another definition counts from the moment it is written, and leaves the rows of
// its neighbours alone.
func TestViewRedefined(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t, "q=2")
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[{"_id":"a"},{"_id":"b"}]}`).Want(201)
	define := func(rev, value string) string {
		t.Helper()
		return s.Do(t, "PUT", db+"/_design/d"+rev, `{"autoupdate":false,"views":{
			"one":{"map":"function(doc){ emit(doc._id, `+value+`); }"},
			"two":{"map":"function(doc){ emit(doc._id, 'same'); }","reduce":"_count"}}}`).Want(201).Str("rev")
	}
	one, two := db+"/_design/d/_view/one?", db+"/_design/d/_view/two?"
	want := func(path, want string) {
		t.Helper()
		if v := queryView(t, s, "GET", path, nil); v.show() != want {
			t.Errorf("%s: %s, want %s", path, v.show(), want)
		}
	}
	rev := define("", "1")
	want(one, `2 0 a:"a"=1 b:"b"=1`)
	want(two, `null null null=2`)
	define("?rev="+rev, "2")
	want(one+"update=false", `0 0`)
	want(two+"update=false", `null null null=2`)
	want(two+"update=false&reduce=false&limit=1", `2 0 a:"a"="same"`)
	want(one, `2 0 a:"a"=2 b:"b"=2`)
}

// Who leaves in the middle of an answer is no fault: nothing in the log, and the
// server stops without waiting for them.
func TestViewClientLeaves(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	s.Do(t, "PUT", "/db", nil).Want(201)
	docs := []string{`{"_id":"_design/d","views":{"v":{"map":"function(doc){ emit(doc._id, doc.text); }"}}}`}
	for i := range 100 {
		docs = append(docs, fmt.Sprintf(`{"_id":"d%d","text":%q}`, i, strings.Repeat("x", 50_000)))
	}
	s.Do(t, "POST", "/db/_bulk_docs", `{"docs":[`+strings.Join(docs, ",")+`]}`).Want(201)
	s.Do(t, "GET", "/db/_design/d/_view/v?limit=0", nil).Want(200)
	for _, query := range []string{"", "?include_docs=true"} {
		ctx, cancel := context.WithCancel(context.Background())
		res := s.Stream(t, ctx, "GET", "/db/_design/d/_view/v"+query, nil)
		if _, err := res.Body.Read(make([]byte, 10)); err != nil {
			t.Errorf("%s: %v", query, err)
		}
		cancel()
	}
	s.Stop(t)
	if log := s.Log(); strings.Contains(log, "failed") || strings.Contains(log, "ERROR") {
		t.Errorf("the log speaks of it:\n%s", log)
	}
}
