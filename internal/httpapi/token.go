package httpapi

import (
	"github.com/divandb/divan/internal/changes"
	"github.com/divandb/divan/internal/cluster"
)

// appendToken appends the sequence token of a position as a JSON string. The text
// of a token is digits, a hyphen and base64url: nothing in it needs escaping.
func (a *API) appendToken(b []byte, db *cluster.Database, seqs []uint64) []byte {
	b = append(b, '"')
	b = changes.NewEncoder(db).Append(b, seqs)
	return append(b, '"')
}
