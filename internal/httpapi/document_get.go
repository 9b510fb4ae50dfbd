package httpapi

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// getDocument answers GET and HEAD of a document.
func getDocument(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	if _, err := rq.q(); err != nil {
		return err
	}
	view, err := readView(rq)
	if err != nil {
		return err
	}
	since, err := rq.jsonParam("atts_since")
	if err != nil {
		return err
	}
	if err := view.readAttsSince(since); err != nil {
		return err
	}
	r, err := rq.quorum("r")
	if err != nil {
		return err
	}
	q := shardapi.DocQuery{ID: rq.docID(), Want: view.want}
	if q.Latest, err = rq.boolean("latest", false); err != nil {
		return err
	}
	if open, ok := rq.str("open_revs"); ok {
		return a.getOpenRevs(rq, db, &q, view, open, r)
	}
	if s, ok := rq.str("rev"); ok {
		rev, err := model.ParseRev(s)
		if err != nil {
			return err
		}
		q.Revs = []model.Rev{rev}
	}
	answers, err := a.Coordinator.Read(rq.ctx(), db, []shardapi.DocQuery{q}, r)
	if err != nil {
		return err
	}
	ans := &answers[0]
	if len(ans.Docs) == 0 {
		return model.ErrMissing
	}
	doc := &ans.Docs[0]
	if doc.Deleted && len(q.Revs) == 0 {
		return model.ErrDeleted
	}
	return a.writeDocument(rq, db, doc, view)
}

// writeDocument answers with one revision.
func (a *API) writeDocument(rq *request, db *cluster.Database, doc *model.Doc, view *docView) error {
	if !view.extras {
		tag := quoteRev(doc.Rev)
		rq.values[2] = tag
		rq.w.Header()["Etag"] = rq.values[2:3:3]
		if rq.etagMatches(tag) {
			rq.w.Header().Set("Cache-Control", "must-revalidate")
			rq.w.WriteHeader(http.StatusNotModified)
			return nil
		}
	}
	if view.attachments && len(doc.Atts) > 0 {
		if rq.accepts("multipart/related") && !rq.accepts(typeJSON) {
			return a.writeDocMultipart(rq, db, doc, view)
		}
		// Attachments may be large: stream instead of building a body.
		rq.jsonHeaders()
		st := rq.startStream(http.StatusOK, true)
		if _, err := document.Write(st, nil, doc, view.options(rq.ctx(), a, db, doc, document.AttInline)); err != nil {
			return err
		}
		st.buf = append(st.buf, '\n')
		return st.end()
	}
	// Room for what is around the body too: id, revision, and the newline at the end.
	b, err := document.Append(make([]byte, 0, len(doc.Body)+len(doc.ID)+128), doc, view.options(rq.ctx(), a, db, doc, document.AttStub))
	if err != nil {
		return err
	}
	rq.json(http.StatusOK, b)
	return nil
}

// quoteRev is the ETag of a revision.
func quoteRev(r model.Rev) string {
	b := append(make([]byte, 0, 48), '"')
	return string(append(r.Append(b), '"'))
}

// getOpenRevs answers GET with open_revs: several leaves, as JSON or multipart.
func (a *API) getOpenRevs(rq *request, db *cluster.Database, q *shardapi.DocQuery, view *docView, open string, r int) error {
	if strings.Trim(open, `" `) == "all" {
		q.AllLeaves = true
	} else {
		v, err := rawjson.Normalize(nil, []byte(open), rq.api.Limits.MaxDepth)
		if err != nil {
			return errInvalidJSON
		}
		if q.Revs, err = parseRevs(v); err != nil {
			return err
		}
	}
	ans := &shardapi.DocAnswer{}
	if q.AllLeaves || len(q.Revs) > 0 {
		answers, err := a.Coordinator.Read(rq.ctx(), db, []shardapi.DocQuery{*q}, r)
		if err != nil {
			return err
		}
		ans = &answers[0]
	}
	if q.AllLeaves && !ans.Found {
		return model.ErrMissing
	}
	sortRevisions(ans.Docs)
	if rq.acceptsMultipart() {
		return a.writeOpenRevsMultipart(rq, db, ans, view)
	}
	rq.jsonHeaders()
	st := rq.startStream(http.StatusOK, true)
	st.buf = append(st.buf, '[')
	n := 0
	sep := func() {
		if n > 0 {
			st.buf = append(st.buf, ',')
		}
		n++
	}
	for i := range ans.Docs {
		sep()
		st.buf = append(st.buf, `{"ok":`...)
		if err := st.document(a, rq, db, &ans.Docs[i], view); err != nil {
			return err
		}
		st.buf = append(st.buf, '}')
	}
	for _, rev := range ans.Missing {
		sep()
		st.buf = append(st.buf, `{"missing":"`...)
		st.buf = rev.Append(st.buf)
		st.buf = append(st.buf, `"}`...)
	}
	st.buf = append(st.buf, "]\n"...)
	return st.end()
}

// sortRevisions puts several revisions of a document into the order in which CouchDB
// lists them: by position, then by hash.
func sortRevisions(docs []model.Doc) {
	slices.SortFunc(docs, func(a, b model.Doc) int {
		return cmp.Or(cmp.Compare(a.Rev.Pos, b.Rev.Pos), cmp.Compare(a.Rev.Hash, b.Rev.Hash))
	})
}

// document appends one document to the stream, attachments inline where asked.
func (st *stream) document(a *API, rq *request, db *cluster.Database, d *model.Doc, view *docView) error {
	o := view.options(rq.ctx(), a, db, d, document.AttInline)
	if o.Attachments == nil {
		var err error
		st.buf, err = document.Append(st.buf, d, o)
		if err != nil {
			return err
		}
		return st.sendIfFull()
	}
	_, err := document.Write(st, nil, d, o)
	return err
}

// Write makes a stream an io.Writer for parts that are written, not appended.
func (st *stream) Write(p []byte) (int, error) {
	st.buf = append(st.buf, p...)
	return len(p), st.sendIfFull()
}

// acceptsMultipart tells whether the client wants parts and not JSON.
func (rq *request) acceptsMultipart() bool {
	return (rq.accepts("multipart/mixed") || rq.accepts("multipart/related")) && !rq.accepts(typeJSON)
}
