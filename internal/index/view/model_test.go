package view

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/reduce"
	"github.com/divandb/divan/internal/shardapi"
)

var quiet = slog.New(slog.DiscardHandler)

// openStore opens a store of indexes.
func openStore(t testing.TB, fs kv.FS) *kv.Store {
	t.Helper()
	s, err := kv.Open("index", kv.Options{FS: fs, NoSync: true, MinFree: -1, Logger: quiet, CacheBytes: 8 << 20, MemTableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ordered is a reduction that notices everything: a row left out, one taken twice,
// two in the wrong order, any part of a row. A state is the number of rows and a
// polynomial over the hashes of the rows.
type ordered struct{}

const orderedBase = 0x9e3779b97f4a7c15

func (ordered) Reduce(_ context.Context, runs []reduce.Run) ([][]byte, error) {
	out := make([][]byte, len(runs))
	for i, r := range runs {
		if (len(r.Rows) == 0) == (len(r.States) == 0) {
			return nil, fmt.Errorf("a run of %d rows and %d states", len(r.Rows), len(r.States))
		}
		var count, sum uint64
		for _, row := range r.Rows {
			count, sum = count+1, sum*orderedBase+orderedRow(row.Sort, row.Key, row.Value, row.ID)
		}
		for _, s := range r.States {
			n := binary.BigEndian.Uint64(s)
			for base, e := uint64(orderedBase), n; e > 0; base, e = base*base, e>>1 {
				if e&1 == 1 {
					sum *= base
				}
			}
			count, sum = count+n, sum+binary.BigEndian.Uint64(s[8:])
		}
		out[i] = orderedState(count, sum)
	}
	return out, nil
}

func orderedState(count, sum uint64) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(nil, count), sum)
}

func orderedRow(sort, key, value []byte, id string) uint64 {
	h := newHasher(77, 1, 1)
	return h.sum(h.sum(h.sum(h.sum(0, sort), key), value), []byte(id))
}

func (ordered) Final(state []byte) ([]byte, error) {
	return fmt.Appendf(nil, "%d", binary.BigEndian.Uint64(state)), nil
}

func (ordered) Empty() ([]byte, bool) { return nil, false }

// naiveRow is a row of the model.
type naiveRow struct {
	sort, key, value []byte
	id               string
	emit             int
}

// naive is what an index should hold.
type naive struct {
	o    Options
	docs map[string][]Row
	list []naiveRow // in order; nil when docs has changed
}

func (m *naive) apply(docs []DocRows) {
	for _, d := range docs {
		if len(d.Rows) == 0 {
			delete(m.docs, d.ID)
		} else {
			m.docs[d.ID] = d.Rows
		}
	}
	m.list = nil
}

func (m *naive) sort(key []byte) []byte {
	if m.o.RawCollation {
		return collate.AppendRawKey(nil, key)
	}
	return collate.AppendKey(nil, key)
}

func (m *naive) rows(partition string) []naiveRow {
	if m.list == nil {
		for id, rows := range m.docs {
			for i, r := range rows {
				m.list = append(m.list, naiveRow{m.sort(r.Key), r.Key, r.Value, id, i})
			}
		}
		slices.SortFunc(m.list, func(a, b naiveRow) int {
			return cmp.Or(bytes.Compare(a.sort, b.sort), cmp.Compare(a.id, b.id), cmp.Compare(a.emit, b.emit))
		})
	}
	if !m.o.Partitioned {
		return m.list
	}
	var out []naiveRow
	for _, r := range m.list {
		if p, _, _ := bytes.Cut([]byte(r.id), []byte(":")); string(p) == partition {
			out = append(out, r)
		}
	}
	return out
}

// naiveRange is a range with the sort keys of its borders.
type naiveRange struct {
	*shardapi.KeyRange
	start, end []byte
	desc       bool
}

func (m *naive) keyRange(kr *shardapi.KeyRange, desc bool) naiveRange {
	out := naiveRange{KeyRange: kr, desc: desc}
	if kr.Start != nil {
		out.start = m.sort(kr.Start)
	}
	if kr.End != nil {
		out.end = m.sort(kr.End)
	}
	return out
}

// before tells whether a row lies before the range's start in the direction of
// travel.
func (kr *naiveRange) before(r *naiveRow) bool {
	if kr.start == nil {
		return false
	}
	c := bytes.Compare(r.sort, kr.start)
	if c == 0 && kr.HasStartID {
		c = cmp.Compare(r.id, kr.StartID)
	}
	return c < 0 && !kr.desc || c > 0 && kr.desc
}

// behind tells whether a row lies behind the range's end.
func (kr *naiveRange) behind(r *naiveRow) bool {
	if kr.end == nil {
		return false
	}
	c := bytes.Compare(r.sort, kr.end)
	if c == 0 && kr.HasEndID {
		c = cmp.Compare(r.id, kr.EndID)
	}
	return c > 0 && !kr.desc || c < 0 && kr.desc || c == 0 && kr.ExclusiveEnd
}

// query is Query by walking over everything.
func (m *naive) query(req *shardapi.ViewRequest) (shardapi.ViewHead, []shardapi.ViewRow) {
	rows := slices.Clone(m.rows(req.Partition))
	head := shardapi.ViewHead{TotalRows: int64(len(rows))}
	if req.Descending {
		slices.Reverse(rows)
	}
	if req.Offset && len(req.Ranges) > 0 {
		kr := m.keyRange(&req.Ranges[0], req.Descending)
		for i := range rows {
			if kr.before(&rows[i]) {
				head.Offset++
			}
		}
	}
	var out []shardapi.ViewRow
	for at := range req.Ranges {
		kr := m.keyRange(&req.Ranges[at], req.Descending)
		var in []naiveRow
		for i := range rows {
			if !kr.before(&rows[i]) && !kr.behind(&rows[i]) {
				in = append(in, rows[i])
			}
		}
		if req.Reduce {
			out = append(out, m.groups(at, in, req)...)
			continue
		}
		for _, r := range in {
			out = append(out, shardapi.ViewRow{Range: at, Sort: r.sort, Key: r.key, ID: r.id, Value: r.value})
		}
	}
	if req.Limit >= 0 && int64(len(out)) > req.Limit {
		out = out[:req.Limit]
	}
	return head, out
}

// groupKey gives the key that the row's group shows, and whether it was cut.
func groupKey(key []byte, level int) ([]byte, bool) {
	if level == shardapi.GroupNone {
		return []byte("null"), false
	}
	var elements []json.RawMessage
	if level < 0 || key[0] != '[' || json.Unmarshal(key, &elements) != nil || len(elements) < level {
		return key, false
	}
	out := []byte("[")
	for i, e := range elements[:level] {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, e...)
	}
	return append(out, ']'), true
}

