package collate

import (
	"bytes"
	"compress/flate"
	_ "embed"
	"encoding/binary"
	"fmt"
	"io"
	"slices"
	"sync"
)

// TableVersion names the table and the key format together. An index stores it
// in its signature: keys made under one version must never meet keys made under
// another, they would sort wrongly.
const TableVersion = "cldr-41-uca-14.0.0-keys-2"

// tableBytes is what internal/collate/gen wrote.
//
//go:generate go run ./gen
//go:embed table.bin
var tableBytes []byte

// weight is a collation element: primary<<16 | rank of the secondary<<8 | tertiary.
type weight uint32

// The commonest secondary and tertiary, which are also the lowest.
const (
	commonSecondary = 1
	commonTertiary  = 2
)

// A cell of the trie: absent is 0; else cellPresent, the count of weights, and
// either the one weight or the offset into weights.
const (
	cellPresent     = 1 << 63
	cellContraction = 1 << 62 // some contraction starts with this code point
	cellHan         = 1 << 61 // an ideograph; the low half is its place in the order
	cellCountShift  = 48
	cellCountMask   = 0xff
)

// contraction is a longer sequence that has weights of its own.
type contraction struct {
	rest    []rune // after the first code point
	text    []byte // the same as UTF-8
	weights []weight
}

// table is the collation in the form lookups want.
type table struct {
	ascii        [128]weight
	pages        [0x110000 >> 8]uint16 // page numbers; page 0 is empty
	cells        []uint64              // 256 a page
	weights      []weight
	contractions map[rune][]contraction // longest first
}

// root loads the table once, at first use: a program that never collates does
// not pay for it.
var root = sync.OnceValue(func() *table {
	t, err := loadTable(tableBytes)
	if err != nil {
		panic("collate: embedded table: " + err.Error()) // a broken build, nothing to go on with
	}
	return t
})

// loadTable reads what gen wrote.
func loadTable(packed []byte) (*table, error) {
	raw, err := io.ReadAll(flate.NewReader(bytes.NewReader(packed)))
	if err != nil {
		return nil, err
	}
	r := bytes.NewReader(raw)
	var bad error
	next := func() uint64 {
		n, err := binary.ReadUvarint(r)
		if err != nil {
			bad = err
		}
		return n
	}
	t := &table{contractions: map[rune][]contraction{}, cells: make([]uint64, 256, 256*256)}
	last, place := rune(0), uint64(0)
	for n := next(); n > 0 && bad == nil; n-- {
		step, err := binary.ReadVarint(r)
		if err != nil {
			return nil, err
		}
		last += rune(step)
		for i := range rune(next()) {
			*t.page(last + i) = cellPresent | cellHan | place
			place++
		}
	}
	last = 0
	for n := next(); n > 0 && bad == nil; n-- {
		runes := make([]rune, next())
		for i := range runes {
			runes[i] = rune(next())
		}
		if len(runes) == 0 || runes[0] < 0 {
			return nil, fmt.Errorf("entry without code points")
		}
		runes[0] += last
		last = runes[0]
		weights := make([]weight, next())
		for i := range weights {
			p, s, c := next(), next(), next()
			weights[i] = weight(p<<16 | s<<8 | c)
		}
		if len(runes) > 1 {
			t.contractions[last] = append(t.contractions[last], contraction{runes[1:], []byte(string(runes[1:])), weights})
			continue
		}
		t.set(last, weights)
	}
	if bad != nil {
		return nil, bad
	}
	for first, list := range t.contractions {
		slices.SortStableFunc(list, func(a, b contraction) int { return len(b.rest) - len(a.rest) })
		cell := t.cell(first)
		if cell == nil || *cell == 0 {
			return nil, fmt.Errorf("contraction of %U, which has no weights alone", first)
		}
		*cell |= cellContraction
	}
	return t, nil
}

// set stores the weights of one code point.
func (t *table) set(r rune, weights []weight) {
	cell := uint64(cellPresent) | uint64(len(weights))<<cellCountShift
	if len(weights) == 1 {
		cell |= uint64(weights[0])
		if r < 128 {
			t.ascii[r] = weights[0]
		}
	} else {
		cell |= uint64(len(t.weights))
		t.weights = append(t.weights, weights...)
	}
	*t.page(r) = cell
}

// page gives the place of a code point and makes its page where there is none.
func (t *table) page(r rune) *uint64 {
	if page := &t.pages[r>>8]; *page == 0 {
		*page = uint16(len(t.cells) / 256)
		t.cells = append(t.cells, make([]uint64, 256)...)
	}
	return t.cell(r)
}

// cell gives the place of a code point, on the empty page where there is none.
func (t *table) cell(r rune) *uint64 {
	return &t.cells[int(t.pages[r>>8])*256+int(r&0xff)]
}

// appendCell appends the weights that a cell speaks of.
func (t *table) appendCell(dst []weight, cell uint64) []weight {
	if cell&cellHan != 0 {
		return appendPair(dst, 0xfb40, rune(uint32(cell)))
	}
	n := cell >> cellCountShift & cellCountMask
	if n == 1 {
		return append(dst, weight(cell))
	}
	off := uint32(cell)
	return append(dst, t.weights[off:uint64(off)+n]...)
}

// appendImplicit appends the weights of a code point that the table does not
// hold, as the Unicode collation algorithm computes them: scripts written with
// ideograms in their blocks, everything unknown behind them.
func appendImplicit(dst []weight, r rune) []weight {
	switch {
	case 0x17000 <= r && r <= 0x187f7, 0x18800 <= r && r <= 0x18aff, 0x18d00 <= r && r <= 0x18d08: // Tangut
		return appendPair(dst, 0xfb00, (r-0x17000)&0x7fff)
	case 0x1b170 <= r && r <= 0x1b2fb: // Nushu
		return appendPair(dst, 0xfb01, r-0x1b170)
	case 0x18b00 <= r && r <= 0x18cd5: // Khitan
		return appendPair(dst, 0xfb02, r-0x18b00)
	case 0x31350 <= r && r <= 0x323af: // ideographs younger than the table
		return appendPair(dst, 0xfb80, r)
	}
	return appendPair(dst, 0xfbc0, r)
}

// appendPair appends an implicit weight: a number in two primaries.
func appendPair(dst []weight, base weight, n rune) []weight {
	return append(dst,
		(base+weight(n>>15))<<16|commonSecondary<<8|commonTertiary,
		weight(n&0x7fff|0x8000)<<16)
}
