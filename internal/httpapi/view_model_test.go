package httpapi_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/testserver"
)

// modelRow is a row that the map function of the model test emits.
type modelRow struct {
	id    string
	nth   int // emit of its document
	key   string
	value int
}

// compareRows is the order of rows in a view.
func compareRows(a, b modelRow) int {
	if c := collate.Compare([]byte(a.key), []byte(b.key)); c != 0 {
		return c
	}
	if c := strings.Compare(a.id, b.id); c != 0 {
		return c
	}
	return a.nth - b.nth
}

// modelQuery is a question, in a form that both sides can read.
type modelQuery struct {
	view                   string // rows, sum, count, js, stats
	start, end, key        string // JSON; empty: open
	keys                   []string
	startID, endID         string
	exclusive, descending  bool
	limit, skip            int // limit <0: none
	reduce                 bool
	level                  int // with reduce; -1: exact
	setID1, setID2, isKeys bool
}

// params writes the question down as members of an object.
func (q *modelQuery) params() map[string]string {
	p := map[string]string{}
	put := func(say bool, name, value string) {
		if say {
			p[name] = value
		}
	}
	put(q.start != "", "startkey", q.start)
	put(q.end != "", "endkey", q.end)
	put(q.key != "", "key", q.key)
	put(q.isKeys, "keys", "["+strings.Join(q.keys, ",")+"]")
	put(q.setID1, "startkey_docid", `"`+q.startID+`"`)
	put(q.setID2, "endkey_docid", `"`+q.endID+`"`)
	put(q.exclusive, "inclusive_end", "false")
	put(q.descending, "descending", "true")
	put(q.limit >= 0, "limit", fmt.Sprint(q.limit))
	put(q.skip > 0, "skip", fmt.Sprint(q.skip))
	put(q.view != "rows" && !q.reduce, "reduce", "false")
	put(q.reduce && q.level < 0, "group", "true")
	put(q.reduce && q.level > 0, "group_level", fmt.Sprint(q.level))
	return p
}

// after and before tell whether a row lies in the run from start to end, in the
// direction of travel.
func (q *modelQuery) after(r modelRow, start string) bool {
	if start == "" {
		return true
	}
	c := collate.Compare([]byte(r.key), []byte(start))
	if c == 0 && q.setID1 {
		c = strings.Compare(r.id, q.startID)
	}
	return q.forward(c) >= 0
}

func (q *modelQuery) before(r modelRow, end string) bool {
	if end == "" {
		return true
	}
	c := collate.Compare([]byte(r.key), []byte(end))
	if c == 0 && q.setID2 {
		c = strings.Compare(r.id, q.endID)
	}
	if q.exclusive {
		return q.forward(c) < 0
	}
	return q.forward(c) <= 0
}

func (q *modelQuery) forward(c int) int {
	if q.descending {
		return -c
	}
	return c
}

