package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/testserver"
)

// runaways are statements that would hurt a server. huge makes as much as no answer
// may hold; what becomes of it is up to the kind of function.
var runaways = []struct{ name, script string }{
	{"endless loop", `while (true);`},
	{"endless allocation", `var a = []; while (true) a.push(new Array(1000).fill(0));`},
	{"catastrophic regular expression", `/^(a+)+$/.test("a".repeat(60) + "b");`},
	{"endless native sort", `Array.prototype.sort.call({length: Math.pow(2, 53) - 1});`},
	{"deep recursion", `(function f(n){ return f(n + 1) + 1; })(0);`},
	{"huge", `huge = "x".repeat(50 << 20);`},
}

// runawayLimit is how long anybody may wait for an answer while scripts run away:
// far more than it takes, as the machine may be busy, and far less than for ever.
const runawayLimit = 60 * time.Second

// newRunawayServer starts a server whose scripts may take little. It is a process of
// its own: what is left of it can be told from what other tests have.
func newRunawayServer(t *testing.T) *testserver.Process {
	t.Helper()
	if os.Getenv(testserver.EnvURL) != "" {
		t.Skip("needs a server with settings of its own")
	}
	return testserver.StartProcess(t, "--log-level", "warn", "--js-timeout", "300ms", "--js-memory", "64MiB", "--js-workers", "3")
}

// children gives the processes that a process has started.
func children(t *testing.T, parent int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Fatal(err)
	}
	if len(stats) == 0 {
		t.Skip("the system does not tell its processes")
	}
	var out []int
	for _, path := range stats {
		state, ppid := processState(path)
		if state != "" && ppid == parent {
			pid, err := strconv.Atoi(strings.Split(path, "/")[2])
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, pid)
		}
	}
	return out
}

// processFields reads what the system tells of a process, from its state on; nothing
// when it is gone.
func processFields(path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	// The name stands in brackets and may hold anything.
	return strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
}

// processState reads state and parent of a process; the state is empty when it is gone.
func processState(path string) (state string, parent int) {
	fields := processFields(path)
	if len(fields) < 2 {
		return "", 0
	}
	parent, _ = strconv.Atoi(fields[1]) // 0 is nobody's parent here
	return fields[0], parent
}

// awaitGone waits until processes have ended. One that nobody has buried is dead too.
func awaitGone(t *testing.T, pids []int) {
	t.Helper()
	for end := time.Now().Add(runawayLimit); ; time.Sleep(5 * time.Millisecond) {
		var left []int
		for _, pid := range pids {
			if state, _ := processState(fmt.Sprintf("/proc/%d/stat", pid)); state != "" && state != "Z" && state != "X" {
				left = append(left, pid)
			}
		}
		if len(left) == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("processes %v of %v are left over", left, pids)
		}
	}
}

// bystanders ask a server for other things while scripts run away.
type bystanders struct {
	s      *testserver.Server
	cancel context.CancelFunc
	work   sync.WaitGroup

	mu      sync.Mutex
	answers map[string]int
	longest time.Duration
	wrong   []string
}

func newBystanders(t *testing.T, s *testserver.Server) *bystanders {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	b := &bystanders{s: s, cancel: cancel, answers: make(map[string]int)}
	t.Cleanup(func() { cancel(); b.work.Wait() })
	db := numbered(t, s, 20)
	s.Do(t, "PUT", db+"/_design/f", `{"filters":{"f":"function(doc, req){ return doc.n == 3; }"}}`).Want(201)
	n := 0
	b.loop(ctx, "view", func(ctx context.Context) error {
		n++
		if err := b.ask(ctx, "PUT", fmt.Sprintf("%s/new%d", db, n), `{"n":100}`, 201, `"ok":true`); err != nil {
			return err
		}
		return b.ask(ctx, "GET", db+"/_design/d/_view/n?key=100&limit=0", nil, 200, fmt.Sprintf(`"total_rows":%d,`, 20+n))
	})
	b.loop(ctx, "document and filter", func(ctx context.Context) error {
		if err := b.ask(ctx, "GET", db+"/d3", nil, 200, `"n":3`); err != nil {
			return err
		}
		return b.ask(ctx, "GET", db+"/_changes?filter=f/f", nil, 200, `"id":"d3"`)
	})
	return b
}

// loop asks again and again.
func (b *bystanders) loop(ctx context.Context, what string, ask func(context.Context) error) {
	b.work.Go(func() {
		for ctx.Err() == nil {
			bounded, cancel := context.WithTimeout(context.Background(), runawayLimit)
			began := time.Now()
			err := ask(bounded)
			took := time.Since(began)
			cancel()
			b.mu.Lock()
			b.longest = max(b.longest, took)
			if b.answers[what]++; err != nil {
				b.wrong = append(b.wrong, fmt.Sprintf("%s after %s: %v", what, took, err))
			}
			b.mu.Unlock()
			if err != nil {
				return
			}
		}
	})
}

