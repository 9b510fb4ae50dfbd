package selector

import (
	"errors"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// normal gives the normal form of a JSON text.
func normal(t testing.TB, s string) []byte {
	t.Helper()
	v, err := rawjson.Normalize(nil, []byte(s), 200)
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return v
}

// parse reads a selector that must be right.
func parse(t testing.TB, s string) *Selector {
	t.Helper()
	sel, err := Parse(normal(t, s))
	if err != nil {
		t.Fatalf("%s: %v", s, err)
	}
	return sel
}

// sample is the document of the table test.
const sample = `{"name":"Ada","age":36,"big":123456789012345678901,"half":1.5,"ok":true,"no":false,"nil":null,
	"tags":["x","y",3],"empty":[],"nums":[1,5,9],"people":[{"n":"a","age":3},{"n":"b","age":30,"_id":"k"}],
	"addr":{"city":"Köln","geo":{"lat":50.9}},"a.b":"dotted","none":{},"keys":{"alpha":1,"beta":2},"nested":[[1,2],[3]],"é":"e\u0301"}`

// matchCases are selectors with what they say of the sample.
var matchCases = []struct {
	selector string
	want     bool
}{
	{`{}`, true},
	{`{"name":"Ada"}`, true},
	{`{"name":"ada"}`, false},
	{`{"name":"Ada","age":36}`, true},
	{`{"name":"Ada","age":37}`, false},
	{`{"age":36.0}`, true},
	{`{"nil":null}`, true},
	{`{"missing":null}`, false},
	{`{"tags":["x","y",3]}`, true},
	{`{"none":{}}`, true},
	{`{"addr":{}}`, false},
	{`{"é":"\u00e9"}`, true}, // canonically equivalent text is equal
	// Fields.
	{`{"addr":{"city":"Köln"}}`, true},
	{`{"addr.city":"Köln"}`, true},
	{`{"addr.geo.lat":{"$gt":50}}`, true},
	{`{"addr":{"geo":{"lat":{"$gt":50,"$lt":51}}}}`, true},
	{`{"addr":{"geo.lat":{"$lt":50}}}`, false},
	{`{"a\\.b":"dotted"}`, true},
	{`{"a.b":"dotted"}`, false},
	{`{"tags.0":"x"}`, true},
	{`{"tags.2":3}`, true},
	{`{"tags.3":{"$exists":false}}`, false}, // through an array out of range
	{`{"people.1.n":"b"}`, true},
	{`{"_id":"doc1"}`, true},
	{`{"_id":{"$gt":"doc0","$lt":"doc2"}}`, true},
	{`{"_id":{"$gt":"DOC1"}}`, true}, // bytes: upper case is lower
	{`{"_id":{"$gt":"dOC2"}}`, true}, // the collation would say less
	{`{"_id":{"$gt":{}}}`, true},     // by bytes a string is above everything
	{`{"_id":{"$in":["a","doc1"]}}`, true},
	{`{"_id":{"$nin":["a","doc1"]}}`, false},
	{`{"_id":{"$regex":"^doc"}}`, true},
	{`{"_id":{"$beginsWith":"do"}}`, true},
	{`{"_id":{"$type":"string"}}`, true},
	{`{"_id":{"$mod":[2,0]}}`, false},
	{`{"_id":{"$elemMatch":{"$gt":1}}}`, false},
	{`{"_id":{"$all":["doc1"]}}`, false},
	{`{"_id.x":{"$exists":false}}`, false},
	{`{"_rev":{"$beginsWith":"1-"}}`, true},
	{`{"_rev":{"$gt":null}}`, true},
	{`{"_rev":{"$lt":[]}}`, true},
	{`{"_deleted":true}`, true},
	{`{"_attachments":{"$exists":false}}`, true},
	// Comparison across types by the collation.
	{`{"age":{"$gt":null}}`, true},
	{`{"age":{"$gt":true}}`, true},
	{`{"age":{"$lt":"a"}}`, true},
	{`{"name":{"$gt":1000}}`, true},
	{`{"name":{"$lt":[]}}`, true},
	{`{"tags":{"$lt":{}}}`, true},
	{`{"age":{"$gte":36}}`, true},
	{`{"age":{"$lte":36}}`, true},
	{`{"age":{"$gt":36}}`, false},
	{`{"age":{"$lt":36}}`, false},
	{`{"big":{"$eq":123456789012345678901}}`, true},
	{`{"big":{"$gt":123456789012345678900}}`, true},
	{`{"big":{"$eq":123456789012345678900}}`, false},
	{`{"age":{"$eq":36}}`, true},
	{`{"addr":{"$eq":{"city":"Köln","geo":{"lat":50.9}}}}`, true},
	{`{"addr":{"$eq":{"geo":{"lat":50.9},"city":"Köln"}}}`, false}, // member order counts
	{`{"age":{"$ne":36}}`, false},
	{`{"age":{"$ne":"36"}}`, true},
	{`{"missing":{"$ne":1}}`, false}, // a field that is not there matches nothing
	{`{"missing":{"$gt":null}}`, false},
	{`{"missing":{"$nin":[1]}}`, false},
	// Lists.
	{`{"age":{"$in":[1,36]}}`, true},
	{`{"age":{"$in":[]}}`, false},
	{`{"age":{"$nin":[]}}`, true},
	{`{"age":{"$nin":[1,2]}}`, true},
	{`{"age":{"$nin":[1,36]}}`, false},
	{`{"tags":{"$in":["q","y"]}}`, true},
	{`{"tags":{"$in":[["x","y",3]]}}`, false},
	{`{"tags":{"$nin":["q"]}}`, true},
	{`{"empty":{"$nin":["q"]}}`, true},
	{`{"empty":{"$in":["q"]}}`, false},
	{`{"age":{"$in":["b",null,36,{},[],"a",12,13,14,15,16]}}`, true},
	{`{"tags":{"$all":["x"]}}`, true},
	{`{"tags":{"$all":["y","x"]}}`, true},
	{`{"tags":{"$all":["x","z"]}}`, false},
	{`{"tags":{"$all":[]}}`, false},
	{`{"tags":{"$all":[["x","y",3]]}}`, true},
	{`{"nested":{"$all":[[3]]}}`, true},
	{`{"name":{"$all":["Ada"]}}`, false},
	// Existence, type, number, size, text.
	{`{"nil":{"$exists":true}}`, true},
	{`{"nil":{"$exists":false}}`, false},
	{`{"missing":{"$exists":false}}`, true},
	{`{"missing":{"$exists":true}}`, false},
	{`{"missing.deep":{"$exists":false}}`, true},
	{`{"addr.zip":{"$exists":false}}`, true},
	{`{"name.x":{"$exists":false}}`, false}, // through a value without members
	{`{"nil":{"$type":"null"}}`, true},
	{`{"ok":{"$type":"boolean"}}`, true},
	{`{"half":{"$type":"number"}}`, true},
	{`{"name":{"$type":"string"}}`, true},
	{`{"tags":{"$type":"array"}}`, true},
	{`{"addr":{"$type":"object"}}`, true},
	{`{"addr":{"$type":"nonsense"}}`, false},
	{`{"age":{"$mod":[5,1]}}`, true},
	{`{"age":{"$mod":[5,2]}}`, false},
	{`{"half":{"$mod":[1,0]}}`, false},
	{`{"big":{"$mod":[10,1]}}`, true},
	{`{"age":{"$mod":[100000000000000000000,36]}}`, true},
	{`{"name":{"$mod":[5,1]}}`, false},
	{`{"tags":{"$size":3}}`, true},
	{`{"tags":{"$size":2}}`, false},
	{`{"empty":{"$size":0}}`, true},
	{`{"addr":{"$size":2}}`, false},
	{`{"name":{"$regex":"^A.a$"}}`, true},
	{`{"name":{"$regex":"(?i)aDA"}}`, true},
	{`{"name":{"$regex":"b"}}`, false},
	{`{"age":{"$regex":"3"}}`, false},
	{`{"name":{"$beginsWith":"Ad"}}`, true},
	{`{"name":{"$beginsWith":"ad"}}`, false},
	{`{"name":{"$beginsWith":""}}`, true},
	{`{"age":{"$beginsWith":"3"}}`, false},
	// Elements and names.
	{`{"nums":{"$elemMatch":{"$gt":4,"$lt":6}}}`, true},
	{`{"nums":{"$elemMatch":{"$gt":5,"$lt":9}}}`, false},
	{`{"people":{"$elemMatch":{"n":"b","age":{"$gt":20}}}}`, true},
	{`{"people":{"$elemMatch":{"n":"a","age":{"$gt":20}}}}`, false},
	{`{"people":{"$elemMatch":{"_id":{"$gt":"K"}}}}`, true},
	{`{"people":{"$elemMatch":{"$not":{"_id":"k"}}}}`, true}, // inside, $not is plain
	{`{"people":{"$elemMatch":{"$nor":[{"n":"a"},{"n":"b"}]}}}`, false},
	{`{"people":{"$elemMatch":{"$or":[{"n":"z"},{"n":"b"}]}}}`, true},
	{`{"people":{"$elemMatch":{"n":{"$exists":false}}}}`, false},
	{`{"people":{"$elemMatch":{"_id":{"$exists":false}}}}`, true},
	{`{"nested":{"$elemMatch":{"$elemMatch":{"$eq":3}}}}`, true},
	{`{"empty":{"$elemMatch":{"$exists":true}}}`, false},
	{`{"name":{"$elemMatch":{"$eq":"Ada"}}}`, false},
	{`{"nums":{"$allMatch":{"$gt":0}}}`, true},
	{`{"nums":{"$allMatch":{"$gt":1}}}`, false},
	{`{"empty":{"$allMatch":{"$gt":0}}}`, false},
	{`{"people":{"$allMatch":{"age":{"$gt":2}}}}`, true},
	{`{"keys":{"$keyMapMatch":{"$eq":"beta"}}}`, true},
	{`{"keys":{"$keyMapMatch":{"$eq":"gamma"}}}`, false},
	{`{"keys":{"$keyMapMatch":{"$regex":"^al"}}}`, true},
	{`{"keys":{"$keyMapMatch":{"$in":["x","alpha"]}}}`, true},
	{`{"keys":{"$keyMapMatch":{"$gt":5,"$lt":[]}}}`, true},
	{`{"none":{"$keyMapMatch":{"$exists":true}}}`, false},
	{`{"tags":{"$keyMapMatch":{"$exists":true}}}`, false},
	// Combination and negation.
	{`{"$and":[{"name":"Ada"},{"age":36}]}`, true},
	{`{"$and":[]}`, true},
	{`{"$or":[]}`, true},
	{`{"$nor":[]}`, true},
	{`{"$or":[{"name":"x"},{"age":36}]}`, true},
	{`{"$or":[{"name":"x"},{"age":3}]}`, false},
	{`{"$nor":[{"name":"x"},{"age":3}]}`, true},
	{`{"$nor":[{"name":"x"},{"age":36}]}`, false},
	{`{"$not":{"name":"x"}}`, true},
	{`{"$not":{"missing":1}}`, false}, // becomes $ne
	{`{"$not":{"missing":{"$exists":true}}}`, true},
	{`{"$not":{"$not":{"age":36}}}`, true},
	{`{"age":{"$not":{"$gt":40}}}`, true},
	{`{"age":{"$or":[{"$lt":10},{"$gt":30}]}}`, true},
	{`{"age":{"$not":{"$mod":[5,1]}}}`, false},
	{`{"missing":{"$not":{"$mod":[5,1]}}}`, false},
	{`{"$not":{"name":"Ada","age":1}}`, true},
	{`{"$not":{"tags":{"$elemMatch":{"$eq":"q"}}}}`, true},
	{`{"$and":[{"$type":"object"}]}`, true}, // the document as a value
	{`{"$and":[{}]}`, false},
	{`{"$or":[{"n1":1},{"n2":1},{"n3":1},{"n4":1},{"n5":1},{"n6":1},{"n7":1},{"n8":1},{"age":36},{"age":35}]}`, true},
}

// TestMatch holds every operator against the sample.
func TestMatch(t *testing.T) {
	t.Parallel()
	doc := Doc{ID: "doc1", Rev: "1-abc", Body: normal(t, sample), Extra: func(name string) ([]byte, bool) {
		return []byte("true"), name == "_deleted"
	}}
	for _, c := range matchCases {
		s := parse(t, c.selector)
		if got := s.Match(doc); got != c.want {
			t.Errorf("%s: %v, want %v (normal form %s)", c.selector, got, c.want, s.Normalized())
		}
		again, err := Parse(s.Normalized())
		if err != nil {
			// The name "" is a form of our own for "the value itself".
			if !strings.Contains(string(s.Normalized()), `{"":`) {
				t.Errorf("normal form %s: %v", s.Normalized(), err)
			}
			continue
		}
		if again.Match(doc) != c.want {
			t.Errorf("%s matches otherwise in its normal form %s", c.selector, s.Normalized())
		}
	}
	if parse(t, `{"_deleted":{"$exists":true}}`).Match(Doc{ID: "x", Body: []byte("{}")}) {
		t.Error("an underscore member without Extra is there")
	}
}

// TestNormalized checks the normal form.
func TestNormalized(t *testing.T) {
	t.Parallel()
	for _, c := range [][2]string{
		{`{}`, `{}`},
		{`{"type":"a","n":{"$gt":1}}`, `{"$and":[{"type":{"$eq":"a"}},{"n":{"$gt":1}}]}`},
		{`{"foo":{"bar":{"$gt":10}}}`, `{"foo.bar":{"$gt":10}}`},
		{`{"foo":{"$and":[{"$gt":5},{"$lt":10}]}}`, `{"$and":[{"foo":{"$gt":5}},{"foo":{"$lt":10}}]}`},
		{`{"$not":{"foo":{"$gt":10}}}`, `{"foo":{"$lte":10}}`},
		{`{"$not":{"$and":[{"foo":{"$gt":10}},{"foo":{"$lt":5}}]}}`, `{"$or":[{"foo":{"$lte":10}},{"foo":{"$gte":5}}]}`},
		{`{"$nor":[{"a":1},{"b":{"$in":[2]}}]}`, `{"$and":[{"a":{"$ne":1}},{"b":{"$nin":[2]}}]}`},
		{`{"a":{"$not":{"$regex":"x"}}}`, `{"a":{"$not":{"$regex":"x"}}}`},
		{`{"a":{"$elemMatch":{"$gte":80,"$lt":85}}}`, `{"a":{"$elemMatch":{"$and":[{"":{"$gte":80}},{"":{"$lt":85}}]}}}`},
		{`{"a":{}}`, `{"a":{"$eq":{}}}`},
	} {
		if got := string(parse(t, c[0]).Normalized()); got != c[1] {
			t.Errorf("%s: %s, want %s", c[0], got, c[1])
		}
	}
}

// TestRefused checks the errors, word for word.
func TestRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		selector, name, reason string
		kind                   model.Kind
	}{
		{`{"a":{"$foo":1}}`, "invalid_operator", "Invalid operator: $foo", model.KindBadRequest},
		{`{"$where":"x"}`, "not_supported", "Unsupported operator: $where", model.KindBadRequest},
		{`{"a":{"$near":1}}`, "not_supported", "Unsupported operator: $near", model.KindBadRequest},
		{`{"$text":"x"}`, "not_implemented", "The operator $text is not offered.", model.KindNotImplemented},
		{`{"$text":[]}`, "bad_arg", "Bad argument for operator $text: []", model.KindBadRequest},
		{`{"a":{"$in":5}}`, "bad_arg", "Bad argument for operator $in: 5", model.KindBadRequest},
		{`{"a":{"$nin":{}}}`, "bad_arg", "Bad argument for operator $nin: {}", model.KindBadRequest},
		{`{"a":{"$all":1}}`, "bad_arg", "Bad argument for operator $all: 1", model.KindBadRequest},
		{`{"$and":{}}`, "bad_arg", "Bad argument for operator $and: {}", model.KindBadRequest},
		{`{"$or":1}`, "bad_arg", "Bad argument for operator $or: 1", model.KindBadRequest},
		{`{"$nor":1}`, "bad_arg", "Bad argument for operator $nor: 1", model.KindBadRequest},
		{`{"$not":[]}`, "bad_arg", "Bad argument for operator $not: []", model.KindBadRequest},
		{`{"a":{"$elemMatch":1}}`, "bad_arg", "Bad argument for operator $elemMatch: 1", model.KindBadRequest},
		{`{"a":{"$allMatch":1}}`, "bad_arg", "Bad argument for operator $allMatch: 1", model.KindBadRequest},
		{`{"a":{"$keyMapMatch":1}}`, "bad_arg", "Bad argument for operator $keyMapMatch: 1", model.KindBadRequest},
		{`{"a":{"$exists":1}}`, "bad_arg", "Bad argument for operator $exists: 1", model.KindBadRequest},
		{`{"a":{"$type":1}}`, "bad_arg", "Bad argument for operator $type: 1", model.KindBadRequest},
		{`{"a":{"$mod":[0,1]}}`, "bad_arg", "Bad argument for operator $mod: [0,1]", model.KindBadRequest},
		{`{"a":{"$mod":[2.5,1]}}`, "bad_arg", "Bad argument for operator $mod: [2.5,1]", model.KindBadRequest},
		{`{"a":{"$mod":[2]}}`, "bad_arg", "Bad argument for operator $mod: [2]", model.KindBadRequest},
		{`{"a":{"$size":-1}}`, "bad_arg", "Bad argument for operator $size: -1", model.KindBadRequest},
		{`{"a":{"$size":1.0}}`, "bad_arg", "Bad argument for operator $size: 1.0", model.KindBadRequest},
		{`{"a":{"$regex":"("}}`, "bad_arg", `Bad argument for operator $regex: "("`, model.KindBadRequest},
		{`{"a":{"$regex":1}}`, "bad_arg", "Bad argument for operator $regex: 1", model.KindBadRequest},
		{`{"a":{"$beginsWith":1}}`, "bad_arg", "Bad argument for operator $beginsWith: 1", model.KindBadRequest},
		{`{"$gt":1}`, "invalid_selector", "One or more conditions is missing a field name.", model.KindBadRequest},
		{`{"":1}`, "invalid_selector", "One or more conditions is missing a field name.", model.KindBadRequest},
		{`{"a..b":1}`, "invalid_field_name", "Invalid field name: a..b", model.KindBadRequest},
		{`[]`, "invalid_selector_json", "Selector must be a JSON object, not: []", model.KindBadRequest},
	} {
		_, err := Parse(normal(t, c.selector))
		if want := (&model.Error{Kind: c.kind, Name: c.name, Reason: c.reason}); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", c.selector, err, want)
		}
	}
}

