package shard

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/selector"
	"github.com/divandb/divan/internal/shardapi"
)

// Changes streams the sequence log.
func (c *Copy) Changes(ctx context.Context, req *shardapi.ChangesRequest) (shardapi.ChangeStream, error) {
	if err := c.alive(); err != nil {
		return nil, err
	}
	s := &changeStream{req: *req, left: req.Limit, at: req.Since}
	s.c, s.ctx = c, ctx
	if len(req.Selector) > 0 {
		sel, err := selector.Parse(req.Selector)
		if err != nil {
			return nil, err
		}
		s.sel = sel
	}
	if req.DocIDs != nil {
		s.chooseIDs()
	}
	s.pick = s.pick || req.Design
	if req.Since == math.MaxUint64 {
		s.ended = true
		return s, nil
	}
	s.lower = c.appendSeqKey(nil, req.Since+1)
	_, s.upper = c.tableRange(tableSeq)
	return s, nil
}

// SteadyChanges is Changes with one sight of the log from the first batch to the
// end: no document is in it twice, and at its end nothing that the copy held at its
// beginning was missed. While it is open, what is overwritten is kept, so it is for
// readers that do not wait for anybody.
func (c *Copy) SteadyChanges(ctx context.Context, req *shardapi.ChangesRequest) (shardapi.ChangeStream, error) {
	st, err := c.Changes(ctx, req)
	if err != nil {
		return nil, err
	}
	st.(*changeStream).steady = true
	return st, nil
}

// changeStream is a Changes under way.
type changeStream struct {
	view
	req   shardapi.ChangesRequest
	sel   *selector.Selector
	idSet map[string]struct{} // the wanted ids, when the log is scanned for them
	left  int64               // rows still to give; negative: no limit
	at    uint64              // everything up to here was given or filtered out
	begun bool
	ended bool

	// With pick the rows are known beforehand: found by their ids, not by a scan.
	pick    bool
	foundAt uint64   // the sequence at which they were found
	picked  []uint64 // their sequences in the order of travel; what is left of it

	rows  []shardapi.Change
	docs  []model.Doc
	leafs []model.Leaf
	spans []changeSpan
	texts arena
	bytes []byte
	key   []byte
	rd    *reader

	history int // bytes of the batch in histories
}

// changeSpan is where the parts of a row are.
type changeSpan struct {
	id     span
	leaves span   // in leafs and hashes
	hash   []span // unused rows keep their memory
}

// Seq tells how far the stream has come.
func (s *changeStream) Seq() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.at
}

// Next gives the next batch.
func (s *changeStream) Next() ([]shardapi.Change, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.left == 0 {
		return nil, s.end()
	}
	fresh, err := s.open()
	if err != nil {
		return nil, err
	}
	s.rows, s.docs, s.leafs = s.rows[:0], s.docs[:0], s.leafs[:0]
	s.texts.buf, s.bytes, s.history = s.texts.buf[:0], s.bytes[:0], 0
	if s.pick {
		err = s.nextPicked()
	} else {
		err = s.nextScanned(fresh)
	}
	if err != nil {
		return nil, err
	}
	if s.ended && !s.req.Descending && s.left != 0 {
		s.at = max(s.at, s.upTo())
	}
	if len(s.rows) == 0 && s.ended {
		return nil, s.end()
	}
	s.bind()
	return s.rows, nil
}

// upTo is the sequence that the end of the stream stands for.
func (s *changeStream) upTo() uint64 {
	if s.pick {
		// Not that of a newer sight: a document that changed since the rows were
		// found is not among them.
		return s.foundAt
	}
	return s.seq
}

// end lets go of the store when there is nothing more to give.
func (s *changeStream) end() error {
	s.ended = true
	if err := s.drop(); err != nil {
		return err
	}
	return io.EOF
}

// nextScanned fills a batch by walking the log.
func (s *changeStream) nextScanned(fresh bool) error {
	valid := s.place(fresh)
	for scanned := 0; valid && !s.batchFull() && scanned < batchScan && s.left != 0; scanned++ {
		seq := binary.BigEndian.Uint64(s.iter.Key()[prefixLen:])
		if err := s.take(seq, s.iter.Value()); err != nil {
			return err
		}
		if s.req.Descending {
			valid = s.iter.Prev()
		} else {
			valid = s.iter.Next()
		}
	}
	if valid {
		return nil
	}
	s.ended = true
	return s.iter.Error()
}

// batchFull tells whether the batch must go out.
func (s *changeStream) batchFull() bool {
	// Leaves count too: a document may have a hundred thousand.
	return len(s.rows) >= batchRows || len(s.bytes)+len(s.texts.buf)+s.history >= batchBytes
}

// place puts a fresh iterator where the stream stands.
func (s *changeStream) place(fresh bool) bool {
	begun := s.begun
	s.begun = true
	switch {
	case !fresh:
		return s.iter.Valid()
	case !begun && s.req.Descending:
		return s.iter.Last()
	case !begun:
		return s.iter.First()
	case s.req.Descending:
		return s.iter.SeekLT(s.c.appendSeqKey(nil, s.at))
	}
	return s.iter.SeekGE(s.c.appendSeqKey(nil, s.at+1))
}

