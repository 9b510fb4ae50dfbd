package view

// arena gives out bytes that stay where they are until reset, in large pieces.
type arena struct {
	piece []byte // its length is what is given out
	used  int    // bytes given out since reset
}

// Pieces double from the first size to the last; large wishes get a piece of
// their own.
const (
	firstPiece = 2 << 10
	lastPiece  = 64 << 10
)

// room gives an empty slice with room for n bytes.
func (a *arena) room(n int) []byte {
	a.used += n
	if cap(a.piece)-len(a.piece) < n {
		size := min(max(2*cap(a.piece), firstPiece), lastPiece)
		if n > size/2 {
			return make([]byte, 0, n)
		}
		a.piece = make([]byte, 0, size)
	}
	at := len(a.piece)
	a.piece = a.piece[:at+n]
	return a.piece[at : at : at+n]
}

// copy gives a copy of b.
func (a *arena) copy(b []byte) []byte { return append(a.room(len(b)), b...) }

// reset takes back all that was given out.
func (a *arena) reset() { a.piece, a.used = a.piece[:0], 0 }
