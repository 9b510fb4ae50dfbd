package jsvm

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkEngine is a batch within the engine alone, for profiles.
func BenchmarkEngine(b *testing.B) {
	e, err := newEngine("bench", "{}", 256<<20, nil)
	if err != nil {
		b.Fatal(err)
	}
	defer e.close()
	body := []byte{'['}
	for i := range 200 {
		if i > 0 {
			body = append(body, ',')
		}
		body = fmt.Appendf(body, `{"_id":"doc-%06d","type":"type%d","created":"2024-01-02T00:00:00Z","amount":%d,"tags":["a","b","c"],`+
			`"address":{"street":"Some street 12","city":"Town","zip":"12345"},"items":[{"sku":"a1","n":1,"price":3.5},{"sku":"b2","n":2,"price":7.25}],`+
			`"text":"%s"}`, i, i%10, i, strings.Repeat("lorem ipsum dolor ", 40))
	}
	r := &runRequest{op: "map", funcs: []string{`function(doc){ emit([doc.type, doc.created], doc.amount); }`}, body: append(body, ']')}
	for b.Loop() {
		if _, err := e.run(r); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/200, "µs/doc")
}

// BenchmarkNewEngine is what the first call of a program pays.
func BenchmarkNewEngine(b *testing.B) {
	for b.Loop() {
		e, err := newEngine("bench", "{}", 256<<20, nil)
		if err != nil {
			b.Fatal(err)
		}
		if _, err := e.run(&runRequest{op: "map", funcs: []string{`function(doc){ emit(doc._id); }`}, body: []byte(`[{"_id":"a"}]`)}); err != nil {
			b.Fatal(err)
		}
		e.close()
	}
}
