package jsvm

import (
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"

	"modernc.org/quickjs"

	"github.com/divandb/divan/internal/rawjson"
)

//go:embed js/environment.js
var environmentJS string

//go:embed js/render.js
var renderJS string

//go:embed js/dispatch.js
var dispatchJS string

// bootCode is the compiled environment: each engine runs it, none compiles it.
var bootCode = sync.OnceValues(func() ([]byte, error) {
	vm, err := quickjs.NewVM()
	if err != nil {
		return nil, err
	}
	defer vm.Close()
	source := "(function () { \"use strict\";\n" + environmentJS + renderJS + dispatchJS + "\n})()"
	return vm.Compile(source, quickjs.EvalGlobal)
})

// maxFuncs is how many functions an engine holds. A design document has fewer; one
// whose functions change all the time gets a new engine now and then.
const maxFuncs = 512

// gcThreshold is the garbage at which the engine looks for cycles first. Most
// garbage is freed without that, and a batch holds some megabytes.
const gcThreshold = 16 << 20

// engine is the JavaScript engine of one Program.
type engine struct {
	key   string
	vm    *quickjs.VM
	entry quickjs.Value
	funcs map[string]*compiled // by their text
	// pure says that no function here can change an object; see map in dispatch.js.
	pure bool
	// harmless says that none has changed what readFields relies on.
	harmless bool
	body     []byte // working memory
}

// compiled is a function that the engine has.
type compiled struct {
	number int
	fields []string // members of a document that it can read, as a map function
	few    bool     // fields says all of it
}

// hostFunc is what scripts ask of the host: a word and one text for another.
type hostFunc func(word, text string) (string, error)

// newEngine makes an engine within a memory limit.
func newEngine(key, design string, memory int64, host hostFunc) (_ *engine, err error) {
	code, err := bootCode()
	if err != nil {
		return nil, err
	}
	vm, err := quickjs.NewVM()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			vm.Close()
		}
	}()
	vm.SetMemoryLimit(uintptr(memory))
	vm.SetGCThreshold(gcThreshold)
	err = vm.RegisterHostFunc("__host", func(args []any) (any, error) {
		if len(args) != 2 {
			return nil, errors.New("the host takes a word and a text")
		}
		word, _ := args[0].(string)
		text, _ := args[1].(string)
		return host(word, text)
	})
	if err != nil {
		return nil, err
	}
	e := &engine{key: key, vm: vm, funcs: map[string]*compiled{}, pure: true, harmless: true}
	if e.entry, err = vm.EvalBytecodeValue(code); err != nil {
		return nil, fmt.Errorf("the environment of scripts: %w", err)
	}
	if _, err = e.call("design", design); err != nil {
		e.entry.Free()
		return nil, err
	}
	return e, nil
}

// close frees the engine's memory.
func (e *engine) close() {
	e.entry.Free()
	e.vm.Close()
}

// call enters the engine.
func (e *engine) call(args ...any) (string, error) {
	result, err := e.entry.Call(quickjs.UndefinedValue, args...)
	if err != nil {
		return "", err
	}
	text, ok := result.(string)
	if !ok {
		return "", fmt.Errorf("the environment of scripts gave %T", result)
	}
	return text, nil
}

// run serves one request and gives the one text of its results.
func (e *engine) run(r *runRequest) (string, error) {
	numbers := []byte{'['}
	called := make([]*compiled, len(r.funcs))
	for i, fn := range r.funcs {
		f, err := e.compile(fn)
		if err != nil {
			return "", err
		}
		called[i] = f
		if i > 0 {
			numbers = append(numbers, ',')
		}
		numbers = strconv.AppendInt(numbers, int64(f.number), 10)
	}
	numbers = append(numbers, ']')
	body := r.body
	switch r.op {
	case "map":
		body = e.project(called, body)
	case "reduce":
		body = e.withoutKeys(called[0], body)
	case "check":
		// What it compiles was not looked at.
		e.pure, e.harmless = false, false
	}
	result, err := e.call(r.op, string(numbers), e.pure, string(r.extra), string(body))
	if err != nil {
		return "", err
	}
	// Promises a script left behind are settled here, while no function runs, so that
	// they neither pile up nor emit into another document. What they throw is lost.
	if _, err := e.vm.ExecutePendingJobs(); isLimit(err) {
		return "", err
	}
	return result, nil
}

// compile gives the engine a function, if it does not have it yet.
func (e *engine) compile(fn string) (*compiled, error) {
	if f, known := e.funcs[fn]; known {
		return f, nil
	}
	f := &compiled{number: len(e.funcs)}
	f.fields, f.few = readFields(fn)
	e.pure = e.pure && onlyReads(fn)
	e.harmless = e.harmless && harmless(fn)
	e.funcs[fn] = f
	_, err := e.call("define", fn)
	return f, err
}

// project leaves of the documents what the functions can read. Most of the time of a
// view build goes into parsing what no function looks at.
func (e *engine) project(called []*compiled, docs []byte) []byte {
	if !e.harmless {
		return docs
	}
	var fields []string
	for _, f := range called {
		if !f.few {
			return docs
		}
		fields = append(fields, f.fields...)
	}
	slices.Sort(fields)
	fields = slices.Compact(fields)
	out := append(e.body[:0], '[')
	for doc := range rawjson.Elements(docs) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = project(out, doc, fields)
	}
	e.body = append(out, ']')
	return e.body
}

// withoutKeys leaves out the keys of reduce calls, which most functions never look at
// and which are most of what there is to parse.
func (e *engine) withoutKeys(f *compiled, calls []byte) []byte {
	if !e.harmless || !f.few || len(f.fields) > 0 {
		return calls
	}
	out := append(e.body[:0], '[')
	for call := range rawjson.Elements(calls) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, '[')
		n := 0
		for part := range rawjson.Elements(call) {
			switch n++; {
			case n > 1:
				out = append(append(out, ','), part...)
			case rawjson.KindOf(part) == rawjson.KindNull:
				out = append(out, part...)
			default:
				out = append(out, "[]"...)
			}
		}
		out = append(out, ']')
	}
	e.body = append(out, ']')
	return e.body
}

// isLimit tells the errors that stand for a limit passed.
func isLimit(err error) bool { return interrupted(err) || outOfMemory(err) }

func interrupted(err error) bool { return engineErrorIs(err, "interrupted") }

func outOfMemory(err error) bool { return engineErrorIs(err, "out of memory") }

func engineErrorIs(err error, message string) bool {
	var e *quickjs.Error
	return errors.As(err, &e) && e.Name == "InternalError" && e.Message == message
}
