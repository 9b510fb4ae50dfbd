package collate

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// goldenLine is one string of the golden order.
type goldenLine struct {
	text string
	tie  bool // equal to the line before
}

// readGolden reads the order ICU gave.
func readGolden(t testing.TB) []goldenLine {
	t.Helper()
	f, err := os.Open("testdata/collation-golden.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var lines []goldenLine
	sc := bufio.NewScanner(f)
	sc.Scan() // the first line says what the file is
	for sc.Scan() {
		var g goldenLine
		raw := sc.Text()
		raw, g.tie = strings.CutPrefix(raw, "=")
		if err := json.Unmarshal([]byte(raw), &g.text); err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		lines = append(lines, g)
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}

// TestGolden holds our order against ICU's, for the comparison and for the keys.
func TestGolden(t *testing.T) {
	t.Parallel()
	lines := readGolden(t)
	if len(lines) < 4000 {
		t.Fatalf("only %d golden strings", len(lines))
	}
	bad := 0
	for i := 1; i < len(lines); i++ {
		a, b := lines[i-1].text, lines[i].text
		want := -1
		if lines[i].tie {
			want = 0
		}
		if got := CompareStrings(a, b); got != want {
			t.Errorf("%+q against %+q: %d, ICU says %d", a, b, got, want)
			bad++
		}
		if got := bytes.Compare(appendText(nil, []byte(a)), appendText(nil, []byte(b))); got != want {
			t.Errorf("keys of %+q and %+q: %d, ICU says %d", a, b, got, want)
			bad++
		}
		if bad > 40 {
			t.FailNow()
		}
	}
}