// take looks at a row of the log and adds it to the batch if it is wanted.
func (s *changeStream) take(seq uint64, val []byte) error {
	size, n := binary.Uvarint(val)
	if n <= 0 || uint64(len(val)-n) < size {
		return fmt.Errorf("change %d: %w", seq, corrupt("change"))
	}
	id, leaves := val[n:n+int(size)], val[n+int(size):]
	s.at = seq
	if s.idSet != nil {
		if _, ok := s.idSet[string(id)]; !ok {
			return nil
		}
	}
	if s.req.Design && !bytes.HasPrefix(id, []byte(designFirst)) {
		return nil
	}
	mark := len(s.bytes)
	var doc model.Doc
	if s.sel != nil || s.req.IncludeDocs {
		ok, err := s.document(id, leaves, &doc)
		if err != nil {
			return fmt.Errorf("change %d: %w", seq, err)
		}
		if !ok {
			s.bytes = s.bytes[:mark]
			return nil
		}
	}
	row := shardapi.Change{Seq: seq}
	if s.req.IncludeDocs {
		if s.docs == nil {
			s.docs = make([]model.Doc, 0, batchRows)
		}
		doc.Seq = seq
		s.docs = append(s.docs, doc) // never grows past its room: rows point into it
		row.Doc = &s.docs[len(s.docs)-1]
	} else {
		s.bytes = s.bytes[:mark]
	}
	if err := s.addRow(row, id, leaves); err != nil {
		return fmt.Errorf("change %d: %w", seq, err)
	}
	if s.left > 0 {
		s.left--
	}
	return nil
}

// addRow notes the texts and leaves of a row.
func (s *changeStream) addRow(row shardapi.Change, id, leaves []byte) error {
	if len(s.spans) <= len(s.rows) {
		s.spans = append(s.spans, changeSpan{})
	}
	sp := &s.spans[len(s.rows)]
	sp.id, sp.hash = s.texts.add(id), sp.hash[:0]
	sp.leaves.from = len(s.leafs)
	for len(leaves) > 0 {
		deleted := leaves[0]&flagDeleted != 0
		pos, hash, rest, ok := s.texts.addRev(leaves[1:])
		if !ok {
			return corrupt("change")
		}
		leaves = rest
		s.leafs = append(s.leafs, model.Leaf{Rev: model.Rev{Pos: pos}, Deleted: deleted})
		sp.hash = append(sp.hash, hash)
	}
	sp.leaves.to = len(s.leafs)
	s.rows = append(s.rows, row)
	return nil
}

// bind gives the rows of a full batch their texts and leaves.
func (s *changeStream) bind() {
	text := string(s.texts.buf)
	for i := range s.rows {
		sp, row := &s.spans[i], &s.rows[i]
		row.ID = sp.id.of(text)
		row.Leaves = s.leafs[sp.leaves.from:sp.leaves.to:sp.leaves.to]
		for k := range row.Leaves {
			row.Leaves[k].Rev.Hash = sp.hash[k].of(text)
		}
		if d := row.Doc; d != nil {
			d.ID, d.Rev, d.Deleted = row.ID, row.Leaves[0].Rev, row.Leaves[0].Deleted
			if s.req.Want&shardapi.WantLeaves != 0 {
				d.Leaves = row.Leaves
			}
		}
	}
}

// document reads the winner of a row and tells whether the selector wants it.
func (s *changeStream) document(id, leaves []byte, d *model.Doc) (wanted bool, err error) {
	if len(leaves) == 0 {
		return false, corrupt("change")
	}
	rev, rest, ok := takeRev(leaves[1:])
	if !ok {
		return false, corrupt("change")
	}
	s.key = appendEscapedBytes(s.c.appendTable(s.key[:0], tableBody), id)
	s.key = append(s.key, leaves[1:len(leaves)-len(rest)]...)
	val, found, err := s.snap.Get(s.key)
	if err != nil {
		return false, err
	}
	if !found {
		return false, corrupt("document without its body")
	}
	defer val.Release()
	atts, text, err := parseBody(val.Bytes())
	if err != nil {
		return false, err
	}
	if s.sel != nil {
		m := selector.Doc{ID: string(id), Rev: rev.String(), Body: text}
		if leaves[0]&flagDeleted != 0 {
			m.Extra = deletedMember
		}
		if !s.sel.Match(m) {
			return false, nil
		}
	}
	if !s.req.IncludeDocs {
		return true, nil
	}
	from := len(s.bytes)
	s.bytes = append(s.bytes, text...)
	d.Atts, d.Body = atts, s.bytes[from:len(s.bytes):len(s.bytes)]
	if s.req.Want&^(shardapi.WantBody|shardapi.WantLeaves) != 0 {
		return true, s.addHistory(id, rev, d)
	}
	return true, nil
}

// deletedMember answers for the _deleted member of a tombstone.
func deletedMember(name string) ([]byte, bool) {
	return []byte("true"), name == "_deleted"
}

// addHistory adds what only the tree knows.
func (s *changeStream) addHistory(id []byte, rev model.Rev, d *model.Doc) error {
	if s.rd == nil {
		s.rd = &reader{c: s.c}
	}
	s.key = append(s.c.appendTable(s.key[:0], tableInfo), id...)
	val, found, err := s.snap.Get(s.key)
	if err != nil {
		return err
	}
	if !found {
		return corrupt("change without its document")
	}
	err = s.rd.parse(val.Bytes(), true)
	val.Release()
	if err != nil {
		return err
	}
	d.Rev = rev
	s.rd.fillHistory(d, s.req.Want&^shardapi.WantLeaves)
	s.history += historyBytes(d)
	return nil
}
