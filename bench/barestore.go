package bench

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/divandb/divan/internal/kv"
)

// bareStoreCommand makes this program write documents straight to the store.
const bareStoreCommand = "bare-store"

// bareStoreReady is what the writing process prints before it starts.
const bareStoreReady = "ready"

// bareStoreResult is what the writing process prints.
type bareStoreResult struct {
	Docs      int64
	Elapsed   time.Duration
	Latencies []time.Duration // of batches, sorted
}

// writeBareStore is the other process. For every document it writes the three
// keys that a store of documents cannot do without: what is known of the
// document by id, its body by id and revision, and its place in the order of
// changes; 500 documents to a batch, every batch fsynced, four writers. The
// documents are made beforehand, so that only the store's CPU is counted, with
// the flushes and compactions that run until it is quiet, as for the server.
func writeBareStore(args []string, stdout io.Writer) (err error) {
	if len(args) != 2 {
		return errors.New("bare store: want a directory and a count")
	}
	n, err := strconv.Atoi(args[1])
	if err != nil || n < 1 || n > maxDocs {
		return fmt.Errorf("bare store: count %q", args[1])
	}
	docs := make([][]byte, n)
	r := newRand(0)
	for i := range docs {
		docs[i] = appendDocument(nil, r, "", "")
	}
	store, err := kv.Open(args[0], kv.Options{})
	if err != nil {
		return fmt.Errorf("bare store: %w", err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	runtime.GC() // what making the documents left behind is not the store's cost
	// The bench reads this process's CPU clock, then says go.
	if _, err := fmt.Fprintln(stdout, bareStoreReady); err != nil {
		return err
	}
	if _, err := io.ReadFull(os.Stdin, make([]byte, 1)); err != nil {
		return fmt.Errorf("bare store: wait for the start: %w", err)
	}
	start := time.Now()
	var next atomic.Int64
	var group sync.WaitGroup
	latencies := make([][]time.Duration, bulkConnections)
	failures := make([]error, bulkConnections)
	for w := range bulkConnections {
		group.Go(func() {
			for {
				first := int(next.Add(bulkBatch)) - bulkBatch
				if first >= n {
					return
				}
				begin := time.Now()
				if failures[w] = writeBareBatch(store, docs, first, min(n, first+bulkBatch)); failures[w] != nil {
					return
				}
				latencies[w] = append(latencies[w], time.Since(begin))
			}
		})
	}
	group.Wait()
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("bare store: %w", err)
	}
	elapsed := time.Since(start)
	err = json.NewEncoder(stdout).Encode(bareStoreResult{
		Docs: int64(n), Elapsed: elapsed, Latencies: mergeSorted(latencies),
	})
	// The store stays open until the bench has seen it become quiet and ends
	// stdin; a read error is the end of the bench as much.
	_, _ = io.Copy(io.Discard, os.Stdin)
	return err
}

// writeBareBatch writes documents first to last-1 and waits for the fsync.
func writeBareBatch(store *kv.Store, docs [][]byte, first, last int) error {
	b := store.NewBatch()
	var key, value []byte
	var rev [16]byte
	for i := first; i < last; i++ {
		binary.BigEndian.PutUint64(rev[:], mix(uint64(i)))
		key = appendID(append(key[:0], 'i'), i)
		value = append(binary.BigEndian.AppendUint64(value[:0], uint64(i)), rev[:]...)
		value = binary.BigEndian.AppendUint64(value, uint64(len(docs[i])))
		b.Set(key, value)
		key[0] = 'b'
		b.Set(append(key, rev[:]...), docs[i])
		key = binary.BigEndian.AppendUint64(append(key[:0], 's'), uint64(i))
		value = append(appendID(value[:0], i), rev[:]...)
		b.Set(key, value)
	}
	commit, err := store.Apply(b)
	if err != nil {
		return errors.Join(err, b.Close())
	}
	return commit.Wait()
}

// bareBulk measures the bulk insert's keys and values written straight to the
// store by another process.
func (s *session) bareBulk(ctx context.Context) (r Result, err error) {
	r = Result{Workload: "bare_store", Title: "bare store, batches", Unit: "docs"}
	dir, err := os.MkdirTemp(s.options.BareDir, "bench-bare-*")
	if err != nil {
		return r, fmt.Errorf("bare store: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	self, err := os.Executable()
	if err != nil {
		return r, fmt.Errorf("bare store: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, bareTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, self, "bench", bareStoreCommand, dir, strconv.Itoa(s.options.Docs))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return r, fmt.Errorf("bare store: %w", err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return r, fmt.Errorf("bare store: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return r, fmt.Errorf("bare store: %w", err)
	}
	err = watchBareStore(ctx, cmd.Process.Pid, stdin, stdout, &r)
	if err := errors.Join(err, stdin.Close(), cmd.Wait()); err != nil {
		return r, fmt.Errorf("bare store: %w", err)
	}
	return r, nil
}

// watchBareStore starts the writing when the process is ready and measures it as
// the server is measured: until it is quiet.
func watchBareStore(ctx context.Context, pid int, stdin io.Writer, stdout io.Reader, r *Result) error {
	lines := bufio.NewReader(stdout)
	if line, err := lines.ReadString('\n'); err != nil || line != bareStoreReady+"\n" {
		return errors.Join(fmt.Errorf("not ready: %q", line), err)
	}
	before, err := treeUsage(pid)
	if err != nil {
		return err
	}
	if _, err := stdin.Write([]byte("\n")); err != nil {
		return err
	}
	var done bareStoreResult
	if err := json.NewDecoder(lines).Decode(&done); err != nil {
		return err
	}
	after, err := settle(ctx, pid)
	if err != nil {
		return err
	}
	r.take(tally{ops: done.Docs, elapsed: done.Elapsed, latencies: done.Latencies})
	cpu := float64((after.cpu - before.cpu).Microseconds()) / float64(done.Docs)
	r.CPUMicros, r.PeakRSS = &cpu, after.peakRSS
	return nil
}

// bareTimeout bounds the writer of the bare store.
const bareTimeout = 10 * time.Minute
