package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// viewScenes is the rows of views; groups are in groupScenes.
var viewScenes = []scene{
	{"ViewOrder", viewOrder},
	{"ViewFollowsDocuments", viewFollowsDocuments},
	{"ViewBounds", viewBounds},
	{"ViewKeys", viewKeys},
	{"ViewOptions", viewOptions},
	{"ViewPlainOrder", viewPlainOrder},
	{"ViewPartitions", viewPartitions},
	{"ViewFreshness", viewFreshness},
	{"ViewUpdatesLazily", viewUpdatesLazily},
	{"ViewScriptFails", viewScriptFails},
	{"ViewManyBatches", viewManyBatches},
	{"ViewClosedAndCancelled", viewClosedAndCancelled},
	{"ViewInfo", viewInfo},
	{"ViewDropped", viewDropped},
	{"ViewOfNothing", viewOfNothing},
}

// everything is all keys of a view.
var everything = []shardapi.KeyRange{{}}

// define makes the definition of a view with a map function. Every view of a copy
// needs a name of its own.
func (t *trial) define(name, mapFunc, reduce string) shardapi.ViewDef {
	return shardapi.ViewDef{
		Sig: fmt.Sprintf("%d-%s", t.id, name), Design: "_design/d", Name: name, Map: mapFunc, Reduce: reduce,
		Program: jsvm.Program{Key: fmt.Sprintf("conformance %d", t.id), Design: []byte(`{"_id":"_design/d"}`)},
	}
}

// view reads a view whole; rows are "key id value" words, with the number of the
// range before them when there are several.
func (t *trial) view(req shardapi.ViewRequest) (*shardapi.ViewHead, []string) {
	t.Helper()
	head, s, err := t.shard.View(t.ctx, &req)
	t.no(err)
	var rows []string
	at, sort := -1, []byte(nil)
	drain(t, s, func(r shardapi.ViewRow) {
		if r.Range == at {
			if c := bytes.Compare(sort, r.Sort); c > 0 && !req.Descending || c < 0 && req.Descending {
				t.Fatalf("row %s %q is out of order: %x after %x", r.Key, r.ID, r.Sort, sort)
			}
		} else if r.Range < at {
			t.Fatalf("range %d after range %d", r.Range, at)
		}
		at, sort = r.Range, bytes.Clone(r.Sort)
		row := fmt.Sprintf("%s %s %s", r.Key, r.ID, r.Value)
		if len(req.Ranges) > 1 {
			row = fmt.Sprintf("%d: %s", r.Range, row)
		}
		rows = append(rows, row)
	})
	return head, rows
}

// Rows come in the order of keys, equal keys in the order of ids, and what one
// document emitted with one key as it was emitted.
func viewOrder(t *trial) {
	def := t.define("order", `function(doc) { doc.keys.forEach(function(k, i) { emit(k, i); }); }`, "")
	t.put("b", `{"keys":[{"a":1},[1,2],"b",2,true,null]}`, model.Rev{})
	t.put("a", `{"keys":[null,false,10,"a",[],["x"],{}]}`, model.Rev{})
	t.put("c", `{"keys":[2,2,"B",-1.5,1e3]}`, model.Rev{})
	want := []string{
		"null a 0", "null b 5", "false a 1", "true b 4", "-1.5 c 3", "2 b 3", "2 c 0", "2 c 1", "10 a 2", "1000 c 4",
		`"a" a 3`, `"b" b 2`, `"B" c 2`, "[] a 4", "[1,2] b 1", `["x"] a 5`, "{} a 6", `{"a":1} b 0`,
	}
	head, rows := t.view(shardapi.ViewRequest{Def: def, Ranges: everything, Limit: -1})
	same(t, "rows", rows, want)
	if *head != (shardapi.ViewHead{TotalRows: 18, Seq: 3}) {
		t.Errorf("head %+v", head)
	}
	_, rows = t.view(shardapi.ViewRequest{Def: def, Ranges: everything, Limit: -1, Descending: true})
	back := make([]string, len(want))
	for i, r := range want {
		back[len(want)-1-i] = r
	}
	same(t, "rows backwards", rows, back)
}

