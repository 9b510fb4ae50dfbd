package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// Result is one row of the table, and one object of the JSON output.
type Result struct {
	Workload string  `json:"workload"`
	Title    string  `json:"title"`
	Unit     string  `json:"unit,omitempty"` // what one operation is
	Ops      int64   `json:"ops,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"`
	Rate     float64 `json:"rate,omitempty"` // operations per second
	// Value is a size measured, in rows that are not a rate.
	Value     int64    `json:"value,omitempty"`
	ValueUnit string   `json:"value_unit,omitempty"`
	P50       *float64 `json:"p50_ms,omitempty"`
	P99       *float64 `json:"p99_ms,omitempty"`
	CPUMicros *float64 `json:"cpu_us,omitempty"` // server CPU per operation
	PeakRSS   int64    `json:"peak_rss,omitempty"`
	// PeakSinceStart says that PeakRSS could not be reset before the workload
	// and is the peak of the server's whole life.
	PeakSinceStart bool `json:"peak_since_start,omitempty"`
	// CouchMicros is CouchDB's CPU per operation (or its size in rows of sizes),
	// CouchRatio how many times ours it is.
	CouchMicros float64  `json:"couchdb_cpu_us,omitempty"`
	CouchRatio  *float64 `json:"couchdb_ratio,omitempty"`
	// BareRatio stands in rows of bare limits: how many times the bare cost the
	// server's cost is.
	BareRatio *float64 `json:"bare_ratio,omitempty"`
	Note      string   `json:"note,omitempty"`
	Error     string   `json:"error,omitempty"`
}

// take fills in what a workload did.
func (r *Result) take(t tally) {
	r.Ops, r.Note, r.Value, r.ValueUnit = t.ops, t.note, t.value, t.valueUnit
	r.Seconds = t.elapsed.Seconds()
	if t.ops > 0 && t.elapsed > 0 {
		r.Rate = float64(t.ops) / t.elapsed.Seconds()
	}
	if len(t.latencies) > 0 {
		p50, p99 := milliseconds(percentile(t.latencies, 50)), milliseconds(percentile(t.latencies, 99))
		r.P50, r.P99 = &p50, &p99
	}
}

// compare puts CouchDB's figure beside ours.
func (r *Result) compare() {
	switch r.Workload {
	case "disk":
		r.CouchMicros = baselineDiskPerDoc
		r.CouchRatio = ratio(baselineDiskPerDoc, float64(r.Value))
	case "memory":
		r.CouchMicros = baselineIdleRSS >> 20
		r.CouchRatio = ratio(baselineIdleRSS>>20, float64(r.Value))
	default:
		r.CouchMicros = baseline[r.Workload].cpu
		if r.CPUMicros != nil {
			r.CouchRatio = ratio(r.CouchMicros, *r.CPUMicros)
		}
	}
}

// overallPeak is the row of the highest memory that any workload reached.
func overallPeak(rows []Result) Result {
	r := Result{Workload: "memory_peak", Title: "memory, peak", ValueUnit: "MB"}
	for _, row := range rows {
		r.Value = max(r.Value, row.PeakRSS>>20)
	}
	r.CouchMicros = baselinePeakRSS >> 20
	r.CouchRatio = ratio(baselinePeakRSS>>20, float64(r.Value))
	return r
}

// ratio gives a/b, and nothing where either was not measured.
func ratio(a, b float64) *float64 {
	if a <= 0 || b <= 0 {
		return nil
	}
	q := a / b
	return &q
}

// report prints results as they come, or all at the end as JSON.
type report struct {
	out     io.Writer
	asJSON  bool
	compare bool
	bare    bool
	results []Result
}

// header prints the head of the table.
func (p *report) header() error {
	if p.asJSON {
		return nil
	}
	line := fmt.Sprintf("%-24s %16s %9s %9s %11s %9s", "workload", "rate", "p50 ms", "p99 ms", "cpu µs/op", "peak MB")
	if p.compare {
		line += fmt.Sprintf(" %11s %9s", "CouchDB µs", "CouchDB/")
	}
	if p.bare {
		line += fmt.Sprintf(" %9s", "ours/bare")
	}
	_, err := fmt.Fprintln(p.out, line)
	return err
}

// add prints one row.
func (p *report) add(r Result) error {
	p.results = append(p.results, r)
	if p.asJSON {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%-24s", r.Title)
	if r.Error != "" {
		fmt.Fprintf(&b, " failed: %s", r.Error)
	} else {
		rate := "–"
		switch {
		case r.ValueUnit != "":
			rate = grouped(float64(r.Value)) + " " + r.ValueUnit
		case r.Rate > 0:
			rate = grouped(r.Rate) + " " + r.Unit + "/s"
		}
		peak := "–"
		if r.PeakRSS > 0 {
			peak = grouped(float64(r.PeakRSS) / (1 << 20))
			if r.PeakSinceStart {
				peak += "*"
			}
		}
		fmt.Fprintf(&b, " %16s %9s %9s %11s %9s", rate, optional(r.P50, 2), optional(r.P99, 2), optional(r.CPUMicros, 1), peak)
		if p.compare {
			couch := "–"
			if r.CouchMicros > 0 {
				couch = grouped(r.CouchMicros)
			}
			fmt.Fprintf(&b, " %11s %9s", couch, optional(r.CouchRatio, 1))
		}
		if p.bare {
			fmt.Fprintf(&b, " %9s", optional(r.BareRatio, 2))
		}
		if r.Note != "" {
			fmt.Fprintf(&b, "  (%s)", r.Note)
		}
	}
	_, err := fmt.Fprintln(p.out, strings.TrimRight(b.String(), " "))
	return err
}

// finish prints what stands below the table, or the JSON.
func (p *report) finish(elapsed time.Duration) error {
	if p.asJSON {
		enc := json.NewEncoder(p.out)
		enc.SetIndent("", "  ")
		return enc.Encode(p.results)
	}
	for _, r := range p.results {
		if r.PeakSinceStart {
			if _, err := fmt.Fprintln(p.out, "* peak since the server's start: it could not be reset"); err != nil {
				return err
			}
			break
		}
	}
	_, err := fmt.Fprintf(p.out, "%d rows in %s\n", len(p.results), elapsed.Round(time.Second))
	return err
}

// optional prints a figure that may not have been measured.
func optional(f *float64, decimals int) string {
	if f == nil {
		return "–"
	}
	if *f >= 1000 {
		return grouped(*f)
	}
	return strconv.FormatFloat(*f, 'f', decimals, 64)
}

// grouped prints a number rounded, with commas between thousands.
func grouped(f float64) string {
	digits := strconv.FormatInt(int64(f+0.5), 10)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
