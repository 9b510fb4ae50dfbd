package selector

import (
	"bytes"
	"encoding/json"
	"math/big"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/rawjson"
)

// The model evaluates a decoded selector directly, without a normal form: it
// carries the field path and the polarity down and decides at the conditions.
// Objects in its values have at most one member, so that maps have an order.

// modelEval says whether sel holds of v at path. negated means the opposite is
// asked for; inside says that the Match operators were entered, where negation
// is plain.
func modelEval(sel, v any, path string, negated, inside bool) bool {
	m, ok := sel.(map[string]any)
	if !ok || len(m) == 0 {
		return modelField(path, "$eq", sel, v, negated)
	}
	// Several members are an $and; negated, an $or.
	for name, arg := range m {
		if modelMember(name, arg, v, path, negated, inside) == negated {
			return negated
		}
	}
	return !negated
}

// modelMember evaluates one member of a selector.
func modelMember(name string, arg, v any, path string, negated, inside bool) bool {
	if !strings.HasPrefix(name, "$") {
		if path != "" {
			name = path + "." + name
		}
		return modelEval(arg, v, name, negated, inside)
	}
	switch name {
	case "$not":
		if inside {
			return !modelEval(arg, v, path, false, true)
		}
		return modelEval(arg, v, path, !negated, false)
	case "$and", "$or", "$nor":
		return modelList(name, arg.([]any), v, path, negated, inside)
	}
	return modelField(path, name, arg, v, negated)
}

// modelList evaluates $and, $or and $nor. An empty list holds in every form,
// also negated: CouchDB's rewriting makes the one into the other.
func modelList(name string, list []any, v any, path string, negated, inside bool) bool {
	if name == "$nor" {
		if inside {
			return !slices.ContainsFunc(list, func(s any) bool { return modelEval(s, v, path, false, true) })
		}
		name, negated = "$or", !negated
	}
	if len(list) == 0 {
		return true
	}
	all := (name == "$and") != negated
	for _, s := range list {
		if modelEval(s, v, path, negated, inside) != all {
			return !all
		}
	}
	return all
}

// modelField finds the field and evaluates a condition on it.
func modelField(path, op string, arg, v any, negated bool) bool {
	if path != "" {
		for _, name := range strings.Split(path, ".") {
			switch x := v.(type) {
			case map[string]any:
				next, ok := x[name]
				if !ok {
					return op == "$exists" && arg.(bool) == negated
				}
				v = next
			case []any:
				i, err := strconv.Atoi(name)
				if err != nil || i < 0 || i >= len(x) {
					return false
				}
				v = x[i]
			default:
				return false
			}
		}
	}
	return modelCond(op, arg, v, path == "_id") != negated
}

// modelCond evaluates a condition on a value.
func modelCond(op string, arg, v any, raw bool) bool {
	order := func(a, b any) int { return modelCompare(a, b, raw) }
	list, isList := v.([]any)
	text, isText := v.(string)
	switch op {
	case "$eq":
		return order(v, arg) == 0
	case "$ne":
		return order(v, arg) != 0
	case "$gt":
		return order(v, arg) > 0
	case "$gte":
		return order(v, arg) >= 0
	case "$lt":
		return order(v, arg) < 0
	case "$lte":
		return order(v, arg) <= 0
	case "$in", "$nin":
		in := slices.ContainsFunc(arg.([]any), func(a any) bool {
			if isList {
				return slices.ContainsFunc(list, func(e any) bool { return order(e, a) == 0 })
			}
			return order(v, a) == 0
		})
		return in == (op == "$in")
	case "$exists":
		return arg.(bool)
	case "$type":
		return arg == modelTypes[modelRank(v)]
	case "$size":
		return isList && arg == json.Number(strconv.Itoa(len(list)))
	case "$mod":
		n, ok := v.(json.Number)
		if !ok || strings.ContainsAny(n.String(), ".eE") {
			return false
		}
		x, _ := new(big.Int).SetString(n.String(), 10)
		d, _ := new(big.Int).SetString(string(arg.([]any)[0].(json.Number)), 10)
		r, _ := new(big.Int).SetString(string(arg.([]any)[1].(json.Number)), 10)
		return x.Rem(x, d).Cmp(r) == 0
	case "$regex":
		return isText && regexp.MustCompile(arg.(string)).MatchString(text)
	case "$beginsWith":
		return isText && strings.HasPrefix(text, arg.(string))
	case "$all":
		same := func(a, b any) bool { return modelCompare(a, b, true) == 0 }
		args := arg.([]any)
		if !isList || len(args) == 0 {
			return false
		}
		if one, ok := args[0].([]any); ok && len(args) == 1 && same(one, v) {
			return true
		}
		return !slices.ContainsFunc(args, func(a any) bool {
			return !slices.ContainsFunc(list, func(e any) bool { return same(a, e) })
		})
	case "$elemMatch":
		return slices.ContainsFunc(list, func(e any) bool { return modelEval(arg, e, "", false, true) })
	case "$allMatch":
		return len(list) > 0 && !slices.ContainsFunc(list, func(e any) bool { return !modelEval(arg, e, "", false, true) })
	case "$keyMapMatch":
		m, _ := v.(map[string]any)
		for k := range m {
			if modelEval(arg, k, "", false, true) {
				return true
			}
		}
		return false
	}
	panic("the model does not know " + op)
}

