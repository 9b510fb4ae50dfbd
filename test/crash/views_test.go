package crash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/testserver"
)

// Two design documents with the same views: one whose indexes live through all
// crashes, and one that is written anew, with another text, for each look.
const (
	keptDesign  = "_design/kept"
	freshDesign = "_design/fresh"
)

// viewDocs is how many documents each writer has in each database, so that a build
// is committed in several parts.
const viewDocs = 60

// viewRounds is how often a server with views is killed; DIVAN_CRASH_ROUNDS says more.
func viewRounds(t *testing.T) int {
	t.Helper()
	if os.Getenv("DIVAN_CRASH_ROUNDS") == "" {
		return 10
	}
	return crashRounds(t)
}

// viewCrew is writers, readers of the views, and who defines them.
type viewCrew struct {
	*crew
	readers []*writer
	definer *writer
	slow    int        // milliseconds that the kept views take for each document
	looked  chan error // one of each reader
}

func newViewCrew(w *world, seed uint64, slow int) *viewCrew {
	c := &viewCrew{crew: newCrew(w, seed, false), slow: slow}
	for _, one := range c.writers {
		one.docs = viewDocs
	}
	for i := range 3 {
		c.readers = append(c.readers, &writer{w: w, id: 100 + i, rng: rand.New(rand.NewPCG(seed, uint64(100+i)))})
	}
	c.definer = &writer{w: w, id: 200}
	return c
}

// prepare makes the databases, their documents and the views.
func (c *viewCrew) prepare(t *testing.T, s *testserver.Server) {
	t.Helper()
	for _, name := range sharedNames {
		db := c.definer.w.dbs[name]
		s.Do(t, "PUT", db.path()+"?q=1", nil).Want(201)
		db.exists = true
	}
	var work sync.WaitGroup
	for i, one := range c.writers {
		one.server = s
		work.Go(func() {
			for _, name := range sharedNames {
				if _, err := one.seed(one.w.dbs[name]); err != nil {
					c.errs[i] = err
				}
			}
		})
	}
	work.Wait()
	for _, err := range c.errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	c.definer.server = s
	for _, name := range sharedNames {
		c.define(t, name, keptDesign, "first")
	}
}

// define writes a design document.
func (c *viewCrew) define(t *testing.T, db, id, mark string) {
	t.Helper()
	slow := 0
	if id == keptDesign {
		slow = c.slow
	}
	if more, err := c.definer.putDesign(c.definer.w.dbs[db], id, mark, slow); err != nil || !more {
		t.Fatalf("define %s in %s: %v", id, db, err)
	}
}

// start lets all work on a server.
func (c *viewCrew) start(s *testserver.Server) {
	c.crew.start(s)
	c.definer.server = s
	c.looked = make(chan error, len(c.readers))
	for _, one := range c.readers {
		one.server = s
		go func() { c.looked <- one.keepLooking() }()
	}
}

// keepLooking asks views until the server is gone or the power is cut.
func (c *writer) keepLooking() error {
	for c.w.begin(nil, nil) {
		more, err := c.look(c.w.dbs[sharedNames[c.rng.IntN(len(sharedNames))]], keptDesign)
		if _, gone := err.(hungUp); gone || !more && err == nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reader %d: %w", c.id, err)
		}
	}
	return nil
}

// wait waits for all.
func (c *viewCrew) wait(t *testing.T) {
	t.Helper()
	c.crew.wait(t)
	for range c.readers {
		if err := <-c.looked; err != nil {
			t.Fatal(err)
		}
	}
}

// inspect looks at the documents, has the views built anew and compares.
func (c *viewCrew) inspect(t *testing.T, s *testserver.Server, round int) (rows int) {
	t.Helper()
	c.definer.server = s
	w := c.definer.w
	report(t, round, w.inspect(s, false))
	w.beginRound(0)
	i := &inspector{w: w, server: s}
	for _, name := range sharedNames {
		c.define(t, name, freshDesign, fmt.Sprint("fresh ", round))
		for k := range modelViews {
			rows += i.view(w.dbs[name], &modelViews[k], keptDesign, freshDesign)
		}
	}
	report(t, round, i.problems)
	return rows
}

// awaitBuild returns while a build of the kept views is on its way in the middle of
// the documents; false means that it was over too soon to be seen so.
func awaitBuild(t *testing.T, s *testserver.Server) bool {
	t.Helper()
	began := false
	for until := time.Now().Add(patience); time.Now().Before(until); {
		r, err := s.Try(context.Background(), "GET", "/_active_tasks", nil)
		if err != nil {
			t.Fatal(err)
		}
		var tasks []struct {
			Type, Design string
			DesignDoc    string `json:"design_document"`
			Done         int    `json:"changes_done"`
			Total        int    `json:"total_changes"`
		}
		if err := json.Unmarshal(r.Body, &tasks); err != nil || r.Status != 200 {
			t.Fatalf("%d %s: %v", r.Status, r.Body, err)
		}
		running := false
		for _, task := range tasks {
			if task.Type != "indexer" || task.DesignDoc != keptDesign || task.Total < viewDocs {
				continue // an update, not a build
			}
			running, began = true, true
			if task.Done > 0 && task.Done < task.Total {
				return true
			}
		}
		if began && !running {
			return false
		}
	}
	return false
}

