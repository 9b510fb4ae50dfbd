package coordinator

import (
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/divandb/divan/internal/shardapi"
)

// batches is a stream of what is in memory.
type batches[T any] struct {
	rest [][]T
}

func (b *batches[T]) Next() ([]T, error) {
	if len(b.rest) == 0 {
		return nil, io.EOF
	}
	next := b.rest[0]
	b.rest = b.rest[1:]
	return next, nil
}

func (b *batches[T]) Close() error { return nil }

// BenchmarkMerge is the cost per row of merging alone.
func BenchmarkMerge(b *testing.B) {
	const rows, batch = 64 << 10, 256
	for _, q := range []int{2, 8} {
		parts := make([][][]shardapi.Row, q)
		for i := range rows {
			p := &parts[(i*2654435761>>7)%q]
			if n := len(*p); n == 0 || len((*p)[n-1]) == batch {
				*p = append(*p, nil)
			}
			last := &(*p)[len(*p)-1]
			*last = append(*last, shardapi.Row{ID: fmt.Sprintf("document-%08d", i)})
		}
		b.Run(fmt.Sprintf("q%d", q), func(b *testing.B) {
			for b.Loop() {
				sources := make([]mergeSource[shardapi.Row], q)
				for i := range sources {
					sources[i].stream = &batches[shardapi.Row]{parts[i]}
				}
				m := newMerge(sources, func(error) {}, idOrder(false))
				n := 0
				for {
					got, err := m.Next()
					n += len(got)
					if errors.Is(err, io.EOF) {
						break
					}
				}
				if n != rows {
					b.Fatal(n)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*rows), "ns/row")
		})
	}
}
