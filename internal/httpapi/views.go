package httpapi

import (
	"net/http"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/design"
	"github.com/divandb/divan/internal/designs"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// getView answers one view, asked by GET or POST.
func getView(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	return a.answerView(rq, db, "")
}

// partitionView answers one view about one partition.
func partitionView(a *API, rq *request) error {
	db, partition, err := rq.partition()
	if err != nil {
		return err
	}
	if p, ok := rq.str("partition"); ok && p != partition {
		return model.BadRequest("Conflicting value for `partition` in query string")
	}
	return a.answerView(rq, db, partition)
}

// viewQueries answers several questions to one view.
func viewQueries(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	va, err := a.askedView(rq, db, "")
	if err != nil {
		return err
	}
	body, release, err := rq.viewBody()
	defer release()
	if err != nil {
		return err
	}
	queries, ok := rawjson.Get(body, "queries")
	if !ok {
		return model.BadRequest("POST body must include `queries` parameter.")
	}
	return va.answerQueries(queries)
}

// viewBody reads the body of a question: a JSON object.
func (rq *request) viewBody() (body []byte, release func(), err error) {
	if err := rq.requireJSON(); err != nil {
		return nil, func() {}, err
	}
	body, release, err = rq.readJSON()
	if err == nil && rawjson.KindOf(body) != rawjson.KindObject {
		err = model.BadRequest("Request body must be a JSON object")
	}
	return body, release, err
}

// askedView is a design document that a request asks for one of its views.
type askedView struct {
	a         *API
	rq        *request
	db        *cluster.Database
	partition string // of the path; empty if it names none
	doc       *design.Doc
}

// askedView finds the design document of the path. It is looked for before the
// parameters are read, and the view after that, as CouchDB does it.
func (a *API) askedView(rq *request, db *cluster.Database, partition string) (*askedView, error) {
	doc, err := a.Designs.Get(rq.ctx(), db, design.Prefix+rq.param("ddoc"))
	if err != nil {
		return nil, err
	}
	return &askedView{a: a, rq: rq, db: db, partition: partition, doc: doc}, nil
}

// answerView answers a view of the path.
func (a *API) answerView(rq *request, db *cluster.Database, partition string) error {
	va, err := a.askedView(rq, db, partition)
	if err != nil {
		return err
	}
	src := &viewSource{rq: rq, maxDepth: a.Limits.MaxDepth}
	if rq.method == http.MethodPost {
		body, release, err := rq.viewBody()
		defer release()
		if err != nil {
			return err
		}
		if queries, ok := rawjson.Get(body, "queries"); ok {
			if _, ok := rawjson.Get(body, "keys"); ok {
				return model.BadRequest("`keys` and `queries` are mutually exclusive")
			}
			return va.answerQueries(queries)
		}
		src.obj = body
	}
	view, q, err := va.read(src)
	if err != nil {
		return err
	}
	rows, err := va.open(view, q)
	if err != nil {
		return err
	}
	defer rows.close()
	st := rq.startRows()
	if rq.r.Method == http.MethodHead {
		return st.end() // nobody sees the rows: do not read them
	}
	if err := rows.write(st); err != nil {
		return err
	}
	st.buf = append(st.buf, '\n')
	return st.end()
}

// answerQueries answers several questions, one after the other.
func (va *askedView) answerQueries(queries []byte) error {
	if rawjson.KindOf(queries) != rawjson.KindArray {
		return model.BadRequest("`queries` body member must be an array.")
	}
	if err := checkEntries(rawjson.Len(queries)); err != nil {
		return err
	}
	// All questions are understood before the first answer goes out. They are read
	// again then, since there may be very many.
	source := func(obj []byte) *viewSource {
		return &viewSource{rq: va.rq, obj: obj, objFirst: true, maxDepth: va.a.Limits.MaxDepth}
	}
	for obj := range rawjson.Elements(queries) {
		if rawjson.KindOf(obj) != rawjson.KindObject {
			return model.BadRequest("`queries` must be an array of objects.")
		}
		if _, _, err := va.read(source(obj)); err != nil {
			return err
		}
	}
	var st *stream
	for obj := range rawjson.Elements(queries) {
		view, q, err := va.read(source(obj))
		if err != nil {
			return err
		}
		rows, err := va.open(view, q)
		if err != nil {
			return err
		}
		if st == nil { // what fails at once still gets a status of its own
			st = va.rq.startRows()
			st.buf = append(st.buf, "{\"results\":[\r\n"...)
		} else {
			st.buf = append(st.buf, ",\r\n"...)
		}
		err = rows.write(st)
		rows.close()
		if err != nil {
			return err
		}
	}
	if st == nil {
		st = va.rq.startRows()
		st.buf = append(st.buf, "{\"results\":[\r\n"...)
	}
	st.buf = append(st.buf, "\r\n]}\n"...)
	return st.end()
}

// startRows begins an answer of rows.
func (rq *request) startRows() *stream {
	rq.jsonHeaders()
	rq.w.Header().Set("ETag", randomETag())
	return rq.startStream(http.StatusOK, true)
}

// read reads a question and finds the view it is put to.
func (va *askedView) read(src *viewSource) (*design.View, *viewQuery, error) {
	q, err := readViewQuery(src)
	if err != nil {
		return nil, nil, err
	}
	if va.partition != "" {
		if q.partition != "" && q.partition != va.partition {
			return nil, nil, model.BadRequest("Conflicting value for `partition` in query string")
		}
		q.partition = va.partition
	}
	view, err := va.doc.NamedView(va.rq.param("view"))
	if err != nil {
		return nil, nil, err
	}
	return view, q, q.fit(view)
}

// open asks the copies, so that what can fail fails before the status goes out.
func (va *askedView) open(view *design.View, q *viewQuery) (*viewRows, error) {
	req := &coordinator.ViewRequest{
		ViewRequest: shardapi.ViewRequest{
			Def:        designs.ViewDef(va.db, va.doc, view),
			Update:     q.update,
			Partition:  q.partition,
			Ranges:     q.ranges(),
			Descending: q.descending,
			Limit:      q.limit,
			Reduce:     q.reduced,
			GroupLevel: q.level,
			Offset:     !q.reduced && q.sorted && q.keys == nil,
		},
		Skip: q.skip,
	}
	if len(req.Ranges) == 0 { // keys=[]: only the totals are asked for
		req.Ranges, req.Limit = []shardapi.KeyRange{{}}, 0
	}
	head, rows, err := va.a.Coordinator.View(va.rq.ctx(), va.db, req)
	if err != nil {
		return nil, err
	}
	v := &viewRows{a: va.a, rq: va.rq, db: va.db, q: q, head: head, rows: rows}
	if err := v.fetchFirst(); err != nil {
		v.close()
		return nil, err
	}
	return v, nil
}
