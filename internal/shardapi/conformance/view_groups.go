package conformance

import (
	"fmt"
	"strings"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/reduce"
	"github.com/divandb/divan/internal/shardapi"
)

// groupScenes is reductions of views.
var groupScenes = []scene{
	{"GroupLevels", groupLevels},
	{"GroupRanges", groupRanges},
	{"GroupsFollowDocuments", groupsFollowDocuments},
	{"GroupsByScript", groupsByScript},
	{"GroupScriptFails", groupScriptFails},
	{"GroupRefusals", groupRefusals},
}

// reducer gives the reduction of a view, for what needs no worker.
func (t *trial) reducer(def *shardapi.ViewDef) reduce.Reducer {
	t.Helper()
	if !reduce.IsBuiltin(def.Reduce) {
		return reduce.Script(nil, def.Program, def.Reduce)
	}
	r, err := reduce.Builtin(def.Reduce)
	t.no(err)
	return r
}

// groups reads the groups of a view as "key value" words, with the number of the
// range before them when there are several. A failed reduction has its error's name
// in the place of the value.
func (t *trial) groups(req shardapi.ViewRequest) []string {
	t.Helper()
	req.Reduce = true
	_, s, err := t.shard.View(t.ctx, &req)
	t.no(err)
	reducer := t.reducer(&req.Def)
	var out []string
	drain(t, s, func(r shardapi.ViewRow) {
		if r.ID != "" {
			t.Fatalf("a group with an id: %+v", r)
		}
		value, err := reducer.Final(r.Value)
		if err != nil {
			value = []byte("failed: " + err.Error())
		}
		word := fmt.Sprintf("%s %s", r.Key, value)
		if len(req.Ranges) > 1 {
			word = fmt.Sprintf("%d: %s", r.Range, word)
		}
		out = append(out, word)
	})
	return out
}

// sales writes documents with keys [year, month] and amounts.
func (t *trial) sales() {
	t.Helper()
	for i, d := range []string{"2023,1", "2023,2", "2023,2", "2024,1", "2024,7", "2024,7", "2025,1"} {
		t.put(fmt.Sprintf("s%d", i), fmt.Sprintf(`{"date":[%s],"amount":%d}`, d, 1<<i), model.Rev{})
	}
}

const salesByDate = `function(doc) { if (doc.date) emit(doc.date, doc.amount); }`

// Levels cut array keys; other keys stay whole.
func groupLevels(t *trial) {
	t.sales()
	t.put("other", `{"date":"never","amount":1000}`, model.Rev{})
	def := t.define("levels", salesByDate, "_sum")
	for level, want := range map[int][]string{
		shardapi.GroupNone:  {"null 1127"},
		1:                   {`"never" 1000`, "[2023] 7", "[2024] 56", "[2025] 64"},
		2:                   {`"never" 1000`, "[2023,1] 1", "[2023,2] 6", "[2024,1] 8", "[2024,7] 48", "[2025,1] 64"},
		7:                   {`"never" 1000`, "[2023,1] 1", "[2023,2] 6", "[2024,1] 8", "[2024,7] 48", "[2025,1] 64"},
		shardapi.GroupExact: {`"never" 1000`, "[2023,1] 1", "[2023,2] 6", "[2024,1] 8", "[2024,7] 48", "[2025,1] 64"},
	} {
		req := shardapi.ViewRequest{Def: def, GroupLevel: level, Ranges: everything, Limit: -1}
		same(t, fmt.Sprint("level ", level), t.groups(req), want)
		req.Descending = true
		back := make([]string, len(want))
		for i, w := range want {
			back[len(want)-1-i] = w
		}
		same(t, fmt.Sprint("backwards, level ", level), t.groups(req), back)
		req.Limit = 2
		same(t, fmt.Sprint("two, level ", level), t.groups(req), back[:min(2, len(back))])
		req.Limit = 0
		same(t, fmt.Sprint("none, level ", level), t.groups(req), nil)
	}
	count := t.define("counts", salesByDate, "_count")
	same(t, "counts", t.groups(shardapi.ViewRequest{Def: count, GroupLevel: 1, Ranges: everything, Limit: -1}),
		[]string{`"never" 1`, "[2023] 3", "[2024] 3", "[2025] 1"})
	stats := t.define("stats", salesByDate, "_stats")
	same(t, "stats", t.groups(shardapi.ViewRequest{Def: stats, GroupLevel: shardapi.GroupNone, Limit: -1,
		Ranges: []shardapi.KeyRange{{Start: []byte("[2023]"), End: []byte("[2023,{}]")}}}),
		[]string{`null {"sum":7,"count":3,"min":1,"max":4,"sumsqr":21}`})
}

// A range may cut groups; keys are groups of their own.
func groupRanges(t *trial) {
	t.sales()
	def := t.define("ranges", salesByDate, "_sum")
	at := func(s string) []byte { return []byte(s) }
	ask := func(level int, descending bool, ranges ...shardapi.KeyRange) []string {
		t.Helper()
		return t.groups(shardapi.ViewRequest{Def: def, GroupLevel: level, Descending: descending, Ranges: ranges, Limit: -1})
	}
	cut := shardapi.KeyRange{Start: at("[2023,2]"), End: at("[2024,7]"), EndID: "s4", HasEndID: true}
	same(t, "a cut range", ask(1, false, cut), []string{"[2023] 6", "[2024] 24"})
	same(t, "a cut range in one", ask(shardapi.GroupNone, false, cut), []string{"null 30"})
	back := shardapi.KeyRange{Start: at("[2024,7]"), StartID: "s4", HasStartID: true, End: at("[2023,2]"), ExclusiveEnd: true}
	same(t, "backwards", ask(1, true, back), []string{"[2024] 24"})
	same(t, "an empty range", ask(shardapi.GroupNone, false, shardapi.KeyRange{Start: at("[9999]")}), nil)
	same(t, "the wrong way round", ask(shardapi.GroupExact, false, shardapi.KeyRange{Start: at("[2025]"), End: at("[2023]")}), nil)
	var keys []shardapi.KeyRange
	for _, k := range []string{"[2024,7]", "[1999,1]", "[2023,2]", "[2024,7]"} {
		keys = append(keys, shardapi.KeyRange{Start: at(k), End: at(k)})
	}
	want := []string{"0: [2024,7] 48", "2: [2023,2] 6", "3: [2024,7] 48"}
	same(t, "keys", ask(shardapi.GroupExact, false, keys...), want)
	same(t, "keys backwards", ask(shardapi.GroupExact, true, keys...), want)
}

