package bench

import (
	"context"
	"errors"
	"fmt"
)

// bareLimits measures what the same work costs without a database around it, and
// sets the server's cost against it.
func (s *session) bareLimits(ctx context.Context, p *report) error {
	var failed error
	for _, limit := range []struct {
		against string
		measure func(context.Context) (Result, error)
	}{
		{"get", s.bareGet},
		{"bulk", s.bareBulk},
	} {
		r, err := limit.measure(ctx)
		if err != nil {
			r.Error = err.Error()
			failed = errors.Join(failed, fmt.Errorf("%s: %w", r.Workload, err))
		}
		for _, ours := range p.results {
			if ours.Workload == limit.against && ours.CPUMicros != nil && r.CPUMicros != nil {
				r.BareRatio = ratio(*ours.CPUMicros, *r.CPUMicros)
			}
		}
		if err := p.add(r); err != nil {
			return errors.Join(failed, err)
		}
	}
	return failed
}
