package view

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/reduce"
	"github.com/divandb/divan/internal/shardapi"
)

// The figures of DESIGN.md come from
//
//	go test -run '^$' -bench . -benchtime 2000x ./internal/index/view
//
// VIEW_BENCH_ROWS sets the size of the large index, 1,000,000 if it is not set.

// benchRows is the size of the large index.
func benchRows() int {
	if n, err := strconv.Atoi(os.Getenv("VIEW_BENCH_ROWS")); err == nil {
		return n
	}
	return 1_000_000
}

// cpuTime is the processor time of this process so far: unlike the clock it
// includes the compactions in the background and excludes the neighbours.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// benchDoc makes the rows of document n: one with an array of a word and a number
// as its key.
func benchDoc(n int, value int) DocRows {
	return DocRows{
		ID: fmt.Sprintf("%032x", uint64(n)*0x9e3779b97f4a7c15),
		Rows: []Row{{
			Key:   fmt.Appendf(nil, `["group%02d",%d]`, n*7%20, n),
			Value: strconv.AppendInt(nil, int64(value), 10),
		}},
	}
}

// benchIndex builds an index of n rows.
func benchIndex(b *testing.B, store *kv.Store, sig string, n int) *Index {
	sum, err := reduce.Builtin("_sum")
	if err != nil {
		b.Fatal(err)
	}
	x, err := Open(Options{Store: store, Copy: 1, Sig: sig, Reducer: sum})
	if err != nil {
		b.Fatal(err)
	}
	if err := x.Begin(int64(n)); err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	docs := make([]DocRows, 0, 500)
	for i := range n {
		docs = append(docs, benchDoc(i, i%100))
		if len(docs) == cap(docs) || i == n-1 {
			if err := x.Apply(ctx, docs, uint64(i+1)); err != nil {
				b.Fatal(err)
			}
			docs = docs[:0]
		}
	}
	if err := x.Finish(ctx); err != nil {
		b.Fatal(err)
	}
	return x
}

// benchStore opens a store on the disk with the options of the server.
func benchStore(b *testing.B, dir string) *kv.Store {
	s, err := kv.Open(dir, kv.Options{NoSync: true, Logger: quiet})
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// large is the large index, made once for all benchmarks that only read it.
var large struct {
	sync.Once
	dir   string
	store *kv.Store
	x     *Index
}

func largeIndex(b *testing.B) *Index {
	large.Do(func() {
		dir, err := os.MkdirTemp("", "view-bench")
		if err != nil {
			b.Fatal(err)
		}
		large.dir = dir
		large.store = benchStore(b, dir)
		large.x = benchIndex(b, large.store, "large", benchRows())
		settle(b, large.store)
	})
	return large.x
}

// settle flushes and waits until no compaction has ended for a while: Pebble may
// leave a debt below its thresholds, so the debt is no sign.
func settle(b *testing.B, s *kv.Store) {
	if err := s.Flush(); err != nil {
		b.Fatal(err)
	}
	last := s.Metrics().Compactions
	for idle := 0; idle < 20; idle++ {
		time.Sleep(50 * time.Millisecond)
		if n := s.Metrics().Compactions; n != last {
			last, idle = n, 0
		}
	}
}

// ballast keeps the collector from running all the time, as the server's does.
var ballast []byte

func TestMain(m *testing.M) {
	ballast = make([]byte, 32<<20)
	runtime.GC()
	code := m.Run()
	runtime.KeepAlive(&ballast)
	if large.store != nil {
		_ = large.store.Close()
		_ = os.RemoveAll(large.dir)
	}
	os.Exit(code)
}

func BenchmarkBuild(b *testing.B) {
	for _, n := range []int{50_000, benchRows()} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for range b.N {
				store := benchStore(b, b.TempDir())
				before := cpuTime(b)
				stop, peak := make(chan struct{}), make(chan uint64)
				go func() { peak <- watchHeap(stop) }()
				x := benchIndex(b, store, "b", n)
				b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(n)/1000, "cpu-us/row")
				if err := store.Flush(); err != nil {
					b.Fatal(err)
				}
				close(stop)
				b.ReportMetric(float64(<-peak)/(1<<20), "peak-MB")
				sizes, err := x.Sizes()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(sizes.File)/float64(n), "disk-B/row")
				b.ReportMetric(float64(sizes.Active)/float64(n), "active-B/row")
				if err := store.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// watchHeap gives the largest heap seen until stop.
func watchHeap(stop chan struct{}) (peak uint64) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapInuse)
		select {
		case <-stop:
			return peak
		case <-tick.C:
		}
	}
}

