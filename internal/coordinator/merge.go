package coordinator

import (
	"errors"
	"io"

	"github.com/divandb/divan/internal/shardapi"
)

// mergeBatch is how many rows a merged batch has at most.
const mergeBatch = 256

// merge puts the streams of several ranges into one, in the order of ids. A batch
// of a range is valid only until its next one is asked for, so a merged batch
// ends where the first of the batches under it does.
type merge struct {
	sources    []mergeSource
	heap       []int // sources with rows, the next row's on top
	dry        []int // sources that must be asked for their next batch
	descending bool
	out        []shardapi.Row
	err        error
}

// mergeSource is one range's stream and what is left of its present batch.
type mergeSource struct {
	stream shardapi.Stream[shardapi.Row]
	rows   []shardapi.Row
}

func newMerge(streams []shardapi.Stream[shardapi.Row], descending bool) *merge {
	m := &merge{descending: descending, sources: make([]mergeSource, len(streams)),
		heap: make([]int, 0, len(streams)), dry: make([]int, 0, len(streams))}
	for i, s := range streams {
		m.sources[i].stream = s
		m.dry = append(m.dry, i)
	}
	return m
}

// Next gives the next merged batch. It may be empty when a range gave an empty
// one.
func (m *merge) Next() ([]shardapi.Row, error) {
	if m.err != nil {
		return nil, m.err
	}
	for len(m.dry) > 0 {
		i := m.dry[len(m.dry)-1]
		rows, err := m.sources[i].stream.Next()
		switch {
		case errors.Is(err, io.EOF):
			m.dry = m.dry[:len(m.dry)-1]
			continue
		case err != nil:
			m.err = err
			return nil, err
		case len(rows) == 0:
			return nil, nil // work was done; the caller may want to show life
		}
		m.dry = m.dry[:len(m.dry)-1]
		m.sources[i].rows = rows
		m.push(i)
	}
	if len(m.heap) == 0 {
		m.err = io.EOF
		return nil, io.EOF
	}
	m.out = m.out[:0]
	for len(m.out) < mergeBatch {
		top := &m.sources[m.heap[0]]
		if len(m.heap) == 1 { // the last one left needs no comparing
			n := min(len(top.rows), mergeBatch-len(m.out))
			m.out = append(m.out, top.rows[:n]...)
			top.rows = top.rows[n:]
		} else {
			m.out = append(m.out, top.rows[0])
			top.rows = top.rows[1:]
		}
		if len(top.rows) == 0 {
			m.dry = append(m.dry, m.heap[0])
			m.pop()
			break
		}
		m.down(0)
	}
	return m.out, nil
}

// Close ends all streams.
func (m *merge) Close() error {
	var errs []error
	for i := range m.sources {
		errs = append(errs, m.sources[i].stream.Close())
	}
	if m.err == nil {
		m.err = io.EOF
	}
	return errors.Join(errs...)
}

// before orders two sources by their next rows. No id is in two ranges.
func (m *merge) before(a, b int) bool {
	x, y := m.sources[a].rows[0].ID, m.sources[b].rows[0].ID
	if m.descending {
		return x > y
	}
	return x < y
}

func (m *merge) push(i int) {
	m.heap = append(m.heap, i)
	at := len(m.heap) - 1
	for at > 0 {
		up := (at - 1) / 2
		if !m.before(m.heap[at], m.heap[up]) {
			return
		}
		m.heap[at], m.heap[up] = m.heap[up], m.heap[at]
		at = up
	}
}

func (m *merge) pop() {
	last := len(m.heap) - 1
	m.heap[0] = m.heap[last]
	m.heap = m.heap[:last]
	if last > 0 {
		m.down(0)
	}
}

func (m *merge) down(at int) {
	for {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(m.heap); child++ {
			if m.before(m.heap[child], m.heap[least]) {
				least = child
			}
		}
		if least == at {
			return
		}
		m.heap[at], m.heap[least] = m.heap[least], m.heap[at]
		at = least
	}
}
