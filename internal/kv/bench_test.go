package kv

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable/block"
)

// cpuTime is the processor time of this process so far: unlike the clock it
// includes the compactions in the background and excludes the neighbours.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// docMaker makes documents of about 1.1 KB as an application stores them: the
// same member names, words of a limited vocabulary, numbers, dates, a few bytes
// that repeat nowhere.
type docMaker struct {
	rng   *rand.Rand
	words []string
	buf   []byte
}

// newDocMaker makes a docMaker whose documents depend on seed alone.
func newDocMaker(seed uint64) *docMaker {
	d := &docMaker{rng: rand.New(rand.NewPCG(seed, seed))}
	for range 3000 {
		w := make([]byte, 3+d.rng.IntN(8))
		for i := range w {
			w[i] = "etaoinshrdlucmfwypvbgkjqxz"[min(d.rng.IntN(26), d.rng.IntN(26))]
		}
		d.words = append(d.words, string(w))
	}
	return d
}

// text appends n words.
func (d *docMaker) text(n int) {
	for i := range n {
		if i > 0 {
			d.buf = append(d.buf, ' ')
		}
		d.buf = append(d.buf, d.words[min(d.rng.IntN(3000), d.rng.IntN(3000))]...)
	}
}

// doc makes the next document, valid until the one after.
func (d *docMaker) doc(n int) []byte {
	r := d.rng
	d.buf = fmt.Appendf(d.buf[:0], `{"type":"order","number":%d,"status":"%s","created":"2024-%02d-%02dT%02d:%02d:%02dZ","customer":{"name":"`,
		n, []string{"open", "paid", "shipped"}[r.IntN(3)], 1+r.IntN(12), 1+r.IntN(28), r.IntN(24), r.IntN(60), r.IntN(60))
	d.text(2)
	d.buf = fmt.Appendf(d.buf, `","email":"u%d@example.org","loyal":%t,"token":"%016x"},"address":{"street":"`, r.IntN(1e6), r.IntN(2) == 0, r.Uint64())
	d.text(3)
	d.buf = fmt.Appendf(d.buf, `","zip":"%05d","lat":%.6f,"lon":%.6f},"lines":[`, r.IntN(1e5), r.Float64()*90, r.Float64()*180)
	for i := range 4 {
		if i > 0 {
			d.buf = append(d.buf, ',')
		}
		d.buf = fmt.Appendf(d.buf, `{"sku":"%08x","count":%d,"price":%d.%02d,"title":"`, r.Uint32(), 1+r.IntN(9), r.IntN(500), r.IntN(100))
		d.text(4)
		d.buf = append(d.buf, `"}`...)
	}
	d.buf = append(d.buf, `],"note":"`...)
	d.text(48)
	d.buf = append(d.buf, `"}`...)
	return d.buf
}

// idOf is a random-looking id of 32 digits for document n.
func idOf(n int) (id [32]byte) {
	var raw [16]byte
	binary.BigEndian.PutUint64(raw[:], uint64(n)*0x9e3779b97f4a7c15)
	binary.BigEndian.PutUint64(raw[8:], uint64(n)*0xc2b2ae3d27d4eb4f)
	hex.Encode(id[:], raw[:])
	return id
}

// tableKey starts a key of one of two copies: 'c', copy, table.
func tableKey(dst []byte, n int, table byte) []byte {
	return append(dst, 'c', 0, 0, 0, 0, 0, 0, 0, byte(n&1), table)
}

// bulk fills a batch with documents first to first+count-1, in the rows a shard
// copy writes for each: info, body, seq, and counters once.
func bulk(b *Batch, bodies [][]byte, first, count int) {
	var buf [128]byte
	for n := first; n < first+count; n++ {
		id := idOf(n)
		key := append(tableKey(buf[:0], n, 'i'), id[:]...)
		k, v := b.SetDeferred(len(key), 48)
		copy(k, key)
		copy(v, id[:])
		clear(v[32:])
		key = append(append(tableKey(buf[:0], n, 'b'), id[:]...), "\x001-0123456789abcdef"...)
		body := bodies[n%len(bodies)]
		k, v = b.SetDeferred(len(key), len(body))
		copy(k, key)
		copy(v, body)
		key = binary.BigEndian.AppendUint64(tableKey(buf[:0], n, 's'), uint64(n))
		k, v = b.SetDeferred(len(key), 52)
		copy(k, key)
		copy(v, id[:])
		clear(v[32:])
	}
	b.Set(tableKey(buf[:0], 0, 'm'), buf[:48])
}

