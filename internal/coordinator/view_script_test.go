package coordinator_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/reduce"
	"github.com/divandb/divan/internal/shardapi"
	"github.com/divandb/divan/internal/testserver"
)

// TestViewByScript joins the ranges' reductions by a function of a design document:
// what it gives is what all rows together give, and where it fails the request does.
func TestViewByScript(t *testing.T) {
	t.Parallel()
	base := newNode(t)
	base.js = jsvm.New(jsvm.Options{Command: []string{testserver.Binary(t), "js-worker"}})
	t.Cleanup(func() {
		if err := base.js.Close(); err != nil {
			t.Error(err)
		}
	})
	rows := randomRows(rand.New(rand.NewPCG(3, 3)), 1500)
	for _, q := range []int{1, 4} {
		n := newViewNode(t, base, cluster.CreateSpec{Name: fmt.Sprintf("q%d", q), Q: q}, rows)
		ask := func(fn string, level int) *coordinator.ViewRequest {
			req := &coordinator.ViewRequest{Skip: 1, ViewRequest: shardapi.ViewRequest{Limit: 5, Ranges: []shardapi.KeyRange{{}}, Reduce: true, GroupLevel: level,
				Def: shardapi.ViewDef{Reduce: fn, Program: jsvm.Program{Key: "a test", Design: []byte(`{}`)}}}}
			if level == shardapi.GroupNone {
				req.Skip = 0
			}
			return req
		}
		for _, level := range []int{shardapi.GroupNone, 1, shardapi.GroupExact} {
			req := ask(`function(keys, values, rereduce) { return sum(values); }`, level)
			want, _ := n.expect(req)
			if _, got := n.collect(t, req); !slices.Equal(got, want) {
				t.Errorf("q %d level %d: %q, want %q", q, level, got, want)
			}
		}
		_, stream, err := n.coord.View(t.Context(), n.db, ask(`function(keys) { throw({boom: "a test"}); }`, 1))
		for err == nil {
			_, err = stream.Next()
		}
		var e *model.Error
		if !errors.As(err, &e) || !strings.Contains(e.Error(), "a test") {
			t.Errorf("q %d: a function that throws: %v", q, err)
		}
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
		_, stream, err = n.coord.View(t.Context(), n.db, ask(`function(keys, values) { return new Array(10000).join("x"); }`, shardapi.GroupExact))
		if err != nil {
			t.Fatal(err)
		}
		seen := 0
		for err == nil {
			var groups []shardapi.ViewRow
			groups, err = stream.Next()
			for _, g := range groups {
				if seen++; g.Err == nil || g.Err.Name != reduce.OverflowError || string(g.Value) != "null" {
					t.Fatalf("q %d: a function that does not shrink: %+v", q, g)
				}
			}
		}
		if seen != 5 {
			t.Errorf("q %d: %d groups, %v", q, seen, err)
		}
		if err := stream.Close(); err != nil {
			t.Error(err)
		}
	}
}
