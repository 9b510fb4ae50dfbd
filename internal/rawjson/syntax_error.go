package rawjson

import "strconv"

// SyntaxError says where and why Normalize refused a text. It is safe to show to
// the client: it holds no byte of the input.
type SyntaxError struct {
	// Offset is the index in the source of the byte at which the text went wrong;
	// it is the length of the source when more input was needed.
	Offset int
	// Reason is a short lower-case English phrase.
	Reason string
}

// Error gives the reason and the offset in one line.
func (e *SyntaxError) Error() string {
	return "invalid JSON at offset " + strconv.Itoa(e.Offset) + ": " + e.Reason
}
