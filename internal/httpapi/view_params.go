package httpapi

import (
	"errors"
	"math"
	"strconv"

	"github.com/divandb/divan/internal/design"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// viewQuery is a question to a view.
type viewQuery struct {
	start, end     []byte // JSON; nil is open
	startID, endID *string
	keys           []byte // JSON array; nil if the question is a range
	limit, skip    int64
	reduce, group  choice
	groupLevel     int64 // <0: not given
	conflicts      choice
	update         shardapi.Freshness
	partition      string // empty if none is given
	descending     bool
	inclusiveEnd   bool
	includeDocs    bool
	updateSeq      bool
	sorted         bool
	view           *docView
	reduced        bool // found out by fit: groups are asked for, not rows
	level          int  // found out by fit: the level of the groups
}

// choice is a boolean that may be left open.
type choice uint8

// The choices.
const (
	unsaid choice = iota
	yes
	no
)

// viewSource is where the parameters of a view stand: the query string of the
// request, and an object in its body. In the query string they win over the body,
// but one of several queries wins over the query string they have in common.
type viewSource struct {
	rq       *request
	obj      []byte // nil: no object
	objFirst bool
	maxDepth int
}

// viewParam is a parameter as it stands: text of a query string, or JSON.
type viewParam struct {
	text string
	json []byte // nil: text counts
}

// find gives the parameter that has one of these names.
func (s *viewSource) find(names ...string) (viewParam, bool) {
	fromQuery, fromBody := s.inQuery, s.inBody
	if s.objFirst {
		fromQuery, fromBody = fromBody, fromQuery
	}
	if p, ok := fromQuery(names); ok {
		return p, true
	}
	return fromBody(names)
}

func (s *viewSource) inQuery(names []string) (viewParam, bool) {
	for _, name := range names {
		if v, ok := s.rq.str(name); ok {
			return viewParam{text: v}, true
		}
	}
	return viewParam{}, false
}

func (s *viewSource) inBody(names []string) (viewParam, bool) {
	for _, name := range names {
		v, ok := rawjson.Get(s.obj, name)
		if ok && (nullIsKey[name] || string(v) != "null") {
			return viewParam{json: v}, true
		}
	}
	return viewParam{}, false
}

// boolean makes a viewSource one of params.
func (s *viewSource) boolean(name string, def bool) (bool, error) {
	p, ok := s.find(name)
	if !ok {
		return def, nil
	}
	return p.boolean()
}

func (p viewParam) boolean() (bool, error) {
	if p.json == nil {
		return parseBool(p.text)
	}
	if b, ok := rawjson.Bool(p.json); ok {
		return b, nil
	}
	if s, ok := rawjson.String(p.json); ok {
		return parseBool(s)
	}
	return false, queryParseError("Invalid boolean parameter: " + p.shown())
}

// natural reads an integer of at least 0. In JSON only a number is one. What is
// too large for us is as good as no bound at all.
func (p viewParam) natural() (int64, error) {
	text := p.text
	if p.json != nil {
		if rawjson.KindOf(p.json) != rawjson.KindNumber {
			return 0, queryParseError("Invalid value for integer: " + p.shown())
		}
		text = string(p.json)
	}
	n, err := strconv.ParseInt(text, 10, 64)
	switch {
	case err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, queryParseError("Invalid value for integer: " + p.shown())
	case n < 0:
		return 0, queryParseError("Invalid value for positive integer: " + p.shown())
	}
	return n, nil
}

// word gives the text of a parameter that is a string, true or false.
func (p viewParam) word() string {
	if s, ok := rawjson.String(p.json); ok {
		return s
	}
	return p.text + string(p.json)
}

// shown is the parameter in the words of an error, cut where it is long.
func (p viewParam) shown() string {
	const most = 100
	if p.json == nil {
		return strconv.Quote(p.text)
	}
	if len(p.json) > most {
		return string(p.json[:most]) + "…"
	}
	return string(p.json)
}

// viewReader reads parameters until one is wrong.
type viewReader struct {
	*viewSource
	err error
}

func (r *viewReader) flag(name string, def bool) bool {
	var b bool
	if r.err == nil {
		b, r.err = r.boolean(name, def)
	}
	return b
}

func (r *viewReader) choice(name string) choice {
	p, ok := r.find(name)
	if !ok || r.err != nil {
		return unsaid
	}
	var b bool
	if b, r.err = p.boolean(); b {
		return yes
	}
	return no
}

func (r *viewReader) natural(name string, def int64) int64 {
	p, ok := r.find(name)
	if !ok || r.err != nil {
		return def
	}
	var n int64
	n, r.err = p.natural()
	return n
}

// key gives a key in normal form, nil if there is none.
func (r *viewReader) key(names ...string) []byte {
	p, ok := r.find(names...)
	if !ok || r.err != nil {
		return nil
	}
	if p.json != nil {
		return p.json // the whole body is in normal form
	}
	v, err := rawjson.Normalize(nil, []byte(p.text), r.maxDepth)
	if err != nil {
		r.err = errInvalidJSON
	}
	return v
}

// text gives a parameter that is a string; called is its name in an error.
func (r *viewReader) text(called string, names ...string) *string {
	p, ok := r.find(names...)
	if !ok || r.err != nil {
		return nil
	}
	if p.json == nil {
		return &p.text
	}
	s, ok := rawjson.String(p.json)
	if !ok {
		r.err = queryParseError("`" + called + "` must be a string.")
	}
	return &s
}

// freshness reads update and its older forms. stable chooses among the copies of
// a range; there is one copy now, so that it is only read.
func (r *viewReader) freshness() shardapi.Freshness {
	fresh := shardapi.UpdateFirst
	wrong := func(name string) {
		if r.err == nil {
			r.err = queryParseError("Invalid value for `" + name + "`.")
		}
	}
	if p, ok := r.find("stale"); ok {
		switch p.word() {
		case "ok":
			fresh = shardapi.UpdateNever
		case "update_after":
			fresh = shardapi.UpdateAfter
		default:
			wrong("stale")
		}
	}
	if p, ok := r.find("stable"); ok && p.word() != "true" && p.word() != "false" {
		wrong("stable")
	}
	if p, ok := r.find("update"); ok {
		switch p.word() {
		case "true":
			fresh = shardapi.UpdateFirst
		case "false":
			fresh = shardapi.UpdateNever
		case "lazy":
			fresh = shardapi.UpdateAfter
		default:
			wrong("update")
		}
	}
	return fresh
}

// readKeys reads keys.
func (r *viewReader) readKeys() []byte {
	keys := r.key("keys")
	if r.err != nil || keys == nil {
		return nil
	}
	if rawjson.KindOf(keys) != rawjson.KindArray {
		r.err = model.BadRequest("`keys` body member must be an array.")
		if p, _ := r.find("keys"); p.json == nil {
			r.err = queryParseError("`keys` must be an array of strings.")
		}
		return nil
	}
	r.err = checkEntries(rawjson.Len(keys))
	return keys
}

// readViewQuery reads the parameters of a view. Whether they fit the view is
// asked of fit.
func readViewQuery(src *viewSource) (*viewQuery, error) {
	r := &viewReader{viewSource: src}
	q := &viewQuery{
		start:        r.key("startkey", "start_key"),
		end:          r.key("endkey", "end_key"),
		startID:      r.text("start_key_docid", "startkey_docid", "start_key_doc_id"),
		endID:        r.text("end_key_docid", "endkey_docid", "end_key_doc_id"),
		keys:         r.readKeys(),
		limit:        r.natural("limit", -1),
		skip:         r.natural("skip", 0),
		reduce:       r.choice("reduce"),
		group:        r.choice("group"),
		groupLevel:   r.natural("group_level", -1),
		conflicts:    r.choice("conflicts"),
		update:       r.freshness(),
		descending:   r.flag("descending", false),
		inclusiveEnd: r.flag("inclusive_end", true),
		includeDocs:  r.flag("include_docs", false),
		updateSeq:    r.flag("update_seq", false),
		sorted:       r.flag("sorted", true),
	}
	if k := r.key("key"); k != nil {
		q.start, q.end = k, k
	}
	if p := r.text("partition", "partition"); p != nil && r.err == nil {
		q.partition, r.err = *p, document.ValidatePartition(*p)
	}
	if r.err != nil {
		return nil, r.err
	}
	var err error
	q.view, err = readView(src)
	return q, err
}

// fit holds the question against the view it is put to.
func (q *viewQuery) fit(v *design.View) error {
	q.reduced = v.Reduce != "" && q.reduce != no
	switch {
	case q.group == no && q.groupLevel > 0:
		return queryParseError("Can't specify group=false and group_level>0 at the same time")
	case q.groupLevel >= 0:
		q.level = int(min(q.groupLevel, math.MaxInt32))
	case q.group == yes:
		q.level = shardapi.GroupExact
	}
	if q.keys != nil && (q.start != nil || q.end != nil) && rawjson.Len(q.keys) > 0 {
		return queryParseError("`keys` is incompatible with `key`, `start_key` and `end_key`")
	}
	q.oneKey()
	switch {
	case v.Reduce == "" && q.reduce == yes:
		return queryParseError("Reduce is invalid for map-only views.")
	case q.reduced && q.keys != nil && q.level != shardapi.GroupExact:
		return queryParseError("Multi-key fetches for reduce views must use `group=true`")
	case !q.reduced && q.level != shardapi.GroupNone:
		return queryParseError("Invalid use of grouping on a map view.")
	case q.reduced && q.includeDocs:
		return queryParseError("`include_docs` is invalid for reduce")
	case q.reduced && q.conflicts != unsaid:
		return queryParseError("`conflicts` is invalid for reduce views.")
	case v.Partitioned && q.partition == "":
		return queryParseError("`partition` parameter is mandatory for queries to this view.")
	case !v.Partitioned && q.partition != "":
		return queryParseError("`partition` parameter is not supported in this design doc")
	}
	return nil
}

// oneKey makes of keys with one element what it means: key.
func (q *viewQuery) oneKey() {
	if q.keys == nil || rawjson.Len(q.keys) != 1 {
		return
	}
	for k := range rawjson.Elements(q.keys) {
		q.start, q.end, q.keys = k, k, nil
		return
	}
}

// ranges gives the runs of keys that are asked for, in the order of the answer.
// Each of several keys is a run of its own, and the ids narrow each of them.
func (q *viewQuery) ranges() []shardapi.KeyRange {
	run := shardapi.KeyRange{Start: q.start, End: q.end, ExclusiveEnd: !q.inclusiveEnd}
	if q.startID != nil {
		run.StartID, run.HasStartID = *q.startID, true
	}
	if q.endID != nil {
		run.EndID, run.HasEndID = *q.endID, true
	}
	if q.keys == nil {
		return []shardapi.KeyRange{run}
	}
	runs := make([]shardapi.KeyRange, 0, rawjson.Len(q.keys))
	for k := range rawjson.Elements(q.keys) {
		run.Start, run.End = k, k
		runs = append(runs, run)
	}
	return runs
}
