package httpapi_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/server"
	"github.com/divandb/divan/internal/testserver"
)

// Writers share their fsyncs: with a disk that takes 5 ms for each, 64 of them get
// more than 16 commits out of one. This counts, it does not measure time.
func TestWritersShareTheSync(t *testing.T) {
	t.Parallel()
	delay := 5 * time.Millisecond
	if testing.Short() {
		delay *= 10 // with the race detector 64 writers are slower than such a disk
	}
	fs, syncs := kv.SlowSync(kv.DiskFS(), delay)
	s := testserver.Start(t, testserver.Parts(func(o *server.Options) { o.FS = fs }))
	db := "/" + s.DB(t)
	const writers, each = 64, 40
	before := syncs.Syncs()
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				s.Do(t, "PUT", fmt.Sprintf("%s/w%d-%d", db, w, i), `{"n":1}`).Want(201)
			}
		})
	}
	wg.Wait()
	per := float64(writers*each) / float64(syncs.Syncs()-before)
	t.Logf("%.1f commits per fsync", per)
	if per <= 16 {
		t.Errorf("%.1f commits per fsync, want over 16", per)
	}
}

// Superseded bodies go by themselves, visibly, and nothing else does.
func TestAutomaticCompaction(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t,
		testserver.Config(func(c *config.Config) { c.CompactGrace, c.CompactAt = 0, 1<<20 }),
		testserver.Parts(func(o *server.Options) { o.CompactEvery = 20 * time.Millisecond }))
	db := "/" + s.DB(t, "q=1")
	const docs = 2000
	bulk := func(revs []string, n int) []string {
		var b strings.Builder
		b.WriteString(`{"docs":[`)
		for i := range docs {
			if i > 0 {
				b.WriteByte(',')
			}
			rev := ""
			if revs != nil {
				rev = fmt.Sprintf(`"_rev":%q,`, revs[i])
			}
			fmt.Fprintf(&b, `{"_id":"d%d",%s"n":%d,"t":%q}`, i, rev, n, strings.Repeat("x", 1000))
		}
		b.WriteString("]}")
		var rows []struct{ Rev string }
		if err := json.Unmarshal(s.Do(t, "POST", db+"/_bulk_docs", b.String()).Want(201).Body, &rows); err != nil {
			t.Fatal(err)
		}
		var out []string
		for _, r := range rows {
			out = append(out, r.Rev)
		}
		return out
	}
	seen, running := false, false
	look := func() {
		running = running || s.Do(t, "GET", db, nil).Want(200).Object()["compact_running"] == true
		var tasks []map[string]any
		if err := json.Unmarshal(s.Do(t, "GET", "/_active_tasks", nil).Want(200).Body, &tasks); err != nil {
			t.Fatal(err)
		}
		for _, task := range tasks {
			if task["type"] == "database_compaction" {
				seen = true
				if task["database"] != db[1:] || task["total_changes"].(float64) <= 0 || task["changes_done"] == nil || task["node"] == "" || task["started_on"].(float64) == 0 ||
					task["updated_on"].(float64) < task["started_on"].(float64) || task["pid"] == nil || task["user"] != nil {
					t.Errorf("task %v", task)
				}
			}
		}
	}
	// Rounds of updates until a compaction was caught at work.
	first := bulk(nil, 0)
	revs := first
	deadline := time.Now().Add(time.Minute)
	for n := 1; !seen || !running; n++ {
		if time.Now().After(deadline) {
			t.Fatalf("no compaction was ever seen: in _active_tasks %v, as compact_running %v", seen, running)
		}
		revs = bulk(revs, n)
		for range 20 {
			look()
		}
	}
	// The first bodies go, the last ones stay.
	for s.Do(t, "GET", db+"/d7?rev="+first[7], nil).Status != 404 {
		if time.Now().After(deadline) {
			t.Fatal("a superseded body stays")
		}
		revs = bulk(revs, -1)
	}
	for i := 0; i < docs; i += 97 {
		d := s.Do(t, "GET", fmt.Sprintf("%s/d%d?revs_info=true", db, i), nil).Want(200).Object()
		if d["_rev"] != revs[i] || len(d["t"].(string)) != 1000 {
			t.Fatalf("d%d: %v", i, d["_rev"])
		}
	}
	info := s.Do(t, "GET", db+"/d7?revs_info=true", nil).Object()["_revs_info"].([]any)
	if last := info[len(info)-1].(map[string]any); last["status"] != "missing" {
		t.Errorf("status of a removed body: %v", last)
	}
}
