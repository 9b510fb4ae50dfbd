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
const TableVersion = "cldr-41-uca-14.0.0-keys-1"

// tableBytes is what internal/collate/gen wrote.
//
//go:generate go run ./gen -out table.bin
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
	cellCountShift  = 48
	cellCountMask   = 0xff
)

// contraction is a longer sequence that has weights of its own.
type contraction struct {
	rest    []rune // after the first code point
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
	last := rune(0)
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
			t.contractions[last] = append(t.contractions[last], contraction{runes[1:], weights})
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
	page := &t.pages[r>>8]
	if *page == 0 {
		*page = uint16(len(t.cells) / 256)
		t.cells = append(t.cells, make([]uint64, 256)...)
	}
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
	*t.cell(r) = cell
}

// cell gives the place of a code point, on the empty page where there is none.
func (t *table) cell(r rune) *uint64 {
	return &t.cells[int(t.pages[r>>8])*256+int(r&0xff)]
}

// appendCell appends the weights that a cell speaks of.
func (t *table) appendCell(dst []weight, cell uint64) []weight {
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
	var base, low rune
	switch {
	case 0x17000 <= r && r <= 0x18aff, 0x18d00 <= r && r <= 0x18d7f: // Tangut
		base, low = 0xfb00, r-0x17000
	case 0x1b170 <= r && r <= 0x1b2ff: // Nushu
		base, low = 0xfb01, r-0x1b170
	case 0x18b00 <= r && r <= 0x18cff: // Khitan
		base, low = 0xfb02, r-0x18b00
	case 0x4e00 <= r && r <= 0x9fff: // Han, the first block
		base, low = 0xfb40+r>>15, r&0x7fff
	case isHanExtension(r):
		base, low = 0xfb80+r>>15, r&0x7fff
	default:
		base, low = 0xfbc0+r>>15, r&0x7fff
	}
	return append(dst,
		weight(base)<<16|commonSecondary<<8|commonTertiary,
		weight(low|0x8000)<<16)
}

// isHanExtension tells the unified ideographs outside the first block.
func isHanExtension(r rune) bool {
	return 0x3400 <= r && r <= 0x4dbf || // A
		0x20000 <= r && r <= 0x2a6df || // B
		0x2a700 <= r && r <= 0x2b739 || // C
		0x2b740 <= r && r <= 0x2b81d || // D
		0x2b820 <= r && r <= 0x2cea1 || // E
		0x2ceb0 <= r && r <= 0x2ebe0 || // F
		0x30000 <= r && r <= 0x3134a || // G
		0x31350 <= r && r <= 0x323af // H
}
