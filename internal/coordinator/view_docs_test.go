package coordinator_test

import (
	"fmt"
	"testing"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// TestViewDocs follows the links of rows, over one range and over several.
func TestViewDocs(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	for _, q := range []int{1, 4} {
		d := n.create(t, cluster.CreateSpec{Name: fmt.Sprintf("q%d", q), Q: q})
		first := n.put(t, d, doc("a"), doc("b"), doc("gone"), doc("new"))
		second := n.put(t, d, model.Edit{ID: "new", Parent: first[3], Body: []byte(`{"is":"newer"}`)},
			model.Edit{ID: "gone", Parent: first[2], Deleted: true, Body: []byte(`{}`)})
		cases := []struct{ id, value, want string }{
			{"a", `null`, `a {"is":"a"}`},
			{"a", `1`, `a {"is":"a"}`},
			{"a", `"_id"`, `a {"is":"a"}`},
			{"a", `["_id","b"]`, `a {"is":"a"}`},
			{"a", `{"id":"b"}`, `a {"is":"a"}`},
			{"a", `{"in":{"_id":"b"}}`, `a {"is":"a"}`},
			{"a", `{"_ID":"b"}`, `a {"is":"a"}`},
			{"a", `{"x":1,"_id":"b"}`, `b {"is":"b"}`},
			{"a", `{"\u005fid":"\u0062"}`, `b {"is":"b"}`},
			{"b", `{"_id":"b"}`, `b {"is":"b"}`},
			{"a", `{"_id":"new"}`, `new {"is":"newer"}`},
			{"a", `{"_id":"new","_rev":"` + first[3].String() + `"}`, `new {"is":"new"}`},
			{"new", `{"_rev":"` + first[3].String() + `"}`, `new {"is":"new"}`},
			{"a", `{"_id":"new","_rev":"1-none"}`, `none`},
			{"a", `{"_id":"new","_rev":"no revision"}`, `none`},
			{"a", `{"_id":"new","_rev":1}`, `none`},
			{"a", `{"_id":"never"}`, `none`},
			{"a", `{"_id":"never","_rev":"1-none"}`, `none`},
			{"a", `{"_id":""}`, `none`},
			{"a", `{"_id":null}`, `none`},
			{"a", `{"_id":7}`, `none`},
			{"gone", `null`, `none`},
			{"a", `{"_id":"gone"}`, `none`},
			{"a", `{"_id":"gone","_rev":"` + second[1].String() + `"}`, `gone {} deleted`},
		}
		rows := make([]shardapi.ViewRow, len(cases))
		for i, c := range cases {
			rows[i] = shardapi.ViewRow{ID: c.id, Value: []byte(c.value)}
		}
		docs, err := n.coord.ViewDocs(t.Context(), d, rows, shardapi.WantLeaves)
		if err != nil || len(docs) != len(rows) {
			t.Fatalf("%d documents, %v", len(docs), err)
		}
		for i, c := range cases {
			got := "none"
			if docs[i] != nil {
				got = docs[i].ID + " " + string(docs[i].Body)
				if docs[i].Deleted {
					got += " deleted"
				}
				if len(docs[i].Leaves) != 1 {
					t.Errorf("q %d: row of %s with %s: leaves %v", q, c.id, c.value, docs[i].Leaves)
				}
			}
			if got != c.want {
				t.Errorf("q %d: row of %s with %s: %s, want %s", q, c.id, c.value, got, c.want)
			}
		}
		if docs, err := n.coord.ViewDocs(t.Context(), d, nil, 0); err != nil || len(docs) != 0 {
			t.Errorf("of no rows: %v, %v", docs, err)
		}
	}
}
