package jsvm_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/divandb/divan/internal/jsvm"
)

// cpuMicros is the processor time of this process and of the workers, in microseconds.
func cpuMicros(b *testing.B, p *jsvm.Pool) float64 {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	own := float64(u.Utime.Sec+u.Stime.Sec)*1e6 + float64(u.Utime.Usec+u.Stime.Usec)
	return own + float64(p.WorkerCPU().Microseconds())
}

// measure runs op until the benchmark is content, and reports the processor time of
// both processes per item.
func measure(b *testing.B, perOp int, unit string, op func(p *jsvm.Pool) error) {
	b.Helper()
	p := newPool(b, jsvm.Options{Workers: 1})
	if err := op(p); err != nil {
		b.Fatal(err)
	}
	before := cpuMicros(b, p)
	for b.Loop() {
		if err := op(p); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric((cpuMicros(b, p)-before)/float64(b.N*perOp), "cpu-µs/"+unit)
	b.ReportMetric(0, "ns/op")
}

func benchmarkMap(b *testing.B, docs [][]byte, fns ...string) {
	prog := program("bench", `{}`)
	measure(b, len(docs), "doc", func(p *jsvm.Pool) error {
		out, err := p.Map(context.Background(), prog, fns, docs)
		if err == nil && out[0][0].Rows == nil {
			err = fmt.Errorf("no rows: %v", out[0][0].Err)
		}
		return err
	})
}

const typicalMap = `function(doc){ emit([doc.type, doc.created], doc.amount); }`

func kilobytes(n int) [][]byte {
	docs := make([][]byte, n)
	for i := range docs {
		docs[i] = document(i)
	}
	return docs
}

// BenchmarkMap is the speed of a view build: documents of 1 KB, 200 at a time.
func BenchmarkMap(b *testing.B) {
	b.Run("members", func(b *testing.B) { benchmarkMap(b, kilobytes(200), typicalMap) })
	b.Run("unprojected", func(b *testing.B) {
		benchmarkMap(b, kilobytes(200), `function(doc){ var d = doc; emit([d.type, d.created], d.amount); }`)
	})
	b.Run("whole", func(b *testing.B) {
		benchmarkMap(b, kilobytes(200), `function(doc){ for (var k in doc) { if (k == "type") emit([doc[k], doc.created], doc.amount); } }`)
	})
	b.Run("changing", func(b *testing.B) {
		benchmarkMap(b, kilobytes(200), `function(doc){ var key = []; for (var k in doc) { if (k == "type") key.push(doc[k]); } emit(key, doc.amount); }`)
	})
	b.Run("small", func(b *testing.B) {
		docs := make([][]byte, 200)
		for i := range docs {
			docs[i] = fmt.Appendf(nil, `{"_id":"doc-%06d","type":"type%d","created":"2024-01-02","amount":%d}`, i, i%10, i)
		}
		benchmarkMap(b, docs, typicalMap)
	})
}

// BenchmarkReduce is a JavaScript reduce of 32 rows per call, 64 calls at a time.
func BenchmarkReduce(b *testing.B) {
	keys := "[" + strings.TrimSuffix(strings.Repeat(`[["type1","2024-01-02"],"doc-000001"],`, 32), ",") + "]"
	values := "[" + strings.TrimSuffix(strings.Repeat("33,", 32), ",") + "]"
	calls := make([]jsvm.ReduceCall, 64)
	for i := range calls {
		calls[i] = jsvm.ReduceCall{Keys: []byte(keys), Values: []byte(values)}
	}
	prog := program("bench", `{}`)
	measure(b, len(calls), "call", func(p *jsvm.Pool) error {
		out, err := p.Reduce(context.Background(), prog, `function(keys, values, rereduce){ return sum(values); }`, calls)
		if err == nil && !bytes.Equal(out[0].Value, []byte("1056")) {
			err = fmt.Errorf("got %s %v", out[0].Value, out[0].Err)
		}
		return err
	})
}

// BenchmarkValidate is one call at a time: what a single write pays.
func BenchmarkValidate(b *testing.B) {
	prog := program("bench", `{}`)
	calls := []jsvm.ValidateCall{{NewDoc: document(1), UserCtx: []byte(`{"name":"a","roles":[]}`), Security: []byte(`{}`)}}
	measure(b, 1, "call", func(p *jsvm.Pool) error {
		errs, err := p.Validate(context.Background(), prog, `function(n, o, u, s){ if (!n.type) throw({forbidden: "no type"}); }`, calls)
		if err == nil {
			err = errs[0]
		}
		return err
	})
}
