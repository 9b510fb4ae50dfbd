package httpapi

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

func allDocs(a *API, rq *request) error           { return a.list(rq, shardapi.TableDocs) }
func designDocs(a *API, rq *request) error        { return a.list(rq, shardapi.TableDesign) }
func localDocs(a *API, rq *request) error         { return a.list(rq, shardapi.TableLocal) }
func allDocsQueries(a *API, rq *request) error    { return a.listQueries(rq, shardapi.TableDocs) }
func designDocsQueries(a *API, rq *request) error { return a.listQueries(rq, shardapi.TableDesign) }
func localDocsQueries(a *API, rq *request) error  { return a.listQueries(rq, shardapi.TableLocal) }

// list answers one list, asked by GET or POST.
func (a *API) list(rq *request, table shardapi.Table) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	return a.listIn(rq, db, table, "")
}

func (a *API) listIn(rq *request, db *cluster.Database, table shardapi.Table, partition string) error {
	if _, err := rq.q(); err != nil {
		return err
	}
	var src listSource = rq
	if rq.method == http.MethodPost {
		if err := rq.requireJSON(); err != nil {
			return err
		}
		body, release, err := rq.readJSON()
		defer release()
		if err != nil {
			return err
		}
		if rawjson.KindOf(body) != rawjson.KindObject {
			return model.BadRequest("Request body must be a JSON object")
		}
		if queries, ok := rawjson.Get(body, "queries"); ok {
			return a.answerQueries(rq, db, table, partition, queries)
		}
		src = bodySource{rq, body}
	}
	q, err := readList(src, a.Limits.MaxDepth)
	if err != nil {
		return err
	}
	l, err := a.openList(rq, db, table, partition, q)
	if err != nil {
		return err
	}
	defer l.close()
	rq.jsonHeaders()
	rq.w.Header().Set("ETag", randomETag())
	st := rq.startStream(http.StatusOK, true)
	if rq.r.Method == http.MethodHead {
		return st.end() // nobody sees the rows: do not read them
	}
	if err := l.write(st); err != nil {
		return err
	}
	st.buf = append(st.buf, '\n')
	return st.end()
}

// listQueries answers several lists in one request.
func (a *API) listQueries(rq *request, table shardapi.Table) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	if err := rq.requireJSON(); err != nil {
		return err
	}
	body, release, err := rq.readJSON()
	defer release()
	if err != nil {
		return err
	}
	queries, ok := rawjson.Get(body, "queries")
	if !ok {
		return model.BadRequest("POST body must include `queries` parameter.")
	}
	return a.answerQueries(rq, db, table, "", queries)
}

func (a *API) answerQueries(rq *request, db *cluster.Database, table shardapi.Table, partition string, queries []byte) error {
	if rawjson.KindOf(queries) != rawjson.KindArray {
		return model.BadRequest("`queries` must be an array of objects.")
	}
	if err := checkEntries(rawjson.Len(queries)); err != nil {
		return err
	}
	// All questions are understood before the first answer goes out.
	var parsed []*listQuery
	for obj := range rawjson.Elements(queries) {
		if rawjson.KindOf(obj) != rawjson.KindObject {
			return model.BadRequest("`queries` must be an array of objects.")
		}
		q, err := readList(bodySource{obj: obj}, a.Limits.MaxDepth)
		if err != nil {
			return err
		}
		parsed = append(parsed, q)
	}
	rq.jsonHeaders()
	rq.w.Header().Set("ETag", randomETag())
	st := rq.startStream(http.StatusOK, true)
	st.buf = append(st.buf, "{\"results\":[\r\n"...)
	for i, q := range parsed {
		if i > 0 {
			st.buf = append(st.buf, ",\r\n"...)
		}
		l, err := a.openList(rq, db, table, partition, q)
		if err != nil {
			return err
		}
		err = l.write(st)
		l.close()
		if err != nil {
			return err
		}
	}
	st.buf = append(st.buf, "\r\n]}\n"...)
	return st.end()
}

// openedList is a list whose first answer from the copies is there.
type openedList struct {
	a      *API
	rq     *request
	db     *cluster.Database
	table  shardapi.Table
	inside string // ids outside do not exist: "" or a partition's "name:"
	q      *listQuery
	total  int64
	offset int64 // <0: null
	seqs   []uint64
	rows   shardapi.Stream[shardapi.Row] // nil for keys and for empty ranges
	first  []shardapi.Row                // the first batch of rows
}