// ask runs a query and counts what it gives.
func ask(b *testing.B, x *Index, req *shardapi.ViewRequest) (n int) {
	_, st, err := x.Query(context.Background(), req)
	if err != nil {
		b.Fatal(err)
	}
	for {
		rows, err := st.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		n += len(rows)
	}
	if err := st.Close(); err != nil {
		b.Fatal(err)
	}
	return n
}

func BenchmarkQuery(b *testing.B) {
	rows := benchRows()
	all := make([]shardapi.KeyRange, 1)
	at := func(r *rand.Rand) []byte { d := benchDoc(r.IntN(rows), 0); return d.Rows[0].Key }
	for _, q := range []struct {
		name string
		want int
		req  func(r *rand.Rand) *shardapi.ViewRequest
	}{
		{"range20", -1, func(r *rand.Rand) *shardapi.ViewRequest {
			return &shardapi.ViewRequest{Limit: 20, Offset: true, Ranges: []shardapi.KeyRange{{Start: at(r)}}}
		}},
		{"range20-descending", -1, func(r *rand.Rand) *shardapi.ViewRequest {
			return &shardapi.ViewRequest{Limit: 20, Offset: true, Descending: true, Ranges: []shardapi.KeyRange{{Start: at(r)}}}
		}},
		{"key", 1, func(r *rand.Rand) *shardapi.ViewRequest {
			k := at(r)
			return &shardapi.ViewRequest{Limit: -1, Offset: true, Ranges: []shardapi.KeyRange{{Start: k, End: k}}}
		}},
		{"keys1000", 1000, func(r *rand.Rand) *shardapi.ViewRequest {
			req := &shardapi.ViewRequest{Limit: -1, Offset: true}
			for range 1000 {
				k := at(r)
				req.Ranges = append(req.Ranges, shardapi.KeyRange{Start: k, End: k})
			}
			return req
		}},
		{"reduce-all", 1, func(r *rand.Rand) *shardapi.ViewRequest {
			return &shardapi.ViewRequest{Limit: -1, Reduce: true, Ranges: all}
		}},
		{"reduce-range", 1, func(r *rand.Rand) *shardapi.ViewRequest {
			return &shardapi.ViewRequest{Limit: -1, Reduce: true, Ranges: []shardapi.KeyRange{{Start: []byte(`["group03",7]`), End: []byte(`["group14",17]`)}}}
		}},
		{"group-level-1", 20, func(r *rand.Rand) *shardapi.ViewRequest {
			return &shardapi.ViewRequest{Limit: -1, Reduce: true, GroupLevel: 1, Ranges: all}
		}},
		{"group-level-1-descending", 20, func(r *rand.Rand) *shardapi.ViewRequest {
			return &shardapi.ViewRequest{Limit: -1, Reduce: true, GroupLevel: 1, Descending: true, Ranges: all}
		}},
		{"group-1000-unique", 1000, func(r *rand.Rand) *shardapi.ViewRequest {
			return &shardapi.ViewRequest{Limit: 1000, Reduce: true, GroupLevel: shardapi.GroupExact, Ranges: all}
		}},
	} {
		b.Run(q.name, func(b *testing.B) {
			x := largeIndex(b)
			r := rand.New(rand.NewPCG(1, 1))
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime(b)
			for range b.N {
				if n := ask(b, x, q.req(r)); q.want >= 0 && n != q.want {
					b.Fatalf("%d rows, want %d", n, q.want)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N)/1000, "cpu-us/op")
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	for _, u := range []struct {
		name     string
		rows, at int
	}{{"1-of-large", benchRows(), 1}, {"1000-of-100k", 100_000, 1000}} {
		b.Run(u.name, func(b *testing.B) {
			store := benchStore(b, b.TempDir())
			defer store.Close()
			x := benchIndex(b, store, "u", u.rows)
			settle(b, store)
			r := rand.New(rand.NewPCG(2, 2))
			docs := make([]DocRows, 0, u.at)
			b.ReportAllocs()
			b.ResetTimer()
			before := cpuTime(b)
			for i := range b.N {
				docs = docs[:0]
				seen := map[int]bool{}
				for len(docs) < u.at {
					if n := r.IntN(u.rows); !seen[n] {
						seen[n] = true
						docs = append(docs, benchDoc(n, r.IntN(1e6)))
					}
				}
				if err := x.Apply(context.Background(), docs, uint64(u.rows+i+1)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N*u.at)/1000, "cpu-us/doc")
		})
	}
}