// groupKey cuts a key to a level.
func groupKey(key string, level int) string {
	switch {
	case level == 0:
		return "null"
	case level < 0 || rawjson.KindOf([]byte(key)) != rawjson.KindArray:
		return key
	}
	var parts []string
	for e := range rawjson.Elements([]byte(key)) {
		if len(parts) < level {
			parts = append(parts, string(e))
		}
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// reduceRows is what the reductions of the model test come to.
func reduceRows(view string, rows []modelRow) string {
	sum, sumsqr, low, high := 0, 0, rows[0].value, rows[0].value
	for _, r := range rows {
		sum += r.value
		sumsqr += r.value * r.value
		low, high = min(low, r.value), max(high, r.value)
	}
	switch view {
	case "count":
		return fmt.Sprint(len(rows))
	case "stats":
		return fmt.Sprintf(`{"sum":%d,"count":%d,"min":%d,"max":%d,"sumsqr":%d}`, sum, len(rows), low, high, sumsqr)
	}
	return fmt.Sprint(sum)
}

// evaluate answers a question from all rows in order, the slow and simple way.
func (q *modelQuery) evaluate(all []modelRow) (total, offset int, out []modelRow, values []string) {
	rows := slices.Clone(all)
	if q.descending {
		slices.Reverse(rows)
	}
	type run struct{ start, end string }
	runs := []run{{q.start, q.end}}
	if q.key != "" {
		runs = []run{{q.key, q.key}}
	}
	if q.isKeys {
		runs = nil
		for _, k := range q.keys {
			runs = append(runs, run{k, k})
		}
	}
	var groups [][]modelRow
	for _, r := range runs {
		var last string
		for i, row := range rows {
			if !q.after(row, r.start) || !q.before(row, r.end) {
				continue
			}
			g := groupKey(row.key, q.level)
			if !q.reduce || len(groups) == 0 || last == "" || collate.Compare([]byte(g), []byte(last)) != 0 {
				groups = append(groups, nil)
			}
			last = g
			groups[len(groups)-1] = append(groups[len(groups)-1], rows[i])
		}
	}
	if len(runs) == 1 {
		for _, row := range rows {
			if !q.after(row, runs[0].start) {
				offset++
			}
		}
	}
	groups = groups[min(q.skip, len(groups)):]
	if q.limit >= 0 {
		groups = groups[:min(q.limit, len(groups))]
	}
	for _, g := range groups {
		row := g[0]
		value := fmt.Sprint(row.value)
		if q.reduce {
			value = reduceRows(q.view, g)
			row.key = groupKey(row.key, q.level)
		}
		out = append(out, row)
		values = append(values, value)
	}
	return len(all), min(offset+q.skip, len(all)), out, values
}

// modelKeys are keys of every type, some of them equal, some near each other.
var modelKeys = []string{`null`, `false`, `true`, `-1.5`, `0`, `1`, `2`, `10`, `1000000`, `""`, `"a"`, `"A"`, `"b"`, `"ba"`, `"é"`, "\"e\u0301\"", `"z"`, `"日本"`, `"😀"`,
	`[]`, `["a"]`, `["a",1]`, `["a",1,"x"]`, `["a",2]`, `["A",1]`, `["b",1]`, `["b",1,null]`, `[1]`, `[1,2]`, `[1,2,3]`, `[1,[2]]`, `[null]`, `{}`, `{"a":1}`, `{"a":2}`, `{"b":1}`, `{"b":1,"a":1}`}

// viewModel is a database and what is in it.
type viewModel struct {
	t    *testing.T
	s    *testserver.Server
	rnd  *rand.Rand
	db   string
	revs map[string]string
	rows map[string][]modelRow
	ids  []string
}

func (m *viewModel) key() string { return modelKeys[m.rnd.IntN(len(modelKeys))] }
func (m *viewModel) id() string  { return m.ids[m.rnd.IntN(len(m.ids))] }

// edit writes, overwrites and deletes some documents.
func (m *viewModel) edit(count int) {
	m.t.Helper()
	chosen := map[string]bool{}
	var docs, ids []string
	for range count {
		id := fmt.Sprintf("%c%d", "xyzXY"[m.rnd.IntN(5)], m.rnd.IntN(60))
		if chosen[id] {
			continue
		}
		chosen[id] = true
		ids = append(ids, id)
		doc := `{"_id":"` + id + `"`
		if rev := m.revs[id]; rev != "" {
			doc += `,"_rev":"` + rev + `"`
			if m.rnd.IntN(4) == 0 {
				docs = append(docs, doc+`,"_deleted":true}`)
				delete(m.rows, id)
				continue
			}
		}
		var emits []string
		m.rows[id] = nil
		for nth := range m.rnd.IntN(5) {
			r := modelRow{id: id, nth: nth, key: m.key(), value: m.rnd.IntN(200) - 100}
			m.rows[id] = append(m.rows[id], r)
			emits = append(emits, fmt.Sprintf(`[%s,%d]`, r.key, r.value))
		}
		docs = append(docs, doc+`,"emits":[`+strings.Join(emits, ",")+`]}`)
	}
	r := m.s.Do(m.t, "POST", m.db+"/_bulk_docs", `{"docs":[`+strings.Join(docs, ",")+`]}`).Want(201)
	for i, e := range r.JSON().([]any) {
		rev, ok := e.(map[string]any)["rev"].(string)
		if !ok {
			m.t.Fatalf("%s", r.Body)
		}
		m.revs[ids[i]] = rev
		if _, alive := m.rows[ids[i]]; !alive {
			delete(m.revs, ids[i])
		}
	}
	m.ids = append(m.ids, ids...)
}

// sorted gives all rows in the order of the view.
func (m *viewModel) sorted() []modelRow {
	var all []modelRow
	for _, rows := range m.rows {
		all = append(all, rows...)
	}
	slices.SortFunc(all, compareRows)
	return all
}

// question makes one up.
func (m *viewModel) question() *modelQuery {
	coin := func(n int) bool { return m.rnd.IntN(n) == 0 }
	q := &modelQuery{view: []string{"rows", "sum", "count", "js", "stats"}[m.rnd.IntN(5)], limit: -1}
	q.reduce = q.view != "rows" && !coin(4)
	if q.reduce {
		q.level = m.rnd.IntN(5) - 1
	}
	q.descending, q.exclusive = coin(3), coin(4)
	switch m.rnd.IntN(6) {
	case 0:
		q.key = m.key()
	case 1:
		if !q.reduce || q.level < 0 {
			q.isKeys = true
			for range 2 + m.rnd.IntN(6) {
				q.keys = append(q.keys, m.key())
			}
		}
	case 2:
		q.start = m.key()
	case 3:
		q.end = m.key()
	case 4:
		q.start, q.end = m.key(), m.key()
		if !coin(5) && q.forward(collate.Compare([]byte(q.start), []byte(q.end))) > 0 {
			q.start, q.end = q.end, q.start
		}
	}
	if coin(4) {
		q.setID1, q.startID = true, m.id()
	}
	if coin(4) {
		q.setID2, q.endID = true, m.id()
	}
	if coin(2) {
		q.limit = m.rnd.IntN(20)
	}
	if coin(3) {
		q.skip = m.rnd.IntN(12)
	}
	return q
}

// ask puts a question in one of the ways there are.
func (m *viewModel) ask(q *modelQuery) *viewAnswer {
	m.t.Helper()
	path := m.db + "/_design/m/_view/" + q.view
	var members, texts []string
	for name, v := range q.params() {
		members = append(members, `"`+name+`":`+v)
		if text, ok := rawjson.String([]byte(v)); ok && strings.HasSuffix(name, "_docid") {
			v = text
		}
		texts = append(texts, name+"="+v)
	}
	object := "{" + strings.Join(members, ",") + "}"
	switch m.rnd.IntN(3) {
	case 0:
		return queryView(m.t, m.s, "GET", path+"?"+escaped(strings.Join(texts, "&")), nil)
	case 1:
		return queryView(m.t, m.s, "POST", path, object)
	}
	r := m.s.Do(m.t, "POST", path+"/queries", `{"queries":[`+object+`]}`).Want(200)
	var several struct{ Results []viewAnswer }
	if err := json.Unmarshal(r.Body, &several); err != nil || len(several.Results) != 1 {
		m.t.Fatalf("%s: %v: %s", object, err, r.Body)
	}
	return &several.Results[0]
}

// check compares an answer with the model.
func (m *viewModel) check(q *modelQuery, all []modelRow) {
	m.t.Helper()
	total, offset, rows, values := q.evaluate(all)
	got := m.ask(q)
	var want []string
	same := len(got.Rows) == len(rows)
	for i, r := range rows {
		want = append(want, r.id+":"+r.key+"="+values[i])
		if !same {
			continue
		}
		g := got.Rows[i]
		if string(g.Value) != values[i] {
			same = false
		}
		if q.reduce {
			// A group of keys that are equal and spelled differently may show either.
			same = same && collate.Compare([]byte(r.key), g.Key) == 0
		} else {
			same = same && string(g.Key) == r.key && g.ID == r.id
		}
	}
	if !q.reduce {
		same = same && number(got.TotalRows) == fmt.Sprint(total) && number(got.Offset) == fmt.Sprint(offset)
	}
	if !same {
		m.t.Fatalf("%s %v:\ngot  %s\nwant %d %d %s", q.view, q.params(), got.show(), total, offset, strings.Join(want, " "))
	}
}

// Random questions to views of random documents, against an evaluation that reads
// every row.
func TestViewModel(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	for _, q := range []int{1, 2, 4} {
		t.Run(fmt.Sprintf("q=%d", q), func(t *testing.T) {
			t.Parallel()
			m := &viewModel{t: t, s: s, rnd: rand.New(rand.NewPCG(11, uint64(q))), db: "/" + s.DB(t, fmt.Sprintf("q=%d", q)),
				revs: map[string]string{}, rows: map[string][]modelRow{}}
			emits := `"map":"function(doc){ (doc.emits || []).forEach(function(e){ emit(e[0], e[1]); }); }"`
			s.Do(t, "PUT", m.db+"/_design/m", `{"views":{"rows":{`+emits+`},"sum":{`+emits+`,"reduce":"_sum"},"count":{`+emits+`,"reduce":"_count"},"stats":{`+emits+`,"reduce":"_stats"},
				"js":{`+emits+`,"reduce":"function(keys, values, rereduce){ return sum(values); }"}}}`).Want(201)
			for round := range 5 {
				m.edit([]int{80, 1, 30, 5, 60}[round])
				all := m.sorted()
				for range 40 {
					m.check(m.question(), all)
				}
			}
		})
	}
}