// modelTypes are the names of the ranks.
var modelTypes = []string{"null", "boolean", "boolean", "number", "string", "array", "object"}

// modelRank is the collation's order of types.
func modelRank(v any) int {
	switch v := v.(type) {
	case nil:
		return 0
	case bool:
		if v {
			return 2
		}
		return 1
	case json.Number:
		return 3
	case string:
		return 4
	case []any:
		return 5
	}
	return 6
}

// modelCompare orders decoded values.
func modelCompare(a, b any, raw bool) int {
	ra, rb := modelRank(a), modelRank(b)
	if raw { // numbers, false, null, true, objects, arrays, strings
		order := []int{2, 1, 3, 0, 6, 5, 4}
		ra, rb = order[ra], order[rb]
	}
	if ra != rb {
		return ra - rb
	}
	switch a := a.(type) {
	case json.Number:
		x, _ := new(big.Rat).SetString(a.String())
		y, _ := new(big.Rat).SetString(b.(json.Number).String())
		return x.Cmp(y)
	case string:
		if raw {
			return strings.Compare(a, b.(string))
		}
		return collate.CompareStrings(a, b.(string))
	case []any:
		return slices.CompareFunc(a, b.([]any), func(x, y any) int { return modelCompare(x, y, raw) })
	case map[string]any:
		for k, v := range a {
			for l, w := range b.(map[string]any) {
				if c := modelCompare(k, l, raw); c != 0 {
					return c
				}
				return modelCompare(v, w, raw)
			}
		}
		return len(a) - len(b.(map[string]any))
	}
	return 0
}

// generator makes random selectors and documents of a small vocabulary, so that
// many of them meet.
type generator struct{ *rand.Rand }

func (g generator) pick(list ...string) string { return list[g.IntN(len(list))] }