// A view shows what the documents are, not what they were.
func viewFollowsDocuments(t *trial) {
	def := t.define("follows", `function(doc) { for (var i = 0; i < doc.n; i++) emit(doc.k, i); }`, "")
	check := func(want ...string) {
		t.Helper()
		head, rows := t.view(shardapi.ViewRequest{Def: def, Ranges: everything, Limit: -1})
		same(t, "rows", rows, want)
		if head.TotalRows != int64(len(want)) || head.Seq != t.info().Seq {
			t.Fatalf("head %+v, %d rows", head, len(want))
		}
	}
	check()
	a := t.put("a", `{"n":2,"k":1}`, model.Rev{})
	b := t.put("b", `{"n":1,"k":0}`, model.Rev{})
	check("0 b 0", "1 a 0", "1 a 1")
	a = t.put("a", `{"n":1,"k":2}`, a)
	check("0 b 0", "2 a 0")
	t.remove("b", b)
	check("2 a 0")
	t.put("a", `{"n":0}`, a)
	check()
	// The winner of a conflict is what counts.
	t.merge("c", `{"n":1,"k":"lost"}`, false, "1-x")
	check(`"lost" c 0`)
	t.merge("c", `{"n":1,"k":"won"}`, false, "1-y")
	check(`"won" c 0`)
	t.merge("c", `{}`, true, "2-z", "1-y")
	check(`"lost" c 0`)
}

// Bounds, directions, limits and offsets, against a plain list.
func viewBounds(t *trial) {
	def := t.define("bounds", `function(doc) { emit(doc.k, null); }`, "")
	for i, k := range []string{"1", "2", "2", "2", "3", `"x"`} {
		t.put(fmt.Sprintf("d%d", i), `{"k":`+k+`}`, model.Rev{})
	}
	type bounds = shardapi.KeyRange
	at := func(s string) []byte { return []byte(s) }
	for _, c := range []struct {
		name    string
		bounds  bounds
		descend bool
		limit   int64
		want    string
		offset  int64
	}{
		{"all", bounds{}, false, -1, "d0 d1 d2 d3 d4 d5", 0},
		{"backwards", bounds{}, true, -1, "d5 d4 d3 d2 d1 d0", 0},
		{"from 2", bounds{Start: at("2")}, false, -1, "d1 d2 d3 d4 d5", 1},
		{"from 2 and an id", bounds{Start: at("2"), StartID: "d2", HasStartID: true}, false, -1, "d2 d3 d4 d5", 2},
		{"from 2 and an id between", bounds{Start: at("2"), StartID: "d2x", HasStartID: true}, false, -1, "d3 d4 d5", 3},
		{"from 2.5 and an id", bounds{Start: at("2.5"), StartID: "zz", HasStartID: true}, false, -1, "d4 d5", 4},
		{"up to 2", bounds{End: at("2")}, false, -1, "d0 d1 d2 d3", 0},
		{"up to before 2", bounds{End: at("2"), ExclusiveEnd: true}, false, -1, "d0", 0},
		{"up to 2 and an id", bounds{End: at("2"), EndID: "d2", HasEndID: true}, false, -1, "d0 d1 d2", 0},
		{"up to before 2 and an id", bounds{End: at("2"), EndID: "d2", HasEndID: true, ExclusiveEnd: true}, false, -1, "d0 d1", 0},
		{"one key", bounds{Start: at("2"), End: at("2")}, false, -1, "d1 d2 d3", 1},
		{"one key, exclusive", bounds{Start: at("2"), End: at("2"), ExclusiveEnd: true}, false, -1, "", 1},
		{"2 back to 1", bounds{Start: at("2"), End: at("1")}, true, -1, "d3 d2 d1 d0", 2},
		{"2 back to after 1", bounds{Start: at("2"), End: at("1"), ExclusiveEnd: true}, true, -1, "d3 d2 d1", 2},
		{"2 and an id back", bounds{Start: at("2"), StartID: "d2", HasStartID: true}, true, -1, "d2 d1 d0", 3},
		{"back to 2 and an id", bounds{End: at("2"), EndID: "d2", HasEndID: true}, true, -1, "d5 d4 d3 d2", 0},
		{"the wrong way round", bounds{Start: at("3"), End: at("1")}, false, -1, "", 4},
		{"backwards the wrong way round", bounds{Start: at("1"), End: at("3")}, true, -1, "", 5},
		{"beyond the end", bounds{Start: at("{}")}, false, -1, "", 6},
		{"a null bound", bounds{Start: at("null")}, false, -1, "d0 d1 d2 d3 d4 d5", 0},
		{"limit", bounds{Start: at("2")}, false, 2, "d1 d2", 1},
		{"limit backwards", bounds{}, true, 2, "d5 d4", 0},
		{"limit 0", bounds{}, false, 0, "", 0},
		{"limit of more than there is", bounds{}, false, 1 << 62, "d0 d1 d2 d3 d4 d5", 0},
	} {
		req := shardapi.ViewRequest{Def: def, Ranges: []bounds{c.bounds}, Descending: c.descend, Limit: c.limit, Offset: true}
		head, s, err := t.shard.View(t.ctx, &req)
		t.no(err)
		var ids []string
		drain(t, s, func(r shardapi.ViewRow) { ids = append(ids, strings.Clone(r.ID)) })
		if got := strings.Join(ids, " "); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
		if head.TotalRows != 6 || head.Offset != c.offset {
			t.Errorf("%s: total %d, offset %d, want 6 and %d", c.name, head.TotalRows, head.Offset, c.offset)
		}
	}
}

