package index

import (
	"context"
	"errors"
	"io"
	"math"
	"strings"

	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/shardapi"
)

// The size of a batch: what one call of Process gets.
const (
	batchDocs  = 200
	batchBytes = 1 << 20
	// batchChanges bounds a batch of changes that are no documents for the index.
	batchChanges = 4000
)

const designPrefix = "_design/"

// reader cuts the log of a copy into batches of documents.
type reader struct {
	stream  shardapi.ChangeStream
	print   document.PrintOptions
	design  bool // design documents too
	upTo    uint64
	rows    []shardapi.Change // what is left of the stream's batch
	ended   bool
	docs    []docSpan
	ids     []byte
	texts   []byte
	changes int64
}

// docSpan is where the id and the text of a document end; live is false for a
// deleted one.
type docSpan struct {
	id, text int
	live     bool
}

// batch is a run of the log.
type batch struct {
	docs    []Doc
	bytes   int
	changes int64  // rows of the log that it stands for
	seq     uint64 // everything up to here is in this batch or in one before
	last    bool
}

// open begins to read after since; upTo 0 means to the end.
func open(ctx context.Context, src Source, since, upTo uint64, design, localSeq bool) (*reader, error) {
	stream, err := src.Changes(ctx, &shardapi.ChangesRequest{Since: since, Limit: -1, IncludeDocs: true, Want: shardapi.WantBody | shardapi.WantLeaves})
	if err != nil {
		return nil, err
	}
	if upTo == 0 {
		upTo = math.MaxUint64
	}
	return &reader{stream: stream, design: design, upTo: upTo,
		print: document.PrintOptions{Conflicts: true, DeletedConflicts: true, LocalSeq: localSeq}}, nil
}

// next gives the next batch; the last one says so.
func (r *reader) next() (*batch, error) {
	b := &batch{}
	for !r.full() {
		if len(r.rows) == 0 {
			if err := r.fill(); err != nil {
				return nil, err
			}
			if r.ended {
				b.last, b.seq = true, r.stream.Seq()
				if r.upTo != math.MaxUint64 {
					b.seq = r.upTo
				}
				break
			}
			continue
		}
		row := &r.rows[0]
		if row.Seq > r.upTo {
			b.last, b.seq = true, r.upTo
			break
		}
		if err := r.take(row); err != nil {
			return nil, err
		}
		b.seq, r.rows = row.Seq, r.rows[1:]
	}
	r.seal(b)
	return b, nil
}

// full tells whether the batch must go out.
func (r *reader) full() bool {
	return len(r.docs) >= batchDocs || len(r.texts) >= batchBytes || r.changes >= batchChanges
}

// fill gets the stream's next batch.
func (r *reader) fill() (err error) {
	r.rows, err = r.stream.Next()
	if errors.Is(err, io.EOF) {
		r.ended = true
		return nil
	}
	return err
}

// take adds a change.
func (r *reader) take(row *shardapi.Change) (err error) {
	r.changes++
	if !r.design && strings.HasPrefix(row.ID, designPrefix) {
		return nil
	}
	live := !row.Deleted() && row.Doc != nil
	if live {
		if r.texts, err = document.Append(r.texts, row.Doc, &r.print); err != nil {
			return err
		}
	}
	r.ids = append(r.ids, row.ID...)
	r.docs = append(r.docs, docSpan{id: len(r.ids), text: len(r.texts), live: live})
	return nil
}

// seal gives the batch its documents. What the stream gave is its own and is
// gone with its next batch, so ids and texts were copied; a batch has its own.
func (r *reader) seal(b *batch) {
	ids, texts := string(r.ids), append(make([]byte, 0, len(r.texts)), r.texts...)
	b.docs, b.bytes, b.changes = make([]Doc, len(r.docs)), len(texts)+len(ids), r.changes
	var at docSpan
	for i, d := range r.docs {
		b.docs[i].ID = ids[at.id:d.id]
		if d.live {
			b.docs[i].Text = texts[at.text:d.text:d.text]
		}
		at = d
	}
	r.docs, r.ids, r.texts, r.changes = r.docs[:0], r.ids[:0], r.texts[:0], 0
	if cap(r.texts) > 4*batchBytes {
		r.texts = nil // it held one large document
	}
}

// close ends the reading.
func (r *reader) close() error { return r.stream.Close() }
