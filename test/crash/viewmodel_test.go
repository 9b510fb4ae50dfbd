package crash_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
)

// viewRow is a row as the ledger says that it must be. All keys are arrays of
// numbers and of text in plain letters, whose order needs no collation.
type viewRow struct {
	key   []any
	id    string
	value int
}

// modelView is a view twice: as the server gets it, and as it is evaluated here.
type modelView struct {
	name   string
	fn     string // the body of the map function
	reduce string
	rows   func(id string, now *state) []viewRow
	value  func(rows []viewRow) any // the reduction
}

var kinds = []string{"amber", "blue", "coral", "dun", "ecru"}

// modelViews emit several rows of one document or none, so that rows come and go
// with its updates.
var modelViews = []modelView{
	{
		name:   "kinds",
		fn:     `if (doc.n % 7 != 6) for (var i = 0; i <= doc.n % 3; i++) emit([["amber","blue","coral","dun","ecru"][doc.n % 5], i], doc.n);`,
		reduce: "_sum",
		rows: func(id string, now *state) (out []viewRow) {
			for i := 0; i <= now.n%3 && now.n%7 != 6; i++ {
				out = append(out, viewRow{[]any{kinds[now.n%5], i}, id, now.n})
			}
			return out
		},
		value: func(rows []viewRow) any { return sumOf(rows) },
	},
	{
		name:   "revs", // the very revision, so that no old one is taken for the present one
		fn:     `emit([doc._rev], Object.keys(doc._attachments || {}).length);`,
		reduce: "_count",
		rows:   func(id string, now *state) []viewRow { return []viewRow{{[]any{now.rev}, id, len(now.atts)}} },
		value:  func(rows []viewRow) any { return len(rows) },
	},
	{
		name:   "stats",
		fn:     `emit([doc.n % 11, doc._id], doc.n);`,
		reduce: "_stats",
		rows:   func(id string, now *state) []viewRow { return []viewRow{{[]any{now.n % 11, id}, id, now.n}} },
		value: func(rows []viewRow) any {
			least, most, squares := rows[0].value, rows[0].value, 0
			for _, r := range rows {
				least, most, squares = min(least, r.value), max(most, r.value), squares+r.value*r.value
			}
			return map[string]int{"sum": sumOf(rows), "count": len(rows), "min": least, "max": most, "sumsqr": squares}
		},
	},
	{
		name:   "script",
		fn:     `if (doc.n % 2) emit([doc.n % 4, doc.n % 13], doc.n);`,
		reduce: `function(keys, values, rereduce){ var n = 0, s = 0; values.forEach(function(v){ n += rereduce ? v[0] : 1; s += rereduce ? v[1] : v; }); return [n, s]; }`,
		rows: func(id string, now *state) []viewRow {
			if now.n%2 == 0 {
				return nil
			}
			return []viewRow{{[]any{now.n % 4, now.n % 13}, id, now.n}}
		},
		value: func(rows []viewRow) any { return []int{len(rows), sumOf(rows)} },
	},
}

func sumOf(rows []viewRow) int {
	sum := 0
	for _, r := range rows {
		sum += r.value
	}
	return sum
}

// designText is a design document of these views. It carries what every document
// of the ledger does. The mark is in the text of each map function and means
// nothing; another mark makes other indexes. With slow milliseconds for each document
// a build is committed in several parts.
func designText(id, mark string, n, slow int) string {
	var views []string
	for k, v := range modelViews {
		fn := fmt.Sprintf("function(doc){ /* %s */ %s }", mark, v.fn)
		if k == 0 && slow > 0 {
			fn = fmt.Sprintf("function(doc){ /* %s */ for (var until = Date.now() + %d; Date.now() < until; ); %s }", mark, slow, v.fn)
		}
		views = append(views, fmt.Sprintf("%s:%s", quoted(v.name), quoted(map[string]string{"map": fn, "reduce": v.reduce})))
	}
	return fmt.Sprintf(`"views":{%s},%s`, strings.Join(views, ","), body(id, n, ""))
}

func quoted(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // text and numbers
	}
	return string(data)
}

// evaluate gives the rows of a view from the ledger.
func (v *modelView) evaluate(db *database) []viewRow {
	var out []viewRow
	for _, d := range db.docs {
		if d.now != nil && !d.now.deleted && !d.local && !strings.HasPrefix(d.id, "_design/") {
			out = append(out, v.rows(d.id, d.now)...)
		}
	}
	slices.SortFunc(out, func(a, b viewRow) int {
		return cmp.Or(slices.CompareFunc(a.key, b.key, comparePart), cmp.Compare(a.id, b.id))
	})
	return out
}

// comparePart compares parts of keys; those in one place are of one type.
func comparePart(a, b any) int {
	if x, ok := a.(int); ok {
		return cmp.Compare(x, b.(int))
	}
	return cmp.Compare(a.(string), b.(string))
}

// grouped gives the groups of rows by the first level parts of their keys, as the
// lines that an answer must have.
func (v *modelView) grouped(rows []viewRow, level int) []string {
	out := []string{}
	for len(rows) > 0 {
		key := rows[0].key[:min(level, len(rows[0].key))]
		n := 1
		for n < len(rows) && slices.Equal(key, rows[n].key[:len(key)]) {
			n++
		}
		out = append(out, quoted(key)+" = "+quoted(v.value(rows[:n])))
		rows = rows[n:]
	}
	return out
}

