package bench

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// firstNumber finds the number a cell begins with, commas left out.
var firstNumber = regexp.MustCompile(`^[0-9][0-9,.]*`)

func number(t *testing.T, cell string) float64 {
	t.Helper()
	digits := strings.ReplaceAll(firstNumber.FindString(cell), ",", "")
	if digits == "" {
		return 0
	}
	f, err := strconv.ParseFloat(digits, 64)
	if err != nil {
		t.Fatalf("cell %q: %v", cell, err)
	}
	return f
}

// TestBaseline holds the constants to the table they were taken from.
func TestBaseline(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("couchdb-baseline.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		if len(cells) != 5 {
			continue
		}
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows[cells[0]] = cells
	}
	for name, b := range baseline {
		cells, ok := rows[b.title]
		if !ok {
			t.Errorf("%s: no row %q", name, b.title)
			continue
		}
		if number(t, cells[2]) != b.rate || number(t, cells[3]) != b.p50 || number(t, cells[4]) != b.cpu {
			t.Errorf("%s: constants %v, table %q", name, b, cells)
		}
	}
	if got := number(t, rows["disk"][2]); got != baselineDiskPerDoc {
		t.Errorf("disk: table %v", got)
	}
	idle, peak, ok := strings.Cut(rows["memory"][2], " / ")
	if !ok || number(t, idle) != baselineIdleRSS>>20 || number(t, peak) != baselinePeakRSS>>20 {
		t.Errorf("memory: table %q", rows["memory"][2])
	}
	// Every workload but the ones that have no row must be comparable.
	for _, e := range entries(Options{Docs: 1000}) {
		if _, ok := baseline[e.name]; !ok && !e.extra && e.name != "disk" && e.name != "memory" {
			t.Errorf("workload %s has no baseline", e.name)
		}
	}
}