// TestKilledServerKeepsItsViews kills a server while views are built, while they
// are brought up to date, and while nobody knows which of it.
func TestKilledServerKeepsItsViews(t *testing.T) {
	rounds := viewRounds(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	w := newWorld(writers)
	crew := newViewCrew(w, seed, 3)
	p := testserver.StartProcess(t, "--log-level", "warn", "--compaction-grace", "0s", "--compaction-threshold", "1KiB")
	crew.prepare(t, p.Server)
	hits, rows := 0, 0
	for round := range rounds {
		enough := w.beginRound(1 + rng.IntN(300))
		crew.start(p.Server)
		select {
		case <-enough:
		case <-crew.ended: // a bad answer
			crew.wait(t)
		}
		if round%2 == 0 {
			crew.define(t, sharedNames[rng.IntN(len(sharedNames))], keptDesign, fmt.Sprint("kept ", round))
			if awaitBuild(t, p.Server) {
				hits++
			}
		}
		time.Sleep(time.Duration(rng.IntN(30_000)) * time.Microsecond) // the moment is what is drawn
		p.Kill()
		crew.wait(t)
		if round%3 == 2 {
			// The views are brought up to date from the start on.
			killDuringStart(t, p.Data, time.Duration(rng.IntN(300))*time.Millisecond)
		}
		p.Restart()
		rows += crew.inspect(t, p.Server, round)
	}
	if text := p.Stderr.String(); strings.Contains(text, "level=ERROR") || strings.Contains(text, "panic") {
		t.Errorf("the servers complain:\n%s", text)
	}
	if hits == 0 {
		t.Error("no kill hit a build")
	}
	t.Logf("%d rounds, %d of them in the middle of a build, %d acknowledged writes, %d rows compared", rounds, hits, w.total, rows)
}

// TestPowerCutKeepsViews drops what was not synced. Of the indexes that may be
// anything, as nobody syncs them.
func TestPowerCutKeepsViews(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	data := t.TempDir()
	disk := kv.NewCrashFS()
	w := newWorld(writers)
	crew := newViewCrew(w, seed, 0)
	s := startOnDisk(t, data, disk.FS(), nil)
	crew.prepare(t, s)
	rounds, rows := viewRounds(t), 0
	for round := range rounds {
		enough := w.beginRound(1 + rng.IntN(300))
		crew.start(s)
		select {
		case <-enough:
		case <-crew.ended:
			crew.wait(t)
		}
		if round%3 == 1 {
			crew.define(t, sharedNames[rng.IntN(len(sharedNames))], keptDesign, fmt.Sprint("kept ", round))
		}
		w.cutPower(func() {
			if keep := []int{0, 50, 95}[rng.IntN(3)]; keep > 0 {
				disk = disk.CrashKeeping(keep, rng.Uint64())
			} else {
				disk = disk.Crash()
			}
		})
		crew.wait(t)
		s.Stop(t) // writes to the disk as it was before the cut
		s = startOnDisk(t, data, disk.FS(), nil)
		rows += crew.inspect(t, s, round)
		if round%2 == 0 {
			// A stop leaves indexes on the disk, for the next cut to tear something off.
			s.Stop(t)
			s = startOnDisk(t, data, disk.FS(), nil)
		}
	}
	t.Logf("%d rounds, %d acknowledged writes, %d rows compared", rounds, w.total, rows)
}

// TestViewInspectionSeesDamage shows that rows that are missing, too many or of an
// old revision are noticed: a ledger that says something else stands for an index
// that does.
func TestViewInspectionSeesDamage(t *testing.T) {
	t.Parallel()
	w := newWorld(writers)
	crew := newViewCrew(w, 1, 0)
	s := testserver.Start(t, testserver.Config(func(*config.Config) {}))
	crew.prepare(t, s)
	crew.inspect(t, s, 0)
	db := w.dbs[sharedNames[0]]
	for name, damage := range map[string]func(now *state) *state{
		"lost":        func(now *state) *state { return nil },
		"old":         func(now *state) *state { return &state{n: now.n, rev: "1-0", atts: now.atts} },
		"other":       func(now *state) *state { return &state{n: now.n + 1, rev: now.rev, atts: now.atts} },
		"not removed": func(now *state) *state { return &state{deleted: true, rev: now.rev} },
		"without file": func(now *state) *state {
			return &state{n: now.n, rev: now.rev, atts: with(now.atts, "x", attachment{})}
		},
	} {
		d := db.docs["c3-7"]
		now := d.now
		d.now = damage(now)
		i := &inspector{w: w, server: s}
		for k := range modelViews {
			i.view(db, &modelViews[k], keptDesign, freshDesign)
		}
		if len(i.problems) == 0 {
			t.Errorf("%s: nothing was noticed", name)
		}
		d.now = now
	}
}