func (l *openedList) close() {
	if l.rows != nil {
		_ = l.rows.Close() // reading is over; there is nothing left to fail
	}
}

// openList asks the copies, so that what can fail fails before the status goes out.
func (a *API) openList(rq *request, db *cluster.Database, table shardapi.Table, partition string, q *listQuery) (*openedList, error) {
	l := &openedList{a: a, rq: rq, db: db, table: table, q: q}
	if partition != "" {
		l.inside = partition + ":"
	}
	req := &coordinator.ListRequest{Partition: partition}
	req.Table, req.Descending, req.Limit, req.Offset = table, q.descending, 0, true
	start, end, where := q.bounds()
	switch {
	case q.keys != nil || where != spanIDs:
		// Only the totals are asked for.
	default:
		req.Start, req.End, req.ExclusiveEnd = start, end, !q.inclusiveEnd
		req.Limit, req.Skip = q.limit, q.skip
		req.IncludeDocs, req.Want = q.includeDocs, q.want()
	}
	base, err := a.boundPartition(rq, db, partition, req)
	if err != nil {
		return nil, err
	}
	head, rows, err := a.Coordinator.List(rq.ctx(), db, req)
	if err != nil {
		return nil, err
	}
	l.total, l.offset, l.seqs = head.TotalRows, max(head.Offset-base.offset, 0), head.Seqs
	if base.total >= 0 {
		l.total = base.total
	}
	switch {
	case q.keys != nil:
		l.offset = -1
		_ = rows.Close()
	case where != spanIDs:
		if where == spanAfter {
			l.offset = l.total
		}
		_ = rows.Close()
	default:
		l.rows = rows
		if l.first, err = l.next(); err != nil && err != io.EOF {
			l.close()
			return nil, err
		}
	}
	return l, nil
}

// next gives the next rows.
func (l *openedList) next() ([]shardapi.Row, error) {
	rows, err := l.rows.Next()
	if err != nil && err != io.EOF {
		err = l.a.Coordinator.Explain(l.db, err)
	}
	return rows, err
}

// write appends the whole list to the stream.
func (l *openedList) write(st *stream) error {
	st.buf = append(st.buf, `{"total_rows":`...)
	if l.table == shardapi.TableLocal {
		st.buf = append(st.buf, `null,"offset":null`...)
	} else {
		st.buf = strconv.AppendInt(st.buf, l.total, 10)
		st.buf = append(st.buf, `,"offset":`...)
		if l.offset < 0 {
			st.buf = append(st.buf, "null"...)
		} else {
			st.buf = strconv.AppendInt(st.buf, l.offset, 10)
		}
	}
	if l.q.updateSeq && l.seqs != nil {
		st.buf = append(st.buf, `,"update_seq":`...)
		st.buf = l.a.appendToken(st.buf, l.db, l.seqs)
	}
	st.buf = append(st.buf, ",\"rows\":[\r\n"...)
	var err error
	switch {
	case l.q.keys != nil && l.table == shardapi.TableLocal:
		err = l.writeLocalKeys(st)
	case l.q.keys != nil:
		err = l.writeKeys(st)
	case l.rows != nil:
		err = l.writeRows(st)
	}
	if err != nil {
		return err
	}
	st.buf = append(st.buf, "\r\n]}"...)
	return nil
}

