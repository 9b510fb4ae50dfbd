package rawjson

import (
	"encoding/binary"
	"hash/maphash"
)

// linearNames is the size up to which an object's names are compared one by one;
// larger objects get a hash table. Below it the scan over 64-bit digests is
// cheaper than hashing, above it hostile objects would cost quadratic time.
const linearNames = 32

// nameSeed keys the hash of member names, so that a client cannot compute names
// that collide.
var nameSeed = maphash.MakeSeed()

// nameSet finds duplicate member names in the objects that are open during one
// Normalize call. Objects nest, so all of them share one stack of members.
type nameSet struct {
	members []member
	decoded []byte // the decoded form of names that were written with escapes
	tables  [][]uint32
	used    int // how many of tables belong to open objects
}

// member is one name seen in an open object.
type member struct {
	digest  uint64 // nameDigest in a small object, the keyed hash in a large one
	at      uint32 // where the member starts in the output
	nameOff uint32 // the name in the source, or in nameSet.decoded
	nameLen uint32
	escaped bool // the name is in nameSet.decoded
}

// nameScope is the part of a nameSet that belongs to one open object.
type nameScope struct {
	members int // where its members start
	decoded int // where its decoded names start
	table   int // index of its table in nameSet.tables, or -1
	// filter has a bit for the digest of every name so far, while the object is
	// small: most names find their bit unset and need no search.
	filter uint64
}

// open starts an object.
func (s *nameSet) open() nameScope {
	return nameScope{members: len(s.members), decoded: len(s.decoded), table: -1}
}

// close ends the innermost object and forgets its names.
func (s *nameSet) close(scope *nameScope) {
	s.members = s.members[:scope.members]
	s.decoded = s.decoded[:scope.decoded]
	if scope.table >= 0 {
		s.used = scope.table
	}
}

// reset forgets everything, and the memory too when it grew beyond what ordinary
// documents need.
func (s *nameSet) reset() {
	s.members, s.decoded, s.used = s.members[:0], s.decoded[:0], 0
	if cap(s.members) > 4096 {
		s.members = nil
	}
	if cap(s.decoded) > 1<<16 {
		s.decoded = nil
	}
	total := 0
	for _, t := range s.tables {
		total += cap(t)
	}
	if total > 1<<14 {
		s.tables = nil
	}
}

// add enters the member that starts at position at of the output and has the raw
// name src[from:to]. If the object has that name already, it returns the output
// range from the earlier member to the one after it; otherwise start is -1.
func (s *nameSet) add(scope *nameScope, src []byte, from, to int, escaped bool, at uint32) (start int64, end uint32) {
	m := member{at: at, nameOff: uint32(from), nameLen: uint32(to - from)}
	name := src[from:to]
	if escaped {
		off := len(s.decoded)
		s.decoded = appendDecoded(s.decoded, name)
		name = s.decoded[off:]
		m.nameOff, m.nameLen, m.escaped = uint32(off), uint32(len(name)), true
	}
	count := len(s.members) - scope.members
	if count >= linearNames {
		m.digest = maphash.Bytes(nameSeed, name)
		s.members = append(s.members, m)
		if scope.table < 0 {
			s.openTable(scope, src)
		}
		return s.replaced(scope, s.enter(scope, src, count))
	}
	m.digest = nameDigest(name)
	// The latest of several equal names is the one that is still alive, so the
	// search runs backwards.
	earlier := -1
	bit := uint64(1) << (m.digest * 0x9E3779B97F4A7C15 >> 58)
	if scope.filter&bit != 0 {
		live := s.members[scope.members:]
		for k := len(live) - 1; k >= 0; k-- {
			if live[k].digest == m.digest && string(s.name(src, &live[k])) == string(name) {
				earlier = k
				break
			}
		}
	}
	scope.filter |= bit
	s.members = append(s.members, m)
	return s.replaced(scope, earlier)
}

// replaced turns the index of a replaced member into its range in the output,
// which ends where the next member starts and so includes the comma.
func (s *nameSet) replaced(scope *nameScope, index int) (start int64, end uint32) {
	if index < 0 {
		return -1, 0
	}
	k := scope.members + index
	return int64(s.members[k].at), s.members[k+1].at
}

// name returns the decoded name of a member.
func (s *nameSet) name(src []byte, m *member) []byte {
	if m.escaped {
		src = s.decoded
	}
	return src[m.nameOff : m.nameOff+m.nameLen]
}

// openTable gives the object a hash table that holds all members but the newest.
// Tables are reused by the next object at the same level of nesting, and cleared
// only as far as they are needed.
func (s *nameSet) openTable(scope *nameScope, src []byte) {
	if s.used == len(s.tables) {
		s.tables = append(s.tables, nil)
	}
	scope.table = s.used
	s.used++
	s.sizeTable(scope, 4*linearNames)
	own := s.members[scope.members : len(s.members)-1]
	for k := range own {
		own[k].digest = maphash.Bytes(nameSeed, s.name(src, &own[k]))
		s.enter(scope, src, k)
	}
}

// sizeTable makes the object's table an empty one of the given power of two.
func (s *nameSet) sizeTable(scope *nameScope, size int) {
	t := s.tables[scope.table]
	if cap(t) < size {
		t = make([]uint32, size)
	} else {
		t = t[:size]
		clear(t)
	}
	s.tables[scope.table] = t
}

// enter puts the index-th member of the object into its table, in the place of an
// earlier member of the same name, whose index it returns, or -1. Slots hold the
// index plus one.
func (s *nameSet) enter(scope *nameScope, src []byte, index int) int {
	if table := s.tables[scope.table]; 2*index >= len(table) {
		s.sizeTable(scope, 2*len(table))
		for k := range index {
			s.place(scope, src, k)
		}
	}
	return s.place(scope, src, index)
}

// place is enter for a table that has room.
func (s *nameSet) place(scope *nameScope, src []byte, index int) int {
	table := s.tables[scope.table]
	own := s.members[scope.members:]
	m := &own[index]
	mask := uint64(len(table) - 1)
	for slot := m.digest & mask; ; slot = (slot + 1) & mask {
		held := int(table[slot]) - 1
		if held < 0 {
			table[slot] = uint32(index + 1)
			return -1
		}
		if o := &own[held]; o.digest == m.digest && string(s.name(src, o)) == string(s.name(src, m)) {
			table[slot] = uint32(index + 1)
			return held
		}
	}
}

// nameDigest condenses a name to a word that differs for most pairs of names. It
// need not resist a hostile client, since at most linearNames names are compared
// by it.
func nameDigest(name []byte) uint64 {
	size := uint64(len(name))
	switch {
	case len(name) >= 8:
		return (load64(name)*0x9E3779B97F4A7C15 ^ load64(name[len(name)-8:])) + size
	case len(name) >= 4:
		return uint64(binary.LittleEndian.Uint32(name)) | uint64(binary.LittleEndian.Uint32(name[len(name)-4:]))<<32
	case len(name) > 0:
		return uint64(name[0]) | uint64(name[len(name)/2])<<8 | uint64(name[len(name)-1])<<16 | size<<24
	}
	return 0
}