func (b *bystanders) ask(ctx context.Context, method, path string, body any, status int, holds string) error {
	r, err := b.s.Try(ctx, method, path, body)
	if err != nil {
		return err
	}
	if r.Status != status || !strings.Contains(string(r.Body), holds) {
		return fmt.Errorf("%s %s: %d %.300s, want %d with %s", method, path, r.Status, r.Body, status, holds)
	}
	return nil
}

// end stops them and fails the test if one of them was not answered.
func (b *bystanders) end(t *testing.T) {
	t.Helper()
	b.cancel()
	b.work.Wait()
	for _, problem := range b.wrong {
		t.Errorf("meanwhile: %s", problem)
	}
	for _, what := range []string{"view", "document and filter"} {
		if b.answers[what] < 5 {
			t.Errorf("only %d answers meanwhile of the kind %s", b.answers[what], what)
		}
	}
	t.Logf("answers meanwhile: %v, the slowest after %s", b.answers, b.longest)
}

// bounded is Do with a limit of time.
func bounded(t *testing.T, s *testserver.Server, method, path string, body any, header ...string) *testserver.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), runawayLimit)
	defer cancel()
	r, err := s.Try(ctx, method, path, body, header...)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return r
}

// boundedView asks a view and gives the ids of its rows.
func boundedView(t *testing.T, s *testserver.Server, path string) (ids []string, total int64) {
	t.Helper()
	r := bounded(t, s, "GET", path, nil)
	var v viewAnswer
	if err := json.Unmarshal(r.Body, &v); err != nil || r.Status != 200 || v.TotalRows == nil {
		t.Fatalf("%s: %d %.500s", path, r.Status, r.Body)
	}
	for _, row := range v.Rows {
		ids = append(ids, row.ID)
	}
	return ids, *v.TotalRows
}

// poisoned makes a database of good documents g00, g01, … with poisoned ones among
// them, and two views: one that runs away at those, and its neighbour.
func poisoned(t *testing.T, s *testserver.Server, script string, good int, bad ...string) string {
	t.Helper()
	db := "/" + s.DB(t, "q=1")
	var docs []string
	for i := range good {
		docs = append(docs, fmt.Sprintf(`{"_id":"g%02d"}`, i))
		if i == good/2 {
			for _, id := range bad {
				docs = append(docs, fmt.Sprintf(`{"_id":"%s","poison":true}`, id))
			}
		}
	}
	s.Do(t, "POST", db+"/_bulk_docs", `{"docs":[`+strings.Join(docs, ",")+`]}`).Want(201)
	s.Do(t, "PUT", db+"/_design/d", runawayViews(script)).Want(201)
	return db
}

func runawayViews(script string) map[string]any {
	return map[string]any{"views": map[string]any{
		"bad":  map[string]any{"map": `function(doc){ var huge; if (doc.poison) { ` + script + ` } emit(doc._id, huge); }`},
		"good": map[string]any{"map": `function(doc){ emit(doc._id, 1); }`, "reduce": "_count"},
	}}
}

// TestRunawayScripts lets scripts of all kinds run away at the same time, and asks
// for other things meanwhile.
func TestRunawayScripts(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("the race detector sees nothing of a server in a process of its own")
	}
	p := newRunawayServer(t)
	others := newBystanders(t, p.Server)
	t.Run("all", func(t *testing.T) {
		for i, r := range runaways {
			t.Run("map "+r.name, func(t *testing.T) { t.Parallel(); runawayMap(t, p.Server, i) })
			for _, kind := range runawayKinds {
				if i > 0 && kind.once {
					continue
				}
				t.Run(kind.name+" "+r.name, func(t *testing.T) { t.Parallel(); kind.run(t, p.Server, r.script) })
			}
		}
		t.Run("many", func(t *testing.T) { t.Parallel(); runawayAtMany(t, p.Server) })
	})
	others.end(t)
	if rss := residentKiB(t, p.PID); rss > 512<<10 {
		t.Errorf("the server has grown to %d KiB", rss)
	}
	workers := children(t, p.PID)
	if len(workers) == 0 {
		t.Error("no worker is seen: the next look sees nothing")
	}
	if code := p.Stop(); code != 0 {
		t.Errorf("the server ended with status %d", code)
	}
	awaitGone(t, workers)
	if text := p.Stderr.String(); strings.Contains(text, "panic") || strings.Contains(text, "did not end") {
		t.Errorf("the server complains:\n%s", text)
	}
}

// residentKiB is the most memory that a process had.
func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatal("no VmHWM")
	return 0
}