func (m *naive) groups(at int, in []naiveRow, req *shardapi.ViewRequest) (out []shardapi.ViewRow) {
	for len(in) > 0 {
		key, cut := groupKey(in[0].key, req.GroupLevel)
		sort := m.sort(key)
		n := 1
		for ; n < len(in); n++ {
			if req.GroupLevel == shardapi.GroupExact && bytes.Equal(in[n].sort, sort) {
				continue
			}
			other, alsoCut := groupKey(in[n].key, req.GroupLevel)
			if cut != alsoCut || !bytes.Equal(m.sort(other), sort) {
				break
			}
		}
		members := slices.Clone(in[:n])
		if req.Descending {
			slices.Reverse(members)
		}
		var sum uint64
		for _, r := range members {
			sum = sum*orderedBase + orderedRow(r.sort, r.key, r.value, r.id)
		}
		if cut {
			sort = sort[:len(sort)-1]
		}
		out = append(out, shardapi.ViewRow{Range: at, Sort: sort, Key: key, Value: orderedState(uint64(n), sum)})
		in = in[n:]
	}
	return out
}

// readAll reads a stream to its end.
func readAll(st shardapi.Stream[shardapi.ViewRow]) (out []shardapi.ViewRow, err error) {
	for {
		rows, err := st.Next()
		if errors.Is(err, io.EOF) {
			return out, st.Close()
		}
		if err != nil {
			return out, errors.Join(err, st.Close())
		}
		for _, r := range rows {
			r.Sort, r.Key, r.Value = bytes.Clone(r.Sort), bytes.Clone(r.Key), bytes.Clone(r.Value)
			out = append(out, r)
		}
	}
}

