package reduce

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
)

// TestScriptCalls checks what a function is called with, and when it is not.
func TestScriptCalls(t *testing.T) {
	t.Parallel()
	var got []jsvm.ReduceCall
	s := script{func(_ context.Context, calls []jsvm.ReduceCall) ([]jsvm.Reduced, error) {
		got = calls
		out := make([]jsvm.Reduced, len(calls))
		for i := range out {
			out[i].Value = []byte(`7`)
		}
		return out, nil
	}}
	value, failure := append([]byte{scriptValue}, "1"...), failedState("TypeError", "no")
	states, err := s.Reduce(context.Background(), []Run{
		{States: [][]byte{value}},
		{Rows: []Row{row(`[1]`, `a"b`, `{"x":1}`), row(`null`, "c", `2`)}},
		{States: [][]byte{value, failure, value}},
		{States: [][]byte{value, value}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || string(got[0].Keys) != `[[[1],"a\"b"],[null,"c"]]` || string(got[0].Values) != `[{"x":1},2]` || got[0].Rereduce ||
		got[1].Keys != nil || string(got[1].Values) != `[1,1]` || !got[1].Rereduce {
		t.Errorf("%+v", got)
	}
	for i, want := range []string{"1", "7", "TypeError: no", "7"} {
		if shown := show(t, s, states[i]); shown != want {
			t.Errorf("state %d: %s, want %s", i, shown, want)
		}
	}
	if v, ok := s.Empty(); v != nil || ok {
		t.Errorf("nothing is %s", v)
	}
	for _, bad := range []string{"", "v", "e", "q1", "e\xff"} {
		if _, err := s.Final([]byte(bad)); !errors.Is(err, errState) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// TestScriptFailures checks the states of functions that fail.
func TestScriptFailures(t *testing.T) {
	t.Parallel()
	call := &jsvm.ReduceCall{Values: make([]byte, 8000)}
	for _, c := range []struct {
		reduced jsvm.Reduced
		want    string
	}{
		{jsvm.Reduced{Err: &jsvm.Thrown{Name: "forbidden", Reason: "go away"}}, "forbidden: go away"},
		{jsvm.Reduced{Err: &jsvm.Thrown{}}, "error: "},
		{jsvm.Reduced{Err: &jsvm.Killed{Reason: "5 s"}}, "reduce_killed: the script was stopped: 5 s"},
		{jsvm.Reduced{Value: make([]byte, 5001)}, "reduce_overflow_error: Reduce output must shrink more rapidly: input size: 8000 output size: 5001"},
		{jsvm.Reduced{}, "null"},
	} {
		if got := show(t, script{}, scriptState(call, c.reduced)); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	for _, size := range []int{5000, 1} {
		if state := scriptState(call, jsvm.Reduced{Value: make([]byte, size)}); state[0] != scriptValue {
			t.Errorf("%d bytes of 8000: %q", size, state[:20])
		}
	}
	if state := scriptState(&jsvm.ReduceCall{Values: make([]byte, 20000)}, jsvm.Reduced{Value: make([]byte, 10000)}); state[0] != scriptValue {
		t.Errorf("half of the input: %q", state[:20])
	}
	_, err := script{}.Final(failedState("e", strings.Repeat("x", 1<<20)))
	var e *model.Error
	if !errors.As(err, &e) || e.Kind != model.KindInternal || len(e.Reason) != maxReason {
		t.Errorf("a long reason: %.100v", err)
	}
	want := errors.New("no worker")
	s := script{func(context.Context, []jsvm.ReduceCall) ([]jsvm.Reduced, error) { return nil, want }}
	if _, err := s.Reduce(context.Background(), []Run{{}}); !errors.Is(err, want) {
		t.Errorf("no worker: %v", err)
	}
}
