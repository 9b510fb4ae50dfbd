package view

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
)

// The tables of an index. The bytes are on disk and never change their meaning.
const (
	tableBack = 'b' // doc id → the rows it has
	tableMeta = 'm' // nothing → counters, the root
	tableNode = 'n' // level, boundary → the segments of the level below
	tableRow  = 'r' // row key → JSON key and value
)

// keySpace opens every key of an index, beside whatever else lives in the store.
const keySpace = 'v'

// maxSig bounds a signature; its length has one byte.
const maxSig = 64

// appendCopy appends what begins all keys of a copy's indexes.
func appendCopy(dst []byte, id uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, keySpace), id)
}

// appendIndex appends what begins all keys of an index.
func appendIndex(dst []byte, id uint64, sig string) []byte {
	dst = append(appendCopy(dst, id), byte(len(sig)))
	return append(dst, sig...)
}

// keys makes the keys of one index.
type keys struct {
	prefix []byte // of the index
}

// table appends the prefix of a table.
func (k keys) table(dst []byte, table byte) []byte {
	return append(append(dst, k.prefix...), table)
}

// bounds gives the bounds of a table.
func (k keys) bounds(table byte) (lower, upper []byte) {
	return k.table(nil, table), k.table(nil, table+1)
}

// meta is the key of the counters.
func (k keys) meta() []byte { return k.table(nil, tableMeta) }

// appendBack appends the key of what a document has.
func (k keys) appendBack(dst []byte, id string) []byte {
	return append(k.table(dst, tableBack), id...)
}

// appendNode appends the key of a node.
func (k keys) appendNode(dst []byte, level int, boundary []byte) []byte {
	dst = append(k.table(dst, tableNode), byte(level))
	return append(dst, boundary...)
}

// appendRow appends the stored key of a row.
func (k keys) appendRow(dst, row []byte) []byte {
	return append(k.table(dst, tableRow), row...)
}

// A row key is what orders the rows of an index: in a partitioned one the
// partition, escaped; the sort key of the view key; the escaped document id; and
// the number of the emit among those of the document with the same sort key. Each
// part ends itself, so that the bytes of the whole order like the parts.

// appendEscaped appends text so that escaped texts order as the texts do and none
// is a prefix of another: 0 becomes 0 255, and 0 1 ends the text.
func appendEscaped[T string | []byte](dst []byte, text T) []byte {
	for i := 0; i < len(text); i++ {
		dst = append(dst, text[i])
		if text[i] == 0 {
			dst = append(dst, 0xff)
		}
	}
	return append(dst, 0, 1)
}

// appendUnescaped takes an escaped text off the front of b and appends the text
// itself to dst.
func appendUnescaped(dst, b []byte) (out, rest []byte, ok bool) {
	for {
		i := bytes.IndexByte(b, 0)
		if i < 0 || i+1 >= len(b) {
			return dst, nil, false
		}
		dst = append(dst, b[:i]...)
		if b[i+1] == 1 {
			return dst, b[i+2:], true
		}
		dst = append(dst, 0)
		b = b[i+2:]
	}
}

// escapedLen is the length of the escaped text at the front of b, 0 if there is none.
func escapedLen(b []byte) int {
	for at := 0; ; {
		i := bytes.IndexByte(b[at:], 0)
		if i < 0 || at+i+1 >= len(b) {
			return 0
		}
		at += i + 2
		if b[at-1] == 1 {
			return at
		}
	}
}

// appendNumber appends a number so that the bytes order as the numbers do.
func appendNumber(dst []byte, n uint64) []byte {
	if n == 0 {
		return append(dst, 0)
	}
	var room [8]byte
	binary.BigEndian.PutUint64(room[:], n)
	b := bytes.TrimLeft(room[:], "\x00")
	return append(append(dst, byte(len(b))), b...)
}

// appendAfter appends the lowest bytes above all that begin with b, and tells
// false if there are none.
func appendAfter(dst, b []byte) ([]byte, bool) {
	for i := len(b) - 1; i >= 0; i-- {
		if b[i] != 0xff {
			dst = append(dst, b[:i]...)
			return append(dst, b[i]+1), true
		}
	}
	return dst, false
}

// partitionOf is the part of a document's id that names its partition; empty for
// the ids, of design documents, that name none.
func partitionOf(id string) string {
	for i := 0; i < len(id); i++ {
		if id[i] == ':' {
			return id[:i]
		}
	}
	return ""
}

// A stored row's value: the length of the sort key, the length of the JSON key,
// the JSON key, the JSON value.

// rowValueLen is the length of a row's stored value.
func rowValueLen(sort int, r Row) int {
	return uvarintLen(uint64(sort)) + uvarintLen(uint64(len(r.Key))) + len(r.Key) + len(r.Value)
}