// check compares one answer with the model's.
func (m *naive) check(t *testing.T, x *Index, req *shardapi.ViewRequest) {
	t.Helper()
	wantHead, want := m.query(req)
	head, st, err := x.Query(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	got, err := readAll(st)
	if err != nil {
		t.Fatal(err)
	}
	if req.Reduce {
		wantHead.TotalRows = head.TotalRows // not asked for
	}
	wantHead.Seq = x.Seq()
	if *head != wantHead {
		t.Fatalf("%s\nhead %+v, want %+v", show(req), *head, wantHead)
	}
	for i := range max(len(got), len(want)) {
		if i >= len(got) || i >= len(want) || !sameRow(&got[i], &want[i]) {
			t.Fatalf("%s\nrow %d of %d, want %d:\n%s\n%s", show(req), i, len(got), len(want), showRow(got, i), showRow(want, i))
		}
	}
}

func sameRow(a, b *shardapi.ViewRow) bool {
	return a.Range == b.Range && a.ID == b.ID && bytes.Equal(a.Sort, b.Sort) && bytes.Equal(a.Key, b.Key) && bytes.Equal(a.Value, b.Value)
}

func show(req *shardapi.ViewRequest) string {
	s := fmt.Sprintf("desc %t limit %d reduce %t level %d offset %t partition %q", req.Descending, req.Limit, req.Reduce, req.GroupLevel, req.Offset, req.Partition)
	for _, r := range req.Ranges {
		s += fmt.Sprintf("\n  %s (%t %q) to %s (%t %q) exclusive %t", r.Start, r.HasStartID, r.StartID, r.End, r.HasEndID, r.EndID, r.ExclusiveEnd)
	}
	return s
}

func showRow(rows []shardapi.ViewRow, i int) string {
	if i >= len(rows) {
		return "none"
	}
	return fmt.Sprintf("range %d key %s id %q value %q sort %x", rows[i].Range, rows[i].Key, rows[i].ID, rows[i].Value, rows[i].Sort)
}

// maker makes random documents and queries.
type maker struct{ *rand.Rand }

func (r maker) scalar() string {
	switch r.IntN(8) {
	case 0:
		return "null"
	case 1:
		return []string{"true", "false"}[r.IntN(2)]
	case 2, 3, 4:
		return fmt.Sprint(r.IntN(12) - 3)
	case 5:
		return []string{"1.0", "2.50", "1e2", "-0", "12345678901234567890"}[r.IntN(5)]
	}
	return []string{`"a"`, `"A"`, `"b"`, `"é"`, `"e\u0301"`, `""`, `"ab"`, `"\u0000"`}[r.IntN(8)]
}

func (r maker) key() []byte {
	switch r.IntN(6) {
	case 0, 1:
		return []byte(r.scalar())
	case 2:
		return []byte(fmt.Sprintf(`{"a":%s}`, r.scalar()))
	}
	s := "["
	for i := range r.IntN(4) {
		if i > 0 {
			s += ","
		}
		if r.IntN(6) == 0 {
			s += "[" + r.scalar() + "]"
		} else {
			s += fmt.Sprint(r.IntN(3))
		}
	}
	return []byte(s + "]")
}

func (r maker) id(partitioned bool) string {
	id := fmt.Sprintf("d%d", r.IntN(300))
	if r.IntN(40) == 0 {
		id = []string{"z\x00", "z\x00\x00a", "z", "z\x01", "\xff\xff", "z\x00\x01"}[r.IntN(6)]
	}
	if partitioned {
		return []string{"p", "pp", "q", "q\x00"}[r.IntN(4)] + ":" + id
	}
	return id
}

func (r maker) docs(n int, partitioned bool) (docs []DocRows) {
	seen := map[string]bool{}
	for range n {
		d := DocRows{ID: r.id(partitioned)}
		if seen[d.ID] {
			continue
		}
		seen[d.ID] = true
		if r.IntN(5) > 0 {
			for range 1 + min(r.IntN(5), r.IntN(5)) {
				d.Rows = append(d.Rows, Row{r.key(), []byte(fmt.Sprint(r.IntN(5)))})
			}
		}
		docs = append(docs, d)
	}
	return docs
}

func (r maker) keyRange(partitioned bool) (kr shardapi.KeyRange) {
	if r.IntN(3) > 0 {
		kr.Start = r.key()
	}
	if r.IntN(3) > 0 {
		kr.End = r.key()
	}
	if r.IntN(6) == 0 {
		kr.End = kr.Start
	}
	if r.IntN(3) == 0 {
		kr.HasStartID, kr.StartID = true, r.id(partitioned)
	}
	if r.IntN(3) == 0 {
		kr.HasEndID, kr.EndID = true, r.id(partitioned)
	}
	kr.ExclusiveEnd = r.IntN(3) == 0
	return kr
}

func (r maker) request(o Options) *shardapi.ViewRequest {
	req := &shardapi.ViewRequest{Descending: r.IntN(2) == 0, Limit: -1, Offset: r.IntN(3) > 0}
	if r.IntN(3) == 0 {
		req.Limit = int64(r.IntN(30))
	}
	if o.Partitioned {
		req.Partition = []string{"p", "pp", "q", "q\x00", "none"}[r.IntN(5)]
	}
	n := 1
	if r.IntN(4) == 0 {
		n = r.IntN(8)
	}
	for range n {
		req.Ranges = append(req.Ranges, r.keyRange(o.Partitioned))
	}
	if o.Reducer != nil && r.IntN(3) > 0 {
		req.Reduce = true
		req.GroupLevel = []int{shardapi.GroupNone, shardapi.GroupExact, 1, 2, 3, 7}[r.IntN(6)]
	}
	return req
}

// TestModel drives an index with random updates and compares everything with the
// model after each.
func TestModel(t *testing.T) {
	t.Parallel()
	kinds := []Options{
		{Reducer: ordered{}, bits: 1},
		{Reducer: ordered{}, bits: 2},
		{Reducer: ordered{}},
		{Reducer: ordered{}, bits: 1, Partitioned: true},
		{Reducer: ordered{}, bits: 2, RawCollation: true},
		{bits: 1},
		{bits: 2, Partitioned: true},
	}
	for i, o := range kinds {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			store := openStore(t, kv.NewCrashFS().FS())
			defer store.Close()
			o.Store, o.Copy, o.Sig = store, 7, "sig"
			x, err := Open(o)
			if err != nil {
				t.Fatal(err)
			}
			m := &naive{o: o, docs: map[string][]Row{}}
			r := maker{rand.New(rand.NewPCG(uint64(i), 1))}
			for step := range 24 {
				docs := r.docs(1<<r.IntN(8), o.Partitioned)
				if r.IntN(12) == 0 { // everything goes
					docs = nil
					for id := range m.docs {
						docs = append(docs, DocRows{ID: id})
					}
				}
				building := r.IntN(6) == 0
				if building {
					if err := x.Begin(1 << 40); err != nil {
						t.Fatal(err)
					}
				}
				if err := x.Apply(context.Background(), docs, uint64(step+1)); err != nil {
					t.Fatal(err)
				}
				if building {
					m.buildStep(t, x, r, docs)
				} else {
					m.apply(docs)
				}
				if r.IntN(10) == 0 {
					if x, err = Open(o); err != nil {
						t.Fatal(err)
					}
				}
				if err := checkIndex(x, m); err != nil {
					t.Fatalf("step %d: %v", step, err)
				}
				for range 20 {
					m.check(t, x, r.request(o))
				}
			}
		})
	}
}

// buildStep finishes a build and looks at what queries see meanwhile.
func (m *naive) buildStep(t *testing.T, x *Index, r maker, docs []DocRows) {
	t.Helper()
	head, st, err := x.Query(context.Background(), &shardapi.ViewRequest{Limit: -1, Ranges: make([]shardapi.KeyRange, 1), Partition: "p"})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := readAll(st)
	if err != nil {
		t.Fatal(err)
	}
	if want := len(m.rows("p")); int(head.TotalRows) != want || len(rows) != want {
		t.Fatalf("%d and %d rows during a build, want those before it, %d", head.TotalRows, len(rows), want)
	}
	m.apply(docs)
	if err := x.Finish(context.Background()); err != nil {
		t.Fatal(err)
	}
}
