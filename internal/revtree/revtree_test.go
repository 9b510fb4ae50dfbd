package revtree

import (
	"fmt"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/model"
)

// path reads "3-c 2-b 1-a".
func path(t testing.TB, s string) []model.Rev {
	t.Helper()
	var out []model.Rev
	for _, f := range strings.Fields(s) {
		r, err := model.ParseRev(f)
		if err != nil {
			t.Fatalf("%q: %v", f, err)
		}
		out = append(out, r)
	}
	return out
}

// show gives every leaf's path, the winner first; a deleted leaf has a "!".
func show(t *Tree) string {
	var out []string
	for _, l := range t.Leaves() {
		var revs []string
		for _, r := range t.Path(l) {
			revs = append(revs, r.String())
		}
		s := strings.Join(revs, " ")
		if t.Node(l).Deleted {
			s = "!" + s
		}
		out = append(out, s)
	}
	return strings.Join(out, ", ")
}

// build merges histories separated by commas; "!" marks a deletion.
func build(t testing.TB, s string) *Tree {
	t.Helper()
	tree := new(Tree)
	for _, p := range strings.Split(s, ",") {
		p = strings.TrimSpace(p)
		gone := strings.HasPrefix(p, "!")
		tree.Merge(path(t, strings.TrimPrefix(p, "!")), gone)
		check(t, tree)
	}
	return tree
}