// putRowValue writes a row's stored value into room of exactly its length.
func putRowValue(room []byte, sort int, r Row) {
	n := binary.PutUvarint(room, uint64(sort))
	n += binary.PutUvarint(room[n:], uint64(len(r.Key)))
	n += copy(room[n:], r.Key)
	copy(room[n:], r.Value)
}

// uvarintLen is how many bytes a number takes.
func uvarintLen(n uint64) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}

// storedRow is a stored row taken apart. Its parts lie in the store's bytes.
type storedRow struct {
	sort, key, value []byte
	id               []byte // escaped
}

// parse takes a row apart.
func (r *storedRow) parse(row, val []byte, partitioned bool) error {
	if partitioned {
		n := escapedLen(row)
		if n == 0 {
			return corrupt("row key")
		}
		row = row[n:]
	}
	sort, n := binary.Uvarint(val)
	if n <= 0 || sort > uint64(len(row)) {
		return corrupt("row")
	}
	key, m := binary.Uvarint(val[n:])
	if m <= 0 || key > uint64(len(val)-n-m) {
		return corrupt("row")
	}
	val = val[n+m:]
	r.sort, r.id = row[:sort], row[sort:]
	r.key, r.value = val[:key], val[key:]
	return nil
}

// read takes apart the row that an iterator stands on; its key has a prefix.
func (r *storedRow) read(it *kv.Iter, prefix int, partitioned bool) error {
	val := it.Value()
	if err := it.Error(); err != nil {
		return err
	}
	return r.parse(it.Key()[prefix:], val, partitioned)
}

// appendID appends the document's id.
func (r *storedRow) appendID(dst []byte) ([]byte, error) {
	dst, _, ok := appendUnescaped(dst, r.id)
	if !ok {
		return dst, corrupt("row key")
	}
	return dst, nil
}

// corrupt is the error of stored bytes that cannot be right.
func corrupt(what string) error {
	return &model.Error{Kind: model.KindCorruption, Name: "corruption", Reason: "A stored " + what + " of a view is malformed."}
}

// Signatures lists the indexes that a copy has in the store.
func Signatures(store *kv.Store, copy uint64) ([]string, error) {
	lower, upper := appendCopy(nil, copy), appendCopy(nil, copy+1)
	if copy == ^uint64(0) {
		upper = []byte{keySpace + 1}
	}
	it, err := store.NewIter(lower, upper)
	if err != nil {
		return nil, err
	}
	var sigs []string
	for valid := it.First(); valid; {
		k := it.Key()[len(lower):]
		if len(k) == 0 || len(k) < 1+int(k[0]) {
			return nil, errors.Join(corrupt("key"), it.Close())
		}
		sig := string(k[1 : 1+int(k[0])])
		sigs = append(sigs, sig)
		after, _ := appendAfter(nil, appendIndex(nil, copy, sig)) // begins with keySpace, which has a successor
		valid = it.SeekGE(after)
	}
	return sigs, it.Close()
}

// Copies lists the copies that have indexes in the store.
func Copies(store *kv.Store) ([]uint64, error) {
	it, err := store.NewIter([]byte{keySpace}, []byte{keySpace + 1})
	if err != nil {
		return nil, err
	}
	var copies []uint64
	for valid := it.First(); valid; {
		k := it.Key()
		if len(k) < 9 {
			return nil, errors.Join(corrupt("key"), it.Close())
		}
		id := binary.BigEndian.Uint64(k[1:])
		copies = append(copies, id)
		if id == ^uint64(0) {
			break
		}
		valid = it.SeekGE(appendCopy(nil, id+1))
	}
	return copies, it.Close()
}

// Drop removes an index, in constant time. Nobody may change it any more.
func Drop(store *kv.Store, copy uint64, sig string) error {
	return dropPrefix(store, appendIndex(nil, copy, sig))
}

// DropCopy removes all indexes of a copy, in constant time. Nobody may change
// them any more.
func DropCopy(store *kv.Store, copy uint64) error {
	return dropPrefix(store, appendCopy(nil, copy))
}

// dropPrefix removes all keys that begin with prefix.
func dropPrefix(store *kv.Store, prefix []byte) error {
	after, _ := appendAfter(nil, prefix) // begins with keySpace, which has a successor
	b := store.NewBatch()
	defer b.Close()
	b.Frees = true
	b.DeleteRange(prefix, after)
	return commit(store, b)
}

// commit applies a batch.
func commit(store *kv.Store, b *kv.Batch) error {
	c, err := store.Apply(b)
	if err != nil {
		return err
	}
	return c.Wait()
}
