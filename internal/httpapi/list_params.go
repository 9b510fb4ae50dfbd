package httpapi

import (
	"strconv"

	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// listQuery is a question to _all_docs and its kin.
type listQuery struct {
	start, end   []byte // JSON; nil is open
	keys         []byte // JSON array; nil if the question is a range
	limit, skip  int64
	descending   bool
	inclusiveEnd bool
	includeDocs  bool
	updateSeq    bool
	view         *docView
}

// listSource gives parameters by name, as text of JSON or of a query string.
type listSource interface {
	params
	value(name string) (text string, ok bool)
}

// value makes a request a listSource.
func (rq *request) value(name string) (string, bool) { return rq.str(name) }

// bodySource is parameters in a JSON object. Those that stand in the query string
// of the request too count as they stand there.
type bodySource struct {
	rq  *request
	obj []byte
}

func (s bodySource) value(name string) (string, bool) {
	if s.rq != nil {
		if v, ok := s.rq.str(name); ok {
			return v, true
		}
	}
	v, ok := rawjson.Get(s.obj, name)
	if !ok || string(v) == "null" && !nullIsKey[name] {
		return "", false
	}
	return string(v), true
}

// nullIsKey has the parameters whose null is a key, the lowest of all. In the
// others it is what a client writes for "not given".
var nullIsKey = map[string]bool{"key": true, "startkey": true, "start_key": true, "endkey": true, "end_key": true}

func (s bodySource) boolean(name string, def bool) (bool, error) {
	v, ok := s.value(name)
	if !ok {
		return def, nil
	}
	if text, isString := rawjson.String([]byte(v)); isString {
		v = text
	}
	return parseBool(v)
}

// readList reads the parameters of a list.
func readList(src listSource, maxDepth int) (*listQuery, error) {
	q := &listQuery{limit: -1}
	var err error
	number := func(name string, def int64) int64 {
		v, ok := src.value(name)
		if !ok || err != nil {
			return def
		}
		if text, isString := rawjson.String([]byte(v)); isString {
			v = text
		}
		var n int64
		n, err = parseNonNegative(v)
		return n
	}
	flag := func(name string, def bool) bool {
		var b bool
		if err == nil {
			b, err = src.boolean(name, def)
		}
		return b
	}
	key := func(names ...string) []byte {
		for _, name := range names {
			v, ok := src.value(name)
			if !ok || err != nil {
				continue
			}
			norm, nerr := rawjson.Normalize(nil, []byte(v), maxDepth)
			if nerr != nil {
				err = errInvalidJSON
			}
			return norm
		}
		return nil
	}
	q.start = key("startkey", "start_key")
	q.end = key("endkey", "end_key")
	if k := key("key"); k != nil {
		q.start, q.end = k, k
	}
	q.keys = key("keys")
	q.limit = number("limit", -1)
	q.skip = number("skip", 0)
	q.descending = flag("descending", false)
	q.inclusiveEnd = flag("inclusive_end", true)
	q.includeDocs = flag("include_docs", false)
	q.updateSeq = flag("update_seq", false)
	if r := number("r", 0); r > maxN {
		err = queryParseError("Invalid value for positive integer: " + strconv.FormatInt(r, 10))
	}
	if err != nil {
		return nil, err
	}
	if q.keys != nil && rawjson.KindOf(q.keys) != rawjson.KindArray {
		return nil, model.BadRequest("`keys` body member must be an array.")
	}
	if q.keys != nil {
		if err := checkEntries(rawjson.Len(q.keys)); err != nil {
			return nil, err
		}
	}
	if q.keys != nil && rawjson.Len(q.keys) > 0 && (q.start != nil || q.end != nil) {
		return nil, queryParseError("`keys` is incompatible with `key`, `start_key` and `end_key`")
	}
	q.view, err = readView(src)
	return q, err
}

// listSpan is where a list stops matching by the types of its keys alone.
type listSpan uint8

// The spans: somewhere among the ids, or nowhere because it ends before the first
// or starts after the last of them in the direction of travel.
const (
	spanIDs listSpan = iota
	spanBefore
	spanAfter
)

// bounds turns JSON keys into bounds among ids. An id is a string: a key of another
// type lies before or after all of them.
func (q *listQuery) bounds() (start, end *string, where listSpan) {
	startID, below, above := idBound(q.start)
	if q.descending {
		below, above = above, below
	}
	if above {
		return nil, nil, spanAfter
	}
	endID, below, above := idBound(q.end)
	if q.descending {
		below, above = above, below
	}
	if below {
		return nil, nil, spanBefore
	}
	return startID, endID, spanIDs
}

// idBound gives the id of a key, or says that it lies below or above every id.
func idBound(key []byte) (id *string, below, above bool) {
	if key == nil {
		return nil, false, false
	}
	if s, ok := rawjson.String(key); ok {
		return &s, false, false
	}
	if collate.Compare(key, []byte(`""`)) < 0 {
		return nil, true, false
	}
	return nil, false, true
}

// want is what of the documents is to be read.
func (q *listQuery) want() shardapi.Want {
	if !q.includeDocs {
		return 0
	}
	return q.view.want
}
