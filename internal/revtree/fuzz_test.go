package revtree

import (
	"bytes"
	"slices"
	"testing"

	"github.com/divandb/divan/internal/model"
)

func FuzzDecode(f *testing.F) {
	f.Add([]byte{1, 0})
	f.Add(build(f, "1-0123456789abcdef0123456789abcdef").Append(nil))
	f.Add(build(f, "3-c 2-b 1-a, !3-d 2-b 1-a, 9-x").Append(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		tree, err := Decode(b)
		if err != nil {
			if model.KindOf(err) != model.KindCorruption {
				t.Fatal(err)
			}
			return
		}
		tree.Leaves()
		tree.Winner()
		enc := tree.Append(nil)
		again, err := Decode(enc)
		if err != nil {
			t.Fatalf("what Append wrote: %v", err)
		}
		if !bytes.Equal(again.Append(nil), enc) {
			t.Fatal("the second round is another")
		}
	})
}

// FuzzOperations merges histories that may contradict each other: whatever comes,
// the tree stays a tree and knows what it was given.
func FuzzOperations(f *testing.F) {
	f.Add([]byte("\x13\x01\x02\x03\x24\x01\x05\x06\x07\xf2\x45\x01\x02\x03\x04\x05"))
	f.Add([]byte("\x02\x01\x02\x32\x01\x02\x52\x05\x06\x63\x01\x02\x03\x04"))
	f.Fuzz(func(t *testing.T, b []byte) {
		tree := new(Tree)
		for len(b) > 0 {
			op := b[0]
			b = b[1:]
			n := int(op & 7)
			switch {
			case op >= 0xf0:
				tree.Stem(n)
			case op >= 0xe8:
				again, err := Decode(tree.Append(nil))
				if err != nil {
					t.Fatal(err)
				}
				tree = again
			default:
				var path []model.Rev
				for i := 0; i <= n && i < len(b); i++ {
					// Few hashes, so that histories meet.
					pos := uint64(op>>3) + uint64(n) + 1 - uint64(i)
					path = append(path, model.Rev{Pos: pos, Hash: string('a' + rune(b[i]&3))})
				}
				b = b[len(path):]
				if len(path) == 0 {
					return
				}
				known := tree.Find(path[0]) >= 0
				var before []model.Rev
				for _, i := range tree.Leaves() {
					before = append(before, tree.Node(i).Rev)
				}
				leaf, added := tree.Merge(path, op&8 != 0)
				if added == known || tree.Node(leaf).Rev != path[0] {
					t.Fatalf("Merge of %v gave %v, %v", path, tree.Node(leaf).Rev, added)
				}
				if added && !tree.IsLeaf(leaf) {
					t.Fatalf("the new %v is no leaf", path[0])
				}
				for _, r := range before {
					if tree.IsLeaf(tree.Find(r)) == slices.Contains(tree.Covered(), r) {
						t.Fatalf("after Merge of %v, %v was covered: %v", path, r, tree.Covered())
					}
				}
				if len(tree.Covered()) > len(before) {
					t.Fatalf("Merge of %v covered %v of %v", path, tree.Covered(), before)
				}
			}
			check(t, tree)
		}
	})
}
