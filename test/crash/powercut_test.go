package crash_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/server"
	"github.com/divandb/divan/internal/testserver"
)

// powerCutRounds is how often the power is cut. Memory is quick: most of a round
// is the look at what is left.
const powerCutRounds = 30

// startOnDisk starts a server in this process whose store is on disk. The
// attachments stay small here: large ones are files of the real file system.
func startOnDisk(t *testing.T, data string, disk kv.FS, parts func(*server.Options)) *testserver.Server {
	t.Helper()
	return testserver.Start(t,
		testserver.Config(func(c *config.Config) { c.Data, c.CompactGrace, c.CompactAt = data, 0, 1 }),
		testserver.Parts(func(o *server.Options) {
			o.FS, o.CompactEvery = disk, 20*time.Millisecond
			if parts != nil {
				parts(o)
			}
		}))
}

// follower reads a feed and keeps what it was told before the cut: a feed shows
// only what is safe.
type follower struct {
	w    *world
	seen map[string][]string // revisions by document
	done chan struct{}
}

// follow reads the feed of a database from now on.
func follow(t *testing.T, w *world, s *testserver.Server, db *database) *follower {
	t.Helper()
	f := &follower{w: w, seen: make(map[string][]string), done: make(chan struct{})}
	res := s.Stream(t, context.Background(), "GET", db.path()+"/_changes?feed=continuous&since=now&heartbeat=1000", nil)
	if res.StatusCode != 200 {
		t.Fatalf("feed: %s", res.Status)
	}
	go f.read(res)
	return f
}

func (f *follower) read(res *http.Response) {
	defer close(f.done)
	for lines := bufio.NewScanner(res.Body); lines.Scan(); {
		var row changesRow
		if len(lines.Bytes()) == 0 || json.Unmarshal(lines.Bytes(), &row) != nil || row.ID == "" {
			continue // a heartbeat, or the line that ends the feed
		}
		f.w.mu.Lock()
		if !f.w.cut {
			f.seen[row.ID] = append(f.seen[row.ID], row.Changes[0].Rev)
		}
		f.w.mu.Unlock()
	}
}

// lost gives what the feed has shown and the server does not know.
func (f *follower) lost(s *testserver.Server, db *database) []string {
	i := &inspector{w: f.w, server: s}
	var missing map[string]json.RawMessage
	if i.get(&missing, 200, "POST", db.path()+"/_revs_diff", f.seen) {
		for id, revs := range missing {
			i.wrong("%s: the feed has shown a revision of %s that is lost: %s", db.name, id, revs)
		}
	}
	return i.problems
}

// cutPower lets writers work on a server, cuts its power again and again, and
// gives the problems found after the first cut that has any.
func cutPower(t *testing.T, rounds int, noSync bool) (problems []string) {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	data := t.TempDir()
	disk := kv.NewCrashFS()
	w := newWorld(writers)
	crew := newCrew(w, seed, false)
	s := startOnDisk(t, data, disk.FS(), func(o *server.Options) { o.NoSync = noSync })
	createShared(t, w, s)
	rows := 0
	for round := range rounds {
		feed := follow(t, w, s, w.dbs[sharedNames[0]])
		enough := w.beginRound(1 + rng.IntN(600))
		crew.start(s)
		select {
		case <-enough:
		case <-crew.ended:
			crew.wait(t)
		}
		w.cutPower(func() {
			if keep := []int{0, 0, 50, 95}[rng.IntN(4)]; keep > 0 && !noSync {
				disk = disk.CrashKeeping(keep, rng.Uint64())
			} else {
				disk = disk.Crash()
			}
		})
		crew.wait(t)
		s.Stop(t) // writes to the disk as it was before the cut
		<-feed.done
		s = startOnDisk(t, data, disk.FS(), func(o *server.Options) { o.NoSync = noSync })
		problems := w.inspect(s, true)
		if len(problems) == 0 {
			problems = feed.lost(s, w.dbs[sharedNames[0]])
		}
		if len(problems) > 0 {
			return append(problems, fmt.Sprintf("in round %d", round))
		}
		rows += len(feed.seen)
	}
	t.Logf("%d rounds, %d acknowledged writes, %d documents seen in feeds", rounds, w.total, rows)
	return nil
}

// TestPowerCutKeepsWhatWasAcknowledged drops what was not synced, which a killed
// process does not show.
func TestPowerCutKeepsWhatWasAcknowledged(t *testing.T) {
	t.Parallel()
	report(t, -1, cutPower(t, powerCutRounds, false))
}

// TestPowerCutIsNoticedWithoutSync shows that the test above would see a loss.
func TestPowerCutIsNoticedWithoutSync(t *testing.T) {
	t.Parallel()
	problems := cutPower(t, powerCutRounds, true)
	if len(problems) == 0 {
		t.Fatal("nothing was lost without syncing: the test sees nothing")
	}
	t.Logf("as it should: %s", problems[0])
}
