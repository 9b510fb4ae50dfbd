package model

import (
	"strconv"
	"strings"
)

// MaxRevHash bounds the hash part of a revision: revisions come from clients
// (replicated writes), and everything a client sizes has a limit.
const MaxRevHash = 128

// Rev is one revision of a document: its position in the history and a hash.
// The zero Rev means "no revision".
type Rev struct {
	Pos  uint64
	Hash string // as it stands on the wire: our own are 32 hex digits, others may be anything
}

// ErrRevFormat is the answer to a text that is no revision.
var ErrRevFormat = &Error{Kind: KindBadRequest, Name: "bad_request", Reason: "Invalid rev format"}

// ParseRev reads "<pos>-<hash>".
func ParseRev(s string) (Rev, error) {
	pos, hash, ok := strings.Cut(s, "-")
	if !ok || len(pos) == 0 || len(pos) > 18 || hash == "" || len(hash) > MaxRevHash {
		return Rev{}, ErrRevFormat
	}
	var n uint64
	for i := 0; i < len(pos); i++ {
		if pos[i] < '0' || pos[i] > '9' {
			return Rev{}, ErrRevFormat
		}
		n = n*10 + uint64(pos[i]-'0')
	}
	for i := 0; i < len(hash); i++ {
		// A revision is quoted in headers and JSON: no controls, quotes or spaces.
		if hash[i] <= ' ' || hash[i] == '"' || hash[i] == '\\' || hash[i] >= 0x7f {
			return Rev{}, ErrRevFormat
		}
	}
	return Rev{Pos: n, Hash: hash}, nil
}

// IsZero tells whether r is "no revision".
func (r Rev) IsZero() bool { return r.Pos == 0 && r.Hash == "" }

// String gives the wire form.
func (r Rev) String() string { return strconv.FormatUint(r.Pos, 10) + "-" + r.Hash }

// Append appends the wire form to dst.
func (r Rev) Append(dst []byte) []byte {
	dst = strconv.AppendUint(dst, r.Pos, 10)
	dst = append(dst, '-')
	return append(dst, r.Hash...)
}

// Compare orders revisions by position, then by hash, as the choice of the
// winner does.
func (r Rev) Compare(o Rev) int {
	switch {
	case r.Pos < o.Pos:
		return -1
	case r.Pos > o.Pos:
		return 1
	}
	return strings.Compare(r.Hash, o.Hash)
}
