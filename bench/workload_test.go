package bench

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestMain lets the test binary be started again as the bare handler or the bare
// writer, as the real program is.
func TestMain(m *testing.M) {
	if len(os.Args) > 2 && os.Args[1] == "bench" {
		if err := Main(os.Args[2:], os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestRowCounter(t *testing.T) {
	t.Parallel()
	var stream strings.Builder
	stream.WriteString(`{"total_rows":500,"offset":0,"rows":[` + "\r\n")
	for i := range 500 {
		fmt.Fprintf(&stream, `{"id":"d%d","key":"d%d","value":{"rev":"1-abc"},"doc":{"_id":"d%d","value":"%s"}},`+"\r\n",
			i, i, i, strings.Repeat("x", i))
	}
	stream.WriteString("]}\n")
	text := []byte(stream.String())
	for size := range 80 {
		c := rowCounter{mark: rowOfAllDocs}
		for rest := text; len(rest) > 0; {
			n := min(size+1, len(rest))
			c.feed(rest[:n])
			rest = rest[n:]
		}
		if c.rows != 500 {
			t.Errorf("in parts of %d: %d rows", size+1, c.rows)
		}
	}
}

func TestFeedLine(t *testing.T) {
	t.Parallel()
	tests := []struct {
		line         string
		number, what int
	}{
		{"", 0, lineHeartbeat},
		{"\r", 0, lineHeartbeat},
		{`{"seq":"3-g1","id":"ready","changes":[{"rev":"1-a"}]}`, 0, lineReady},
		{`{"seq":"3-g1","id":"w0","changes":[{"rev":"1-a"}]}`, 0, lineWrite},
		{`{"seq":"3-g1","id":"w199","changes":[{"rev":"1-a"}]}`, 199, lineWrite},
		{`{"last_seq":"3-g1","pending":0}`, 0, lineOther},
		{`{"error":"x","id":"w`, 0, lineOther},
		{`{"seq":"3-g1","id":"w1x"}`, 0, lineOther},
		{`{"seq":"3-g1","id":"w99999999999999999999"}`, 0, lineOther},
		{`{"seq":"3-g1","id":"w"}`, 0, lineOther},
	}
	for _, tt := range tests {
		number, what := feedLine([]byte(tt.line))
		if what != tt.what || (what == lineWrite && number != tt.number) {
			t.Errorf("%q: got %d %d, want %d %d", tt.line, number, what, tt.number, tt.what)
		}
	}
}

func TestDocuments(t *testing.T) {
	t.Parallel()
	id := regexp.MustCompile(`^[0-9a-f]{32}$`)
	seen := map[string]bool{}
	r := newRand(0)
	for i := range 2000 {
		name := string(appendID(nil, i))
		if !id.MatchString(name) || seen[name] {
			t.Fatalf("id %d is %q, seen before: %v", i, name, seen[name])
		}
		seen[name] = true
		doc := appendDocument(nil, r, name, "1-abc")
		if len(doc) < documentSize-50 || len(doc) > documentSize+50 {
			t.Fatalf("document of %d bytes", len(doc))
		}
		var fields struct {
			ID  string `json:"_id"`
			Rev string `json:"_rev"`
		}
		if err := json.Unmarshal(doc, &fields); err != nil {
			t.Fatalf("%v: %s", err, doc)
		}
		if rev, ok := revisionOf(doc); !ok || rev != "1-abc" || fields.Rev != rev || fields.ID != name {
			t.Fatalf("id %q rev %q in %s", fields.ID, fields.Rev, doc)
		}
		for _, mark := range []string{rowOfAllDocs, rowOfChanges} {
			if bytes.Contains(doc, []byte(mark)) {
				t.Fatalf("%s stands in a document", mark)
			}
		}
	}
	if first := appendDocument(nil, newRand(3), "", ""); !bytes.Equal(first, appendDocument(nil, newRand(3), "", "")) {
		t.Error("two runs make different documents")
	}
}

func TestParseTarget(t *testing.T) {
	t.Parallel()
	got, err := parseTarget("http://me:p%40ss@localhost:5984/under/")
	if err != nil {
		t.Fatal(err)
	}
	if got.address != "localhost:5984" || got.prefix != "/under" || got.tls != nil ||
		!strings.Contains(got.headers, "Authorization: Basic bWU6cEBzcw==\r\n") ||
		!strings.Contains(got.headers, "Host: localhost:5984\r\n") {
		t.Errorf("got %+v", got)
	}
	if got, err := parseTarget("https://[::1]"); err != nil || got.address != "[::1]:443" || got.tls == nil {
		t.Errorf("got %+v %v", got, err)
	}
	for _, bad := range []string{"", "localhost:5984", "ftp://x", "http://", "http://me:secret@host:port"} {
		if _, err := parseTarget(bad); err == nil {
			t.Errorf("%q: want an error", bad)
		} else if strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the password stands in the error: %v", bad, err)
		}
	}
}

func TestMainRefusesBadOptions(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{},
		{"http://127.0.0.1:1", "--docs", "1"},
		{"http://127.0.0.1:1", "--docs", "1000000000"},
		{"http://127.0.0.1:1", "--duration", "1ms"},
		{"http://127.0.0.1:1", "--duration", "1000h"},
		{"http://127.0.0.1:1", "--pid", "-1"},
		{"http://127.0.0.1:1", "--workloads", "get,nothing"},
		{"http://127.0.0.1:1", "--unknown"},
		{"not an address"},
	} {
		if err := Main(args, io.Discard); err == nil {
			t.Errorf("%q: want an error", args)
		}
	}
	var help bytes.Buffer
	if err := Main([]string{"--help"}, &help); err != nil || !strings.Contains(help.String(), "large_changes") {
		t.Errorf("--help: %v\n%s", err, &help)
	}
}

func TestTableAndJSON(t *testing.T) {
	t.Parallel()
	r := Result{Workload: "get", Title: "GET"}
	r.take(tally{ops: 3, elapsed: time.Second, latencies: []time.Duration{time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond}})
	cpu := 50.0
	r.CPUMicros, r.PeakRSS = &cpu, 1500<<20
	r.compare()
	var table bytes.Buffer
	p := &report{out: &table, compare: true}
	if err := p.add(r); err != nil {
		t.Fatal(err)
	}
	want := []string{"GET", "3", "/s", "2.00", "3.00", "50.0", "1,500", "1,153", "23.1"}
	if got := strings.Fields(table.String()); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	var text bytes.Buffer
	p = &report{out: &text, asJSON: true}
	if err := p.add(r); err != nil {
		t.Fatal(err)
	}
	if err := p.finish(time.Second); err != nil {
		t.Fatal(err)
	}
	var back []Result
	if err := json.Unmarshal(text.Bytes(), &back); err != nil || len(back) != 1 || *back[0].P99 != 3 || *back[0].CouchRatio != 1153/50.0 {
		t.Errorf("%v %s", err, &text)
	}
}

// TestBareHTTP starts the bare handler as another process and drives it.
func TestBareHTTP(t *testing.T) {
	t.Parallel()
	body := appendDocument(nil, newRand(0), "x", "1-a")
	b, err := startBareHTTP(t.Context(), bareAnswer{Header: map[string][]string{"Etag": {`"1-a"`}}, Body: body})
	if err != nil {
		t.Fatal(err)
	}
	s := &session{options: Options{Duration: time.Minute}, target: &target{address: b.address, headers: "Host: x\r\n"}, loaded: 100}
	c, err := s.target.dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.close()
	if answer, err := c.want(t.Context(), "GET", "/x", nil, 200); err != nil || !bytes.Equal(answer, body) {
		t.Errorf("%q %v", answer, err)
	}
	done, err := getRandom{ops: 500}.run(t.Context(), s)
	if err != nil || done.ops != 500 || len(done.latencies) != 500 {
		t.Errorf("%d operations, %v", done.ops, err)
	}
	if _, err := treeUsage(b.command.Process.Pid); err != nil {
		t.Error(err)
	}
	if err := b.stop(); err != nil {
		t.Error(err)
	}
	if _, err := c.want(t.Context(), "GET", "/x", nil, 200); err == nil {
		t.Error("the handler still answers after its end")
	}
}

// TestBareStore starts the bare writer as another process on a real store.
func TestBareStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := &session{options: Options{Docs: 2100, BareDir: dir}}
	r, err := s.bareBulk(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if r.Ops != 2100 || r.Rate <= 0 || r.P50 == nil || r.CPUMicros == nil || *r.CPUMicros <= 0 {
		t.Errorf("got %+v", r)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}
