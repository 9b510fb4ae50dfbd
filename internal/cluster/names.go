package cluster

import (
	"iter"
	"sort"
)

// namesChunk is how many names are taken under one hold of the lock.
const namesChunk = 256

// Names gives names in order. Databases created or deleted while the caller goes
// on may or may not show; no other is left out or given twice.
func (l *Local) Names(q NamesQuery) iter.Seq[string] {
	return func(yield func(string) bool) {
		skip, left := q.Skip, q.Limit
		from, after := q.Start, false // after: from itself has been given
		chunk := make([]string, 0, namesChunk)
		for left != 0 {
			chunk = l.namesChunk(chunk[:0], from, after, q)
			for _, name := range chunk {
				if skip > 0 {
					skip--
					continue
				}
				if left == 0 || !yield(name) {
					return
				}
				if left > 0 {
					left--
				}
			}
			if len(chunk) < namesChunk {
				return
			}
			last := chunk[len(chunk)-1]
			from, after = &last, true
		}
	}
}

// namesChunk collects the next names from a place on, in the direction of q.
func (l *Local) namesChunk(dst []string, from *string, after bool, q NamesQuery) []string {
	l.seen.RLock()
	defer l.seen.RUnlock()
	names := l.seen.names
	step, at := 1, 0
	if q.Descending {
		step, at = -1, len(names)-1
	}
	if from != nil {
		at = sort.SearchStrings(names, *from)
		found := at < len(names) && names[at] == *from
		switch {
		case q.Descending && !found, q.Descending && after:
			at--
		case !q.Descending && found && after:
			at++
		}
	}
	for ; at >= 0 && at < len(names) && len(dst) < namesChunk; at += step {
		if q.End != nil {
			past := names[at] > *q.End
			if q.Descending {
				past = names[at] < *q.End
			}
			if past || q.ExclusiveEnd && names[at] == *q.End {
				break
			}
		}
		dst = append(dst, names[at])
	}
	return dst
}
