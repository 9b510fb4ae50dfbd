package view

import (
	"bytes"
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// The size of a batch: rows, bytes, and ranges without a row.
const (
	batchRows   = 256
	batchBytes  = 256 << 10
	batchRanges = 2000
)

// sightMax is how long a stream keeps one sight of the store, so that a reader who
// has stopped reading does not keep files from being removed.
var sightMax = 10 * time.Second

// stream gives the answer to a query in batches. When its sight is too old it
// makes a new one and goes on behind the last row given.
type stream struct {
	x    *Index
	ctx  context.Context
	req  shardapi.ViewRequest
	base span

	mu      sync.Mutex
	sight   *sight
	timer   *time.Timer
	early   []shardapi.ViewRow // the first batch, until it is asked for
	isEarly bool
	shut    bool
	ended   bool
	left    int64 // rows still to give; negative: no limit

	at      int  // the range
	now     span // its rows, those not given yet
	bounded bool // now is set
	placed  bool // the iterator stands at the next row, or behind the last
	// What now's bounds are made in: they may also be base's, which must stay.
	loRoom, hiRoom []byte

	out    []shardapi.ViewRow
	places []place
	buf    []byte
	ids    []byte
	groups *groups // of a reduction
}

// place is where the parts of a row end: the sort key, the key and the value in
// the stream's bytes, the id in its ids.
type place struct{ sort, key, value, id int }

// first makes the first batch ahead of its time.
func (st *stream) first() error {
	rows, err := st.batch()
	if err != nil {
		return err
	}
	st.early, st.isEarly = rows, true
	return st.rest()
}

// rest gives the sight back when the stream is at its end, or else to a clock.
func (st *stream) rest() error {
	if st.ended {
		return st.drop()
	}
	if st.timer == nil {
		st.timer = time.AfterFunc(sightMax, st.expire)
	}
	return nil
}

// Next gives the next batch.
func (st *stream) Next() ([]shardapi.ViewRow, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.ended && !st.isEarly {
		return nil, io.EOF // also when the end has closed it
	}
	if st.shut {
		return nil, errors.New("index/view: the stream is closed")
	}
	if st.isEarly {
		st.isEarly = false
		if len(st.early) > 0 || !st.ended {
			return st.early, nil
		}
	}
	if st.ended {
		return nil, io.EOF
	}
	if err := st.ctx.Err(); err != nil {
		return nil, context.Cause(st.ctx)
	}
	if err := st.again(); err != nil {
		return nil, err
	}
	rows, err := st.batch()
	if err == nil {
		err = st.rest()
	}
	if err == nil && st.ended && len(rows) == 0 {
		err = io.EOF
	}
	return rows, err
}

// again makes a new sight where the old one was given up.
func (st *stream) again() (err error) {
	if st.sight != nil {
		return nil
	}
	if st.sight, err = st.x.look(); err != nil {
		return err
	}
	if st.sight == nil {
		return &model.Error{Kind: model.KindUnavailable, Name: "service_unavailable", Reason: "The index is being rebuilt."}
	}
	st.placed = false
	return nil
}

// expire is the clock's call.
func (st *stream) expire() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.timer = nil
	_ = st.drop() // an error of the iterator would have been seen by Next
}

// drop gives the sight up. The caller holds mu.
func (st *stream) drop() (err error) {
	if st.timer != nil {
		st.timer.Stop()
		st.timer = nil
	}
	if st.sight != nil {
		err = st.sight.close()
		st.sight = nil
	}
	if st.groups != nil {
		st.groups.release()
		st.groups = nil
	}
	return err
}

// Close ends the stream.
func (st *stream) Close() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.shut = true
	return st.drop()
}

// batch makes a batch.
func (st *stream) batch() ([]shardapi.ViewRow, error) {
	st.out, st.places, st.buf, st.ids = st.out[:0], st.places[:0], st.buf[:0], st.ids[:0]
	if st.req.Reduce {
		return st.groupBatch()
	}
	return st.rowBatch()
}

// nextRange goes on to the next range.
func (st *stream) nextRange() { st.at, st.bounded, st.placed = st.at+1, false, false }

