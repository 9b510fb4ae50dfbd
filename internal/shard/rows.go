package shard

import (
	"encoding/binary"

	"github.com/divandb/divan/internal/model"
)

// rowVersion opens every info and counters row, so that a later form can be told.
const rowVersion = 1

// The flags of an info row.
const (
	flagDeleted = 1 << 0 // the winner is deleted
	flagAtts    = 1 << 1 // some stored revision has, or had, attachments
)

// header is the part of an info row that answers most questions; the revision
// tree follows it.
type header struct {
	deleted  bool
	atts     bool // some revision has, or had, attachments
	seq      uint64
	external int64 // user bytes of the leaves
	active   int64 // stored bytes of the leaves and of this row
	winner   model.Rev
}

// appendHeader appends the stored form of h.
func appendHeader(dst []byte, h *header) []byte {
	flags := byte(0)
	if h.deleted {
		flags |= flagDeleted
	}
	if h.atts {
		flags |= flagAtts
	}
	dst = append(dst, rowVersion, flags)
	dst = binary.AppendUvarint(dst, h.seq)
	dst = binary.AppendUvarint(dst, uint64(h.external))
	dst = binary.AppendUvarint(dst, uint64(h.active))
	return appendRev(dst, h.winner)
}

// parseHeader reads everything but the winner; rest begins with the winner.
func parseHeader(b []byte, h *header) (rest []byte, err error) {
	if len(b) < 2 || b[0] != rowVersion {
		return nil, corrupt("document header")
	}
	h.deleted = b[1]&flagDeleted != 0
	h.atts = b[1]&flagAtts != 0
	b = b[2:]
	var external, active uint64
	for _, p := range [3]*uint64{&h.seq, &external, &active} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, corrupt("document header")
		}
		*p, b = v, b[n:]
	}
	h.external, h.active = int64(external), int64(active)
	return b, nil
}

// parseInfo reads a header whole; tree is the stored revision tree.
func parseInfo(b []byte, h *header) (tree []byte, err error) {
	b, err = parseHeader(b, h)
	if err != nil {
		return nil, err
	}
	var ok bool
	if h.winner, b, ok = takeRev(b); !ok {
		return nil, corrupt("document header")
	}
	return b, nil
}

// appendAtts appends the attachment list that precedes a body.
func appendAtts(dst []byte, atts []model.Attachment) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(atts)))
	for i := range atts {
		a := &atts[i]
		dst = appendText(dst, a.Name)
		dst = appendText(dst, a.ContentType)
		dst = appendText(dst, a.Encoding)
		dst = binary.AppendUvarint(dst, a.RevPos)
		dst = binary.AppendUvarint(dst, uint64(a.Length))
		dst = binary.AppendUvarint(dst, uint64(a.EncodedLength))
		dst = append(dst, a.Digest[:]...)
		dst = append(dst, a.Blob[:]...)
	}
	return dst
}

// appendText appends a text with its length.
func appendText(dst []byte, s string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// cutText takes such a text off the front of b.
func cutText(b []byte) (s string, rest []byte, ok bool) {
	size, n := binary.Uvarint(b)
	if n <= 0 || uint64(len(b)-n) < size {
		return "", nil, false
	}
	b = b[n:]
	return string(b[:size]), b[size:], true
}

// parseBody reads a body row; text points into b.
func parseBody(b []byte) (atts []model.Attachment, text []byte, err error) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, nil, corrupt("document body")
	}
	b = b[n:]
	if count == 0 {
		return nil, b, nil
	}
	if count > uint64(len(b)) {
		return nil, nil, corrupt("document body")
	}
	atts = make([]model.Attachment, count)
	for i := range atts {
		a := &atts[i]
		for _, p := range [3]*string{&a.Name, &a.ContentType, &a.Encoding} {
			var ok bool
			if *p, b, ok = cutText(b); !ok {
				return nil, nil, corrupt("attachment list")
			}
		}
		var length, encoded uint64
		for _, p := range [3]*uint64{&a.RevPos, &length, &encoded} {
			v, n := binary.Uvarint(b)
			if n <= 0 {
				return nil, nil, corrupt("attachment list")
			}
			*p, b = v, b[n:]
		}
		a.Length, a.EncodedLength = int64(length), int64(encoded)
		if len(b) < len(a.Digest)+len(a.Blob) {
			return nil, nil, corrupt("attachment list")
		}
		b = b[copy(a.Digest[:], b):]
		b = b[copy(a.Blob[:], b):]
	}
	return atts, b, nil
}

// counters are the figures of a copy. They travel in every batch (I1), so that
// opening a copy is one Get and a crash cannot part them from what they count.
type counters struct {
	seq        uint64
	docs, dels int64
	external   int64
	active     int64
	staleBytes int64
	staleRevs  int64
	fileBytes  int64 // attachments kept as files
}

// fields lists the counters in their stored order.
func (k *counters) fields() [7]*int64 {
	return [7]*int64{&k.docs, &k.dels, &k.external, &k.active, &k.staleBytes, &k.staleRevs, &k.fileBytes}
}

// append appends the stored form.
func (k *counters) append(dst []byte) []byte {
	dst = append(dst, rowVersion)
	dst = binary.AppendUvarint(dst, k.seq)
	for _, p := range k.fields() {
		dst = binary.AppendUvarint(dst, uint64(*p))
	}
	return dst
}

// parse reads the stored form.
func (k *counters) parse(b []byte) error {
	if len(b) == 0 || b[0] != rowVersion {
		return corrupt("row of counters")
	}
	b = b[1:]
	v, n := binary.Uvarint(b)
	if n <= 0 {
		return corrupt("row of counters")
	}
	k.seq, b = v, b[n:]
	for _, p := range k.fields() {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return corrupt("row of counters")
		}
		*p, b = int64(v), b[n:]
	}
	return nil
}

// staleRow is the note of a superseded body.
type staleRow struct {
	at    int64 // unix milliseconds when it was superseded
	bytes int64
	atts  bool // the body lists attachments, so compaction must read it
}

// appendStale appends the stored form.
func appendStale(dst []byte, s staleRow) []byte {
	dst = binary.AppendUvarint(dst, uint64(s.at))
	dst = binary.AppendUvarint(dst, uint64(s.bytes))
	if s.atts {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// parseStale reads it.
func parseStale(b []byte) (s staleRow, err error) {
	for _, p := range [2]*int64{&s.at, &s.bytes} {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return s, corrupt("note of a superseded body")
		}
		*p, b = int64(v), b[n:]
	}
	if len(b) != 1 {
		return s, corrupt("note of a superseded body")
	}
	s.atts = b[0] != 0
	return s, nil
}
