package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"os"
	"strings"
)

// readHan gives the ideographs in the order of the root collation: by radical
// and strokes, as the lines [radical 1=⼀一:一𪛙丁-丆…] list them. ICU sorts by
// that order; allkeys has code point order instead.
func readHan(path string) ([]rune, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var han []rune
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		if !strings.HasPrefix(sc.Text(), "[radical ") {
			continue
		}
		_, list, ok := strings.Cut(sc.Text(), ":")
		if !ok {
			continue // [radical end]
		}
		span := false
		for _, r := range strings.TrimSuffix(strings.TrimSpace(list), "]") {
			switch {
			case r == '-':
				span = true
				continue
			case span:
				for x := han[len(han)-1] + 1; x < r; x++ {
					han = append(han, x)
				}
				span = false
			}
			han = append(han, r)
		}
	}
	if len(han) < 80000 {
		return nil, fmt.Errorf("only %d ideographs in %s", len(han), path)
	}
	return han, sc.Err()
}

// rankHan rewrites the weights that speak of ideographs (radicals, compatibility
// forms) from their code points to their places in the order.
func rankHan(entries []entry, han []rune) error {
	rank := make(map[rune]int, len(han))
	for i, r := range han {
		rank[r] = i
	}
	for _, e := range entries {
		for i := range e.elems {
			c := &e.elems[i]
			if c.primary < 0xfb40 || c.primary > 0xfbbf || c.secondary == 0 {
				continue
			}
			base := uint16(0xfb40)
			if c.primary >= 0xfb80 {
				base = 0xfb80
			}
			r := rune(c.primary-base)<<15 | rune(e.elems[i+1].primary&0x7fff)
			at, ok := rank[r]
			if !ok {
				return fmt.Errorf("%U has weights of %U, which has no place", e.runes, r)
			}
			c.primary = 0xfb40 + uint16(at>>15)
			e.elems[i+1].primary = uint16(at&0x7fff) | 0x8000
		}
	}
	return nil
}

// appendRuns writes the ideographs as runs of neighbouring code points.
func appendRuns(dst []byte, han []rune) []byte {
	type run struct{ first, n rune }
	var runs []run
	for _, r := range han {
		if k := len(runs) - 1; k >= 0 && runs[k].first+runs[k].n == r {
			runs[k].n++
			continue
		}
		runs = append(runs, run{r, 1})
	}
	dst = binary.AppendUvarint(dst, uint64(len(runs)))
	last := rune(0)
	for _, r := range runs {
		dst = binary.AppendVarint(dst, int64(r.first-last))
		dst = binary.AppendUvarint(dst, uint64(r.n))
		last = r.first
	}
	return dst
}