// enter makes sure that now is set, and tells false if there is no range left.
func (st *stream) enter() bool {
	if st.at >= len(st.req.Ranges) || st.left == 0 {
		st.ended = true
		return false
	}
	if !st.bounded {
		st.bounds(&st.req.Ranges[st.at])
	}
	return true
}

// rowBatch makes a batch of rows.
func (st *stream) rowBatch() ([]shardapi.ViewRow, error) {
	s := st.sight
	from := st.at
	for st.enter() {
		if len(st.out) >= batchRows || len(st.buf) >= batchBytes || st.at-from >= batchRanges {
			break
		}
		ok, err := st.seek()
		if err != nil {
			return nil, err
		}
		if !ok {
			st.nextRange()
			continue
		}
		for ok && st.left != 0 && len(st.out) < batchRows && len(st.buf) < batchBytes {
			if err := st.take(); err != nil {
				return nil, err
			}
			if st.left > 0 {
				st.left--
			}
			if st.req.Descending {
				ok = s.it.Prev() && bytes.Compare(s.row(), st.now.lo) >= 0
			} else {
				ok = s.it.Next() && below(s.row(), st.now.hi)
			}
		}
		if err := s.it.Error(); err != nil {
			return nil, err
		}
		if !ok {
			st.nextRange()
		} else {
			st.remember()
		}
	}
	st.finish()
	return st.out, nil
}

// seek places the iterator at the next row of the range, and tells false if there
// is none.
func (st *stream) seek() (ok bool, err error) {
	s := st.sight
	switch {
	case st.placed:
		ok = s.it.Valid()
	case !below(st.now.lo, st.now.hi):
		return false, nil
	case st.req.Descending:
		ok, err = s.seekLT(st.now.hi)
	default:
		ok, err = s.seekGE(st.now.lo)
	}
	if err != nil || !ok {
		return false, err
	}
	st.placed = true
	if st.req.Descending {
		return bytes.Compare(s.row(), st.now.lo) >= 0, nil
	}
	return below(s.row(), st.now.hi), nil
}

// remember narrows the range to the rows from the present one on, for the case
// that the sight is given up.
func (st *stream) remember() {
	row := st.sight.row()
	if st.req.Descending {
		st.hiRoom = append(append(st.hiRoom[:0], row...), 0) // the row itself is below
		st.now.hi = st.hiRoom
		return
	}
	st.loRoom = append(st.loRoom[:0], row...)
	st.now.lo = st.loRoom
}

// take puts the present row into the batch.
func (st *stream) take() error {
	s := st.sight
	var r storedRow
	err := r.read(s.it, len(s.prefix), st.x.o.Partitioned)
	if err != nil {
		return err
	}
	if st.buf == nil {
		st.buf, st.ids = make([]byte, 0, 4<<10), make([]byte, 0, 1<<10)
		st.out, st.places = make([]shardapi.ViewRow, 0, 32), make([]place, 0, 32)
	}
	if st.ids, err = r.appendID(st.ids); err != nil {
		return err
	}
	st.put(r.sort, r.key, r.value)
	return nil
}

// put puts a row into the batch; its id is in ids already.
func (st *stream) put(sort, key, value []byte) {
	var p place
	st.buf = append(st.buf, sort...)
	p.sort = len(st.buf)
	st.buf = append(st.buf, key...)
	p.key = len(st.buf)
	st.buf = append(st.buf, value...)
	p.value, p.id = len(st.buf), len(st.ids)
	st.places = append(st.places, p)
	st.out = append(st.out, shardapi.ViewRow{Range: st.at})
}

// finish turns places into slices, when the bytes of the batch have stopped moving.
func (st *stream) finish() {
	ids, at, id := string(st.ids), 0, 0
	for i := range st.out {
		r, p := &st.out[i], st.places[i]
		r.Sort = st.buf[at:p.sort:p.sort]
		r.Key = st.buf[p.sort:p.key:p.key]
		r.Value = st.buf[p.key:p.value:p.value]
		r.ID = ids[id:p.id]
		at, id = p.value, p.id
	}
}
