package reduce

import (
	"context"
	"strings"

	"github.com/divandb/divan/internal/model"
)

// IsBuiltin tells whether a reduce function is one of ours: it begins with an
// underscore.
func IsBuiltin(name string) bool { return len(name) > 0 && name[0] == '_' }

// maxRank is how many values _top_N and _bottom_N give at most.
const maxRank = 100

// Builtin gives a built-in reduction by its name, or a *model.Error
// (invalid_design_doc) for one that does not exist. As in CouchDB a name counts by
// its beginning, so that "_sum\n" and "_stats " are what they look like; the N of
// _top_N and _bottom_N must be a number from 1 to 100 and nothing else.
func Builtin(name string) (Reducer, error) {
	for prefix, descending := range map[string]bool{"_top_": true, "_bottom_": false} {
		if digits, ok := strings.CutPrefix(name, prefix); ok {
			n, ok := parseRank(digits)
			if !ok {
				return nil, unsupported(name)
			}
			return builtin{func() accumulator { return &rank{n: n, descending: descending} }, finalRank}, nil
		}
	}
	switch {
	case strings.HasPrefix(name, "_sum"):
		return builtin{func() accumulator { return new(sum) }, finalSum}, nil
	case strings.HasPrefix(name, "_count"):
		return builtin{func() accumulator { return new(count) }, finalCount}, nil
	case strings.HasPrefix(name, "_stats"):
		return builtin{func() accumulator { return new(stats) }, finalStats}, nil
	case strings.HasPrefix(name, "_approx_count_distinct"):
		return builtin{func() accumulator { return new(distinct) }, finalDistinct}, nil
	case strings.HasPrefix(name, "_first"):
		return builtin{func() accumulator { return new(edge) }, finalEdge}, nil
	case strings.HasPrefix(name, "_last"):
		return builtin{func() accumulator { return &edge{last: true} }, finalEdge}, nil
	}
	return nil, unsupported(name)
}

// unsupported is the answer to a name that is no built-in reduction.
func unsupported(name string) error {
	return &model.Error{Kind: model.KindBadRequest, Name: "invalid_design_doc", Reason: "`" + name + "` is not a supported reduce function."}
}

// parseRank reads the N of _top_N: 1 to maxRank, without leading zeros.
func parseRank(digits string) (int, bool) {
	if digits == "" || len(digits) > 3 || digits[0] == '0' {
		return 0, false
	}
	n := 0
	for _, c := range []byte(digits) {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, n <= maxRank
}

// accumulator computes one state after the other. It keeps its memory from run to
// run, so that a run of numbers costs no allocation.
type accumulator interface {
	// reset forgets the run before.
	reset()
	// addRows takes the rows of the run.
	addRows([]Row)
	// addState takes the next state; it fails only on bytes that are no state.
	addState([]byte) error
	// appendState appends the state of all that was added.
	appendState(dst []byte) []byte
}

// builtin is the Reducer of a built-in function.
type builtin struct {
	accumulator func() accumulator
	final       func(state []byte) ([]byte, error)
}

// errState is the answer to bytes that are no state.
var errState = &model.Error{Kind: model.KindCorruption, Name: "corrupt_index", Reason: "A reduction that was stored cannot be read."}

// checkEvery is how many runs pass between two looks at the context.
const checkEvery = 64

// Reduce implements Reducer.
func (b builtin) Reduce(ctx context.Context, runs []Run) ([][]byte, error) {
	states := make([][]byte, len(runs))
	ends := make([]int, len(runs))
	// All states lie in one piece of memory: they are small and live together.
	buf := make([]byte, 0, 16*len(runs))
	acc := b.accumulator()
	for i := range runs {
		if i%checkEvery == 0 {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
		}
		run := &runs[i]
		if len(run.States) == 1 {
			buf = append(buf, run.States[0]...)
			ends[i] = len(buf)
			continue
		}
		acc.reset()
		acc.addRows(run.Rows)
		for _, s := range run.States {
			if err := acc.addState(s); err != nil {
				return nil, err
			}
		}
		buf = acc.appendState(buf)
		ends[i] = len(buf)
	}
	start := 0
	for i, end := range ends {
		states[i] = buf[start:end:end]
		start = end
	}
	return states, nil
}

// Final implements Reducer.
func (b builtin) Final(state []byte) ([]byte, error) { return b.final(state) }

// Empty implements Reducer: as in CouchDB a reduction of no rows is no row.
func (b builtin) Empty() ([]byte, bool) { return nil, false }