// TestLimits checks that what a client sizes is bounded.
func TestLimits(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]string{
		"depth":      strings.Repeat(`{"$not":`, MaxDepth+2) + `{"a":1}` + strings.Repeat(`}`, MaxDepth+2),
		"size":       `{"a":"` + strings.Repeat("x", MaxSize) + `"}`,
		"conditions": `{"$and":[` + strings.Repeat(`1,`, MaxConditions) + `1]}`,
		"pattern":    `{"a":{"$regex":"` + strings.Repeat("x", MaxPattern+1) + `"}}`,
		"names":      `{"` + strings.Repeat("x", MaxFieldText/1000) + `":{"$and":[` + strings.Repeat(`1,`, 1100) + `1]}}`,
	} {
		var e *model.Error
		if _, err := Parse(normal(t, s)); !errors.As(err, &e) {
			t.Errorf("%s: no *model.Error but %v", name, err)
		}
	}
}

// TestMatchAllocates nothing for the commonest selectors.
func TestMatchAllocatesNothing(t *testing.T) {
	doc := Doc{ID: "doc1", Rev: "1-abc", Body: normal(t, sample)}
	for _, s := range []string{`{"name":"Ada"}`, `{"age":{"$gt":1},"ok":true}`, `{"_id":{"$gt":"a"}}`, `{"addr.geo.lat":{"$gt":1},"nums":{"$elemMatch":{"$gt":4}}}`} {
		sel := parse(t, s)
		if n := testing.AllocsPerRun(100, func() { sel.Match(doc) }); n > 0 {
			t.Errorf("%s: %v allocations", s, n)
		}
	}
}

// BenchmarkMatch measures a selector of two fields.
func BenchmarkMatch(b *testing.B) {
	doc := Doc{ID: "doc1", Rev: "1-abc", Body: normal(b, sample)}
	sel := parse(b, `{"name":"Ada","nums":{"$size":3}}`)
	for b.Loop() {
		sel.Match(doc)
	}
}