// Several ranges are answered in their order, whatever the direction.
func viewKeys(t *trial) {
	def := t.define("keys", `function(doc) { emit(doc.k, null); }`, "")
	for i, k := range []string{"1", "2", "2", "3"} {
		t.put(fmt.Sprintf("d%d", i), `{"k":`+k+`}`, model.Rev{})
	}
	var keys []shardapi.KeyRange
	for _, k := range []string{"3", "9", "2", "3"} {
		keys = append(keys, shardapi.KeyRange{Start: []byte(k), End: []byte(k)})
	}
	_, rows := t.view(shardapi.ViewRequest{Def: def, Ranges: keys, Limit: -1})
	same(t, "rows", rows, []string{"0: 3 d3 null", "2: 2 d1 null", "2: 2 d2 null", "3: 3 d3 null"})
	_, rows = t.view(shardapi.ViewRequest{Def: def, Ranges: keys, Limit: -1, Descending: true})
	same(t, "rows backwards", rows, []string{"0: 3 d3 null", "2: 2 d2 null", "2: 2 d1 null", "3: 3 d3 null"})
	_, rows = t.view(shardapi.ViewRequest{Def: def, Ranges: keys, Limit: 2})
	same(t, "two rows", rows, []string{"0: 3 d3 null", "2: 2 d1 null"})
}

// Options of a design document: its own documents, sequences.
func viewOptions(t *trial) {
	t.put("_design/d", `{"k":"design"}`, model.Rev{})
	t.put("a", `{"k":"b"}`, model.Rev{})
	t.put("b", `{"k":"B"}`, model.Rev{})
	def := t.define("plain", `function(doc) { emit(doc.k, doc._local_seq === undefined ? null : doc._local_seq); }`, "")
	_, rows := t.view(shardapi.ViewRequest{Def: def, Ranges: everything, Limit: -1})
	same(t, "rows", rows, []string{`"b" a null`, `"B" b null`})
	def = t.define("design", def.Map, "")
	def.IncludeDesign = true
	_, rows = t.view(shardapi.ViewRequest{Def: def, Ranges: everything, Limit: -1})
	same(t, "rows with design documents", rows, []string{`"b" a null`, `"B" b null`, `"design" _design/d null`})
	def = t.define("sequence", def.Map, "")
	def.LocalSeq = true
	_, rows = t.view(shardapi.ViewRequest{Def: def, Ranges: everything, Limit: -1})
	same(t, "rows with sequences", rows, []string{`"b" a 2`, `"B" b 3`})
}