func (l *openedList) writeRows(st *stream) error {
	first := true
	for batch := l.first; ; {
		for i := range batch {
			row := &batch[i]
			if !first {
				st.buf = append(st.buf, ",\r\n"...)
			}
			first = false
			st.buf = append(st.buf, `{"id":`...)
			at := len(st.buf)
			st.buf = rawjson.AppendString(st.buf, row.ID)
			end := len(st.buf)
			st.buf = append(st.buf, `,"key":`...)
			st.buf = append(st.buf, st.buf[at:end]...)
			st.buf = append(st.buf, `,"value":{"rev":"`...)
			st.buf = row.Rev.Append(st.buf)
			st.buf = append(st.buf, `"}`...)
			if l.q.includeDocs {
				if err := l.doc(st, row.Doc); err != nil {
					return err
				}
			}
			st.buf = append(st.buf, '}')
			if err := st.sendIfFull(); err != nil {
				return err
			}
		}
		var err error
		if batch, err = l.next(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

// doc appends the doc member of a row.
func (l *openedList) doc(st *stream, d *model.Doc) error {
	st.buf = append(st.buf, `,"doc":`...)
	if d == nil {
		st.buf = append(st.buf, "null"...)
		return nil
	}
	return st.document(l.a, l.rq, l.db, d, l.q.view)
}

// keysBatch is how many keys are looked up at once.
const keysBatch = 256

// keyRun gives the keys that skip, limit and direction leave.
func (l *openedList) keyRun() [][]byte {
	keys := make([][]byte, 0, rawjson.Len(l.q.keys))
	for k := range rawjson.Elements(l.q.keys) {
		keys = append(keys, k)
	}
	if l.q.descending {
		for i, j := 0, len(keys)-1; i < j; i, j = i+1, j-1 {
			keys[i], keys[j] = keys[j], keys[i]
		}
	}
	keys = keys[min(l.q.skip, int64(len(keys))):]
	if l.q.limit >= 0 && l.q.limit < int64(len(keys)) {
		keys = keys[:l.q.limit]
	}
	return keys
}

func (l *openedList) writeKeys(st *stream) error {
	keys := l.keyRun()
	first := true
	for len(keys) > 0 {
		batch := keys[:min(keysBatch, len(keys))]
		keys = keys[len(batch):]
		queries := make([]shardapi.DocQuery, 0, len(batch))
		for _, k := range batch {
			if id, ok := rawjson.String(k); ok {
				queries = append(queries, shardapi.DocQuery{ID: id, Want: l.q.want()})
			}
		}
		answers, err := l.a.Coordinator.Read(l.rq.ctx(), l.db, queries, 0)
		if err != nil {
			return err
		}
		for _, k := range batch {
			if !first {
				st.buf = append(st.buf, ",\r\n"...)
			}
			first = false
			var ans *shardapi.DocAnswer
			if rawjson.KindOf(k) == rawjson.KindString {
				ans, answers = &answers[0], answers[1:]
			}
			if err := l.keyRow(st, k, ans); err != nil {
				return err
			}
			if err := st.sendIfFull(); err != nil {
				return err
			}
		}
	}
	return nil
}

// keyRow appends the row of one key: the document, its tombstone, or an error.
func (l *openedList) keyRow(st *stream, key []byte, ans *shardapi.DocAnswer) error {
	if ans == nil || len(ans.Docs) == 0 || (l.table == shardapi.TableDesign && !isDesign(ans.Docs[0].ID)) || !strings.HasPrefix(ans.Docs[0].ID, l.inside) {
		st.buf = append(st.buf, `{"key":`...)
		st.buf = append(st.buf, key...)
		st.buf = append(st.buf, `,"error":"not_found"}`...)
		return nil
	}
	d := &ans.Docs[0]
	st.buf = append(st.buf, `{"id":`...)
	st.buf = append(st.buf, key...)
	st.buf = append(st.buf, `,"key":`...)
	st.buf = append(st.buf, key...)
	st.buf = append(st.buf, `,"value":{"rev":"`...)
	st.buf = d.Rev.Append(st.buf)
	if d.Deleted {
		st.buf = append(st.buf, `","deleted":true}`...)
		d = nil
	} else {
		st.buf = append(st.buf, `"}`...)
	}
	if l.q.includeDocs {
		if err := l.doc(st, d); err != nil {
			return err
		}
	}
	st.buf = append(st.buf, '}')
	return nil
}

func isDesign(id string) bool { return len(id) > 8 && id[:8] == "_design/" }

// writeLocalKeys looks up local documents by key.
func (l *openedList) writeLocalKeys(st *stream) error {
	for i, k := range l.keyRun() {
		if i > 0 {
			st.buf = append(st.buf, ",\r\n"...)
		}
		id, _ := rawjson.String(k)
		ans := &shardapi.DocAnswer{}
		d, err := l.a.Coordinator.ReadLocal(l.rq.ctx(), l.db, id)
		switch {
		case err == nil:
			ans.Docs = []model.Doc{*d}
		case model.KindOf(err) != model.KindNotFound:
			return err
		}
		if err := l.keyRow(st, k, ans); err != nil {
			return err
		}
	}
	return nil
}
