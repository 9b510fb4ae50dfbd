package coordinator

import "github.com/divandb/divan/internal/cluster"

// grouping sorts the items of a request by range and remembers where each stood.
type grouping struct {
	order  []int // positions in the request, range by range, in request order within
	bounds []int // order[bounds[i]:bounds[i+1]] belongs to range i
	used   []int // ranges with any item
}

// group places n items by their document ids. It gives nil, and the range, when
// all lie in one: the usual case, which needs no copying.
func group(db *cluster.Database, n int, id func(i int) string) (*grouping, int) {
	if len(db.Shards) == 1 || n == 0 {
		return nil, 0
	}
	first := db.ShardOf(id(0))
	if n == 1 {
		return nil, first
	}
	place := make([]int, n)
	place[0] = first
	one := true
	counts := make([]int, len(db.Shards)+1)
	counts[first+1]++
	for i := 1; i < n; i++ {
		place[i] = db.ShardOf(id(i))
		counts[place[i]+1]++
		one = one && place[i] == first
	}
	if one {
		return nil, first
	}
	g := &grouping{order: make([]int, n), bounds: counts}
	for i := range db.Shards {
		if counts[i+1] > 0 {
			g.used = append(g.used, i)
		}
		counts[i+1] += counts[i]
	}
	fill := append([]int(nil), counts...)
	for i, p := range place {
		g.order[fill[p]] = i
		fill[p]++
	}
	return g, 0
}

// positions gives the places in the request of a range's items.
func (g *grouping) positions(index int) []int {
	return g.order[g.bounds[index]:g.bounds[index+1]]
}
