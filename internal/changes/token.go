package changes

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"math/bits"
	"strconv"
	"strings"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// tokenVersion opens the payload of every token.
const tokenVersion = 1

// maxToken bounds the text of a token: it comes from clients.
const maxToken = 16 << 10

// ErrSince is the answer to a text that is no token.
var ErrSince = model.BadRequest("Malformed sequence supplied in 'since' parameter.")

// Encoder writes the tokens of one database. It keeps what all of them share. It
// is for one goroutine; another takes a fork.
type Encoder struct {
	head  []byte   // version, instance, map epoch, number of ranges
	parts [][]byte // per range: its begin, the copy, the copy's epoch
	space []byte   // for the payload, used over and over
}

// fork gives an encoder for another goroutine.
func (e *Encoder) fork() *Encoder { return &Encoder{head: e.head, parts: e.parts} }

// NewEncoder makes the encoder of a database.
func NewEncoder(db *cluster.Database) *Encoder {
	e := &Encoder{parts: make([][]byte, len(db.Shards))}
	e.head = append(e.head, tokenVersion)
	e.head = append(e.head, db.Instance[:]...)
	e.head = binary.AppendUvarint(e.head, uint64(db.MapEpoch))
	e.head = binary.AppendUvarint(e.head, uint64(len(db.Shards)))
	buf := make([]byte, 0, 12*len(db.Shards)) // one array for all in the usual case
	for i := range db.Shards {
		s := &db.Shards[i]
		from := len(buf)
		// Ranges begin at round numbers: reversed they are small ones.
		buf = binary.AppendUvarint(buf, uint64(bits.Reverse32(s.Range.Begin)))
		buf = binary.AppendUvarint(buf, uint64(s.Copies[0].ID))
		buf = binary.AppendUvarint(buf, uint64(s.Copies[0].Epoch))
		e.parts[i] = buf[from:len(buf):len(buf)]
	}
	return e
}

// Append appends the token of a position. A nil vector is the beginning.
func (e *Encoder) Append(dst []byte, v Vector) []byte { return e.appendAt(dst, v, -1, 0) }

// appendAt appends the token of v with one range at another sequence.
func (e *Encoder) appendAt(dst []byte, v Vector, index int, seq uint64) []byte {
	p := append(e.space[:0], e.head...)
	var sum uint64
	for i, part := range e.parts {
		var n uint64
		if i == index {
			n = seq
		} else if v != nil {
			n = v[i]
		}
		sum += n
		p = append(p, part...)
		p = binary.AppendUvarint(p, n)
	}
	p = binary.BigEndian.AppendUint32(p, crc32.ChecksumIEEE(p))
	e.space = p
	dst = strconv.AppendUint(dst, sum, 10)
	dst = append(dst, '-')
	return base64.RawURLEncoding.AppendEncode(dst, p)
}

// Token gives the wire form of a position.
func Token(db *cluster.Database, v Vector) string {
	return string(NewEncoder(db).Append(nil, v))
}

// Decode reads a token. The empty text and "0" are the beginning. A token of
// another database, or of this name's earlier instance, is the beginning too; a
// range whose copy the token does not know starts at 0: changes may repeat, none
// may be missing. Everything else is ErrSince; "now" is the caller's to handle.
func Decode(db *cluster.Database, text string) (Vector, error) {
	v := make(Vector, len(db.Shards))
	if text == "" || text == "0" {
		return v, nil
	}
	sumText, body, ok := strings.Cut(text, "-")
	if !ok || len(text) > maxToken {
		return nil, ErrSince
	}
	sum, err := strconv.ParseUint(sumText, 10, 64)
	if err != nil {
		return nil, ErrSince
	}
	p, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil || len(p) < 1+8+1+1+4 || p[0] != tokenVersion {
		return nil, ErrSince
	}
	p, check := p[:len(p)-4], p[len(p)-4:]
	if crc32.ChecksumIEEE(p) != binary.BigEndian.Uint32(check) {
		return nil, ErrSince
	}
	ours := [8]byte(p[1:9]) == db.Instance
	r := tokenReader{b: p[9:]}
	r.uvarint() // the map epoch: ranges are found by what they are, whatever the map
	n := r.uvarint()
	if n > cluster.MaxQ {
		return nil, ErrSince
	}
	var total uint64
	at := 0
	for range n {
		begin, copyID, epoch, seq := r.uvarint(), r.uvarint(), r.uvarint(), r.uvarint()
		total += seq
		if !ours || begin > 1<<32-1 {
			continue
		}
		want := bits.Reverse32(uint32(begin))
		for at < len(db.Shards) && db.Shards[at].Range.Begin < want {
			at++
		}
		if at == len(db.Shards) || db.Shards[at].Range.Begin != want {
			continue
		}
		if c := db.Shards[at].Copies[0]; c.ID == shardapi.CopyID(copyID) && uint64(c.Epoch) == epoch {
			v[at] = seq
		}
	}
	if r.bad || len(r.b) > 0 || total != sum {
		return nil, ErrSince
	}
	return v, nil
}

// tokenReader takes numbers off a payload; the first fault stays.
type tokenReader struct {
	b   []byte
	bad bool
}

func (r *tokenReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}
