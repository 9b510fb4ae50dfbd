package reduce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/reduce"
	"github.com/divandb/divan/internal/testserver"
)

// TestScript runs JavaScript reductions in real workers: rows, states, and
// functions that fail.
func TestScript(t *testing.T) {
	t.Parallel()
	pool := jsvm.New(jsvm.Options{Command: []string{testserver.Binary(t), "js-worker"}, Workers: 1, CallTime: 300 * time.Millisecond})
	t.Cleanup(func() { pool.Close() })
	prog := jsvm.Program{Key: "db/_design/d@1", Design: []byte(`{}`)}
	ctx := context.Background()
	var rows []reduce.Row
	for i := range 40 {
		key := fmt.Appendf(nil, "%d", i)
		rows = append(rows, reduce.Row{Sort: collate.AppendKey(nil, key), Key: key, ID: fmt.Sprintf("d%d", i), Value: fmt.Appendf(nil, "%d", i)})
	}
	for _, c := range []struct{ fn, want string }{
		{`function(keys, values, rereduce) { return sum(values) }`, `780`},
		{`function(keys, values, rereduce) { return rereduce ? sum(values) : values.length }`, `40`},
		{`function(keys, values, rereduce) { return rereduce ? values.join() : keys[0][1] + keys[0][0] }`, `"d00,d1010,d2020,d3030"`},
		{`function(keys, values, rereduce) { return rereduce ? keys : undefined }`, `null`},
		{`function(keys, values, rereduce) { throw {forbidden: "not this"} }`, `forbidden: not this`},
		{`function(keys, values, rereduce) { if (rereduce) throw new TypeError("late"); return 1 }`, `TypeError: late`},
		{`function(keys, values, rereduce) { for (;;); }`, `reduce_killed: the script was stopped: `},
		{`function(keys, values, rereduce) { return new Array(3000).join("xy") }`, `reduce_overflow_error: Reduce output must shrink more rapidly: input size: `},
	} {
		r := reduce.Script(pool, prog, c.fn)
		var runs []reduce.Run
		for i := 0; i < len(rows); i += 10 {
			runs = append(runs, reduce.Run{Rows: rows[i : i+10]})
		}
		states, err := r.Reduce(ctx, runs)
		if err != nil {
			t.Fatal(err)
		}
		states, err = r.Reduce(ctx, []reduce.Run{{States: states}})
		if err != nil {
			t.Fatal(err)
		}
		v, err := r.Final(states[0])
		var e *model.Error
		if errors.As(err, &e) && e.Kind == model.KindInternal {
			v = []byte(e.Name + ": " + e.Reason)
		} else if err != nil {
			t.Fatal(err)
		}
		if got := string(v); got != c.want && !(strings.HasSuffix(c.want, ": ") && strings.HasPrefix(got, c.want)) {
			t.Errorf("%s:\n%s, want %s", c.fn, got, c.want)
		}
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, err := reduce.Script(pool, prog, `function() { return 1 }`).Reduce(cancelled, []reduce.Run{{Rows: rows}}); err == nil {
		t.Error("cancelled, and reduced nevertheless")
	}
}