// check holds what must be true of any tree.
func check(t testing.TB, tree *Tree) {
	t.Helper()
	inner := make([]bool, tree.Len())
	for i := range tree.Len() {
		n := tree.Node(i)
		if n.Parent < 0 {
			continue
		}
		if int(n.Parent) >= i {
			t.Fatalf("node %d comes before its parent %d", i, n.Parent)
		}
		if p := tree.Node(int(n.Parent)); p.Rev.Pos+1 != n.Rev.Pos {
			t.Fatalf("%v is the child of %v", n.Rev, p.Rev)
		}
		inner[n.Parent] = true
	}
	for i := range inner {
		if tree.IsLeaf(i) == inner[i] {
			t.Fatalf("IsLeaf(%d) of %v is %v", i, tree.Node(i).Rev, tree.IsLeaf(i))
		}
		if got := tree.Find(tree.Node(i).Rev); got != i {
			t.Fatalf("Find(%v) is %d, not %d", tree.Node(i).Rev, got, i)
		}
	}
	if leaves := tree.Leaves(); len(leaves) > 0 && tree.Winner() != leaves[0] {
		t.Fatalf("Winner is %d, the first leaf %d", tree.Winner(), leaves[0])
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, tree, add, want string }{
		{"first", "", "1-a", "1-a"},
		{"extend", "1-a", "2-b 1-a", "2-b 1-a"},
		{"extend by a short history", "2-b 1-a", "3-c 2-b", "3-c 2-b 1-a"},
		{"the same leaf", "2-b 1-a", "2-b 1-a", "2-b 1-a"},
		{"an inner revision", "2-b 1-a", "1-a", "2-b 1-a"},
		{"two at once", "1-a", "3-c 2-b 1-a", "3-c 2-b 1-a"},
		{"branch", "2-b 1-a", "2-c 1-a", "2-c 1-a, 2-b 1-a"},
		{"branch lower", "3-d 2-b 1-a", "2-c 1-a", "3-d 2-b 1-a, 2-c 1-a"},
		{"two roots", "1-a", "1-b", "1-b, 1-a"},
		{"same hash elsewhere is another revision", "1-a", "2-a", "2-a, 1-a"},
		{"no common part", "5-e 4-d", "3-c 2-b", "5-e 4-d, 3-c 2-b"},
		{"a root gets its ancestors", "5-e 4-d", "4-d 3-c 2-b", "5-e 4-d 3-c 2-b"},
		{"a known leaf brings ancestors", "5-e 4-d", "5-e 4-d 3-c", "5-e 4-d 3-c"},
		{"branch on a root that gets ancestors", "5-e 4-d", "5-f 4-d 3-c", "5-f 4-d 3-c, 5-e 4-d 3-c"},
		{"two trees join", "5-e 4-d, 3-c 2-b", "4-d 3-c", "5-e 4-d 3-c 2-b"},
		{"three trees join", "6-f, 4-d, 2-b", "6-f 5-e 4-d 3-c 2-b 1-a", "6-f 5-e 4-d 3-c 2-b 1-a"},
		{"another ancestry does not stand", "3-c 2-b 1-a", "4-d 3-c 2-x 1-a", "4-d 3-c 2-b 1-a"},
		{"a gap ends the history", "", "5-e 3-c", "5-e"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			tree := new(Tree)
			if test.tree != "" {
				tree = build(t, test.tree)
			}
			p := path(t, test.add)
			known := tree.Find(p[0]) >= 0
			leaf, added := tree.Merge(p, false)
			check(t, tree)
			if tree.Node(leaf).Rev != p[0] || added == known {
				t.Errorf("Merge gave %v, added %v", tree.Node(leaf).Rev, added)
			}
			if got := show(tree); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
	if leaf, added := new(Tree).Merge(nil, false); leaf != -1 || added {
		t.Errorf("an empty history gave %d, %v", leaf, added)
	}
}

func TestWinner(t *testing.T) {
	t.Parallel()
	tests := []struct{ tree, want string }{
		{"2-b 1-a, 2-c 1-a", "2-c 1-a, 2-b 1-a"},
		{"2-b 1-a, !3-d 2-c 1-a", "2-b 1-a, !3-d 2-c 1-a"},
		{"!2-b 1-a, !3-d 2-c 1-a", "!3-d 2-c 1-a, !2-b 1-a"},
		{"9-a, 10-a", "10-a, 9-a"},
		{"1-A, 1-a, 1-0", "1-a, 1-A, 1-0"},
	}
	for _, test := range tests {
		if got := show(build(t, test.tree)); got != test.want {
			t.Errorf("%s\ngot  %s\nwant %s", test.tree, got, test.want)
		}
	}
	if w := new(Tree).Winner(); w != -1 {
		t.Errorf("an empty tree has winner %d", w)
	}
}

func TestLeavesUnder(t *testing.T) {
	t.Parallel()
	tree := build(t, "3-c 2-b 1-a, !3-d 2-b 1-a, 4-f 3-e 2-x 1-a, 2-z 1-y")
	for at, want := range map[string]string{
		"1-a": "4-f 3-c 3-d",
		"2-b": "3-c 3-d",
		"3-c": "3-c",
		"2-x": "4-f",
		"1-y": "2-z",
	} {
		var got []string
		for _, l := range tree.LeavesUnder(tree.Find(path(t, at)[0])) {
			got = append(got, tree.Node(l).Rev.String())
		}
		if strings.Join(got, " ") != want {
			t.Errorf("under %s: %v, want %s", at, got, want)
		}
	}
}

func TestStem(t *testing.T) {
	t.Parallel()
	tests := []struct {
		tree    string
		limit   int
		want    string
		dropped int
	}{
		{"1-a", 1, "1-a", 0},
		{"3-c 2-b 1-a", 3, "3-c 2-b 1-a", 0},
		{"3-c 2-b 1-a", 2, "3-c 2-b", 1},
		{"3-c 2-b 1-a", 1, "3-c", 2},
		{"3-c 2-b 1-a", 0, "3-c", 2},
		{"3-c 2-b 1-a, 2-x 1-a", 2, "3-c 2-b 1-a, 2-x 1-a", 0}, // the short branch needs the root
		{"3-c 2-b 1-a, 2-x 1-a", 1, "3-c, 2-x", 2},
		{"5-e 4-d 3-c 2-b 1-a, 2-x 1-a", 2, "5-e 4-d, 2-x 1-a", 2}, // the long branch is cut off
		{"5-e 4-d, 3-c 2-b", 1, "5-e, 3-c", 2},
	}
	for _, test := range tests {
		tree := build(t, test.tree)
		dropped := tree.Stem(test.limit)
		check(t, tree)
		if got := show(tree); got != test.want || len(dropped) != test.dropped {
			t.Errorf("%s to %d: dropped %d\ngot  %s\nwant %s", test.tree, test.limit, len(dropped), got, test.want)
		}
	}
}

func TestStemmedTreeTakesLongerHistory(t *testing.T) {
	t.Parallel()
	tree := build(t, "4-d 3-c 2-b 1-a")
	tree.Stem(2)
	if tree.Joined() {
		t.Error("joined before anything met")
	}
	leaf, added := tree.Merge(path(t, "5-e 4-d 3-c 2-b 1-a"), false)
	if !added || !tree.Joined() || tree.Node(leaf).Rev.String() != "5-e" {
		t.Errorf("Merge gave %v, %v, joined %v", tree.Node(leaf).Rev, added, tree.Joined())
	}
	if got := show(tree); got != "5-e 4-d 3-c 2-b 1-a" {
		t.Error(got)
	}
}

func TestEncoding(t *testing.T) {
	t.Parallel()
	md5 := strings.Repeat("0123456789abcdef", 2)
	tree := build(t, fmt.Sprintf("2-%s 1-a, !3-%s 2-b 1-a, 7-x", md5, strings.ToUpper(md5)))
	n := tree.Node(tree.Winner())
	n.HasBody, n.Size, n.Active = true, 1<<40, 17
	enc := tree.Append([]byte("before"))[len("before"):]
	back, err := Decode(enc)
	if err != nil {
		t.Fatal(err)
	}
	check(t, back)
	if back.Len() != tree.Len() {
		t.Fatalf("%d nodes, want %d", back.Len(), tree.Len())
	}
	for i := range tree.Len() {
		if *back.Node(i) != *tree.Node(i) {
			t.Errorf("node %d: %+v, want %+v", i, *back.Node(i), *tree.Node(i))
		}
	}

	single := build(t, "1-"+md5)
	single.Node(0).HasBody, single.Node(0).Size, single.Node(0).Active = true, 1000, 900
	if size := len(single.Append(nil)); size >= 30 {
		t.Errorf("one revision takes %d bytes", size)
	}
}

func TestDecodeMalformed(t *testing.T) {
	t.Parallel()
	good := build(t, "2-b 1-a, 2-c 1-a").Append(nil)
	for i := range good {
		if _, err := Decode(good[:i]); model.KindOf(err) != model.KindCorruption {
			t.Errorf("the first %d bytes: %v", i, err)
		}
	}
	for name, b := range map[string][]byte{
		"version":        {2, 0},
		"trailing":       append(append([]byte{}, good...), 0),
		"count":          {1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0},
		"parent of none": {1, 1, flagText, 1, 'a'},
		"own parent":     {1, 1, flagText | flagAway, 0, 1, 'a'},
		"flags":          {1, 1, 0x80 | flagText | flagRoot, 1, 1, 'a'},
		"empty hash":     {1, 1, flagText | flagRoot, 1, 0},
	} {
		tree := new(Tree)
		if err := tree.Decode(b); model.KindOf(err) != model.KindCorruption || tree.Len() != 0 {
			t.Errorf("%s: %v, %d nodes left", name, err, tree.Len())
		}
	}
}
