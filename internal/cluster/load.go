package cluster

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sort"
	"strings"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// The tables, by the first byte of a key.
const (
	tableDatabase = 'r'
	tableEvent    = 'u'
	tableMeta     = 'm'
)

// The words of the meta table.
const (
	metaUUID     = "uuid"
	metaNextCopy = "next"
	metaDrop     = "drop/"    // + copy number: a copy whose data is still to be removed
	metaSetting  = "setting/" // + name
)

func databaseKey(name string) []byte { return append([]byte{tableDatabase}, name...) }

func metaKey(word string) []byte { return append([]byte{tableMeta}, word...) }

func eventKey(seq uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{tableEvent}, seq)
}

func dropKey(id shardapi.CopyID) []byte {
	return binary.BigEndian.AppendUint64(metaKey(metaDrop), uint64(id))
}

// scan calls each with every key of a table (without the table's byte) and its
// value, both valid during the call.
func scan(store *kv.Store, table byte, each func(key, val []byte) error) error {
	it, err := store.NewIter([]byte{table}, []byte{table + 1})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if err := each(it.Key()[1:], it.Value()); err != nil {
			return errors.Join(err, it.Close())
		}
	}
	return errors.Join(it.Error(), it.Close())
}

// load reads the registry into memory.
func (l *Local) load(ctx context.Context) error {
	l.log.next = 1
	var drops []shardapi.CopyID
	err := scan(l.store, tableMeta, func(key, val []byte) error {
		switch word := string(key); {
		case word == metaUUID:
			l.uuid = string(val)
		case word == metaNextCopy:
			n, w := binary.Uvarint(val)
			if w <= 0 {
				return corrupt("next copy number", errRow)
			}
			l.log.next = shardapi.CopyID(n)
		case strings.HasPrefix(word, metaDrop):
			if len(key) != len(metaDrop)+8 {
				return corrupt("note of a dropped copy", errRow)
			}
			drops = append(drops, shardapi.CopyID(binary.BigEndian.Uint64(key[len(metaDrop):])))
		case strings.HasPrefix(word, metaSetting):
			l.seen.settings[word[len(metaSetting):]] = append([]byte{}, val...)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := l.loadDatabases(); err != nil {
		return err
	}
	if err := l.loadEvents(); err != nil {
		return err
	}
	for _, ev := range l.seen.events.rows {
		if gone := (goneName{ev.Name, ev.Seq}); ev.Type == EventDeleted && l.log.still(gone) {
			l.log.gone = append(l.log.gone, gone)
		}
	}
	if err := l.finishDrop(ctx, drops); err != nil {
		return fmt.Errorf("drop copies of deleted databases: %w", err)
	}
	return l.deriveUpdates()
}

func (l *Local) loadDatabases() error {
	return scan(l.store, tableDatabase, func(key, val []byte) error {
		d, err := decodeRow(string(key), val, l.o.Node)
		if err != nil {
			return err
		}
		e := newEntry(d)
		l.seen.dbs[d.Name] = e
		l.seen.names = append(l.seen.names, d.Name) // keys come in order
		for i := range d.Shards {
			for _, c := range d.Shards[i].Copies {
				l.seen.copies[c.ID] = copyRef{e, i}
			}
		}
		return nil
	})
}

func (l *Local) loadEvents() error {
	return scan(l.store, tableEvent, func(key, val []byte) error {
		if len(key) != 8 {
			return corrupt("event key", errRow)
		}
		ev, err := decodeEvent(binary.BigEndian.Uint64(key), val)
		if err != nil {
			return err
		}
		l.log.event = ev.Seq
		if e := l.seen.dbs[ev.Name]; e != nil {
			ev.Name = e.db.Load().Name // one string for all
			if ev.Type == EventUpdated && ev.instance == e.db.Load().Instance {
				e.lastSum = ev.sum
			}
		}
		l.log.note(ev.Event)
		l.seen.events.add(ev.Event)
		return nil
	})
}

// deriveUpdates writes the updated events that a crash, or a stop within the
// second, left out: those of databases whose copies have moved since.
func (l *Local) deriveUpdates() error {
	var moved []*entry
	for _, name := range l.seen.names {
		e := l.seen.dbs[name]
		for i, s := range e.db.Load().Shards {
			for _, c := range s.Copies {
				seq, err := l.o.CopySeq(c.ID)
				if err != nil {
					return fmt.Errorf("sequence of copy %d: %w", c.ID, err)
				}
				if seq > e.seqs[i].Load() {
					e.seqs[i].Store(seq)
				}
			}
		}
		if e.sum() != e.lastSum {
			moved = append(moved, e)
		}
	}
	err := l.writeUpdates(moved)
	if errors.Is(err, model.ErrStorageFull) {
		// A full disk must not keep the service from starting: the emitter writes
		// them when there is room.
		for _, e := range moved {
			e.touch.Store(touchClean)
			l.touches.add(e)
		}
		return nil
	}
	return err
}

// note remembers the newest event of a name and type.
func (g *changeLog) note(ev Event) {
	n := g.latest[ev.Name]
	if n == nil {
		n = new(eventNumbers)
		g.latest[ev.Name] = n
	}
	n[ev.Type] = ev.Seq
}

// insertName and removeName keep the sorted list of names.
func (v *visible) insertName(name string) {
	at := sort.SearchStrings(v.names, name)
	v.names = append(v.names, "")
	copy(v.names[at+1:], v.names[at:])
	v.names[at] = name
}

func (v *visible) removeName(name string) {
	at := sort.SearchStrings(v.names, name)
	if at < len(v.names) && v.names[at] == name {
		v.names = append(v.names[:at], v.names[at+1:]...)
	}
}
