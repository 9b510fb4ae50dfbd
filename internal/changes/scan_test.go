package changes

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// seen is a row as a client keeps it.
type seen struct {
	id, rev, token string
	deleted        bool
	body           string
}

// scanAll reads a whole scan and gives its rows and the token at its end.
func (n *oneNode) scanAll(t testing.TB, d *cluster.Database, o FeedOptions) (rows []seen, last string, pending int64) {
	t.Helper()
	sc, err := n.feeds.Scan(t.Context(), d, o)
	if err != nil {
		t.Fatal(err)
	}
	defer sc.Close()
	for {
		batch, err := sc.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := range batch {
			rows = append(rows, keep(&batch[i], string(sc.AppendRowSeq(nil, &batch[i]))))
		}
	}
	pending, err = sc.Pending()
	if err != nil {
		t.Fatal(err)
	}
	return rows, string(sc.AppendSeq(nil)), pending
}

func keep(r *Row, token string) seen {
	c := r.Change
	s := seen{id: strings.Clone(c.ID), rev: c.Leaves[0].Rev.String(), token: token, deleted: c.Deleted()}
	if c.Doc != nil {
		s.body = string(c.Doc.Body)
	}
	return s
}

// since reads a token.
func since(t testing.TB, d *cluster.Database, token string) Vector {
	t.Helper()
	v, err := Decode(d, token)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestScanAgainstModel writes at random and compares scans, their limits, filters
// and every place to resume from with a map of what each document is now.
func TestScanAgainstModel(t *testing.T) {
	t.Parallel()
	n := newNode(t, Options{})
	for _, q := range []int{1, 2, 3} {
		d := n.create(t, cluster.CreateSpec{Name: fmt.Sprintf("q%d", q), Q: q})
		rnd := rand.New(rand.NewPCG(uint64(q), 5))
		now := map[string]model.Rev{}
		gone := map[string]bool{}
		for i := range 700 {
			id := fmt.Sprintf("d%d", rnd.IntN(300))
			if i%50 == 0 {
				id = fmt.Sprintf("_design/%d", i)
			}
			e := doc(id)
			if !gone[id] {
				e.Parent = now[id]
			}
			e.Deleted = !e.Parent.IsZero() && rnd.IntN(3) == 0
			now[id] = n.put(t, d, e)[0]
			gone[id] = e.Deleted
		}
		all, last, pending := n.scanAll(t, d, FeedOptions{Limit: -1})
		if len(all) != len(now) || pending != 0 {
			t.Fatalf("q=%d: %d rows of %d documents, %d pending", q, len(all), len(now), pending)
		}
		for _, r := range all {
			if r.rev != now[r.id].String() || r.deleted != gone[r.id] {
				t.Fatalf("q=%d: %+v, want %v %v", q, r, now[r.id], gone[r.id])
			}
		}
		if rows, again, _ := n.scanAll(t, d, FeedOptions{Limit: -1, Since: since(t, d, last)}); len(rows) != 0 || again != last {
			t.Fatalf("q=%d: after the end %v, %s, want %s", q, rows, again, last)
		}
		if v, err := n.feeds.Now(t.Context(), d); err != nil || Token(d, v) != last {
			t.Fatalf("q=%d: now is %v, %v, the end was %s", q, v, err, last)
		}
		for range 30 { // in pieces, from each piece's last row
			var rows []seen
			at, size := "0", int64(1+rnd.IntN(200))
			for {
				part, end, pending := n.scanAll(t, d, FeedOptions{Limit: size, Since: since(t, d, at)})
				rows = append(rows, part...)
				if want := int64(len(all) - len(rows)); pending != want {
					t.Fatalf("q=%d: %d pending, want %d", q, pending, want)
				}
				if len(part) == 0 {
					break
				}
				if at = part[len(part)-1].token; rnd.IntN(2) == 0 {
					at = end
				}
			}
			if fmt.Sprint(ids(rows)) != fmt.Sprint(ids(all)) {
				t.Fatalf("q=%d in pieces of %d: %d rows, want %d", q, size, len(rows), len(all))
			}
		}
		if rows, end, pending := n.scanAll(t, d, FeedOptions{Limit: 0}); len(rows) != 0 || !strings.HasPrefix(end, "0-") || pending != int64(len(all)) {
			t.Fatalf("q=%d limit 0: %v %s %d", q, rows, end, pending)
		}
		back, end, _ := n.scanAll(t, d, FeedOptions{Limit: -1, Descending: true})
		if len(back) != len(all) || end != back[len(back)-1].token {
			t.Fatalf("q=%d descending: %d rows, ends at %s", q, len(back), end)
		}
		if q == 1 && (back[0].id != all[len(all)-1].id || back[0].token != last) {
			t.Fatalf("descending begins with %+v", back[0])
		}
		n.checkFilters(t, d, all)
	}
}

func ids(rows []seen) (out []string) {
	for _, r := range rows {
		out = append(out, r.id)
	}
	return out
}

// checkFilters compares filtered scans with the filtered rows; the end of a
// filtered scan is the present.
func (n *oneNode) checkFilters(t *testing.T, d *cluster.Database, all []seen) {
	t.Helper()
	_, present, _ := n.scanAll(t, d, FeedOptions{Limit: -1})
	picked := map[string]bool{"d1": true, "d7": true, "d250": true, "none": true}
	for name, c := range map[string]struct {
		o    FeedOptions
		want func(r seen) bool
	}{
		"ids":      {FeedOptions{DocIDs: []string{"d1", "d7", "d250", "none"}}, func(r seen) bool { return picked[r.id] }},
		"one id":   {FeedOptions{DocIDs: []string{all[0].id}}, func(r seen) bool { return r.id == all[0].id }},
		"no ids":   {FeedOptions{DocIDs: []string{}}, func(seen) bool { return false }},
		"design":   {FeedOptions{Design: true}, func(r seen) bool { return strings.HasPrefix(r.id, "_design/") }},
		"selector": {FeedOptions{Selector: []byte(`{"is":"d7"}`)}, func(r seen) bool { return r.id == "d7" }},
		"docs":     {FeedOptions{IncludeDocs: true, Want: shardapi.WantBody}, func(seen) bool { return true }},
	} {
		c.o.Limit = -1
		rows, end, _ := n.scanAll(t, d, c.o)
		var want []string
		for _, r := range all {
			if c.want(r) {
				want = append(want, r.id)
			}
		}
		if fmt.Sprint(ids(rows)) != fmt.Sprint(want) || end != present {
			t.Errorf("%s: %v ending at %s, want %v at %s", name, ids(rows), end, want, present)
		}
		for _, r := range rows {
			if c.o.IncludeDocs && r.body != fmt.Sprintf(`{"is":%q}`, r.id) {
				t.Errorf("%s: row %+v", name, r)
			}
		}
	}
}

// TestRowText checks the wire form of rows.
func TestRowText(t *testing.T) {
	t.Parallel()
	one := shardapi.Change{Seq: 3, ID: "a\"b", Leaves: []model.Leaf{{Rev: model.Rev{Pos: 1, Hash: "x"}}}}
	two := shardapi.Change{Seq: 3, ID: "c", Leaves: []model.Leaf{{Rev: model.Rev{Pos: 2, Hash: "x"}, Deleted: true}, {Rev: model.Rev{Pos: 1, Hash: "y"}, Deleted: true}}}
	enc := NewEncoder(database(2, 1))
	for _, c := range []struct {
		change *shardapi.Change
		style  Style
		want   string
	}{
		{&one, MainOnly, `"id":"a\"b","changes":[{"rev":"1-x"}]`},
		{&one, AllDocs, `"id":"a\"b","changes":[{"rev":"1-x"}]`},
		{&two, MainOnly, `"id":"c","changes":[{"rev":"2-x"}],"deleted":true`},
		{&two, AllDocs, `"id":"c","changes":[{"rev":"2-x"},{"rev":"1-y"}],"deleted":true`},
	} {
		line := `{"seq":"` + string(enc.Append(nil, Vector{9, 3})) + `",` + c.want
		plain := Row{Change: c.change}
		made := Row{Change: c.change}
		made.renderLines(enc, Vector{9, 0}, 1)
		for _, r := range []*Row{&plain, &made} {
			for _, shared := range []bool{false, true} {
				if shared && r == &plain {
					continue
				}
				p := position{enc: enc, vec: Vector{9, 5}, index: 1, shared: shared}
				if got := string(p.AppendRow(nil, r, c.style)); got != line {
					t.Errorf("row %s, want %s", got, line)
				}
			}
			if got := string(r.AppendFragment(nil, c.style)); got != c.want {
				t.Errorf("fragment %s, want %s", got, c.want)
			}
		}
	}
}
