package jsvm_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/divandb/divan/internal/jsvm"
)

// TestWorkersAreKilled kills workers from outside while many calls are under way.
// Every call must end with the right rows.
func TestWorkersAreKilled(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{Workers: 3})
	// Whenever a call has ended a worker is killed, which mostly is in the middle of
	// another call.
	ended := make(chan struct{})
	var killer sync.WaitGroup
	kills := 0
	killer.Go(func() {
		for range ended {
			if pids := p.Workers(); len(pids) > 0 && syscall.Kill(pids[rand.IntN(len(pids))], syscall.SIGKILL) == nil {
				kills++
			}
		}
	})
	docs := make([]string, 50)
	for i := range docs {
		docs[i] = fmt.Sprintf(`{"n":%d}`, i)
	}
	var calls sync.WaitGroup
	for c := range 6 {
		calls.Go(func() {
			prog := program(fmt.Sprint("killed ", c%3), `{}`)
			for round := range 10 {
				fn := fmt.Sprintf(`function(doc){ var x = 0; for (var i = 0; i < 3000; i++) x += i; emit(doc.n, [%d, %d]); }`, c, round)
				out, err := p.Map(context.Background(), prog, []string{fn}, texts(docs...))
				if err != nil {
					t.Error(err)
					return
				}
				for i := range docs {
					if got, want := rowsOf(out[i][0]), fmt.Sprintf(`[[%d,[%d,%d]]]`, i, c, round); got != want {
						t.Errorf("got %s, want %s", got, want)
					}
				}
				ended <- struct{}{}
			}
		})
	}
	calls.Wait()
	close(ended)
	killer.Wait()
	if kills == 0 {
		t.Error("no worker was killed")
	}
}

// TestBadWorkers are commands that are no worker, or end at once.
func TestBadWorkers(t *testing.T) {
	t.Parallel()
	for name, command := range map[string][]string{
		"none":      nil,
		"not there": {filepath.Join(t.TempDir(), "nothing")},
		"ends":      {"/bin/sh", "-c", "exit 3"},
		"garbage":   {"/bin/sh", "-c", "echo this is no frame at all; cat >/dev/null"},
	} {
		p := jsvm.New(jsvm.Options{Command: command})
		_, err := p.Map(context.Background(), program("x", `{}`), []string{`function(doc){}`}, texts(`{}`))
		if err == nil {
			t.Errorf("%s: no error", name)
		}
		p.Close()
	}
}

// TestGarbage has a worker that greets well and then talks nonsense: the call fails
// in the end, and nothing of the nonsense is taken for a result.
func TestGarbage(t *testing.T) {
	t.Parallel()
	hello := `printf '\001\000\000\000h'; `
	for name, script := range map[string]string{
		"text":        hello + `head -c 5 >/dev/null; echo some text that is no frame; cat >/dev/null`,
		"no JSON":     hello + `while head -c 5 >/dev/null; do printf '\005\000\000\000k\000[[x'; done`,
		"few results": hello + `head -c 5 >/dev/null; printf '\006\000\000\000k\000[[]]'; cat >/dev/null`,
		"half":        hello + `head -c 5 >/dev/null; printf '\377\000\000\000k\000[['`,
	} {
		p := jsvm.New(jsvm.Options{Command: []string{"/bin/sh", "-c", script, "sh"}, Workers: 1, CallTime: shortTime})
		out, err := p.Map(context.Background(), program("x", `{}`), []string{`function(doc){}`}, texts(`{}`))
		if err == nil && out[0][0].Err == nil {
			t.Errorf("%s: no error", name)
		}
		p.Close()
	}
}

// TestCancel leaves a call that runs and one that waits.
func TestCancel(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{Workers: 1, CallTime: time.Second})
	prog := program("cancel", `{}`)
	mapOne(t, p, prog, `function(doc){}`, `{}`)
	before := p.Workers()
	ctx, cancel := context.WithCancel(context.Background())
	errs := make(chan error, 2)
	slow := `function(doc){ var until = Date.now() + 400; while (Date.now() < until); }`
	for range 2 {
		go func() {
			_, err := p.Map(ctx, prog, []string{slow}, texts(`{}`))
			errs <- err
		}()
	}
	p.AwaitWaiters(1)
	began := time.Now()
	cancel()
	for range 2 {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
	if took := time.Since(began); took > 300*time.Millisecond {
		t.Errorf("leaving took %s", took)
	}
	// The worker is free again after its call, and still in step.
	if got := rowsOf(mapOne(t, p, prog, `function(doc){ emit(doc.n); }`, `{"n":5}`)); got != `[[5,null]]` {
		t.Error(got)
	}
	if after := p.Workers(); !slices.Equal(before, after) {
		t.Errorf("workers %v before, %v after", before, after)
	}
	if _, err := p.Map(ctx, prog, []string{slow}, texts(`{}`)); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that is cancelled before: %v", err)
	}
}

