package httpapi

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"

	"github.com/divandb/divan/internal/changes"
	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/designs"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/selector"
	"github.com/divandb/divan/internal/shardapi"
)

// changesQuery is a question to _changes.
type changesQuery struct {
	kind     feedKind
	idle     idleRule
	style    changes.Style
	options  changes.FeedOptions
	interval int64 // every so many rows one carries its token; 0: all do
	view     *docView
	fields   *selector.Fields // of the documents; nil: all
}

// The words of errors in parameters, as clients know them.
var (
	errFeedKind    = model.BadRequest("Supported `feed` types: normal, continuous, live, longpoll, eventsource")
	errFeedLimit   = model.BadRequest("The limit parameter should be a non-negative integer")
	errSeqInterval = model.BadRequest("invalid_seq_interval")
	errDocIDs      = model.BadRequest("`doc_ids` filter parameter is not a list.")
	errDocIDsItems = model.BadRequest("`doc_ids` filter parameter is not a list of doc ids.")
)

// readChanges reads the parameters and the body of a question to _changes.
func (a *API) readChanges(rq *request, db *cluster.Database) (*changesQuery, error) {
	if _, err := rq.q(); err != nil {
		return nil, err
	}
	body, release, err := rq.changesBody()
	defer release()
	if err != nil {
		return nil, err
	}
	q := &changesQuery{options: changes.FeedOptions{Limit: -1}}
	if err := q.readShape(rq); err != nil {
		return nil, err
	}
	if q.view, err = readView(rq); err != nil {
		return nil, err
	}
	if q.options.IncludeDocs {
		q.options.Want = q.view.want
	}
	if err := a.readFilter(rq, db, q, body); err != nil {
		return nil, err
	}
	q.options.Since, err = a.readSince(rq, db, q.kind)
	return q, err
}

// readShape reads everything but filters and since.
func (q *changesQuery) readShape(rq *request) (err error) {
	feed, _ := rq.str("feed")
	switch feed {
	case "", "normal":
		q.kind = feedNormal
	case "longpoll":
		q.kind = feedLongpoll
	case "continuous", "live":
		q.kind = feedContinuous
	case "eventsource":
		q.kind = feedEventSource
	default:
		return errFeedKind
	}
	switch style, _ := rq.str("style"); style {
	case "", "main_only":
		q.style = changes.MainOnly
	case "all_docs":
		q.style = changes.AllDocs
	default:
		return model.BadRequest("Supported `style` values: main_only, all_docs")
	}
	if s, ok := rq.str("limit"); ok {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n < 0 {
			return errFeedLimit
		}
		q.options.Limit = n
	}
	if s, ok := rq.str("seq_interval"); ok {
		n, err := strconv.ParseInt(s, 10, 64)
		if err != nil || n <= 0 {
			return errSeqInterval
		}
		q.interval = n
	}
	if q.options.Descending, err = rq.boolean("descending", false); err != nil {
		return err
	}
	if q.options.IncludeDocs, err = rq.boolean("include_docs", false); err != nil {
		return err
	}
	q.idle, err = rq.readIdle(idleRule{every: idleEvery})
	return err
}

// changesBody reads the JSON object of a POST; nil if there is no body.
func (rq *request) changesBody() (body []byte, release func(), err error) {
	release = func() {}
	if rq.method != http.MethodPost || rq.r.Body == nil || rq.r.ContentLength == 0 {
		return nil, release, nil
	}
	raw, release, err := rq.readBody(rq.api.Limits.MaxBody)
	if err != nil || len(bytes.TrimSpace(raw)) == 0 {
		return nil, release, err
	}
	if err := rq.requireJSON(); err != nil {
		return nil, release, err
	}
	body, err = rawjson.Normalize(make([]byte, 0, len(raw)), raw, rq.api.Limits.MaxDepth)
	if err != nil {
		return nil, release, errInvalidJSON
	}
	if rawjson.KindOf(body) != rawjson.KindObject {
		return nil, release, model.BadRequest("Request body must be a JSON object")
	}
	return body, release, nil
}

// readSince gives the position to start from. A browser that comes back says in a
// header how far it was, which counts more than the address it came back to.
func (a *API) readSince(rq *request, db *cluster.Database, kind feedKind) (changes.Vector, error) {
	text, ok := rq.str("since")
	if !ok {
		text, _ = rq.str("last-event-id")
	}
	if kind == feedEventSource {
		if id := rq.r.Header.Get("Last-Event-ID"); id != "" {
			text = id
		}
	}
	text = unquoteToken(text)
	if text == "now" {
		return a.Changes.Now(rq.ctx(), db)
	}
	return changes.Decode(db, text)
}

