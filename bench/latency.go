package bench

import (
	"slices"
	"time"
)

// percentile gives the p-th percentile (0 < p ≤ 100) of sorted by nearest rank:
// the smallest value that at least p percent of all values do not exceed. It is
// always a value that was measured. An empty slice gives 0.
func percentile(sorted []time.Duration, p float64) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := int(p / 100 * float64(len(sorted)))
	if float64(rank) < p/100*float64(len(sorted)) {
		rank++
	}
	return sorted[min(max(rank, 1), len(sorted))-1]
}

// mergeSorted puts the latencies of all workers into one sorted slice.
func mergeSorted(parts [][]time.Duration) []time.Duration {
	all := slices.Concat(parts...)
	slices.Sort(all)
	return all
}

// milliseconds gives d in ms with its fraction.
func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