// The plain order is that of bytes, not of languages.
func viewPlainOrder(t *trial) {
	t.put("a", `{"k":"b"}`, model.Rev{})
	t.put("b", `{"k":"B"}`, model.Rev{})
	def := t.define("raw", `function(doc) { emit(doc.k, null); }`, "")
	def.RawCollation = true
	_, rows := t.view(shardapi.ViewRequest{Def: def, Ranges: everything, Limit: -1})
	same(t, "rows", rows, []string{`"B" b null`, `"b" a null`})
}

// A query of a partitioned view sees its partition only.
func viewPartitions(t *trial) {
	for _, id := range []string{"p:1", "p:2", "pp:1", "q:1", "o:1"} {
		t.put(id, `{"k":"`+id+`"}`, model.Rev{})
	}
	def := t.define("partitions", `function(doc) { emit(doc.k, 1); }`, "_count")
	def.Partitioned = true
	for p, want := range map[string][]string{
		"p": {`"p:1" p:1 1`, `"p:2" p:2 1`}, "pp": {`"pp:1" pp:1 1`}, "q": {`"q:1" q:1 1`}, "none": nil, "p:1": nil,
	} {
		head, rows := t.view(shardapi.ViewRequest{Def: def, Partition: p, Ranges: everything, Limit: -1, Offset: true})
		same(t, "partition "+p, rows, want)
		if head.TotalRows != int64(len(want)) || head.Offset != 0 {
			t.Errorf("partition %s: head %+v", p, head)
		}
	}
	head, rows := t.view(shardapi.ViewRequest{Def: def, Partition: "p", Ranges: []shardapi.KeyRange{{Start: []byte(`"p:2"`)}}, Limit: -1, Offset: true})
	same(t, "a part of a partition", rows, []string{`"p:2" p:2 1`})
	if head.Offset != 1 {
		t.Errorf("head %+v", head)
	}
	same(t, "a reduced partition", t.groups(shardapi.ViewRequest{Def: def, Partition: "p", Ranges: everything, Limit: -1}), []string{"null 2"})
}

// update=false answers from what is there; update=true from all that is durable.
func viewFreshness(t *trial) {
	def := t.define("freshness", `function(doc) { emit(doc._id, null); }`, "")
	ask := func(how shardapi.Freshness) (uint64, []string) {
		t.Helper()
		head, rows := t.view(shardapi.ViewRequest{Def: def, Update: how, Ranges: everything, Limit: -1})
		return head.Seq, rows
	}
	t.put("a", `{}`, model.Rev{})
	if seq, rows := ask(shardapi.UpdateNever); seq != 0 || len(rows) != 0 {
		t.Fatalf("before any update: %q at %d", rows, seq)
	}
	if seq, rows := ask(shardapi.UpdateFirst); seq != 1 || len(rows) != 1 {
		t.Fatalf("after an update: %q at %d", rows, seq)
	}
	t.put("b", `{}`, model.Rev{})
	if seq, rows := ask(shardapi.UpdateNever); seq != 1 || len(rows) != 1 {
		t.Fatalf("without an update: %q at %d", rows, seq)
	}
	if seq, rows := ask(shardapi.UpdateFirst); seq != 2 || len(rows) != 2 {
		t.Fatalf("after an update: %q at %d", rows, seq)
	}
}

