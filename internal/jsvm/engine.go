package jsvm

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"modernc.org/quickjs"
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
	funcs map[string]int // text → number
	// pure says that no function here can change an object; see map in dispatch.js.
	pure bool
	// harmless says that none has changed what readFields relies on.
	harmless bool
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
	e := &engine{key: key, vm: vm, funcs: map[string]int{}, pure: true, harmless: true}
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

// errWhole refuses a request that is shortened to what its functions can see, in an
// engine where that could be noticed.
var errWhole = errors.New("the whole documents are needed")

// run serves one request and gives the one text of its results.
func (e *engine) run(r *runRequest) (string, error) {
	numbers := []byte{'['}
	for i, fn := range r.funcs {
		number, err := e.compile(fn)
		if err != nil {
			return "", err
		}
		if i > 0 {
			numbers = append(numbers, ',')
		}
		numbers = strconv.AppendInt(numbers, int64(number), 10)
	}
	numbers = append(numbers, ']')
	if r.shortened && !e.harmless {
		return "", errWhole
	}
	result, err := e.call(r.op, string(numbers), e.pure, string(r.extra), string(r.body))
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
func (e *engine) compile(fn string) (number int, err error) {
	number, known := e.funcs[fn]
	if known {
		return number, nil
	}
	number = len(e.funcs)
	e.pure = e.pure && onlyReads(fn)
	e.harmless = e.harmless && harmless(fn)
	e.funcs[fn] = number
	_, err = e.call("define", fn)
	return number, err
}

// isLimit tells the errors that stand for a limit passed.
func isLimit(err error) bool { return interrupted(err) || outOfMemory(err) }

func interrupted(err error) bool { return engineErrorIs(err, "interrupted") }

func outOfMemory(err error) bool { return engineErrorIs(err, "out of memory") }

func engineErrorIs(err error, message string) bool {
	var e *quickjs.Error
	return errors.As(err, &e) && e.Name == "InternalError" && e.Message == message
}
