package httpapi

import (
	"io"
	"strconv"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// viewRows is the answer of a view whose first rows are there.
type viewRows struct {
	a     *API
	rq    *request
	db    *cluster.Database
	q     *viewQuery
	head  *coordinator.ViewHead
	rows  shardapi.Stream[shardapi.ViewRow]
	first []shardapi.ViewRow // the first rows, not shown yet
	ended bool               // rows has no more
}

func (v *viewRows) close() {
	_ = v.rows.Close() // reading is over; there is nothing left to fail
}

// fetchFirst reads on until there is a row.
func (v *viewRows) fetchFirst() error {
	for len(v.first) == 0 && !v.ended {
		if err := v.fetch(); err != nil {
			return err
		}
	}
	return nil
}

// fetch reads the next rows into first.
func (v *viewRows) fetch() (err error) {
	v.first, err = v.rows.Next()
	if err == io.EOF {
		v.first, v.ended = nil, true
		return nil
	}
	return v.a.Coordinator.Explain(v.db, err)
}

// next gives the next rows and, with include_docs, their documents, nil where there
// is none. They are valid until the next call. At the end it gives io.EOF.
func (v *viewRows) next() ([]shardapi.ViewRow, []*model.Doc, error) {
	if err := v.fetchFirst(); err != nil {
		return nil, nil, err
	}
	if v.ended && len(v.first) == 0 {
		return nil, nil, io.EOF
	}
	rows := v.first
	if !v.q.includeDocs {
		v.first = nil
		return rows, nil, nil
	}
	// Documents are large: some rows at a time.
	rows = rows[:min(len(rows), coordinator.ViewDocsBatch)]
	v.first = v.first[len(rows):]
	docs, err := v.a.Coordinator.ViewDocs(v.rq.ctx(), v.db, rows, v.q.view.want)
	return rows, docs, err
}

// offset is where in the view the rows begin. Several keys are no run, so that there
// is nothing before them but what is skipped.
func (v *viewRows) offset() int64 {
	if v.q.keys != nil {
		return min(v.q.skip, v.head.TotalRows)
	}
	return v.head.Offset
}

// write appends the whole answer to the stream.
func (v *viewRows) write(st *stream) error {
	st.buf = append(st.buf, '{')
	// Without sorting, clients do not get totals, and a reduction has none.
	if !v.q.reduced && v.q.sorted {
		st.buf = append(st.buf, `"total_rows":`...)
		st.buf = strconv.AppendInt(st.buf, v.head.TotalRows, 10)
		st.buf = append(st.buf, `,"offset":`...)
		st.buf = strconv.AppendInt(st.buf, v.offset(), 10)
		st.buf = append(st.buf, ',')
	}
	if v.q.updateSeq && v.head.Seqs != nil {
		st.buf = append(st.buf, `"update_seq":`...)
		st.buf = v.a.appendToken(st.buf, v.db, v.head.Seqs)
		st.buf = append(st.buf, ',')
	}
	st.buf = append(st.buf, "\"rows\":[\r\n"...)
	for first := true; ; {
		rows, docs, err := v.next()
		if err == io.EOF {
			st.buf = append(st.buf, "\r\n]}"...)
			return nil
		}
		if err != nil {
			return err
		}
		for i := range rows {
			if !first {
				st.buf = append(st.buf, ",\r\n"...)
			}
			first = false
			var doc *model.Doc
			if docs != nil {
				doc = docs[i]
			}
			if err := v.row(st, &rows[i], doc); err != nil {
				return err
			}
		}
	}
}

// row appends one row.
func (v *viewRows) row(st *stream, row *shardapi.ViewRow, doc *model.Doc) error {
	if row.Err != nil { // it has no key, as in CouchDB
		st.buf = append(st.buf, `{"key":null,"error":`...)
		st.buf = rawjson.AppendString(st.buf, row.Err.Name)
		st.buf = append(st.buf, `,"reason":`...)
		st.buf = rawjson.AppendString(st.buf, row.Err.Reason)
		st.buf = append(st.buf, '}')
		return st.sendIfFull()
	}
	st.buf = append(st.buf, '{')
	if !v.q.reduced {
		st.buf = append(st.buf, `"id":`...)
		st.buf = rawjson.AppendString(st.buf, row.ID)
		st.buf = append(st.buf, ',')
	}
	st.buf = append(st.buf, `"key":`...)
	st.buf = append(st.buf, row.Key...)
	st.buf = append(st.buf, `,"value":`...)
	st.buf = append(st.buf, row.Value...)
	if v.q.includeDocs {
		st.buf = append(st.buf, `,"doc":`...)
		if doc == nil {
			st.buf = append(st.buf, "null"...)
		} else if err := st.document(v.a, v.rq, v.db, doc, v.q.view); err != nil {
			return err
		}
	}
	st.buf = append(st.buf, '}')
	return st.sendIfFull()
}