// answered is what a view answered, as lines.
type answered struct {
	Total, Offset int
	lines         []string
}

// ask asks a view.
func (i *inspector) ask(db *database, design, view, query string) (answered, bool) {
	var a struct {
		Total  int `json:"total_rows"`
		Offset int `json:"offset"`
		Rows   []struct {
			ID         string
			Key, Value any
		}
	}
	path := db.path() + "/" + design + "/_view/" + view + "?" + query
	if !i.get(&a, 200, "GET", path, nil) {
		return answered{}, false
	}
	lines := []string{}
	for _, r := range a.Rows {
		line := quoted(r.Key) + " = " + quoted(r.Value)
		if r.ID != "" {
			line += " of " + r.ID
		}
		lines = append(lines, line)
	}
	return answered{a.Total, a.Offset, lines}, true
}

// view compares a view of a design document with the ledger, row by row and group
// by group, and with the same view of another design document. It gives the number
// of rows.
func (i *inspector) view(db *database, v *modelView, design, fresh string) int {
	rows := v.evaluate(db)
	lines := []string{}
	for _, r := range rows {
		lines = append(lines, quoted(r.key)+" = "+quoted(r.value)+" of "+r.id)
	}
	for query, want := range map[string]answered{
		"reduce=false&update=true":              {len(rows), 0, lines},
		"reduce=true&update=true&group=true":    {0, 0, v.grouped(rows, 9)},
		"reduce=true&update=true&group_level=1": {0, 0, v.grouped(rows, 1)},
	} {
		where := fmt.Sprintf("%s %s?%s", db.name, v.name, query)
		kept, ok := i.ask(db, design, v.name, query)
		built, both := i.ask(db, fresh, v.name, query)
		if !ok || !both {
			continue
		}
		i.same(where+": the fresh build and the ledger", built, want)
		i.same(where+": the kept index and the ledger", kept, want)
		i.same(where+": the kept index and the fresh build", kept, built)
	}
	return len(rows)
}

// same notes the first difference of two answers.
func (i *inspector) same(what string, got, want answered) {
	if got.Total != want.Total || got.Offset != want.Offset || len(got.lines) != len(want.lines) {
		i.wrong("%s: total_rows %d, offset %d, %d rows; want %d, %d, %d", what,
			got.Total, got.Offset, len(got.lines), want.Total, want.Offset, len(want.lines))
	}
	for k := range min(len(got.lines), len(want.lines)) {
		if got.lines[k] != want.lines[k] {
			i.wrong("%s: row %d is %s, want %s", what, k, got.lines[k], want.lines[k])
			return
		}
	}
}

// putDesign writes a design document of the ledger; the writers are idle, or it is
// nobody else's. false means that the server is gone.
func (c *writer) putDesign(db *database, id, mark string, slow int) (bool, error) {
	d := c.find(db, &doc{id: id})
	c.n++
	text := "{" + designText(id, mark, c.n, slow)
	if d.now != nil {
		text += `,"_rev":"` + d.now.rev + `"`
	}
	return c.one(db, d, &state{n: c.n}, "PUT", db.path()+"/"+id, text+"}")
}

// seed writes all documents of a writer once.
func (c *writer) seed(db *database) (bool, error) {
	for i := range c.docs {
		d := c.find(db, &doc{id: fmt.Sprintf("c%d-%d", c.id, i)})
		if d.now != nil {
			continue
		}
		if more, err := c.put(db, d); !more || err != nil {
			return more, err
		}
	}
	return true, nil
}

// look asks a view whatever a reader may ask while documents are written. What is
// under way shows or does not: only what an answer says of itself is judged.
func (c *writer) look(db *database, design string) (bool, error) {
	v := &modelViews[c.rng.IntN(len(modelViews))]
	query := url.Values{"reduce": {"false"}}
	if c.rng.IntN(4) == 0 {
		query.Set("update", []string{"true", "lazy", "false"}[c.rng.IntN(3)])
	}
	r, err := c.send("GET", db.path()+"/"+design+"/_view/"+v.name+"?"+query.Encode(), nil)
	if err != nil {
		return false, err
	}
	var a struct {
		Total *int `json:"total_rows"`
		Rows  []struct {
			ID  string
			Key []any
		}
	}
	if err := json.Unmarshal(r.Body, &a); err != nil || a.Total == nil || *a.Total != len(a.Rows) {
		return false, fmt.Errorf("%s of %s: %v: %d rows: %.300s", v.name, db.name, err, len(a.Rows), r.Body)
	}
	for k := 1; k < len(a.Rows); k++ {
		x, y := a.Rows[k-1], a.Rows[k]
		if cmp.Or(slices.CompareFunc(x.Key, y.Key, compareRead), cmp.Compare(x.ID, y.ID)) >= 0 {
			return false, fmt.Errorf("%s of %s: %v comes before %v", v.name, db.name, x, y)
		}
	}
	return true, nil
}

// compareRead is comparePart for parts that were read.
func compareRead(a, b any) int {
	if x, ok := a.(float64); ok {
		return cmp.Compare(x, b.(float64))
	}
	return cmp.Compare(a.(string), b.(string))
}