// runawayMap is one poisoned document among fifty good ones.
func runawayMap(t *testing.T, s *testserver.Server, i int) {
	id := fmt.Sprintf("poison-%d", i)
	db := poisoned(t, s, runaways[i].script, 50, id)
	ids, total := boundedView(t, s, db+"/_design/d/_view/bad")
	if len(ids) != 50 || total != 50 || strings.Contains(strings.Join(ids, " "), id) {
		t.Errorf("%d rows of %d: %v", len(ids), total, ids)
	}
	if ids, _ := boundedView(t, s, db+"/_design/d/_view/good?reduce=false"); len(ids) != 51 {
		t.Errorf("the neighbour has %d rows", len(ids))
	}
	if !strings.Contains(s.Log(), "document="+id+" ") {
		t.Errorf("the log does not name the document %s", id)
	}
	// A document that is well again has its row.
	rev := s.Do(t, "GET", db+"/"+id, nil).Str("_rev")
	s.Do(t, "PUT", db+"/"+id+"?rev="+rev, `{}`).Want(201)
	if ids, _ := boundedView(t, s, db+"/_design/d/_view/bad"); len(ids) != 51 {
		t.Errorf("%d rows after the document was changed", len(ids))
	}
}

// runawayAtMany is a view that is given up.
func runawayAtMany(t *testing.T, s *testserver.Server) {
	var bad []string
	for i := range 15 {
		bad = append(bad, fmt.Sprintf("many-%02d", i))
	}
	db := poisoned(t, s, runaways[0].script, 20, bad...)
	gaveUp := func() {
		t.Helper()
		r := bounded(t, s, "GET", db+"/_design/d/_view/bad", nil)
		var e struct{ Error, Reason string }
		if err := json.Unmarshal(r.Body, &e); err != nil || r.Status != 500 || e.Error != "view_failed" || !strings.Contains(e.Reason, "bad") || !strings.Contains(e.Reason, "time limit") {
			t.Errorf("%d %.300s", r.Status, r.Body)
		}
	}
	neighbour := func(want int) {
		t.Helper()
		if ids, total := boundedView(t, s, db+"/_design/d/_view/good?reduce=false"); len(ids) != want || total != int64(want) {
			t.Errorf("the neighbour has %d rows of %d, want %d", len(ids), total, want)
		}
	}
	gaveUp()
	neighbour(35)
	s.Do(t, "PUT", db+"/more", `{}`).Want(201)
	gaveUp() // it is not tried again
	neighbour(36)
	kills := strings.Count(s.Log(), "document=many-")
	gaveUp()
	if again := strings.Count(s.Log(), "document=many-"); again != kills || kills > 10 {
		t.Errorf("%d documents were tried, then %d", kills, again)
	}
	rev := s.Do(t, "GET", db+"/_design/d", nil).Str("_rev")
	views := runawayViews(`return;`)
	views["_rev"] = rev
	s.Do(t, "PUT", db+"/_design/d", views).Want(201)
	if ids, _ := boundedView(t, s, db+"/_design/d/_view/bad"); len(ids) != 21 {
		t.Errorf("%d rows of the changed definition", len(ids))
	}
	neighbour(36)
}

// TestRunawaysEndWithTheServer stops and kills a server while its scripts run away.
func TestRunawaysEndWithTheServer(t *testing.T) {
	t.Parallel()
	for _, how := range []string{"stop", "kill"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			if os.Getenv(testserver.EnvURL) != "" {
				t.Skip("needs a server of its own")
			}
			// Nothing but the end of the server ends these scripts.
			p := testserver.StartProcess(t, "--log-level", "warn", "--js-timeout", "1h", "--js-workers", "2", "--shutdown-timeout", "1s")
			db := poisoned(t, p.Server, runaways[0].script, 3, "poison")
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				_, _ = p.Try(context.Background(), "GET", db+"/_design/d/_view/bad", nil) // it ends with the server
			}()
			var workers []int
			for end := time.Now().Add(runawayLimit); len(workers) == 0 || !anyRuns(workers); {
				if workers = children(t, p.PID); time.Now().After(end) {
					t.Fatal("no script runs")
				}
				time.Sleep(5 * time.Millisecond) // the system has no event for it
			}
			if how == "stop" {
				p.Stop()
			} else {
				p.Kill()
			}
			<-ended
			awaitGone(t, workers)
		})
	}
}

// anyRuns tells whether one of the processes has been at work for longer than it
// takes to start.
func anyRuns(pids []int) bool {
	for _, pid := range pids {
		fields := processFields(fmt.Sprintf("/proc/%d/stat", pid))
		if len(fields) < 13 {
			continue
		}
		user, err := strconv.Atoi(fields[11])
		if system, err2 := strconv.Atoi(fields[12]); err == nil && err2 == nil && user+system >= 50 { // hundredths of a second
			return true
		}
	}
	return false
}
