package crash_test

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/testserver"
)

// writers is how many clients write at the same time.
const writers = 8

// defaultRounds is how often a server is killed; DIVAN_CRASH_ROUNDS says more.
const defaultRounds = 50

func crashRounds(t *testing.T) int {
	t.Helper()
	text := os.Getenv("DIVAN_CRASH_ROUNDS")
	if text == "" {
		return defaultRounds
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		t.Fatalf("DIVAN_CRASH_ROUNDS=%q is no number of rounds", text)
	}
	return n
}

// createShared makes the databases that all writers share.
func createShared(t *testing.T, w *world, s *testserver.Server) {
	t.Helper()
	for _, name := range sharedNames {
		db := w.dbs[name]
		s.Do(t, "PUT", db.path(), nil).Want(201)
		db.exists = true
	}
}

// crew is the writers of a world, the same ones in all rounds.
type crew struct {
	writers []*writer
	errs    []error
	ended   chan struct{} // closed when all of a round have ended
}

func newCrew(w *world, seed uint64, large bool) *crew {
	c := &crew{errs: make([]error, writers)}
	for i := range writers {
		c.writers = append(c.writers, &writer{w: w, id: i, large: large, rng: rand.New(rand.NewPCG(seed, uint64(i)))})
	}
	return c
}

// start lets them write to a server.
func (c *crew) start(s *testserver.Server) {
	c.ended = make(chan struct{})
	var work sync.WaitGroup
	for i, one := range c.writers {
		one.server = s
		work.Go(func() { c.errs[i] = one.run() })
	}
	go func() { work.Wait(); close(c.ended) }()
}

// wait waits for their end and fails the test if one was answered badly.
func (c *crew) wait(t *testing.T) {
	t.Helper()
	<-c.ended
	for _, err := range c.errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// report fails the test if there are problems, with the first few of them.
func report(t *testing.T, round int, problems []string) {
	t.Helper()
	if len(problems) > 0 {
		t.Fatalf("round %d: %d problems:\n%s", round, len(problems), strings.Join(problems[:min(len(problems), 20)], "\n"))
	}
}

// killDuringStart starts a server on a data directory and kills it somewhere on
// its way.
func killDuringStart(t *testing.T, data string, after time.Duration) {
	t.Helper()
	cmd := exec.Command(testserver.Binary(t), "serve", "--addr", "127.0.0.1:0", "--data", data, "--min-free-space", "off")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(after) // the moment is what is drawn
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
}

// TestKilledServerKeepsWhatItAcknowledged kills a server with SIGKILL again and
// again while clients write, on one data directory.
func TestKilledServerKeepsWhatItAcknowledged(t *testing.T) {
	rounds := crashRounds(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed) // chance lies in the timing too: it gives the same writes, not the same crash
	rng := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(writers)
	crew := newCrew(w, seed, true)
	p := testserver.StartProcess(t, "--log-level", "warn", "--compaction-grace", "0s", "--compaction-threshold", "1KiB")
	createShared(t, w, p.Server)
	digests := make(map[string]string)
	for round := range rounds {
		enough := w.beginRound(1 + rng.IntN(400))
		begun := time.Now()
		crew.start(p.Server)
		select {
		case <-enough:
		case <-crew.ended: // a bad answer
			crew.wait(t)
		}
		wait := time.Duration(rng.IntN(20_000)) * time.Microsecond
		if round%20 == 10 {
			// Compaction looks at the copies every five seconds: some rounds end while
			// it works.
			wait = time.Until(begun.Add(5*time.Second)) + time.Duration(rng.IntN(200))*time.Millisecond
		}
		time.Sleep(wait) // the moment is what is drawn
		p.Kill()
		crew.wait(t)
		if round%5 == 4 {
			killDuringStart(t, p.Data, time.Duration(rng.IntN(60))*time.Millisecond)
		}
		p.Restart()
		report(t, round, w.inspect(p.Server, round%10 == 9 || round == rounds-1))
		report(t, round, w.blobFiles(p.Server, p.Data, digests, patience))
	}
	if text := p.Stderr.String(); strings.Contains(text, "level=ERROR") || strings.Contains(text, "panic") {
		t.Errorf("the servers complain:\n%s", text)
	}
	t.Logf("%d rounds, %d acknowledged writes, %d attachment files looked at", rounds, w.total, len(digests))
}