// A reduction shows what the documents are, not what they were.
func groupsFollowDocuments(t *trial) {
	def := t.define("follow", `function(doc) { emit(doc.k, doc.v); }`, "_sum")
	check := func(want string) {
		t.Helper()
		req := shardapi.ViewRequest{Def: def, GroupLevel: shardapi.GroupExact, Ranges: everything, Limit: -1}
		if got := strings.Join(t.groups(req), ", "); got != want {
			t.Fatalf("groups %q, want %q", got, want)
		}
	}
	const n = 600 // enough for reductions of reductions
	edits := make([]model.Edit, n)
	for i := range edits {
		edits[i] = model.Edit{ID: fmt.Sprintf("d%04d", i), Body: fmt.Appendf(nil, `{"k":%d,"v":1}`, i%2)}
	}
	revs := t.write(edits...)
	check("0 300, 1 300")
	t.put("d0000", `{"k":1,"v":10}`, revs[0])
	check("0 299, 1 310")
	t.remove("d0001", revs[1])
	check("0 299, 1 309")
	var gone []model.Edit
	for i := 2; i < n; i += 2 {
		gone = append(gone, model.Edit{ID: edits[i].ID, Parent: revs[i], Deleted: true, Body: []byte(`{}`)})
	}
	t.write(gone...)
	check("1 309")
}

// A reduction may be a function, which is called again with its own results.
func groupsByScript(t *trial) {
	t.sales()
	edits := make([]model.Edit, 500)
	for i := range edits {
		edits[i] = model.Edit{ID: fmt.Sprintf("x%d", i), Body: fmt.Appendf(nil, `{"date":[2026,%d],"amount":2}`, i%12)}
	}
	t.write(edits...)
	def := t.define("script", salesByDate, `function(keys, values, rereduce) {
		if (rereduce) return {n: sum(values.map(function(v) { return v.n; })), sum: sum(values.map(function(v) { return v.sum; }))};
		if (keys.length != values.length || keys[0].length != 2) throw "keys";
		return {n: values.length, sum: sum(values)};
	}`)
	same(t, "years", t.groups(shardapi.ViewRequest{Def: def, GroupLevel: 1, Ranges: everything, Limit: -1}),
		[]string{`[2023] {"n":3,"sum":7}`, `[2024] {"n":3,"sum":56}`, `[2025] {"n":1,"sum":64}`, `[2026] {"n":500,"sum":1000}`})
	same(t, "all", t.groups(shardapi.ViewRequest{Def: def, GroupLevel: shardapi.GroupNone, Ranges: everything, Limit: -1}),
		[]string{`null {"n":507,"sum":1127}`})
}

// A reduction that fails spoils the groups it fails in, and no others; the rows are
// there all the same.
func groupScriptFails(t *trial) {
	t.sales()
	def := t.define("fails", salesByDate, `function(keys, values) { if (values.indexOf(64) >= 0) throw({boom: "sixty-four"}); return 1; }`)
	rows := t.groups(shardapi.ViewRequest{Def: def, GroupLevel: 1, Ranges: everything, Limit: -1})
	if len(rows) != 3 || rows[0] != "[2023] 1" || rows[1] != "[2024] 1" || !strings.HasPrefix(rows[2], "[2025] failed: ") {
		t.Errorf("groups %q", rows)
	}
	_, all := t.view(shardapi.ViewRequest{Def: def, Ranges: everything, Limit: -1})
	if len(all) != 7 {
		t.Errorf("rows %q", all)
	}
	def = t.define("sum", `function(doc) { emit(1, doc._id); }`, "_sum")
	rows = t.groups(shardapi.ViewRequest{Def: def, GroupLevel: shardapi.GroupNone, Ranges: everything, Limit: -1})
	if len(rows) != 1 || !strings.Contains(rows[0], "builtin_reduce_error") { // in the value, as CouchDB has it
		t.Errorf("a sum of words: %q", rows)
	}
}

// What cannot be reduced is refused in words for a client.
func groupRefusals(t *trial) {
	t.sales()
	plain := t.define("plain", salesByDate, "")
	_, _, err := t.shard.View(t.ctx, &shardapi.ViewRequest{Def: plain, Reduce: true, Ranges: everything, Limit: -1})
	if model.KindOf(err) != model.KindBadRequest {
		t.Errorf("a view without a reduction: %v", err)
	}
	unknown := t.define("unknown", salesByDate, "_none")
	_, _, err = t.shard.View(t.ctx, &shardapi.ViewRequest{Def: unknown, Reduce: true, Ranges: everything, Limit: -1})
	if model.KindOf(err) != model.KindBadRequest {
		t.Errorf("a reduction that does not exist: %v", err)
	}
}
