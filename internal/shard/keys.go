package shard

import (
	"encoding/binary"
	"encoding/hex"

	"github.com/divandb/divan/internal/model"
)

// The tables of a copy. The bytes are on disk and never change their meaning.
const (
	tableBlob   = 'a' // blob id → references, length, place
	tableBody   = 'b' // escaped doc id, rev → attachments, JSON text
	tableInline = 'd' // blob id → the bytes of a small attachment
	tableInfo   = 'i' // doc id → header, revision tree
	tableLocal  = 'l' // local doc id → revision number, JSON text
	tableMeta   = 'm' // name → counters
	tableSeq    = 's' // sequence → doc id, leaves
	tableStale  = 't' // sequence, escaped doc id, rev → time, bytes
)

// prefixLen is the length of 'c', the copy number and the table byte.
const prefixLen = 10

// copyPrefix begins every key of a copy.
func copyPrefix(id uint64) [9]byte {
	var p [9]byte
	p[0] = 'c'
	binary.BigEndian.PutUint64(p[1:], id)
	return p
}

// KeyRange gives the bounds of everything a copy stores under its number.
func KeyRange(id uint64) (lower, upper []byte) {
	lo, hi := copyPrefix(id), copyPrefix(id+1)
	return lo[:], hi[:]
}

// appendTable appends the prefix of one of the copy's tables.
func (c *Copy) appendTable(dst []byte, table byte) []byte {
	dst = append(dst, c.prefix[:]...)
	return append(dst, table)
}

// tableRange gives the bounds of a table.
func (c *Copy) tableRange(table byte) (lower, upper []byte) {
	return c.appendTable(nil, table), c.appendTable(nil, table+1)
}

// appendInfoKey appends the key of a document's info row.
func (c *Copy) appendInfoKey(dst []byte, id string) []byte {
	return append(c.appendTable(dst, tableInfo), id...)
}

// appendBodyKey appends the key of the body of a revision.
func (c *Copy) appendBodyKey(dst []byte, id string, rev model.Rev) []byte {
	dst = appendEscaped(c.appendTable(dst, tableBody), id)
	return appendRev(dst, rev)
}

// appendSeqKey appends the key of a row of the sequence log.
func (c *Copy) appendSeqKey(dst []byte, seq uint64) []byte {
	return binary.BigEndian.AppendUint64(c.appendTable(dst, tableSeq), seq)
}

// appendStaleKey appends the key of the note that a body was superseded at seq.
func (c *Copy) appendStaleKey(dst []byte, seq uint64, id string, rev model.Rev) []byte {
	dst = binary.BigEndian.AppendUint64(c.appendTable(dst, tableStale), seq)
	return appendRev(appendEscaped(dst, id), rev)
}

// appendEscaped appends an id so that escaped ids order as the ids do and none
// is a prefix of another: 0 becomes 0 255, and 0 1 ends the id.
func appendEscaped(dst []byte, id string) []byte {
	for i := 0; i < len(id); i++ {
		dst = append(dst, id[i])
		if id[i] == 0 {
			dst = append(dst, 0xff)
		}
	}
	return append(dst, 0, 1)
}

// cutEscaped takes an escaped id off the front of b.
func cutEscaped(b []byte) (id string, rest []byte, ok bool) {
	var buf []byte
	for i := 0; i+1 < len(b); i++ {
		if b[i] != 0 {
			continue
		}
		if b[i+1] == 1 {
			return string(append(buf, b[:i]...)), b[i+2:], true
		}
		buf = append(append(buf, b[:i]...), 0)
		b = b[i+2:]
		i = -1
	}
	return "", nil, false
}

// rawHash is the length of a hash of 32 lowercase hex digits in stored form.
const rawHash = 16

// appendRev appends the stored form of a revision: position, then 0 and 16 bytes
// for a hash of our own form, or the length and the text for any other.
func appendRev(dst []byte, r model.Rev) []byte {
	dst = binary.AppendUvarint(dst, r.Pos)
	if len(r.Hash) == 2*rawHash && lowerHex(r.Hash) {
		dst = append(dst, 0)
		dst, _ = hex.AppendDecode(dst, []byte(r.Hash)) // cannot fail: checked above
		return dst
	}
	dst = binary.AppendUvarint(dst, uint64(len(r.Hash))+1)
	return append(dst, r.Hash...)
}

// lowerHex tells whether s has only lowercase hex digits, so that it comes back
// from 16 bytes as it went in.
func lowerHex(s string) bool {
	for i := 0; i < len(s); i++ {
		if c := s[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// cutRev takes a revision off the front of b. text is appended to buf, so that a
// stream can keep the hashes of a whole batch in one string; hash is where it
// stands in the result.
func cutRev(b, buf []byte) (pos uint64, hash, rest []byte, out []byte, ok bool) {
	pos, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, nil, buf, false
	}
	b = b[n:]
	size, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, nil, buf, false
	}
	b = b[n:]
	from := len(buf)
	if size == 0 {
		if len(b) < rawHash {
			return 0, nil, nil, buf, false
		}
		buf = hex.AppendEncode(buf, b[:rawHash])
		return pos, buf[from:], b[rawHash:], buf, true
	}
	size--
	if uint64(len(b)) < size {
		return 0, nil, nil, buf, false
	}
	buf = append(buf, b[:size]...)
	return pos, buf[from:], b[size:], buf, true
}

// takeRev is cutRev for one revision on its own.
func takeRev(b []byte) (r model.Rev, rest []byte, ok bool) {
	var room [model.MaxRevHash]byte
	pos, hash, rest, _, ok := cutRev(b, room[:0])
	if !ok {
		return model.Rev{}, nil, false
	}
	return model.Rev{Pos: pos, Hash: string(hash)}, rest, true
}

// corrupt is the error of stored bytes that cannot be right.
func corrupt(what string) error {
	return &model.Error{Kind: model.KindCorruption, Name: "corruption", Reason: "A stored " + what + " is malformed."}
}