// bodies makes n documents.
func bodies(n int) [][]byte {
	maker := newDocMaker(1)
	out := make([][]byte, n)
	for i := range out {
		out[i] = append([]byte(nil), maker.doc(i)...)
	}
	return out
}

// settle flushes and waits until Pebble has found nothing to compact for a while:
// it may rightly leave a debt below its thresholds, so the debt is no sign.
func settle(b *testing.B, s *Store) {
	if err := s.Flush(); err != nil {
		b.Fatal(err)
	}
	for idle := 0; idle < 20; idle++ {
		if m := s.db.Metrics(); m.Compact.NumInProgress != 0 || m.Flush.NumInProgress != 0 {
			idle = 0
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// load writes docs documents in batches of 500 and gives the processor time per
// document until the last compaction has ended.
func load(b *testing.B, s *Store, pool [][]byte, docs int) time.Duration {
	before := cpuTime(b)
	for first := 0; first < docs; first += 500 {
		batch := s.NewBatch()
		bulk(batch, pool, first, 500)
		c, err := s.Apply(batch)
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Wait(); err != nil {
			b.Fatal(err)
		}
	}
	settle(b, s)
	return (cpuTime(b) - before) / time.Duration(docs)
}

// randomGets reads info and body of documents at random and gives the processor
// time per document.
func randomGets(b *testing.B, s *Store, docs, reads int) time.Duration {
	rng := rand.New(rand.NewPCG(2, 2))
	var info, body [128]byte
	before := cpuTime(b)
	for range reads {
		n := rng.IntN(docs)
		id := idOf(n)
		for _, key := range [][]byte{
			append(tableKey(info[:0], n, 'i'), id[:]...),
			append(append(tableKey(body[:0], n, 'b'), id[:]...), "\x001-0123456789abcdef"...),
		} {
			v, ok, err := s.Get(key)
			if err != nil || !ok {
				b.Fatal(n, ok, err)
			}
			v.Release()
		}
	}
	return (cpuTime(b) - before) / time.Duration(reads)
}

// micros is a duration as the benchmarks report it.
func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// BenchmarkTableOptions is the measurement behind
// docs/decisions/0002-pebble-options.md. KV_BENCH_DOCS sets how many documents.
func BenchmarkTableOptions(b *testing.B) {
	docs := 100_000
	if n, err := strconv.Atoi(os.Getenv("KV_BENCH_DOCS")); err == nil {
		docs = n
	}
	pool := bodies(20_000)
	compressions := []struct {
		name string
		set  pebble.DBCompressionSettings
	}{
		{"none", pebble.DBCompressionNone},
		{"snappy", pebble.UniformDBCompressionSettings(block.SnappyCompression)},
		{"minlz", pebble.DBCompressionFastest},
		{"balanced", pebble.DBCompressionBalanced},
		{"zstd3", pebble.UniformDBCompressionSettings(block.ZstdCompression)},
	}
	for _, c := range compressions {
		for _, size := range []int{4 << 10, 16 << 10, 32 << 10} {
			b.Run(fmt.Sprintf("%s/%dK", c.name, size>>10), func(b *testing.B) {
				for range b.N {
					// Pebble takes the memtables out of the cache; what remains here is
					// less than half of the data, so that many bodies come from a block.
					s, err := openTuned(b.TempDir(), Options{Logger: quiet, CacheBytes: 64 << 20}, func(p *pebble.Options) {
						for i := range p.Levels {
							p.Levels[i].BlockSize = size
						}
						p.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return c.set })
					})
					if err != nil {
						b.Fatal(err)
					}
					write := load(b, s, pool, docs)
					m := s.Metrics()
					read := randomGets(b, s, docs, 20_000)
					b.ReportMetric(micros(write), "cpu-us/write")
					b.ReportMetric(micros(read), "cpu-us/read")
					b.ReportMetric(float64(m.TableBytes)/float64(docs), "disk-B/doc")
					b.ReportMetric(float64(m.CompactionBytes)/float64(docs), "compacted-B/doc")
					if err := s.Close(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkMemTable compares sizes of the memtable.
func BenchmarkMemTable(b *testing.B) {
	pool := bodies(20_000)
	for _, mem := range []int{4 << 20, 8 << 20, 16 << 20, 32 << 20, 64 << 20} {
		b.Run(fmt.Sprintf("%dM", mem>>20), func(b *testing.B) {
			for range b.N {
				const docs = 100_000
				s := open(b, b.TempDir(), Options{MemTableBytes: mem})
				write := load(b, s, pool, docs)
				m := s.Metrics()
				b.ReportMetric(micros(write), "cpu-us/write")
				b.ReportMetric(float64(m.CompactionBytes+m.FlushBytes)/float64(docs), "table-B/doc")
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkCompactionOptions compares what decides how often, and at which price,
// a document is written again.
func BenchmarkCompactionOptions(b *testing.B) {
	pool := bodies(20_000)
	const docs = 100_000
	// upper sets a compression for the level that flushes write to, another below.
	upper := func(l0, rest *block.CompressionProfile) func(*pebble.Options) {
		set := pebble.UniformDBCompressionSettings(rest)
		set.Levels[0] = l0
		return func(p *pebble.Options) {
			p.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return set })
		}
	}
	wide := func(p *pebble.Options) {
		p.LBaseMaxBytes = 256 << 20
		p.L0CompactionThreshold = 4
	}
	mem := func(n uint64) func(p *pebble.Options) { return func(p *pebble.Options) { p.MemTableSize = n } }
	separate := func(p *pebble.Options) {
		p.Experimental.ValueSeparationPolicy = func() pebble.ValueSeparationPolicy {
			return pebble.ValueSeparationPolicy{Enabled: true, MinimumSize: 512, MaxBlobReferenceDepth: 10, RewriteMinimumAge: time.Minute, TargetGarbageRatio: 0.3}
		}
	}
	for _, c := range []struct {
		name string
		tune []func(*pebble.Options)
	}{
		{"default", nil},
		{"minlz", []func(*pebble.Options){upper(block.FastestCompression, block.FastestCompression)}},
		{"L0 raw, minlz", []func(*pebble.Options){upper(block.NoCompression, block.FastestCompression)}},
		{"L0 raw, minlz, wide", []func(*pebble.Options){upper(block.NoCompression, block.FastestCompression), wide}},
		{"L0 raw, minlz, wide, 32M", []func(*pebble.Options){upper(block.NoCompression, block.FastestCompression), wide, mem(32 << 20)}},
		{"L0 raw, minlz, wide, 64M", []func(*pebble.Options){upper(block.NoCompression, block.FastestCompression), wide, mem(64 << 20)}},
		{"L0 raw, snappy, wide", []func(*pebble.Options){upper(block.NoCompression, block.SnappyCompression), wide}},
		{"L0 raw, zstd1, wide", []func(*pebble.Options){upper(block.NoCompression, block.BalancedCompression), wide}},
		{"minlz, separated", []func(*pebble.Options){upper(block.FastestCompression, block.FastestCompression), wide, separate}},
	} {
		b.Run(c.name, func(b *testing.B) {
			for range b.N {
				s, err := openTuned(b.TempDir(), Options{Logger: quiet, CacheBytes: 96 << 20}, func(p *pebble.Options) {
					for _, f := range c.tune {
						f(p)
					}
				})
				if err != nil {
					b.Fatal(err)
				}
				write := load(b, s, pool, docs)
				m := s.Metrics()
				read := randomGets(b, s, docs, 20_000)
				b.ReportMetric(micros(write), "cpu-us/write")
				b.ReportMetric(micros(read), "cpu-us/read")
				b.ReportMetric(float64(m.DiskBytes)/float64(docs), "disk-B/doc")
				b.ReportMetric(float64(m.CompactionBytes+m.FlushBytes)/float64(docs), "table-B/doc")
				if err := s.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
