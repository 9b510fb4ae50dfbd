package document

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/divandb/divan/internal/model"
)

// NewRev is the revision of an edit: SHA-256, cut to the 32 digits that revisions
// have, over (parent, deleted, body, attachments' name, type, digest), so the same
// edit on two copies gives the same revision. (The peer's is MD5; nobody compares,
// and processors have instructions for this one.) Every part goes in with its length, so that no two edits can be
// written as the same bytes.
func NewRev(parent model.Rev, deleted bool, body []byte, atts []model.Attachment) model.Rev {
	var room [256]byte
	b := binary.AppendUvarint(room[:0], parent.Pos)
	b = appendCounted(b, parent.Hash)
	if deleted {
		b = append(b, 1)
	} else {
		b = append(b, 0)
	}
	b = binary.AppendUvarint(b, uint64(len(body)))
	h := sha256.New()
	h.Write(b)
	h.Write(body)
	b = binary.AppendUvarint(b[:0], uint64(len(atts)))
	for i := range atts {
		b = appendCounted(b, atts[i].Name)
		b = appendCounted(b, atts[i].ContentType)
		b = append(b, atts[i].Digest[:]...)
	}
	h.Write(b)
	var sum [sha256.Size]byte
	h.Sum(sum[:0])
	var text [revDigits]byte
	hex.Encode(text[:], sum[:revDigits/2])
	return model.Rev{Pos: parent.Pos + 1, Hash: string(text[:])}
}

// revDigits is the length of a revision's hash.
const revDigits = 32

// appendCounted appends a text after its length.
func appendCounted(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}
