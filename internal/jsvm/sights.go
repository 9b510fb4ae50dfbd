package jsvm

import (
	"slices"
	"sync"
)

// sights remembers what functions can see of their first argument, so that they need
// be given no more: most of the time of a view build goes into parsing what no
// function looks at. Whether the engine is still one in which that goes unnoticed,
// the worker knows.
type sights struct {
	mu      sync.Mutex
	funcs   map[string]sight
	spoiled map[string]struct{} // programs whose engine had something to say against it
}

// sight is what one function can see.
type sight struct {
	fields []string
	few    bool // and nothing else
}

// maxSights bounds the memory of it; forgetting costs the analysis of a function.
const maxSights = 4096

// of gives what the functions of a call can see together; not ok: anything.
func (s *sights) of(program string, funcs []string) (fields []string, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, spoiled := s.spoiled[program]; spoiled {
		return nil, false
	}
	for _, fn := range funcs {
		seen, known := s.funcs[fn]
		if !known {
			seen.fields, seen.few = readFields(fn)
			if s.funcs == nil || len(s.funcs) >= maxSights {
				s.funcs = map[string]sight{}
			}
			s.funcs[fn] = seen
		}
		if !seen.few {
			return nil, false
		}
		fields = append(fields, seen.fields...)
	}
	slices.Sort(fields)
	return slices.Compact(fields), true
}

// spoil notes that documents of a program cannot be shortened, which saves asking.
func (s *sights) spoil(program string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spoiled == nil || len(s.spoiled) >= maxSights {
		s.spoiled = map[string]struct{}{}
	}
	s.spoiled[program] = struct{}{}
}