// value makes a JSON value.
func (g generator) value(depth int) string {
	n := 8
	if depth <= 0 {
		n = 6
	}
	switch g.IntN(n) {
	case 0:
		return g.pick("null", "true", "false")
	case 1, 2:
		return g.pick("0", "1", "2", "3", "-1", "1.5", "2.0", "9007199254740993", "100000000000000000000")
	case 3, 4, 5:
		return g.pick(`"a"`, `"A"`, `"b"`, `"ab"`, `""`, `"é"`, `"1"`)
	case 6:
		parts := make([]string, g.IntN(4))
		for i := range parts {
			parts[i] = g.value(depth - 1)
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	if g.IntN(4) == 0 {
		return "{}"
	}
	return "{" + g.pick(`"a"`, `"b"`, `"_id"`) + ":" + g.value(depth-1) + "}"
}

// list makes an array of what f makes.
func (g generator) list(f func() string) string {
	parts := make([]string, g.IntN(4))
	for i := range parts {
		parts[i] = f()
	}
	return "[" + strings.Join(parts, ",") + "]"
}

// selector makes an object of fields and operators.
func (g generator) selector(depth int) string {
	n := 1
	if g.IntN(3) == 0 {
		n = 2
	}
	members := map[string]string{}
	for range n {
		if depth > 0 && g.IntN(3) == 0 {
			switch op := g.pick("$and", "$or", "$nor", "$not"); op {
			case "$not":
				members[op] = g.selector(depth - 1)
			default:
				members[op] = g.list(func() string { return g.selector(depth - 1) })
			}
			continue
		}
		members[g.pick("a", "b", "c", "a.b", "b.a", "a.0", "_id", "zz")] = g.condition(depth - 1)
	}
	return object(members)
}

// condition makes what stands behind a field.
func (g generator) condition(depth int) string {
	if g.IntN(5) == 0 {
		return g.value(1)
	}
	members := map[string]string{}
	for range 1 + g.IntN(2) {
		op := g.pick("$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$type", "$mod", "$size", "$regex", "$all",
			"$elemMatch", "$allMatch", "$keyMapMatch", "$beginsWith", "$not", "$or", "a")
		members[op] = g.argument(op, depth)
	}
	return object(members)
}

// argument makes an argument that fits the operator.
func (g generator) argument(op string, depth int) string {
	switch op {
	case "$in", "$nin", "$all":
		return g.list(func() string { return g.value(2) })
	case "$exists":
		return g.pick("true", "false")
	case "$type":
		return g.pick(`"null"`, `"boolean"`, `"number"`, `"string"`, `"array"`, `"object"`, `"x"`)
	case "$mod":
		return g.pick("[2,0]", "[2,1]", "[3,-1]", "[100000000000000000000,0]")
	case "$size":
		return g.pick("0", "1", "2")
	case "$regex":
		return g.pick(`"^a"`, `"b$"`, `"."`, `"^$"`)
	case "$beginsWith":
		return g.pick(`"a"`, `""`, `"A"`)
	case "$elemMatch", "$allMatch", "$keyMapMatch", "$not":
		if depth <= 0 {
			return `{"$gt":1}`
		}
		if g.IntN(2) == 0 {
			return g.selector(depth - 1)
		}
		return `{` + g.pick(`"$gt"`, `"$lte"`, `"$eq"`) + `:` + g.value(1) + `}`
	case "$or":
		return g.list(func() string { return `{"$eq":` + g.value(1) + `}` })
	}
	return g.value(2)
}

// object writes members in a fixed order.
func object(members map[string]string) string {
	var parts []string
	for k, v := range members {
		parts = append(parts, strconv.Quote(k)+":"+v)
	}
	slices.Sort(parts)
	return "{" + strings.Join(parts, ",") + "}"
}

// decode gives what encoding/json makes of a text.
func decode(t testing.TB, s []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(s))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return v
}

// TestModel compares random selectors on random documents with the model.
func TestModel(t *testing.T) {
	t.Parallel()
	g := generator{rand.New(rand.NewPCG(3, 5))}
	type doc struct {
		Doc
		decoded any
	}
	var docs []doc
	for range 60 {
		members := map[string]string{}
		for range g.IntN(5) {
			members[g.pick("a", "b", "c", "d")] = g.value(3)
		}
		d := doc{Doc: Doc{ID: g.pick("a", "A", "b", "ab"), Rev: "1-x", Body: normal(t, object(members))}}
		m := decode(t, d.Body).(map[string]any)
		m["_id"] = d.ID
		d.decoded = m
		docs = append(docs, d)
	}
	pairs, matched := 0, 0
	for range 8000 {
		text := g.selector(3)
		sel, err := Parse(normal(t, text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		tree := decode(t, []byte(text))
		for _, d := range docs {
			want := modelEval(tree, d.decoded, "", false, false)
			if got := sel.Match(d.Doc); got != want {
				t.Fatalf("%s on %s %s: %v, the model says %v (normal form %s)", text, d.ID, d.Body, got, want, sel.Normalized())
			}
			pairs++
			if want {
				matched++
			}
		}
	}
	if matched < pairs/20 || matched > pairs*19/20 {
		t.Errorf("%d of %d match: the test says little", matched, pairs)
	}
}

// FuzzParse feeds arbitrary selectors: no panic, and the normal form is stable.
func FuzzParse(f *testing.F) {
	for _, c := range matchCases {
		f.Add([]byte(c.selector))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		v, err := rawjson.Normalize(nil, raw, 100)
		if err != nil {
			return
		}
		s, err := Parse(v)
		if err != nil {
			return
		}
		norm := s.Normalized()
		if !json.Valid(norm) {
			t.Fatalf("%s is not JSON", norm)
		}
		again, err := Parse(norm)
		if err == nil && !bytes.Equal(again.Normalized(), norm) {
			t.Fatalf("normal form %s becomes %s", norm, again.Normalized())
		}
	})
}

// FuzzMatch feeds arbitrary selectors and documents: no panic.
func FuzzMatch(f *testing.F) {
	for _, c := range matchCases {
		f.Add([]byte(c.selector), []byte(sample))
	}
	f.Fuzz(func(t *testing.T, rawSel, rawDoc []byte) {
		v, err := rawjson.Normalize(nil, rawSel, 100)
		if err != nil {
			return
		}
		body, err := rawjson.Normalize(nil, rawDoc, 100)
		if err != nil || rawjson.KindOf(body) != rawjson.KindObject {
			return
		}
		s, err := Parse(v)
		if err != nil {
			return
		}
		s.Match(Doc{ID: "doc1", Rev: "1-a", Body: body})
	})
}
