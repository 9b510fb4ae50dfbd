package changes

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
)

// BenchmarkFollowOnce is what a long poll costs beside the wait itself: a hub of
// its own, made and given up.
func BenchmarkFollowOnce(b *testing.B) {
	n := newNode(b, Options{})
	d := n.create(b, cluster.CreateSpec{Name: "a", Q: 2})
	n.put(b, d, doc("a"), doc("b"), doc("c"))
	now, err := n.feeds.Now(b.Context(), d)
	if err != nil {
		b.Fatal(err)
	}
	tick := make(chan time.Time, 1)
	for b.Loop() {
		f := n.feeds.Follow(b.Context(), d, FeedOptions{Limit: -1, Since: now})
		<-f.hub.ready
		tick <- time.Time{}
		if _, err := f.Next(b.Context(), tick); !errors.Is(err, ErrTick) {
			b.Fatal(err)
		}
		f.Close()
	}
}

// BenchmarkScan is the cost per row of a normal feed, rendered.
func BenchmarkScan(b *testing.B) {
	n := newNode(b, Options{})
	for _, q := range []int{1, 2} {
		d := n.create(b, cluster.CreateSpec{Name: fmt.Sprintf("q%d", q), Q: q})
		const docs = 20_000
		for i := 0; i < docs; i += 500 {
			var edits []model.Edit
			for j := range 500 {
				edits = append(edits, doc(fmt.Sprintf("document-%08d", i+j)))
			}
			n.put(b, d, edits...)
		}
		b.Run(fmt.Sprintf("q%d", q), func(b *testing.B) {
			var buf []byte
			for b.Loop() {
				sc, err := n.feeds.Scan(b.Context(), d, FeedOptions{Limit: -1})
				if err != nil {
					b.Fatal(err)
				}
				for {
					rows, err := sc.Next()
					if errors.Is(err, io.EOF) {
						break
					}
					if err != nil {
						b.Fatal(err)
					}
					buf = buf[:0]
					for i := range rows {
						buf = sc.AppendRow(buf, &rows[i], MainOnly)
					}
				}
				if err := sc.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*docs), "ns/row")
		})
	}
}
