package shard

import (
	"bytes"
	"context"
	"fmt"
	"io"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// The bounds of design documents among the ids.
const (
	designFirst = "_design/"
	designAfter = "_design0"
)

// List streams documents in the order of their ids' bytes.
func (c *Copy) List(ctx context.Context, req *shardapi.ListRequest) (*shardapi.ListHead, shardapi.Stream[shardapi.Row], error) {
	if err := c.alive(); err != nil {
		return nil, nil, err
	}
	head, err := c.listHead(ctx, req)
	if err != nil {
		return nil, nil, err
	}
	s := &listStream{req: *req, left: req.Limit}
	s.c, s.ctx = c, ctx
	s.lower, s.upper = c.listBounds(req)
	if bytes.Compare(s.lower, s.upper) >= 0 {
		s.ended = true
	}
	return head, s, nil
}

// listTable gives the bounds of the table that is listed.
func (c *Copy) listTable(t shardapi.Table) (lower, upper []byte) {
	switch t {
	case shardapi.TableDesign:
		return c.appendInfoKey(nil, designFirst), c.appendInfoKey(nil, designAfter)
	case shardapi.TableLocal:
		return c.tableRange(tableLocal)
	}
	return c.tableRange(tableInfo)
}

// listBounds gives the bounds of the rows asked for.
func (c *Copy) listBounds(req *shardapi.ListRequest) (lower, upper []byte) {
	lower, upper = c.listTable(req.Table)
	table := byte(tableInfo)
	if req.Table == shardapi.TableLocal {
		table = tableLocal
	}
	low, high := req.Start, req.End
	if req.Descending {
		low, high = high, low
	}
	if low != nil {
		k := append(c.appendTable(nil, table), *low...)
		if req.Descending && req.ExclusiveEnd {
			k = append(k, 0)
		}
		if bytes.Compare(k, lower) > 0 {
			lower = k
		}
	}
	if high != nil {
		k := append(c.appendTable(nil, table), *high...)
		if req.Descending || !req.ExclusiveEnd {
			k = append(k, 0)
		}
		if bytes.Compare(k, upper) < 0 {
			upper = k
		}
	}
	return lower, upper
}

// listStream is a List under way.
type listStream struct {
	view
	req   shardapi.ListRequest
	left  int64 // rows still to give; negative: no limit
	ended bool
	last  []byte // key of the last row looked at, to go on from after a new sight

	rows  []shardapi.Row
	docs  []model.Doc
	texts arena
	spans []listSpan
	bytes []byte // bodies of the batch
	key   []byte
	rd    *reader

	history int // bytes of the batch in histories
}

// listSpan is where the texts of a row are.
type listSpan struct{ id, hash span }

// Next gives the next batch.
func (s *listStream) Next() ([]shardapi.Row, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.left == 0 {
		return nil, s.end()
	}
	fresh, err := s.open()
	if err != nil {
		return nil, err
	}
	s.rows, s.spans, s.docs = s.rows[:0], s.spans[:0], s.docs[:0]
	s.texts.buf, s.bytes, s.history = s.texts.buf[:0], s.bytes[:0], 0
	valid := s.place(fresh)
	for scanned := 0; valid && len(s.rows) < batchRows && len(s.bytes)+s.history < batchBytes && scanned < batchScan && s.left != 0; scanned++ {
		given, err := s.row()
		if err != nil {
			return nil, err
		}
		if given && s.left > 0 {
			s.left--
		}
		s.last = append(s.last[:0], s.iter.Key()...)
		valid = s.step()
	}
	if !valid {
		if err := s.iter.Error(); err != nil {
			return nil, err
		}
		s.ended = true
	}
	if len(s.rows) == 0 && s.ended {
		return nil, s.end()
	}
	text := string(s.texts.buf)
	for i := range s.rows {
		sp := &s.spans[i]
		s.rows[i].ID, s.rows[i].Rev.Hash = sp.id.of(text), sp.hash.of(text)
		if d := s.rows[i].Doc; d != nil {
			d.ID, d.Rev = s.rows[i].ID, s.rows[i].Rev
		}
	}
	return s.rows, nil
}

// end lets go of the store as soon as there is nothing more to give.
func (s *listStream) end() error {
	s.ended = true
	if err := s.drop(); err != nil {
		return err
	}
	return io.EOF
}

// place puts a fresh iterator where the stream stands.
func (s *listStream) place(fresh bool) bool {
	switch {
	case !fresh:
		return s.iter.Valid()
	case s.last == nil && s.req.Descending:
		return s.iter.Last()
	case s.last == nil:
		return s.iter.First()
	case s.req.Descending:
		return s.iter.SeekLT(s.last)
	}
	return s.iter.SeekGE(append(s.last, 0))
}

// step moves on in the direction of travel.
func (s *listStream) step() bool {
	if s.req.Descending {
		return s.iter.Prev()
	}
	return s.iter.Next()
}

// row takes the present row; given is false for a deleted document.
func (s *listStream) row() (given bool, err error) {
	id, val := s.iter.Key()[prefixLen:], s.iter.Value()
	if s.req.Table == shardapi.TableLocal {
		return true, s.localRow(id, val)
	}
	var h header
	rest, err := parseHeader(val, &h)
	if err != nil {
		return false, fmt.Errorf("list %q: %w", id, err)
	}
	if h.deleted {
		return false, nil
	}
	pos, hash, tree, ok := s.texts.addRev(rest)
	if !ok {
		return false, fmt.Errorf("list %q: %w", id, corrupt("document header"))
	}
	s.spans = append(s.spans, listSpan{s.texts.add(id), hash})
	row := shardapi.Row{Rev: model.Rev{Pos: pos}}
	if s.req.IncludeDocs {
		s.docs = s.room()
		row.Doc = &s.docs[len(s.docs)-1]
		*row.Doc = model.Doc{Seq: h.seq}
		if err := s.document(id, rest[:len(rest)-len(tree)], tree, row.Doc); err != nil {
			return false, err
		}
	}
	s.rows = append(s.rows, row)
	return true, nil
}

// room adds a place for a document; places never move, as rows point to them.
func (s *listStream) room() []model.Doc {
	if s.docs == nil {
		s.docs = make([]model.Doc, 0, batchRows)
	}
	return s.docs[:len(s.docs)+1]
}

// localRow takes a local document.
func (s *listStream) localRow(id, val []byte) error {
	n, body, err := parseLocal(val)
	if err != nil {
		return fmt.Errorf("list %q: %w", id, err)
	}
	s.spans = append(s.spans, listSpan{s.texts.add(id), s.texts.add([]byte(localRev(n).Hash))})
	row := shardapi.Row{}
	if s.req.IncludeDocs {
		s.docs = s.room()
		row.Doc = &s.docs[len(s.docs)-1]
		*row.Doc = model.Doc{Body: s.keep(body)}
	}
	s.rows = append(s.rows, row)
	return nil
}

// keep copies a body into the batch.
func (s *listStream) keep(body []byte) []byte {
	from := len(s.bytes)
	s.bytes = append(s.bytes, body...)
	return s.bytes[from:len(s.bytes):len(s.bytes)]
}

// document reads the body of a row with the second iterator, which moves in step
// with the first: its seeks go forward only, and so are mostly short steps.
func (s *listStream) document(id, rev, tree []byte, d *model.Doc) (err error) {
	if s.body == nil {
		lower, upper := s.c.tableRange(tableBody)
		if s.body, err = s.snap.NewIter(lower, upper); err != nil {
			return err
		}
	}
	s.key = appendEscapedBytes(s.c.appendTable(s.key[:0], tableBody), id)
	s.key = append(s.key, rev...)
	if !s.body.SeekGE(s.key) || !bytes.Equal(s.body.Key(), s.key) {
		if err := s.body.Error(); err != nil {
			return err
		}
		return fmt.Errorf("list %q: %w", id, corrupt("document without its body"))
	}
	atts, text, err := parseBody(s.body.Value())
	if err != nil {
		return fmt.Errorf("list %q: %w", id, err)
	}
	d.Atts, d.Body = atts, s.keep(text)
	if s.req.Want&^shardapi.WantBody == 0 {
		return nil
	}
	if s.rd == nil {
		s.rd = &reader{c: s.c}
	}
	if err := s.rd.tree.Decode(tree); err != nil {
		return fmt.Errorf("list %q: %w", id, err)
	}
	d.Rev = s.rd.tree.Node(s.rd.tree.Winner()).Rev
	s.rd.fillHistory(d, s.req.Want)
	s.history += historyBytes(d)
	return nil
}

// historyBytes is about how much memory the history of a document takes, which may
// be far more than its body does.
func historyBytes(d *model.Doc) int {
	const each = 64
	return each * (len(d.Path) + len(d.RevsInfo) + len(d.Leaves))
}

// appendEscapedBytes is appendEscaped for bytes.
func appendEscapedBytes(dst, id []byte) []byte {
	if bytes.IndexByte(id, 0) < 0 {
		dst = append(dst, id...)
		return append(dst, 0, 1)
	}
	return appendEscaped(dst, string(id))
}
