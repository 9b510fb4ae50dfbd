package cluster

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// rowVersion opens every stored database row, so that a later form can be told.
const rowVersion = 1

// flagPartitioned marks a partitioned database in its row.
const flagPartitioned = 1

// appendRow appends the stored form of d. A copy on this node is stored with an
// empty node name, so that renaming the node needs no rewriting.
func appendRow(dst []byte, d *Database, self string) []byte {
	dst = append(dst, rowVersion)
	dst = append(dst, d.Instance[:]...)
	var flags byte
	if d.Partitioned {
		flags |= flagPartitioned
	}
	dst = append(dst, flags)
	dst = binary.AppendUvarint(dst, uint64(d.N))
	dst = binary.AppendUvarint(dst, uint64(d.RevsLimit))
	dst = binary.AppendUvarint(dst, uint64(d.MapEpoch))
	dst = binary.AppendVarint(dst, d.Created)
	dst = binary.AppendUvarint(dst, uint64(len(d.Shards)))
	for _, s := range d.Shards {
		dst = binary.BigEndian.AppendUint32(dst, s.Range.Begin)
		dst = binary.BigEndian.AppendUint32(dst, s.Range.End)
		dst = binary.AppendUvarint(dst, uint64(len(s.Copies)))
		for _, c := range s.Copies {
			dst = binary.AppendUvarint(dst, uint64(c.ID))
			dst = binary.AppendUvarint(dst, uint64(c.Epoch))
			node := c.Node
			if node == self {
				node = ""
			}
			dst = binary.AppendUvarint(dst, uint64(len(node)))
			dst = append(dst, node...)
		}
	}
	return append(dst, d.Security...)
}

// errRow is the cause of a row that does not decode.
var errRow = errors.New("truncated or malformed")

// rowReader takes fields off a stored row; the first fault stays.
type rowReader struct {
	b   []byte
	bad bool
}

func (r *rowReader) uvarint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *rowReader) varint() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.bad, r.b = true, nil
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *rowReader) take(n uint64) []byte {
	if uint64(len(r.b)) < n {
		r.bad, r.b = true, nil
		return nil
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *rowReader) uint32() uint32 {
	if b := r.take(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

// corrupt says which stored row cannot be right.
func corrupt(what string, err error) error {
	return &model.Error{Kind: model.KindCorruption, Name: "internal_server_error",
		Reason: "The registry of databases is damaged.", Err: fmt.Errorf("cluster: %s: %w", what, err)}
}

// decodeRow reads the stored form. All copies share one array: ten thousand
// databases are held in memory.
func decodeRow(name string, b []byte, self string) (*Database, error) {
	if len(b) == 0 || b[0] != rowVersion {
		return nil, corrupt("database "+name, errors.New("unknown row version"))
	}
	r := rowReader{b: b[1:]}
	d := &Database{Name: name}
	copy(d.Instance[:], r.take(8))
	if flags := r.take(1); flags != nil {
		d.Partitioned = flags[0]&flagPartitioned != 0
	}
	d.N = int(r.uvarint())
	d.RevsLimit = int(r.uvarint())
	d.MapEpoch = uint32(r.uvarint())
	d.Created = r.varint()
	q := r.uvarint()
	if r.bad || q == 0 || q > MaxQ {
		return nil, corrupt("database "+name, errRow)
	}
	d.Q = int(q)
	d.Shards = make([]Shard, q)
	copies := make([]Copy, 0, q)
	for i := range d.Shards {
		s := &d.Shards[i]
		s.Range = model.Range{Begin: r.uint32(), End: r.uint32()}
		n := r.uvarint()
		if r.bad || n == 0 || n > uint64(len(r.b)) {
			return nil, corrupt("database "+name, errRow)
		}
		first := len(copies)
		for range n {
			c := Copy{ID: shardapi.CopyID(r.uvarint()), Epoch: uint32(r.uvarint()), Node: self}
			if node := r.take(r.uvarint()); len(node) > 0 {
				c.Node = string(node)
			}
			copies = append(copies, c)
		}
		s.Copies = copies[first:len(copies):len(copies)]
	}
	if r.bad {
		return nil, corrupt("database "+name, errRow)
	}
	var security []byte
	if len(r.b) > 0 {
		security = append([]byte(nil), r.b...)
	}
	d.setSecurity(security)
	return d, nil
}

// storedEvent is an event with what the start needs to derive lost ones: the sum
// of the copies' sequences when an updated event was written, and of which
// instance.
type storedEvent struct {
	Event
	instance [8]byte
	sum      uint64
}

// appendEvent appends the stored form of an event; its number is in the key.
func appendEvent(dst []byte, e *storedEvent) []byte {
	dst = append(dst, byte(e.Type))
	if e.Type == EventUpdated {
		dst = append(dst, e.instance[:]...)
		dst = binary.AppendUvarint(dst, e.sum)
	}
	return append(dst, e.Name...)
}

// decodeEvent reads a stored event.
func decodeEvent(seq uint64, b []byte) (storedEvent, error) {
	r := rowReader{b: b}
	e := storedEvent{Event: Event{Seq: seq}}
	if t := r.take(1); t != nil {
		e.Type = EventType(t[0])
	}
	if e.Type == EventUpdated {
		copy(e.instance[:], r.take(8))
		e.sum = r.uvarint()
	}
	if r.bad || e.Type < EventCreated || e.Type > EventDeleted || len(r.b) == 0 {
		return e, corrupt(fmt.Sprintf("event %d", seq), errRow)
	}
	e.Name = string(r.b)
	return e, nil
}
