package httpapi

import (
	"net/http"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// bulkGetItem is one entry of a _bulk_get: a query, or the error that its own
// words deserve.
type bulkGetItem struct {
	query     shardapi.DocQuery
	id, rev   []byte      // as asked, as JSON, for error entries
	attsSince []model.Rev // of this entry
	err       *model.Error
}

// bulkGetBatch is how many documents are read at once: enough to share the way to
// the copies, few enough to stay small in memory.
const bulkGetBatch = 64

// bulkGet answers POST _bulk_get.
func bulkGet(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	if err := rq.requireJSON(); err != nil {
		return err
	}
	if _, err := rq.q(); err != nil {
		return err
	}
	for _, name := range []string{"open_revs", "new_edits", "w", "rev", "atts_since"} {
		if _, ok := rq.str(name); ok {
			return queryParseError("`" + name + "` query parameter is not supported here.")
		}
	}
	view, err := readView(rq)
	if err != nil {
		return err
	}
	latest, err := rq.boolean("latest", false)
	if err != nil {
		return err
	}
	body, release, err := rq.readJSON()
	defer release()
	if err != nil {
		return err
	}
	items, err := readBulkGet(body, view, latest)
	if err != nil {
		return err
	}
	if rq.acceptsMultipart() {
		return a.writeBulkGetMultipart(rq, db, items, view)
	}
	rq.jsonHeaders()
	st := rq.startStream(http.StatusOK, true)
	st.buf = append(st.buf, `{"results":[`...)
	err = a.eachBulkGet(rq, db, items, func(i int, ans *shardapi.DocAnswer) error {
		if i > 0 {
			st.buf = append(st.buf, ',')
		}
		return st.bulkGetResult(a, rq, db, &items[i], ans, view)
	})
	if err != nil {
		return err
	}
	st.buf = append(st.buf, "]}\n"...)
	return st.end()
}

// readBulkGet reads {"docs":[{"id":…,"rev":…,"atts_since":…}]}.
func readBulkGet(body []byte, view *docView, latest bool) ([]bulkGetItem, error) {
	docs, ok := rawjson.Get(body, "docs")
	if !ok {
		return nil, model.BadRequest("Missing JSON list of 'docs'.")
	}
	if rawjson.KindOf(docs) != rawjson.KindArray {
		return nil, model.BadRequest("`docs` parameter must be an array.")
	}
	if err := checkEntries(rawjson.Len(docs)); err != nil {
		return nil, err
	}
	items := make([]bulkGetItem, 0, rawjson.Len(docs))
	for doc := range rawjson.Elements(docs) {
		it := bulkGetItem{query: shardapi.DocQuery{Want: view.want, Latest: latest}, id: jsonNull, rev: jsonNull}
		it.err = it.read(doc)
		items = append(items, it)
	}
	return items, nil
}

// jsonNull stands for the id and revision of an entry that names none.
var jsonNull = []byte("null")

// read reads one entry. What is wrong with it is the answer to this entry only: the
// others are asked for all the same.
func (it *bulkGetItem) read(doc []byte) *model.Error {
	if rawjson.KindOf(doc) != rawjson.KindObject {
		return model.BadRequest("document must be a JSON object")
	}
	id, ok := rawjson.Get(doc, "id")
	if !ok {
		return model.BadRequest("document id missed")
	}
	it.id = id
	if v, ok := rawjson.Get(doc, "rev"); ok && string(v) != "null" {
		it.rev = v
		s, isString := rawjson.String(v)
		rev, err := model.ParseRev(s)
		if !isString || err != nil {
			return model.ErrRevFormat
		}
		it.query.Revs = []model.Rev{rev}
	} else {
		it.query.AllLeaves = true // conflicts too: a backup must not lose them
	}
	if it.query.ID, ok = rawjson.String(id); !ok || it.query.ID == "" {
		return &model.Error{Kind: model.KindBadRequest, Name: "illegal_docid", Reason: "Document id must be a non-empty string"}
	}
	if v, ok := rawjson.Get(doc, "atts_since"); ok && string(v) != "null" {
		revs, err := parseRevs(v)
		if err != nil {
			return asModelError(err)
		}
		it.attsSince = revs
		if len(revs) > 0 {
			it.query.Want |= shardapi.WantPath
		}
	}
	return nil
}

// eachBulkGet reads the items in batches and gives the answers in order; an item
// with an error of its own gets a nil answer.
func (a *API) eachBulkGet(rq *request, db *cluster.Database, items []bulkGetItem, do func(i int, ans *shardapi.DocAnswer) error) error {
	for from := 0; from < len(items); from += bulkGetBatch {
		batch := items[from:min(from+bulkGetBatch, len(items))]
		queries := make([]shardapi.DocQuery, 0, len(batch))
		for i := range batch {
			if batch[i].err == nil {
				queries = append(queries, batch[i].query)
			}
		}
		answers, err := a.Coordinator.Read(rq.ctx(), db, queries, 0)
		if err != nil {
			return err
		}
		for i := range batch {
			var ans *shardapi.DocAnswer
			if batch[i].err == nil {
				ans, answers = &answers[0], answers[1:]
				sortRevisions(ans.Docs)
			}
			if err := do(from+i, ans); err != nil {
				return err
			}
		}
	}
	return nil
}

// viewOf gives the view of one item, which may have an atts_since of its own.
func (it *bulkGetItem) viewOf(view *docView) *docView {
	if it.attsSince == nil {
		return view
	}
	own := *view
	own.attsSince, own.hasSince = it.attsSince, true
	own.attachments = view.attachments || len(it.attsSince) > 0
	return &own
}

// bulkGetResult appends {"id":…,"docs":[…]}.
func (st *stream) bulkGetResult(a *API, rq *request, db *cluster.Database, it *bulkGetItem, ans *shardapi.DocAnswer, view *docView) error {
	st.buf = append(st.buf, `{"id":`...)
	st.buf = append(st.buf, it.id...)
	st.buf = append(st.buf, `,"docs":[`...)
	n := 0
	if ans != nil {
		for i := range ans.Docs {
			if n > 0 {
				st.buf = append(st.buf, ',')
			}
			n++
			st.buf = append(st.buf, `{"ok":`...)
			if err := st.document(a, rq, db, &ans.Docs[i], it.viewOf(view)); err != nil {
				return err
			}
			st.buf = append(st.buf, '}')
		}
	}
	if n == 0 {
		st.buf = append(st.buf, `{"error":`...)
		st.buf = it.appendError(st.buf)
		st.buf = append(st.buf, '}')
	}
	st.buf = append(st.buf, "]}"...)
	return st.sendIfFull()
}

// appendError is the error object of an item that gives no document.
func (it *bulkGetItem) appendError(b []byte) []byte {
	e, rev := it.err, it.rev
	if e == nil {
		e = model.ErrMissing
		if it.query.AllLeaves {
			rev = []byte(`"undefined"`)
		}
	}
	b = append(b, `{"id":`...)
	b = append(b, it.id...)
	b = append(b, `,"rev":`...)
	b = append(b, rev...)
	b = append(b, ',')
	return append(b, errorBody(e.Name, e.Reason)[1:]...)
}