// unquoteToken takes the quotes off a token that a client copied as JSON; the ids
// of event source rows are such.
func unquoteToken(text string) string {
	if len(text) >= 2 && text[0] == '"' && text[len(text)-1] == '"' {
		return text[1 : len(text)-1]
	}
	return text
}

// readFilter reads the filter.
func (a *API) readFilter(rq *request, db *cluster.Database, q *changesQuery, body []byte) error {
	name, _ := rq.str("filter")
	switch {
	case name == "":
		return nil
	case name == "_doc_ids":
		return q.readDocIDs(rq, body)
	case name == "_selector":
		return q.readSelector(rq, body)
	case name == "_design":
		q.options.Design = true
		return nil
	case name == "_view":
		view, _ := rq.str("view")
		if view == "" {
			return model.BadRequest("`view` filter parameter is not provided.")
		}
		return a.functionFilter(rq, db, q, body, view, "views", "`view` must be of the form `designname/viewname`")
	case name[0] == '_':
		return model.BadRequest("unknown builtin filter name")
	}
	return a.functionFilter(rq, db, q, body, name, "filters", "`filter` must be of the form `designname/filtername`")
}

// readDocIDs reads the list of _doc_ids, from the body or the query string.
func (q *changesQuery) readDocIDs(rq *request, body []byte) error {
	list, ok := rawjson.Get(body, "doc_ids")
	if !ok {
		var err error
		if list, err = rq.jsonParam("doc_ids"); err != nil {
			return err
		}
	}
	if list == nil || rawjson.KindOf(list) != rawjson.KindArray {
		return errDocIDs
	}
	n := rawjson.Len(list)
	if err := checkEntries(n); err != nil {
		return err
	}
	ids := make([]string, 0, n)
	for e := range rawjson.Elements(list) {
		id, ok := rawjson.String(e)
		if !ok {
			return errDocIDsItems
		}
		ids = append(ids, id)
	}
	q.options.DocIDs = ids
	return nil
}

// readSelector reads the selector of _selector, which comes in a body only.
func (q *changesQuery) readSelector(rq *request, body []byte) error {
	if rq.method != http.MethodPost {
		return model.BadRequest("Selector must be specified in POST payload")
	}
	sel, ok := rawjson.Get(body, "selector")
	if !ok || rawjson.KindOf(sel) != rawjson.KindObject {
		return model.BadRequest("Selector error: expected a JSON object")
	}
	if _, err := selector.Parse(sel); err != nil {
		if e, ok := err.(*model.Error); ok && e.Kind == model.KindBadRequest {
			return model.BadRequest(e.Reason)
		}
		return err
	}
	if list, ok := rawjson.Get(body, "fields"); ok && string(list) != "null" {
		var err error
		if q.fields, err = selector.ParseFields(list); err != nil {
			return err
		}
	}
	q.options.Selector = bytes.Clone(sel) // a feed may live long, and the body shall not
	return nil
}

// functionFilter sets a filter that is a function in a design document: member is
// "filters" or "views", name its design document and its own name.
func (a *API) functionFilter(rq *request, db *cluster.Database, q *changesQuery, body []byte, name, member, form string) error {
	parts := strings.FieldsFunc(name, func(r rune) bool { return r == '/' })
	if len(parts) != 2 {
		return model.BadRequest(form)
	}
	d, err := a.Designs.Get(rq.ctx(), db, parts[0])
	if err != nil {
		return err
	}
	if _, ok := rawjson.Get(d.Body, member); !ok {
		return missingKey(member)
	}
	script := &shardapi.Script{Program: designs.Program(db, d), AllLeaves: q.style == changes.AllDocs}
	if member == "views" {
		view, ok := d.View(parts[1])
		if !ok {
			return missingKey(parts[1])
		}
		script.Func, script.Map = view.Map, true
	} else {
		text, ok := d.Filters[parts[1]]
		if !ok {
			return missingKey(parts[1])
		}
		script.Func = text
		if script.Req, err = a.scriptRequest(rq, db, "", body); err != nil {
			return err
		}
	}
	q.options.Script = script
	return nil
}

// missingKey is the answer to a design document without the function.
func missingKey(name string) error {
	return &model.Error{Kind: model.KindNotFound, Name: "not_found", Reason: "missing json key: " + name}
}
