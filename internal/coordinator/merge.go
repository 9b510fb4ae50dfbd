package coordinator

import (
	"context"
	"errors"
	"io"
	"sort"

	"github.com/divandb/divan/internal/shardapi"
)

// mergeBatch is how many rows a merged batch has at most.
const mergeBatch = 256

// merge puts the streams of several ranges into one, in order. A batch of a range
// is valid only until its next one is asked for, so a merged batch ends where the
// first of the batches under it does.
//
// The sources play a tournament: a match costs one comparison, and the winner's
// next row is played only against those on its own way up.
type merge[T any] struct {
	before  func(a, b *T) bool
	sources []mergeSource[T]
	losers  []int                   // of the match at each node of the tree; losers[0] is the winner of all
	dry     []int                   // sources that must be asked for their next batch
	stale   bool                    // the tournament must be played from its beginning
	live    int                     // sources that are not at their end
	cancel  context.CancelCauseFunc // ends what the sources do
	out     []T
	err     error
}

// mergeSource is one range's stream and what is left of its present batch.
type mergeSource[T any] struct {
	stream shardapi.Stream[T]
	rows   []T
	ended  bool
}

// fetch asks for the first batch. It lets ranges work side by side that a merge
// would ask one after the other.
func (s *mergeSource[T]) fetch() (err error) {
	s.rows, err = s.stream.Next()
	if err == io.EOF { // nothing that only wraps it
		s.ended, err = true, nil
	}
	return err
}

// newMerge merges sources, of which some may have their first batch already.
func newMerge[T any](sources []mergeSource[T], cancel context.CancelCauseFunc, before func(a, b *T) bool) *merge[T] {
	m := &merge[T]{before: before, cancel: cancel, sources: sources, losers: make([]int, len(sources)), stale: true,
		dry: make([]int, 0, len(sources))}
	for i := range sources {
		if sources[i].ended {
			continue
		}
		m.live++
		if len(sources[i].rows) == 0 {
			m.dry = append(m.dry, i)
		}
	}
	return m
}

// Next gives the next merged batch. It may be empty when a range gave an empty
// one.
func (m *merge[T]) Next() ([]T, error) {
	ready, err := m.fill()
	if !ready || err != nil {
		return nil, err
	}
	m.out = m.out[:0]
	for len(m.out) < mergeBatch {
		first := m.losers[0]
		top := &m.sources[first]
		if m.live == 1 { // the last one left needs no comparing
			n := min(len(top.rows), mergeBatch)
			m.out = append(m.out, top.rows[:n]...)
			top.rows = top.rows[n:]
		} else {
			m.out = append(m.out, top.rows[0])
			top.rows = top.rows[1:]
		}
		if len(top.rows) == 0 {
			m.dry = append(m.dry, first)
			break
		}
		m.play(first)
	}
	return m.out, nil
}

// fill sees to it that every source has a row or is at its end. It is not ready
// when a source gave an empty batch: work was done, and the caller may want to
// show life.
func (m *merge[T]) fill() (ready bool, err error) {
	if m.err != nil {
		return false, m.err
	}
	for len(m.dry) > 0 {
		i := m.dry[len(m.dry)-1]
		rows, err := m.sources[i].stream.Next()
		switch {
		case err == io.EOF:
			m.sources[i].ended = true
			m.live--
		case err != nil:
			m.err = err
			return false, err
		case len(rows) == 0:
			return false, nil
		}
		m.sources[i].rows = rows
		m.dry = m.dry[:len(m.dry)-1]
		if !m.stale {
			m.play(i)
		}
	}
	if m.live == 0 {
		m.err = io.EOF
		return false, io.EOF
	}
	if m.stale {
		m.losers[0] = m.tournament(1)
		m.stale = false
	}
	return true, nil
}

// dropRun leaves out rows of the merged stream at most, in one stroke: all up to
// the end of the batch that ends first. It gives 0 when that is too many, or when
// nothing is there.
func (m *merge[T]) dropRun(most int64) (dropped int64, err error) {
	ready, err := m.fill()
	if !ready || err != nil {
		return 0, err
	}
	var bound *T
	for i := range m.sources {
		if rows := m.sources[i].rows; len(rows) > 0 {
			if last := &rows[len(rows)-1]; bound == nil || m.before(last, bound) {
				bound = last
			}
		}
	}
	counts := make([]int, len(m.sources))
	for i := range m.sources {
		rows := m.sources[i].rows
		counts[i] = sort.Search(len(rows), func(k int) bool { return m.before(bound, &rows[k]) })
		dropped += int64(counts[i])
	}
	if dropped > most {
		return 0, nil
	}
	for i, n := range counts {
		s := &m.sources[i]
		if s.rows = s.rows[n:]; len(s.rows) == 0 && !s.ended {
			m.dry = append(m.dry, i)
		}
	}
	m.stale = true
	return dropped, nil
}

// Close ends all streams.
func (m *merge[T]) Close() error {
	if m.err == nil {
		m.err = errStreamClosed
	}
	m.cancel(nil)
	return closeSources(m.sources)
}

// closeSources ends the streams that were opened.
func closeSources[T any](sources []mergeSource[T]) error {
	var errs []error
	for i := range sources {
		if s := sources[i].stream; s != nil {
			errs = append(errs, s.Close())
		}
	}
	return errors.Join(errs...)
}

// beats tells whether source a's next row comes before source b's. A source
// without rows loses.
func (m *merge[T]) beats(a, b int) bool {
	x, y := m.sources[a].rows, m.sources[b].rows
	if len(x) == 0 || len(y) == 0 {
		return len(x) > 0
	}
	return m.before(&x[0], &y[0])
}

// play plays a source, the winner so far, anew on its way up the tree.
func (m *merge[T]) play(source int) {
	for at := (source + len(m.sources)) / 2; at > 0; at /= 2 {
		if m.beats(m.losers[at], source) {
			m.losers[at], source = source, m.losers[at]
		}
	}
	m.losers[0] = source
}

// tournament plays all matches at and below a node and gives the winner. The
// nodes are numbered as those of a heap; the leaves are the sources.
func (m *merge[T]) tournament(at int) int {
	if at >= len(m.sources) {
		return at - len(m.sources)
	}
	winner, loser := m.tournament(2*at), m.tournament(2*at+1)
	if m.beats(loser, winner) {
		winner, loser = loser, winner
	}
	m.losers[at] = loser
	return winner
}
