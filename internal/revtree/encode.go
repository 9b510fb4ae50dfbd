package revtree

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"strings"

	"github.com/divandb/divan/internal/model"
)

// The stored form: a version byte, the number of nodes, then per node a byte of
// flags; the position of a root, or the distance back to a parent that is not the
// node just before; the hash; and the two sizes if one is not zero. Numbers are
// unsigned varints. A position other than a root's is its parent's plus one.
const (
	encodingVersion = 1

	flagDeleted = 1 << 0
	flagBody    = 1 << 1
	flagText    = 1 << 2 // the hash is text with its length; otherwise 16 bytes
	flagRoot    = 1 << 3
	flagAway    = 1 << 4 // the parent is not the node just before
	flagSizes   = 1 << 5
	flagsKnown  = flagDeleted | flagBody | flagText | flagRoot | flagAway | flagSizes

	hexHash = 32 // length of our own hashes as text
	rawHash = hexHash / 2

	// maxPos leaves room for the position of a child; ParseRev takes 18 digits.
	maxPos = 1 << 62
)

// corrupt makes the error of Decode.
func corrupt(what string) error {
	return &model.Error{Kind: model.KindCorruption, Name: "corruption", Reason: "A stored revision tree is malformed: " + what + "."}
}

// Append appends the stored form of the tree to dst.
func (t *Tree) Append(dst []byte) []byte {
	dst = append(dst, encodingVersion)
	dst = binary.AppendUvarint(dst, uint64(len(t.nodes)))
	for i := range t.nodes {
		n := &t.nodes[i]
		var flags byte
		if n.Deleted {
			flags |= flagDeleted
		}
		if n.HasBody {
			flags |= flagBody
		}
		raw, ours := packHash(n.Rev.Hash)
		if !ours {
			flags |= flagText
		}
		switch {
		case n.Parent < 0:
			flags |= flagRoot
		case int(n.Parent) != i-1:
			flags |= flagAway
		}
		if n.Size != 0 || n.Active != 0 {
			flags |= flagSizes
		}
		dst = append(dst, flags)
		switch {
		case flags&flagRoot != 0:
			dst = binary.AppendUvarint(dst, n.Rev.Pos)
		case flags&flagAway != 0:
			dst = binary.AppendUvarint(dst, uint64(i-int(n.Parent)))
		}
		if ours {
			dst = append(dst, raw[:]...)
		} else {
			dst = binary.AppendUvarint(dst, uint64(len(n.Rev.Hash)))
			dst = append(dst, n.Rev.Hash...)
		}
		if flags&flagSizes != 0 {
			dst = binary.AppendUvarint(dst, uint64(n.Size))
			dst = binary.AppendUvarint(dst, uint64(n.Active))
		}
	}
	return dst
}

// nibbles gives the value of a lower-case hex digit, 0xff for anything else.
// Upper case is something else: the text of a revision must come back as it went
// in.
var nibbles = func() (table [256]byte) {
	for i := range table {
		table[i] = 0xff
	}
	for i, c := range []byte("0123456789abcdef") {
		table[c] = byte(i)
	}
	return table
}()

// packHash gives the 16 bytes that a hash stands for, if it is of that sort.
func packHash(h string) (raw [rawHash]byte, ok bool) {
	if len(h) != hexHash {
		return raw, false
	}
	var bad byte
	for i := range raw {
		high, low := nibbles[h[2*i]], nibbles[h[2*i+1]]
		bad |= high | low
		raw[i] = high<<4 | low&0xf
	}
	return raw, bad < 16
}

// Decode reads what Append wrote.
func Decode(b []byte) (*Tree, error) {
	t := new(Tree)
	if err := t.Decode(b); err != nil {
		return nil, err
	}
	return t, nil
}

// Decode makes t the tree that Append wrote and reuses its memory. The hashes lie
// in one string of their own, so b may be reused; after an error t is empty.
func (t *Tree) Decode(b []byte) error {
	t.Reset()
	if err := t.decode(b); err != nil {
		t.Reset()
		return err
	}
	return nil
}

func (t *Tree) decode(b []byte) error {
	if len(b) == 0 || b[0] != encodingVersion {
		return corrupt("unknown version")
	}
	b = b[1:]
	count, b, ok := uvarint(b)
	// The shortest node is a byte of flags, the length of a text and one letter.
	if !ok || count > uint64(len(b))/3 {
		return corrupt("more revisions than bytes")
	}
	if int(count) > cap(t.nodes) {
		t.nodes = make([]Node, 0, count+1) // mostly one more is merged next
	}
	var hashes strings.Builder
	hashes.Grow(min(int(count)*hexHash, 2*len(b)))
	for i := range int(count) {
		if len(b) == 0 {
			return corrupt("cut short")
		}
		flags := b[0]
		b = b[1:]
		if flags&^flagsKnown != 0 || flags&(flagRoot|flagAway) == flagRoot|flagAway {
			return corrupt("unknown flags")
		}
		n := Node{Parent: -1, Deleted: flags&flagDeleted != 0, HasBody: flags&flagBody != 0}
		if flags&flagRoot != 0 {
			if n.Rev.Pos, b, ok = uvarint(b); !ok || n.Rev.Pos >= maxPos {
				return corrupt("bad position")
			}
		} else {
			back := uint64(1)
			if flags&flagAway != 0 {
				if back, b, ok = uvarint(b); !ok {
					return corrupt("bad parent")
				}
			}
			if back == 0 || back > uint64(i) {
				return corrupt("a parent after its child")
			}
			n.Parent = int32(i - int(back))
			parent := &t.nodes[n.Parent]
			parent.inner = true
			if n.Rev.Pos = parent.Rev.Pos + 1; n.Rev.Pos >= maxPos {
				return corrupt("bad position")
			}
		}
		from := hashes.Len()
		if flags&flagText != 0 {
			var size uint64
			size, b, ok = uvarint(b)
			if !ok || size == 0 || size > model.MaxRevHash || size > uint64(len(b)) {
				return corrupt("bad hash")
			}
			hashes.Write(b[:size])
			b = b[size:]
		} else {
			if len(b) < rawHash {
				return corrupt("cut short")
			}
			var text [hexHash]byte
			hex.Encode(text[:], b[:rawHash])
			hashes.Write(text[:])
			b = b[rawHash:]
		}
		n.Rev.Hash = hashes.String()[from:]
		if flags&flagSizes != 0 {
			var size, active uint64
			if size, b, ok = uvarint(b); !ok || size > math.MaxInt64 {
				return corrupt("bad size")
			}
			if active, b, ok = uvarint(b); !ok || active > math.MaxInt64 {
				return corrupt("bad size")
			}
			n.Size, n.Active = int64(size), int64(active)
		}
		t.nodes = append(t.nodes, n)
	}
	if len(b) != 0 {
		return corrupt("trailing bytes")
	}
	return nil
}

// uvarint reads one number and gives the rest.
func uvarint(b []byte) (v uint64, rest []byte, ok bool) {
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, b, false
	}
	return v, b[n:], true
}