// TestCancelledRunaway is a caller who leaves a call that never ends.
func TestCancelledRunaway(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{Workers: 1, CallTime: shortTime})
	prog := program("left", `{}`)
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(shortTime/2, cancel)
	_, err := p.Map(ctx, prog, []string{`function(doc){ /^(a+)+$/.test("a".repeat(60) + "b"); }`}, texts(`{}`))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if got := rowsOf(mapOne(t, p, prog, `function(doc){ emit(1); }`, `{}`)); got != `[[1,null]]` {
		t.Error(got)
	}
}

func TestClose(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{Workers: 1})
	prog := program("close", `{}`)
	mapOne(t, p, prog, `function(doc){}`, `{}`)
	pids := p.Workers()
	errs := make(chan error, 3)
	for range 3 {
		go func() {
			_, err := p.Map(context.Background(), prog, []string{`function(doc){ while (true); }`}, texts(`{}`))
			errs <- err
		}()
	}
	p.AwaitWaiters(2)
	p.CloseAndWait()
	for range 3 {
		if err := <-errs; !errors.Is(err, jsvm.ErrClosed) {
			t.Errorf("got %v", err)
		}
	}
	if _, err := p.Map(context.Background(), prog, []string{`function(doc){}`}, texts(`{}`)); !errors.Is(err, jsvm.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("worker %d is still there: %v", pid, err)
		}
	}
	if err := p.Close(); err != nil {
		t.Errorf("Close again: %v", err)
	}
}

// TestOrder: who waits first is served first.
func TestOrder(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{Workers: 1})
	prog := program("order", `{}`)
	mapOne(t, p, prog, `function(doc){}`, `{}`)
	_, release := p.HoldWorker()
	var mu sync.Mutex
	var order []int
	var calls sync.WaitGroup
	for i := range 5 {
		calls.Go(func() {
			if _, err := p.Map(context.Background(), prog, []string{`function(doc){}`}, texts(`{}`)); err != nil {
				t.Error(err)
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
		})
		p.AwaitWaiters(i + 1)
	}
	release()
	calls.Wait()
	if !slices.IsSorted(order) {
		t.Errorf("served in the order %v", order)
	}
}

// TestEnginesAreBounded uses many programs: their memory is given back.
func TestEnginesAreBounded(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{Workers: 1})
	fn := `function(doc){ globalThis.kept = new Array(20000).fill(doc.n); emit(doc.n); }`
	var after30 int
	for i := range 100 {
		out := mapOne(t, p, program(fmt.Sprint("bounded ", i), `{}`), fn, fmt.Sprintf(`{"n":%d}`, i))
		if got, want := rowsOf(out), fmt.Sprintf("[[%d,null]]", i); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		if i == 30 {
			after30 = resident(t, p.Workers()[0])
		}
	}
	if n := len(p.Workers()); n != 1 {
		t.Fatalf("%d workers", n)
	}
	if now := resident(t, p.Workers()[0]); now > after30*3/2 {
		t.Errorf("a worker grew from %d to %d MiB", after30>>20, now>>20)
	}
}

// resident is the memory of a process, in bytes.
func resident(t *testing.T, pid int) int {
	t.Helper()
	statm, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		if runtime.GOOS == "linux" {
			t.Fatal(err) // the worker is gone, or never was
		}
		t.Skip("only Linux tells the memory of a process under /proc")
	}
	pages, err := strconv.Atoi(strings.Fields(string(statm))[1])
	if err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// TestHoarder is a program that keeps what it gets: its worker is replaced before
// that hurts.
func TestHoarder(t *testing.T) {
	t.Parallel()
	p := newPool(t, jsvm.Options{Workers: 1, Memory: 96 << 20})
	prog := program("hoarder", `{}`)
	fn := `function(doc){ if (!globalThis.kept) globalThis.kept = []; kept.push("x".repeat(4 << 20) + doc.n); emit(doc.n); }`
	for i := range 60 {
		if got, want := rowsOf(mapOne(t, p, prog, fn, fmt.Sprintf(`{"n":%d}`, i))), fmt.Sprintf("[[%d,null]]", i); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
		for _, pid := range p.Workers() {
			if r := resident(t, pid); r > 160<<20 {
				t.Errorf("the worker has %d MiB", r>>20)
			}
		}
	}
}

// TestWorkersDieWithTheirServer: a worker ends when nobody talks to it any more.
func TestWorkersDieWithTheirServer(t *testing.T) {
	t.Parallel()
	command := workerCommand(t)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	proc, err := os.StartProcess(command[0], command, &os.ProcAttr{Files: []*os.File{r, null, null}})
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	w.Close()
	state, err := proc.Wait()
	if err != nil || !state.Success() {
		t.Errorf("the worker ended with %v %v", state, err)
	}
}
