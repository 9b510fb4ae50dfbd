package httpapi

import (
	"io"
	"net/http"
	"strconv"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/design"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// listView answers with what a list function makes of a view's rows. The view may
// be one of another design document, which the path names before it.
func listView(a *API, rq *request) error {
	s, err := a.script(rq, "list", func(d *design.Doc) map[string]string { return d.Lists })
	if err != nil {
		return err
	}
	ddoc, view := rq.param("ddoc"), rq.param("first")
	if other := rq.param("second"); other != "" {
		ddoc, view = view, other
	}
	rq.params = append(rq.params, pathParam{"view", view})
	doc, err := a.Designs.Get(rq.ctx(), s.db, design.Prefix+ddoc)
	if err != nil {
		return err
	}
	va := &askedView{a: a, rq: rq, db: s.db, doc: doc}
	src := &viewSource{rq: rq, maxDepth: a.Limits.MaxDepth}
	body, release, err := rq.scriptBody()
	defer release()
	if err != nil {
		return err
	}
	if rq.method == http.MethodPost && len(body) > 0 && rq.requireJSON() == nil {
		if src.obj, err = rawjson.Normalize(nil, body, a.Limits.MaxDepth); err != nil || rawjson.KindOf(src.obj) != rawjson.KindObject {
			return errInvalidJSON
		}
	}
	asked, q, err := va.read(src)
	if err != nil {
		return err
	}
	req, err := a.scriptRequest(rq, s.db, "", body)
	if err != nil {
		return err
	}
	rows, err := va.open(asked, q)
	if err != nil {
		return err
	}
	defer rows.close()
	l := &listing{rq: rq, db: s.db, rows: rows}
	err = a.JS.List(rq.ctx(), s.prog, s.fn, l.head(), req, jsvm.ListIO{Row: l.row, Start: l.start, Send: l.send})
	if err != nil {
		return jsvm.ClientError("list", err)
	}
	if l.st == nil { // a function that says nothing at all
		if err := l.start([]byte("{}")); err != nil {
			return err
		}
	}
	return l.st.end()
}

// listing is a list under way: rows on one side, the answer on the other.
type listing struct {
	rq   *request
	db   *cluster.Database
	rows *viewRows
	st   *stream

	batch []shardapi.ViewRow
	docs  []*model.Doc
	buf   []byte
}

// head is what the function learns before the rows.
func (l *listing) head() []byte {
	v := l.rows
	b := []byte{'{'}
	if !v.q.reduced && v.q.sorted {
		b = append(b, `"total_rows":`...)
		b = strconv.AppendInt(b, v.head.TotalRows, 10)
		b = append(b, `,"offset":`...)
		b = strconv.AppendInt(b, v.offset(), 10)
	}
	if v.q.updateSeq && v.head.Seqs != nil {
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, `"update_seq":`...)
		b = v.a.appendToken(b, v.db, v.head.Seqs)
	}
	return append(b, '}')
}

// row gives the next row, nil after the last.
func (l *listing) row() ([]byte, error) {
	for len(l.batch) == 0 {
		var err error
		if l.batch, l.docs, err = l.rows.next(); err == io.EOF {
			return nil, nil
		} else if err != nil {
			return nil, err
		}
	}
	row := &l.batch[0]
	l.batch = l.batch[1:]
	b := append(l.buf[:0], '{')
	if !l.rows.q.reduced {
		b = append(b, `"id":`...)
		b = append(rawjson.AppendString(b, row.ID), ',')
	}
	b = append(append(b, `"key":`...), row.Key...)
	b = append(append(b, `,"value":`...), row.Value...)
	if l.docs != nil {
		doc := l.docs[0]
		l.docs = l.docs[1:]
		b = append(b, `,"doc":`...)
		if doc == nil {
			b = append(b, "null"...)
		} else {
			var err error
			if b, err = document.Append(b, doc, &document.PrintOptions{Conflicts: l.rows.q.conflicts == yes}); err != nil {
				return nil, err
			}
		}
	}
	l.buf = append(b, '}')
	return l.buf, nil
}

// start sends the headers that the function wants.
func (l *listing) start(answer []byte) error {
	contentType := "text/html; charset=utf-8"
	if _, ok := rawjson.Get(answer, "json"); ok {
		contentType = typeJSON
	}
	status, err := l.rq.renderedHead(answer, http.StatusOK, contentType)
	if err != nil {
		return err
	}
	l.st = l.rq.startStream(status, true)
	return nil
}

// send takes a piece of the answer. It goes out at once: a list may take its time
// between two pieces.
func (l *listing) send(piece []byte) error {
	l.st.buf = append(l.st.buf, piece...)
	return l.st.sendIfFull()
}