// update=lazy answers at once and updates afterwards.
func viewUpdatesLazily(t *trial) {
	def := t.define("lazy", `function(doc) { emit(doc._id, null); }`, "")
	t.put("a", `{}`, model.Rev{})
	ask := func(how shardapi.Freshness) uint64 {
		t.Helper()
		head, rows := t.view(shardapi.ViewRequest{Def: def, Update: how, Ranges: everything, Limit: -1})
		if int(head.Seq) != len(rows) {
			t.Fatalf("%q at %d", rows, head.Seq)
		}
		return head.Seq
	}
	if seq := ask(shardapi.UpdateAfter); seq != 0 {
		t.Fatalf("answered at %d", seq)
	}
	// Nobody tells when it is done; the copy's limit on time is the test's.
	for ask(shardapi.UpdateNever) != 1 {
		t.no(t.ctx.Err())
	}
}

// A document that the map function fails on has no rows; the others have theirs.
func viewScriptFails(t *trial) {
	def := t.define("fails", `function(doc) { emit(doc._id, 1); if (doc.bad) doc.none.none; emit(doc._id, 2); }`, "")
	t.put("a", `{}`, model.Rev{})
	t.put("b", `{"bad":true}`, model.Rev{})
	t.put("c", `{}`, model.Rev{})
	head, rows := t.view(shardapi.ViewRequest{Def: def, Ranges: everything, Limit: -1})
	same(t, "rows", rows, []string{`"a" a 1`, `"a" a 2`, `"c" c 1`, `"c" c 2`})
	if head.Seq != 3 {
		t.Errorf("head %+v", head)
	}
}

// A long view comes in several batches, none of it lost, and a batch may be used
// until the next is asked for.
func viewManyBatches(t *trial) {
	const n = 3000
	t.fillMany(n, 1000)
	def := t.define("batches", `function(doc) { emit(doc.i, doc.pad); }`, "")
	_, s, err := t.shard.View(t.ctx, &shardapi.ViewRequest{Def: def, Ranges: everything, Limit: -1})
	t.no(err)
	defer s.Close()
	i, batches := 0, 0
	for {
		batch, err := s.Next()
		if err == io.EOF {
			break
		}
		t.no(err)
		batches++
		for k := range batch { // checked as a whole: rows must not share memory
			row := &batch[k]
			if row.ID != fmt.Sprintf("d%05d", i) || string(row.Key) != fmt.Sprint(i) || string(row.Value) != fmt.Sprintf(`"%01000d"`, i) {
				t.Fatalf("row %d is %q %s with %.40s", i, row.ID, row.Key, row.Value)
			}
			i++
		}
	}
	if i != n || batches < 2 {
		t.Fatalf("%d rows in %d batches", i, batches)
	}
	head, rows := t.view(shardapi.ViewRequest{Def: def, Ranges: []shardapi.KeyRange{{Start: []byte("2000")}}, Limit: 900, Offset: true})
	if head.TotalRows != n || head.Offset != 2000 || len(rows) != 900 || !strings.HasPrefix(rows[899], "2899 d02899 ") {
		t.Fatalf("head %+v, %d rows", head, len(rows))
	}
}

// A stream may be closed at any time, more than once, and gives nothing after it;
// one whose context ends does not pretend to be at its end.
func viewClosedAndCancelled(t *trial) {
	t.fillMany(1000, 6000)
	def := t.define("closed", `function(doc) { emit(doc.i, doc.pad); }`, "")
	open := func(ctx context.Context) shardapi.Stream[shardapi.ViewRow] {
		_, s, err := t.shard.View(ctx, &shardapi.ViewRequest{Def: def, Ranges: everything, Limit: -1})
		t.no(err)
		return s
	}
	s := open(t.ctx)
	_, err := s.Next()
	t.no(err)
	t.no(s.Close())
	t.no(s.Close())
	if _, err := s.Next(); err == nil || err == io.EOF {
		t.Fatalf("after Close: %v", err)
	}
	t.no(open(t.ctx).Close()) // before the first batch

	ctx, cancel := context.WithCancel(t.ctx)
	s = open(ctx)
	cancel()
	for err = nil; err == nil; {
		_, err = s.Next()
	}
	t.is(err, context.Canceled)
	t.no(s.Close())
	if _, s, err := t.shard.View(ctx, &shardapi.ViewRequest{Def: def, Ranges: everything, Limit: -1}); err == nil {
		for err == nil {
			_, err = s.Next()
		}
		t.is(err, context.Canceled)
		t.no(s.Close())
	} else {
		t.is(err, context.Canceled)
	}
}

