// Command gen turns CLDR's root collation (allkeys_CLDR.txt and, for the order of
// the Han ideographs, FractionalUCA.txt, both in Debian's package
// unicode-cldr-core) into the compact table that package collate embeds.
//
// Run it from internal/collate: go run ./gen -dir <where the two files are>
// and raise TableVersion whenever the bytes change: stored keys made with one
// table do not sort among keys made with another.
package main

import (
	"bufio"
	"bytes"
	"compress/flate"
	"encoding/binary"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/text/unicode/norm"
)

// element is one collation element as the source spells it.
type element struct{ primary, secondary, tertiary uint16 }

// entry maps one or several code points to their collation elements.
type entry struct {
	runes []rune
	elems []element
}

// elementText matches one collation element of allkeys.
var elementText = regexp.MustCompile(`\[[.*]([0-9A-F]{4})\.([0-9A-F]{4})\.([0-9A-F]{4})`)

func main() {
	dir := flag.String("dir", ".", "where CLDR's allkeys_CLDR.txt and FractionalUCA.txt are")
	out := flag.String("out", "table.bin", "the table to write")
	flag.Parse()
	han, err := readHan(filepath.Join(*dir, "FractionalUCA.txt"))
	if err != nil {
		log.Fatal(err)
	}
	entries, err := read(filepath.Join(*dir, "allkeys_CLDR.txt"))
	if err != nil {
		log.Fatal(err)
	}
	if err := rankHan(entries, han); err != nil {
		log.Fatal(err)
	}
	table, err := encode(entries, han)
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(*out, table, 0o644); err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d entries, %d ideographs, %d bytes\n", len(entries), len(han), len(table))
}

// read parses the source. Entries that normalisation takes apart are left out:
// the runtime looks up canonically decomposed text only.
func read(path string) ([]entry, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var entries []entry
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		line, _, _ := strings.Cut(sc.Text(), "#")
		key, value, ok := strings.Cut(line, ";")
		if !ok {
			continue
		}
		var e entry
		for _, h := range strings.Fields(key) {
			n, err := strconv.ParseUint(h, 16, 21)
			if err != nil {
				return nil, fmt.Errorf("code point %q: %w", h, err)
			}
			e.runes = append(e.runes, rune(n))
		}
		if !norm.NFD.IsNormalString(string(e.runes)) {
			continue
		}
		for _, m := range elementText.FindAllStringSubmatch(value, -1) {
			var w [3]uint16
			for i := range w {
				n, err := strconv.ParseUint(m[i+1], 16, 16)
				if err != nil {
					return nil, fmt.Errorf("weight %q: %w", m[i+1], err)
				}
				w[i] = uint16(n)
			}
			if e.elems, err = appendElement(e.elems, element{w[0], w[1], w[2]}); err != nil {
				return nil, fmt.Errorf("%v: %w", e.runes, err)
			}
		}
		entries = append(entries, e)
	}
	return entries, sc.Err()
}

// appendElement checks what the key format rests on: every primary has a high
// byte that is not 0, so a 0 byte can end the level; and an element without
// primary never has the commonest weight, so that trailing common weights can
// be left out of a key without making different strings equal.
func appendElement(dst []element, e element) ([]element, error) {
	switch {
	case e.secondary == 0 || e.primary == 0 || e.primary >= 0xfb00:
		// No primary, an implicit one, or the second half of an implicit one.
	case e.primary >= 0xfa00:
		return nil, fmt.Errorf("primary %04x leaves no room to shift", e.primary)
	case e.primary == 1: // U+FFFE, lower than everything
		e.primary = 0x0101
	case e.primary < 0x0100:
		return nil, fmt.Errorf("primary %04x is too low for the key format", e.primary)
	default:
		e.primary += 0x0100 // makes room for U+FFFE
	}
	switch {
	case e.primary != 0 && e.secondary != 0x20 && e.secondary != 0:
		return nil, fmt.Errorf("secondary %04x beside a primary", e.secondary)
	case e.primary == 0 && e.secondary == 0x20:
		return nil, fmt.Errorf("common secondary without a primary")
	case e.secondary == 0 && e.tertiary != 0:
		return nil, fmt.Errorf("tertiary %04x without a secondary", e.tertiary)
	case e.secondary != 0 && (e.tertiary < 2 || e.tertiary > 0xff):
		return nil, fmt.Errorf("tertiary %04x out of bounds", e.tertiary)
	}
	if e == (element{}) {
		return dst, nil // ignorable at every level
	}
	return append(dst, e), nil
}

// encode writes, as varints and deflated: the number of runs of ideographs, each
// run's first code point and length; the number of entries; then for each the number of code points, the code points (the first as distance from the last
// entry's), the number of elements, the elements. Secondaries become ranks, so
// that one byte holds them.
func encode(entries []entry, han []rune) ([]byte, error) {
	slices.SortStableFunc(entries, func(a, b entry) int { return slices.Compare(a.runes, b.runes) })
	seen := map[uint16]bool{}
	for _, e := range entries {
		for _, c := range e.elems {
			if c.secondary != 0 {
				seen[c.secondary] = true
			}
		}
	}
	var order []uint16
	for s := range seen {
		order = append(order, s)
	}
	slices.Sort(order)
	if len(order) > 255 || order[0] != 0x20 {
		return nil, fmt.Errorf("%d secondaries from %04x: one byte does not hold their ranks", len(order), order[0])
	}
	rank := map[uint16]uint64{0: 0}
	for i, s := range order {
		rank[s] = uint64(i + 1)
	}
	raw := binary.AppendUvarint(appendRuns(nil, han), uint64(len(entries)))
	last := rune(0)
	for _, e := range entries {
		raw = binary.AppendUvarint(raw, uint64(len(e.runes)))
		for i, r := range e.runes {
			if i == 0 {
				raw, last = binary.AppendUvarint(raw, uint64(r-last)), r
				continue
			}
			raw = binary.AppendUvarint(raw, uint64(r))
		}
		raw = binary.AppendUvarint(raw, uint64(len(e.elems)))
		for _, c := range e.elems {
			raw = binary.AppendUvarint(raw, uint64(c.primary))
			raw = binary.AppendUvarint(raw, rank[c.secondary])
			raw = binary.AppendUvarint(raw, uint64(c.tertiary))
		}
	}
	var out bytes.Buffer
	w, err := flate.NewWriter(&out, flate.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(raw); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
