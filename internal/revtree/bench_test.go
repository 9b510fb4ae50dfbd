package revtree

import (
	"fmt"
	"testing"

	"github.com/divandb/divan/internal/model"
)

// linear makes a history of n revisions.
func linear(n int) *Tree {
	path := make([]model.Rev, n)
	for i := range path {
		path[i] = model.Rev{Pos: uint64(n - i), Hash: fmt.Sprintf("%032x", n-i)}
	}
	tree := new(Tree)
	leaf, _ := tree.Merge(path, false)
	tree.Node(leaf).HasBody, tree.Node(leaf).Size, tree.Node(leaf).Active = true, 1000, 900
	return tree
}

func BenchmarkDecode(b *testing.B) {
	for _, n := range []int{1, 3, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			enc := linear(n).Append(nil)
			b.ReportMetric(float64(len(enc)), "bytes")
			b.ReportAllocs()
			var tree Tree
			for b.Loop() {
				if err := tree.Decode(enc); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkUpdate is what an edit costs: decode, merge, stem, winner, encode.
func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{1, 3, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			from := linear(n)
			enc := from.Append(nil)
			path := []model.Rev{{Pos: uint64(n + 1), Hash: fmt.Sprintf("%032x", n+1)}, from.Node(from.Winner()).Rev}
			b.ReportAllocs()
			var tree Tree
			var out []byte
			for b.Loop() {
				if err := tree.Decode(enc); err != nil {
					b.Fatal(err)
				}
				tree.Merge(path, false)
				tree.Stem(1000)
				tree.Winner()
				out = tree.Append(out[:0])
			}
		})
	}
}
