package httpapi

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// bulkDocs answers POST _bulk_docs: many edits, a result for each in order. What
// makes the whole call wrong is found before anything is written.
func bulkDocs(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	if err := rq.requireJSON(); err != nil {
		return err
	}
	mode, err := rq.writeMode()
	if err != nil {
		return err
	}
	body, release, err := rq.readJSON()
	defer release()
	if err != nil {
		return err
	}
	docs, err := readBulk(body, &mode)
	if err != nil {
		return err
	}
	b := &bulk{a: a, rq: rq, db: db, mode: mode}
	if err := b.parse(docs); err != nil {
		return err
	}
	if err := b.stage(); err != nil {
		return err
	}
	return b.write()
}

// readBulk takes the members of the body apart.
func readBulk(body []byte, mode *writeMode) (docs []byte, err error) {
	if rawjson.KindOf(body) != rawjson.KindObject {
		return nil, model.BadRequest("Request body must be a JSON object")
	}
	for name, value := range rawjson.Members(body) {
		switch string(name) {
		case "docs":
			docs = value
		case "new_edits":
			newEdits, ok := rawjson.Bool(value)
			if !ok {
				return nil, model.BadRequest("`new_edits` parameter must be a boolean.")
			}
			mode.replicated = !newEdits
		case "all_or_nothing":
			if all, _ := rawjson.Bool(value); all {
				return nil, &model.Error{Kind: model.KindExpectation, Name: "expectation_failed",
					Reason: "all_or_nothing is not supported: each document of a bulk write stands for itself. Nothing was written."}
			}
		case "w":
			w, ok := rawjson.Int(value)
			if !ok || w < 0 || w > maxN {
				return nil, model.BadRequest("The `w` value should be a positive integer.")
			}
			mode.w = int(w)
		}
	}
	switch {
	case docs == nil:
		return nil, model.BadRequest("POST body must include `docs` parameter.")
	case rawjson.KindOf(docs) != rawjson.KindArray:
		return nil, model.BadRequest("`docs` parameter must be an array.")
	}
	return docs, nil
}

// maxEntries is how many documents, keys or revisions one list of a request may name. Each costs some hundred
// bytes of memory, and three bytes of the body, so that the limit of the body alone
// would not protect the server.
const maxEntries = 500_000

// checkEntries holds a request to maxEntries.
func checkEntries(n int) error {
	if n <= maxEntries {
		return nil
	}
	return &model.Error{Kind: model.KindTooLarge, Name: "too_many_documents",
		Reason: fmt.Sprintf("A list in a request may have %d entries.", maxEntries)}
}

// bulk is a bulk write on its way.
type bulk struct {
	a    *API
	rq   *request
	db   *cluster.Database
	mode writeMode

	edits   []model.Edit
	place   []int              // of each edit in the request
	results []model.EditResult // of the request, in its order
	locals  []*document.Parsed // _local documents, which are written one by one
	localAt []int              // their places
	inline  []*document.Parsed // documents with inline attachments
	inlineE []int              // their edits
}

func (b *bulk) parse(docs []byte) error {
	// Counting would be one more walk through the body: documents are seldom smaller
	// than this, and slices grow.
	guess := min(len(docs)/512+1, maxEntries)
	b.edits = make([]model.Edit, 0, guess)
	b.place = make([]int, 0, guess)
	opts := b.a.parseOptions(b.db, "", b.mode.replicated)
	i := -1
	for doc := range rawjson.Elements(docs) {
		i++
		if err := checkEntries(i + 1); err != nil {
			return err
		}
		p, err := document.Parse(doc, opts)
		if err != nil {
			return err
		}
		if err := b.a.nameDocument(b.db, p); err != nil {
			return err
		}
		if strings.HasPrefix(p.ID, "_local/") {
			b.locals, b.localAt = append(b.locals, p), append(b.localAt, i)
			continue
		}
		edit, err := newEdit(p, p.Rev, b.mode.replicated)
		if err != nil {
			return err
		}
		if len(p.Atts) > 0 {
			b.inline, b.inlineE = append(b.inline, p), append(b.inlineE, len(b.edits))
		}
		b.edits = append(b.edits, edit)
		b.place = append(b.place, i)
	}
	b.results = make([]model.EditResult, i+1)
	return nil
}

func (b *bulk) stage() error {
	for i, p := range b.inline {
		if err := b.a.stageInline(b.rq, b.db, p, &b.edits[b.inlineE[i]]); err != nil {
			for _, e := range b.inlineE[:i] {
				b.a.unstage(b.rq, b.db, &b.edits[e])
			}
			return err
		}
	}
	return nil
}

