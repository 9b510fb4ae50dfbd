package revtree

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/model"
)

// naive is the tree as a set of facts: which revisions are known, and which
// parents. Sets have no order, so it cannot depend on the order of merges.
type naive struct {
	known   map[model.Rev]bool // value: deleted
	parents map[model.Rev]model.Rev
}

func newNaive() *naive {
	return &naive{known: map[model.Rev]bool{}, parents: map[model.Rev]model.Rev{}}
}

func (m *naive) merge(path []model.Rev, deleted bool) {
	for i, r := range path {
		if _, ok := m.known[r]; !ok {
			m.known[r] = i == 0 && deleted
		}
		if i > 0 {
			m.parents[path[i-1]] = r
		}
	}
}

func (m *naive) path(r model.Rev) []model.Rev {
	out := []model.Rev{r}
	for {
		p, ok := m.parents[r]
		if !ok {
			return out
		}
		out, r = append(out, p), p
	}
}

func (m *naive) leaves() []model.Rev {
	inner := map[model.Rev]bool{}
	for _, p := range m.parents {
		inner[p] = true
	}
	var out []model.Rev
	for r := range m.known {
		if !inner[r] {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b model.Rev) int {
		if m.known[a] != m.known[b] {
			if m.known[a] {
				return 1
			}
			return -1
		}
		return b.Compare(a)
	})
	return out
}

// stem keeps the newest revisions of every path, and links between kept ones.
func (m *naive) stem(limit int) {
	keep := map[model.Rev]bool{}
	for _, l := range m.leaves() {
		p := m.path(l)
		for _, r := range p[:min(limit, len(p))] {
			keep[r] = true
		}
	}
	for r := range m.known {
		if !keep[r] {
			delete(m.known, r)
			delete(m.parents, r)
		}
	}
	for r, p := range m.parents {
		if !keep[p] {
			delete(m.parents, r)
		}
	}
}

func (m *naive) show() string {
	var out []string
	for _, l := range m.leaves() {
		var revs []string
		for _, r := range m.path(l) {
			revs = append(revs, r.String())
		}
		s := strings.Join(revs, " ")
		if m.known[l] {
			s = "!" + s
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// edit is one history on its way to a tree.
type edit struct {
	path    []model.Rev
	deleted bool
}

// randomEdits makes a random true history and cuts random pieces out of it.
func randomEdits(rng *rand.Rand) []edit {
	type rev struct {
		model.Rev
		parent  int
		deleted bool
	}
	var truth []rev
	for i := range 2 + rng.IntN(40) {
		r := rev{Rev: model.Rev{Pos: 1, Hash: fmt.Sprintf("%c%d", 'a'+rune(rng.IntN(26)), i)}, parent: -1, deleted: rng.IntN(4) == 0}
		if rng.IntN(4) == 0 {
			r.Hash = fmt.Sprintf("%032x", rng.Uint64())
		}
		if i > 0 && rng.IntN(12) > 0 {
			// Mostly on a recent one, so that histories grow long.
			r.parent = max(0, i-1-rng.IntN(3))
			r.Pos = truth[r.parent].Pos + 1
		}
		truth = append(truth, r)
	}
	var edits []edit
	for range 1 + rng.IntN(30) {
		at := rng.IntN(len(truth))
		e := edit{deleted: truth[at].deleted}
		for k, n := at, 1+rng.IntN(12); k >= 0 && n > 0; k, n = truth[k].parent, n-1 {
			e.path = append(e.path, truth[k].Rev)
		}
		edits = append(edits, e)
	}
	return edits
}

func TestMergeAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 1))
		edits := randomEdits(rng)
		m := newNaive()
		for _, e := range edits {
			m.merge(e.path, e.deleted)
		}
		want := m.show()
		for order := range 4 {
			rng.Shuffle(len(edits), func(i, k int) { edits[i], edits[k] = edits[k], edits[i] })
			tree := new(Tree)
			for _, e := range edits {
				known := tree.Find(e.path[0]) >= 0
				leaf, added := tree.Merge(e.path, e.deleted)
				if added == known || tree.Node(leaf).Rev != e.path[0] {
					t.Fatalf("seed %d: Merge of %v gave %v, %v", seed, e.path, tree.Node(leaf).Rev, added)
				}
			}
			check(t, tree)
			if got := show(tree); got != want {
				t.Fatalf("seed %d, order %d\ngot  %s\nwant %s", seed, order, got, want)
			}
			for _, e := range edits {
				if _, added := tree.Merge(e.path, e.deleted); added {
					t.Fatalf("seed %d: %v added twice", seed, e.path)
				}
			}
			if got := show(tree); got != want {
				t.Fatalf("seed %d: a second merge changed it\ngot  %s\nwant %s", seed, got, want)
			}
			again, err := Decode(tree.Append(nil))
			if err != nil {
				t.Fatal(err)
			}
			check(t, again)
			if got := show(again); got != want {
				t.Fatalf("seed %d: decoded\ngot  %s\nwant %s", seed, got, want)
			}
		}
	}
}

func TestStemAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 2))
		m, tree := newNaive(), new(Tree)
		for i, e := range randomEdits(rng) {
			m.merge(e.path, e.deleted)
			tree.Merge(e.path, e.deleted)
			if i%3 != 2 {
				continue
			}
			limit := 1 + rng.IntN(6)
			before := tree.Len()
			m.stem(limit)
			dropped := tree.Stem(limit)
			check(t, tree)
			if tree.Len()+len(dropped) != before {
				t.Fatalf("seed %d: %d nodes became %d and %d", seed, before, tree.Len(), len(dropped))
			}
			if got, want := show(tree), m.show(); got != want {
				t.Fatalf("seed %d, limit %d\ngot  %s\nwant %s", seed, limit, got, want)
			}
			for _, n := range dropped {
				if _, ok := m.known[n.Rev]; ok {
					t.Fatalf("seed %d: %v was dropped", seed, n.Rev)
				}
			}
		}
	}
}

func TestLeavesUnderAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		tree := new(Tree)
		for _, e := range randomEdits(rand.New(rand.NewPCG(seed, 3))) {
			tree.Merge(e.path, e.deleted)
		}
		for i := range tree.Len() {
			var want []int
			for _, l := range tree.Leaves() {
				if slices.Contains(tree.Path(l), tree.Node(i).Rev) {
					want = append(want, l)
				}
			}
			if got := tree.LeavesUnder(i); !slices.Equal(got, want) {
				t.Fatalf("seed %d: under %v: %v, want %v", seed, tree.Node(i).Rev, got, want)
			}
		}
	}
}
