package crash_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/testserver"
)

// TestInspectionSeesDamage shows that each kind of damage is noticed: a ledger
// that says something else than the server stands for a server that lost it.
func TestInspectionSeesDamage(t *testing.T) {
	t.Parallel()
	sum := func(n int) string { return "{" + body("d", n, "pad") + "}" }
	for name, c := range map[string]struct {
		damage func(t *testing.T, s *testserver.Server, w *world, d *doc)
		want   string
	}{
		"none": {func(*testing.T, *testserver.Server, *world, *doc) {}, ""},
		"lost document": {func(_ *testing.T, _ *testserver.Server, w *world, _ *doc) {
			lost := &doc{id: "lost", now: &state{rev: "1-a", n: 1}}
			w.dbs["shared"].docs["lost"] = lost
		}, "is lost"},
		"lost update": {func(_ *testing.T, _ *testserver.Server, _ *world, d *doc) {
			d.now = &state{rev: "2-b", n: 2}
		}, "acknowledged was"},
		"other contents": {func(_ *testing.T, _ *testserver.Server, _ *world, d *doc) { d.now.n = 7 }, "came back"},
		"document from nowhere": {func(t *testing.T, s *testserver.Server, _ *world, _ *doc) {
			s.Do(t, "PUT", "/shared/other", "{"+body("other", 1, "")+"}").Want(201)
		}, "never written"},
		"half document": {func(t *testing.T, s *testserver.Server, _ *world, d *doc) {
			text := strings.Replace(sum(2), `"pad":"pad"`, `"pad":"p"`, 1)
			d.now = &state{n: 2, rev: s.Do(t, "PUT", "/shared/d?rev="+d.now.rev, text).Want(201).Str("rev")}
		}, "half a document"},
		"conflict": {func(t *testing.T, s *testserver.Server, _ *world, _ *doc) {
			s.Do(t, "POST", "/shared/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"d","_rev":"1-0",`+body("d", 1, "pad")+`}]}`).Want(201)
		}, "two leaves"},
		"lost database": {func(t *testing.T, s *testserver.Server, _ *world, _ *doc) {
			s.Do(t, "DELETE", "/shared%2F2", nil).Want(200)
		}, "database shared/2"},
		"deleted database that is there": {func(t *testing.T, s *testserver.Server, _ *world, _ *doc) {
			s.Do(t, "PUT", "/own-0", nil).Want(201)
		}, "database own-0"},
		"local document": {func(_ *testing.T, _ *testserver.Server, w *world, _ *doc) {
			w.dbs["shared"].docs["_local/l"] = &doc{id: "l", local: true, now: &state{rev: "0-1", n: 1}}
		}, "is lost"},
		"file of nobody": {func(t *testing.T, s *testserver.Server, _ *world, _ *doc) {
			if err := os.WriteFile(filepath.Join(s.Data, "blobs", "orphan"), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, "no revision names it"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(1)
			s := testserver.Start(t, testserver.Config(func(*config.Config) {}))
			createShared(t, w, s)
			d := &doc{id: "d", touched: true}
			d.now = &state{n: 1, rev: s.Do(t, "PUT", "/shared/d", sum(1)).Want(201).Str("rev")}
			w.dbs["shared"].docs["d"] = d
			c.damage(t, s, w, d)
			found := strings.Join(append(w.inspect(s, true), w.blobFiles(s, s.Data, make(map[string]string), 0)...), "\n")
			if c.want == "" && found != "" || !strings.Contains(found, c.want) {
				t.Errorf("found %q, want %q", found, c.want)
			}
		})
	}
}