func (b *bulk) write() error {
	out, err := b.a.write(b.rq, b.db, b.edits, b.mode)
	if err != nil {
		return err
	}
	for i := range out.Results {
		b.results[b.place[i]] = out.Results[i]
	}
	for i, p := range b.locals {
		rev, err := b.a.writeLocal(b.rq, b.db, p)
		res := model.EditResult{ID: p.ID, Rev: rev}
		if err != nil {
			e := asModelError(err)
			if e == nil {
				return err
			}
			res.Err = e
		}
		b.results[b.localAt[i]] = res
	}
	status := http.StatusCreated
	if out.Accepted {
		status = http.StatusAccepted
	}
	body := append(make([]byte, 0, 2+len(b.results)*96), '[')
	first := true
	for i := range b.results {
		res := &b.results[i]
		if res.Err == nil && b.mode.replicated {
			continue // a replicator hears of failures only
		}
		if !first {
			body = append(body, ',')
		}
		first = false
		if res.Err != nil {
			body = appendEditError(body, res)
			continue
		}
		body = appendOK(body, res.ID, res.Rev, true)
		if out.Accepted {
			body = append(body[:len(body)-1], `,"accepted":true}`...)
		}
	}
	b.rq.json(status, append(body, ']'))
	return nil
}

// appendEditError is {"id":…,"error":…,"reason":…}.
func appendEditError(b []byte, res *model.EditResult) []byte {
	b = append(b, `{"id":`...)
	b = rawjson.AppendString(b, res.ID)
	if !res.Rev.IsZero() {
		b = append(b, `,"rev":"`...)
		b = res.Rev.Append(b)
		b = append(b, '"')
	}
	b = append(b, ',')
	return append(b, errorBody(res.Err.Name, res.Err.Reason)[1:]...)
}

// revsDiff answers POST _revs_diff: which revisions does the database not know?
func revsDiff(a *API, rq *request) error {
	req, diffs, err := a.readRevsDiff(rq)
	if err != nil {
		return err
	}
	b := []byte{'{'}
	for i := range diffs {
		d := &diffs[i]
		if len(d.Missing) == 0 {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, req.IDs[i])
		b = append(b, `:{"missing":`...)
		b = appendRevs(b, d.Missing)
		if len(d.PossibleAncestors) > 0 {
			b = append(b, `,"possible_ancestors":`...)
			b = appendRevs(b, d.PossibleAncestors)
		}
		b = append(b, '}')
	}
	rq.json(http.StatusOK, append(b, '}'))
	return nil
}

// missingRevs answers POST _missing_revs, under the spec's key and the one that
// clients know.
func missingRevs(a *API, rq *request) error {
	req, diffs, err := a.readRevsDiff(rq)
	if err != nil {
		return err
	}
	obj := []byte{'{'}
	for i := range diffs {
		if len(diffs[i].Missing) == 0 {
			continue
		}
		if len(obj) > 1 {
			obj = append(obj, ',')
		}
		obj = rawjson.AppendString(obj, req.IDs[i])
		obj = append(obj, ':')
		obj = appendRevs(obj, diffs[i].Missing)
	}
	obj = append(obj, '}')
	b := append([]byte(`{"missing_revs":`), obj...)
	b = append(append(b, `,"missed_revs":`...), obj...)
	rq.json(http.StatusOK, append(b, '}'))
	return nil
}

// readRevsDiff reads {"id": ["rev", …], …} and asks.
func (a *API) readRevsDiff(rq *request) (*shardapi.RevsDiffRequest, []shardapi.RevsDiff, error) {
	db, err := rq.database()
	if err != nil {
		return nil, nil, err
	}
	if err := rq.requireJSON(); err != nil {
		return nil, nil, err
	}
	body, release, err := rq.readJSON()
	defer release()
	if err != nil {
		return nil, nil, err
	}
	if rawjson.KindOf(body) != rawjson.KindObject {
		return nil, nil, model.BadRequest("Request body must be a JSON object")
	}
	n := rawjson.Len(body)
	if err := checkEntries(n); err != nil {
		return nil, nil, err
	}
	req := &shardapi.RevsDiffRequest{IDs: make([]string, 0, n), Revs: make([][]model.Rev, 0, n)}
	total := 0
	for id, value := range rawjson.Members(body) {
		revs, err := parseRevs(value)
		if err != nil {
			return nil, nil, err
		}
		if total += len(revs); total > maxEntries {
			return nil, nil, checkEntries(total)
		}
		req.IDs = append(req.IDs, string(id))
		req.Revs = append(req.Revs, revs)
	}
	diffs, err := a.Coordinator.RevsDiff(rq.ctx(), db, req)
	return req, diffs, err
}

func appendRevs(b []byte, revs []model.Rev) []byte {
	b = append(b, '[')
	for i, r := range revs {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = r.Append(b)
		b = append(b, '"')
	}
	return append(b, ']')
}
