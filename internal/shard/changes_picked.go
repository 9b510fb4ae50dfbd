package shard

import (
	"slices"
)

// pickAlways is how many ids are looked up one by one whatever the length of the
// log; above it the shorter way is taken.
const pickAlways = 100

// chooseIDs decides between looking the wanted ids up and scanning the log.
func (s *changeStream) chooseIDs() {
	s.c.mu.Lock()
	rows := s.c.count.docs + s.c.count.dels
	s.c.mu.Unlock()
	// A look-up costs about as much as passing over eight rows.
	if n := int64(len(s.req.DocIDs)); n <= pickAlways || n < rows/8 {
		s.pick = true
		return
	}
	s.idSet = make(map[string]struct{}, len(s.req.DocIDs))
	for _, id := range s.req.DocIDs {
		s.idSet[id] = struct{}{}
	}
}

// nextPicked fills a batch from the rows that were found beforehand. A document
// that changed after that has another row, above the sequence this stream ends at.
func (s *changeStream) nextPicked() error {
	if !s.begun {
		s.begun, s.foundAt = true, s.seq
		if err := s.find(); err != nil {
			return err
		}
	}
	for len(s.picked) > 0 && !s.batchFull() && s.left != 0 {
		seq := s.picked[0]
		s.picked = s.picked[1:]
		s.key = s.c.appendSeqKey(s.key[:0], seq)
		val, found, err := s.snap.Get(s.key)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		// take uses s.key, which the value does not point into.
		err = s.take(seq, val.Bytes())
		val.Release()
		if err != nil {
			return err
		}
	}
	if len(s.picked) == 0 {
		s.ended = true
	}
	return nil
}

// find looks up the sequences of the wanted documents.
func (s *changeStream) find() error {
	if s.req.Design {
		if err := s.findDesign(); err != nil {
			return err
		}
	}
	for _, id := range s.req.DocIDs {
		s.key = s.c.appendInfoKey(s.key[:0], id)
		val, found, err := s.snap.Get(s.key)
		if err != nil {
			return err
		}
		if !found {
			continue
		}
		err = s.note(val.Bytes())
		val.Release()
		if err != nil {
			return err
		}
	}
	slices.Sort(s.picked)
	s.picked = slices.Compact(s.picked)
	if s.req.Descending {
		slices.Reverse(s.picked)
	}
	return nil
}

// note takes the sequence of an info row.
func (s *changeStream) note(row []byte) error {
	var h header
	if _, err := parseHeader(row, &h); err != nil {
		return err
	}
	if h.seq > s.req.Since {
		s.picked = append(s.picked, h.seq)
	}
	return nil
}

// findDesign looks up the design documents, which stand together.
func (s *changeStream) findDesign() error {
	it, err := s.snap.NewIter(s.c.appendInfoKey(nil, designFirst), s.c.appendInfoKey(nil, designAfter))
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		if err := s.note(it.Value()); err != nil {
			_ = it.Close() // the first error is the one to tell
			return err
		}
	}
	return it.Close()
}