// What the indexes are at.
func viewInfo(t *trial) {
	a, b := t.define("a", `function(doc) { emit(doc.k, doc.pad); }`, ""), t.define("b", `function(doc) { emit(1, 1); }`, "_count")
	info := func(sigs ...string) *shardapi.ViewInfo {
		t.Helper()
		i, err := t.shard.ViewInfo(t.ctx, sigs)
		t.no(err)
		return i
	}
	t.put("x", `{"k":1,"pad":"`+strings.Repeat("x", 2000)+`"}`, model.Rev{})
	if i := info(a.Sig); i.Seq != 0 || i.CopySeq != 1 || i.SizeExternal != 0 {
		t.Errorf("before the first question: %+v", i)
	}
	t.view(shardapi.ViewRequest{Def: a, Ranges: everything, Limit: -1})
	one := info(a.Sig)
	if one.Seq != 1 || one.CopySeq != 1 || one.SizeExternal < 2000 || one.SizeActive <= 0 || one.SizeFile <= 0 || one.Updating || one.Waiting != 0 {
		t.Errorf("after it: %+v", one)
	}
	t.put("y", `{"k":2}`, model.Rev{})
	t.view(shardapi.ViewRequest{Def: b, Ranges: everything, Limit: -1})
	if i := info(a.Sig, b.Sig); i.Seq != 1 || i.CopySeq != 2 || i.SizeExternal < one.SizeExternal {
		t.Errorf("two views: %+v after %+v", i, one)
	}
	if i := info(b.Sig); i.Seq != 2 || i.CopySeq != 2 {
		t.Errorf("the other view: %+v", i)
	}
}

// A dropped copy has no views, and those that are being read fail; they do not end
// as if they were whole.
func viewDropped(t *trial) {
	t.fillMany(3000, 6000) // more than any window between two nodes can hold
	def := t.define("dropped", `function(doc) { emit(doc.i, doc.pad); }`, "")
	_, s, err := t.shard.View(t.ctx, &shardapi.ViewRequest{Def: def, Ranges: everything, Limit: -1})
	t.no(err)
	defer s.Close()
	_, err = s.Next()
	t.no(err)
	t.no(t.host.Drop(t.ctx, t.id))
	for err = nil; err == nil; {
		_, err = s.Next()
	}
	t.is(err, model.ErrCopyClosed)
	for _, how := range []shardapi.Freshness{shardapi.UpdateFirst, shardapi.UpdateNever, shardapi.UpdateAfter} {
		_, _, err = t.shard.View(t.ctx, &shardapi.ViewRequest{Def: def, Update: how, Ranges: everything, Limit: -1})
		t.is(err, model.ErrCopyClosed)
	}
	_, err = t.shard.ViewInfo(t.ctx, []string{def.Sig})
	t.is(err, model.ErrCopyClosed)
}

// A copy that nobody wrote to has empty views.
func viewOfNothing(t *trial) {
	def := t.define("nothing", `function(doc) { emit(1, 1); }`, "_sum")
	head, rows := t.view(shardapi.ViewRequest{Def: def, Ranges: everything, Limit: -1, Offset: true})
	if *head != (shardapi.ViewHead{}) || len(rows) != 0 {
		t.Fatalf("%+v %q", head, rows)
	}
	for _, level := range []int{shardapi.GroupNone, shardapi.GroupExact, 1} {
		same(t, "groups", t.groups(shardapi.ViewRequest{Def: def, GroupLevel: level, Ranges: everything, Limit: -1}), nil)
	}
	info, err := t.shard.ViewInfo(t.ctx, []string{def.Sig, "another"})
	t.no(err)
	if info.Seq != 0 || info.CopySeq != 0 {
		t.Fatalf("info %+v", info)
	}
}
