package rawjson

import (
	"bytes"
	"encoding/json"
	"io"
	"math/big"
	"reflect"
	"strings"
	"testing"
)

// seeds start all fuzz targets.
var seeds = []string{
	`null`, `true`, `-12.50e+3`, `"a\u00e9\ud83d\ude00\n"`, `[]`, `{}`, `[1,[2,{"a":[]}],"]"]`,
	`{"a":1,"b":{"c":"}\"{"},"\u0061":[true,false,null]}`,
	` { "long name of a member" : "a string of more than sixteen bytes \\" , "x" : [ 1 , 2 ] } `,
	`{"a":1,"a":{"a":1,"a":2},"b":"a"}`, `"\ud800"`, "\"\xff\"", `[1.0,1,1e0,10e-1,100000000000000000000000]`,
	`{"_id":"doc","_rev":"1-abc","_attachments":{"f":{"stub":true}}}`,
	`[` + strings.Repeat(`{"k":[`, 20) + strings.Repeat(`]}`, 20) + `]`,
}

// decode reads text with encoding/json, numbers kept as spelled.
func decode(t *testing.T, text []byte) any {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}

// deepEqual compares what decode returned, number spelling included.
func deepEqual(a, b any) bool { return reflect.DeepEqual(a, b) }

// sameValue is the model of Equal on what decode returned. Numbers whose exponent
// would make them too large to expand are reported as undecided.
func sameValue(a, b any) (same, decided bool) {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false, true
		}
		same, decided = true, true
		for k, v := range x {
			w, ok := y[k]
			if !ok {
				return false, true
			}
			s, d := sameValue(v, w)
			same, decided = same && s, decided && d
		}
		return same, decided
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false, true
		}
		same, decided = true, true
		for i := range x {
			s, d := sameValue(x[i], y[i])
			same, decided = same && s, decided && d
		}
		return same, decided
	case json.Number:
		y, ok := b.(json.Number)
		if !ok {
			return false, true
		}
		p, okP := rational(string(x))
		q, okQ := rational(string(y))
		if !okP || !okQ {
			return false, false
		}
		return p.Cmp(q) == 0, true
	}
	return reflect.DeepEqual(a, b), true
}

// rational gives the exact value of a number unless its exponent is large.
func rational(s string) (*big.Rat, bool) {
	if e := strings.IndexAny(s, "eE"); e >= 0 && len(s)-e > 5 {
		return nil, false
	}
	return new(big.Rat).SetString(s)
}

// hasDuplicates reads text token by token and looks for repeated member names.
func hasDuplicates(t *testing.T, text []byte) bool {
	t.Helper()
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	type level struct {
		names map[string]bool // nil in an array
		value bool            // a value comes next, not a name
	}
	var open []*level
	for {
		token, err := d.Token()
		if err == io.EOF {
			return false
		}
		if err != nil {
			t.Fatal(err)
		}
		if token == json.Delim('}') || token == json.Delim(']') {
			open = open[:len(open)-1]
			continue
		}
		if len(open) > 0 && open[len(open)-1].names != nil {
			top := open[len(open)-1]
			if !top.value {
				name := token.(string)
				if top.names[name] {
					return true
				}
				top.names[name] = true
			}
			top.value = !top.value
		}
		switch token {
		case json.Delim('{'):
			open = append(open, &level{names: map[string]bool{}})
		case json.Delim('['):
			open = append(open, &level{})
		}
	}
}
