package changes

import (
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// Style says which revisions of a document a row lists.
type Style uint8

// The styles.
const (
	MainOnly Style = iota // the winner
	AllDocs               // every leaf
)

// Row is one change of a feed.
type Row struct {
	Change *shardapi.Change
	// lines holds, per style, the row as the hub rendered it, from `{"seq":` on and
	// without the closing brace; nil outside of a hub. Valid only for a follower
	// whose vector is the hub's.
	lines [2][]byte
	frag  int // where the part after the token begins in lines
}

// AppendFragment appends `"id":"…","changes":[{"rev":"…"}]` and, for a deleted
// document, `,"deleted":true`: a row without its sequence and its braces.
func (r *Row) AppendFragment(dst []byte, style Style) []byte {
	if line := r.lines[style]; line != nil {
		return append(dst, line[r.frag:]...)
	}
	return appendFragment(dst, r.Change, style)
}

func appendFragment(dst []byte, c *shardapi.Change, style Style) []byte {
	dst = append(dst, `"id":`...)
	dst = rawjson.AppendString(dst, c.ID)
	dst = append(dst, `,"changes":[`...)
	for i := range c.Leaves {
		if i > 0 {
			if style == MainOnly {
				break
			}
			dst = append(dst, ',')
		}
		dst = append(dst, `{"rev":"`...)
		dst = c.Leaves[i].Rev.Append(dst) // a revision never needs escaping: ParseRev
		dst = append(dst, `"}`...)
	}
	dst = append(dst, ']')
	if c.Deleted() {
		dst = append(dst, `,"deleted":true`...)
	}
	return dst
}

// position is how far a feed has come, and how its rows are written.
type position struct {
	enc    *Encoder
	vec    Vector // after the last batch
	index  int    // the range of the last batch
	shared bool   // the lines of the last batch's rows may be used as they are
}

// AppendRow appends a row of the last batch: `{"seq":"TOKEN","id":…`, without the
// closing brace, so that a document may follow.
func (p *position) AppendRow(dst []byte, r *Row, style Style) []byte {
	if p.shared {
		return append(dst, r.lines[style]...)
	}
	dst = append(dst, `{"seq":"`...)
	dst = p.enc.appendAt(dst, p.vec, p.index, r.Change.Seq)
	dst = append(dst, `",`...)
	return r.AppendFragment(dst, style)
}

// AppendRowSeq appends the bare token of a row of the last batch.
func (p *position) AppendRowSeq(dst []byte, r *Row) []byte {
	return p.enc.appendAt(dst, p.vec, p.index, r.Change.Seq)
}

// AppendSeq appends the bare token of the position after the last batch.
func (p *position) AppendSeq(dst []byte) []byte { return p.enc.Append(dst, p.vec) }

// Vector gives a copy of the position after the last batch.
func (p *position) Vector() Vector { return append(Vector(nil), p.vec...) }
