package view

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/divandb/divan/internal/collate"
)

// What a document has is stored under its id, so that an update can remove it: its
// rows in the order of their sort keys, emits of one sort key in their order. Each
// is the sort key, the bytes of JSON it shows, and a hash of those: a row that did
// not change is neither read nor written.

// backRow is one row of a document.
type backRow struct {
	sort   []byte
	number uint64 // among the rows with the same sort key
	bytes  int    // of JSON
	hash   uint64
	row    Row // not of a stored one
}

// appendBackRow appends the stored form.
func appendBackRow(dst []byte, r *backRow) []byte {
	dst = appendBytes(dst, r.sort)
	dst = binary.AppendUvarint(dst, uint64(r.bytes))
	return binary.BigEndian.AppendUint64(dst, r.hash)
}

// parseBack reads what a document has. The rows point into b.
func parseBack(dst []backRow, b []byte) ([]backRow, error) {
	from := len(dst)
	for len(b) > 0 {
		var r backRow
		var ok bool
		if r.sort, b, ok = cutBytes(b); !ok {
			return dst, corrupt("list of rows")
		}
		size, n := binary.Uvarint(b)
		if n <= 0 || len(b)-n < 8 {
			return dst, corrupt("list of rows")
		}
		r.bytes, r.hash, b = int(size), binary.BigEndian.Uint64(b[n:]), b[n+8:]
		if last := len(dst) - 1; last >= from && bytes.Equal(dst[last].sort, r.sort) {
			r.number = dst[last].number + 1
		}
		dst = append(dst, r)
	}
	return dst, nil
}

// op is what happens to one row.
type op struct {
	kind opKind
	row  []byte // its key
	sort []byte // within row
	id   string
	show Row // of a row that is there afterwards
}

// opKind says what happens.
type opKind uint8

const (
	opInsert opKind = iota
	opChange        // its key stays
	opDelete
)

// differ finds what an update of documents does to the rows, and keeps the room
// it needs for that from one update to the next.
type differ struct {
	x *Index

	ops      []op
	rows     int64 // by how much the counters change
	external int64
	active   int64

	was, is []backRow
	sorts   []byte
	back    []byte
	text    arena // of row keys
}

// reset forgets the last update.
func (d *differ) reset() {
	clear(d.ops)
	d.ops = d.ops[:0]
	d.rows, d.external, d.active = 0, 0, 0
	d.text.reset()
}

// appendSort appends the bytes by which a view key sorts.
func (x *Index) appendSort(dst, key []byte) []byte {
	if x.o.RawCollation {
		return collate.AppendRawKey(dst, key)
	}
	return collate.AppendKey(dst, key)
}

// document adds what becomes of a document's rows. stored is what it had; back is
// what it has now, valid until the next call, and changed tells whether they differ.
func (d *differ) document(doc *DocRows, stored []byte) (back []byte, changed bool, err error) {
	if d.was, err = parseBack(d.was[:0], stored); err != nil {
		return nil, false, err
	}
	d.emitted(doc.Rows)
	d.back = d.back[:0]
	for i := range d.is {
		d.back = appendBackRow(d.back, &d.is[i])
	}
	if bytes.Equal(d.back, stored) {
		return nil, false, nil
	}
	d.active += backBytes(doc.ID, d.back) - backBytes(doc.ID, stored)
	was, is := d.was, d.is
	for len(was) > 0 || len(is) > 0 {
		c := 0
		switch {
		case len(is) == 0:
			c = -1
		case len(was) == 0:
			c = 1
		default:
			c = compareBack(&was[0], &is[0])
		}
		switch {
		case c < 0:
			d.add(opDelete, doc.ID, &was[0])
			was = was[1:]
		case c > 0:
			d.add(opInsert, doc.ID, &is[0])
			is = is[1:]
		default:
			if was[0].hash != is[0].hash || was[0].bytes != is[0].bytes {
				d.add(opChange, doc.ID, &is[0])
				d.external -= int64(was[0].bytes)
				d.active -= int64(was[0].bytes)
			}
			was, is = was[1:], is[1:]
		}
	}
	return d.back, true, nil
}

// backBytes is what a document's list of rows takes.
func backBytes(id string, back []byte) int64 {
	if len(back) == 0 {
		return 0
	}
	return int64(len(id) + len(back))
}

// compareBack orders rows of one document.
func compareBack(a, b *backRow) int {
	if c := bytes.Compare(a.sort, b.sort); c != 0 {
		return c
	}
	switch {
	case a.number < b.number:
		return -1
	case a.number > b.number:
		return 1
	}
	return 0
}

// emitted puts the rows of a document into d.is, in order and numbered.
func (d *differ) emitted(rows []Row) {
	d.is, d.sorts = slices.Grow(d.is[:0], len(rows)), d.sorts[:0]
	for _, r := range rows {
		from := len(d.sorts)
		d.sorts = d.x.appendSort(d.sorts, r.Key)
		// bytes holds the end of the sort key until d.sorts has stopped moving.
		d.is = append(d.is, backRow{number: uint64(from), bytes: len(d.sorts), hash: d.x.hash.ofRow(r), row: r})
	}
	for i := range d.is {
		r := &d.is[i]
		r.sort = d.sorts[r.number:r.bytes]
		r.number, r.bytes = 0, len(r.row.Key)+len(r.row.Value)
	}
	if len(d.is) < 2 {
		return
	}
	slices.SortStableFunc(d.is, func(a, b backRow) int { return bytes.Compare(a.sort, b.sort) })
	for i := 1; i < len(d.is); i++ {
		if bytes.Equal(d.is[i].sort, d.is[i-1].sort) {
			d.is[i].number = d.is[i-1].number + 1
		}
	}
}

// add notes what happens to one row.
func (d *differ) add(kind opKind, id string, r *backRow) {
	size := len(r.sort) + len(id) + strings.Count(id, "\x00") + 2 + 9
	var room []byte
	if d.x.o.Partitioned {
		part := partitionOf(id)
		room = appendEscaped(d.text.room(size+2*len(part)+2), part)
	} else {
		room = d.text.room(size)
	}
	from := len(room)
	room = append(room, r.sort...)
	to := len(room)
	room = appendNumber(appendEscaped(room, id), r.number)
	o := op{kind: kind, row: room, sort: room[from:to], id: id, show: r.row}
	d.ops = append(d.ops, o)
	if kind == opDelete {
		d.rows--
		d.external -= int64(r.bytes)
		d.active -= int64(r.bytes + len(room))
		return
	}
	d.external += int64(r.bytes)
	d.active += int64(r.bytes)
	if kind == opInsert {
		d.rows++
		d.active += int64(len(room))
	}
}
