package httpapi

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// request is one request on its way through a handler.
type request struct {
	api    *API
	w      *statusWriter
	r      *http.Request
	method string // after X-HTTP-Method-Override
	id     string
	who    Principal
	route  *route
	params []pathParam

	rewrites int // how often rules have sent it on

	outer    string // the path that was asked for, where a virtual host put it under hostPath
	hostPath string

	query    url.Values
	queryErr error

	// Room for what every request needs, so that it takes one allocation: w, the
	// parts of the path, and the values of headers that are each request's own.
	writer   statusWriter
	incoming patientBody
	segArr   [6]string
	paramArr [4]pathParam
	values   [3]string
}

func (rq *request) ctx() context.Context { return rq.r.Context() }

// param gives a named segment of the path, decoded.
func (rq *request) param(name string) string {
	for i := range rq.params {
		if rq.params[i].name == name {
			return rq.params[i].value
		}
	}
	return ""
}

// database finds the database of the path.
func (rq *request) database() (*cluster.Database, error) {
	return rq.api.Registry.Get(rq.param("db"))
}

// q gives the parsed query string.
func (rq *request) q() (url.Values, error) {
	if rq.query == nil && rq.queryErr == nil && rq.r.URL.RawQuery != "" {
		rq.query, rq.queryErr = url.ParseQuery(rq.r.URL.RawQuery)
		if rq.queryErr != nil {
			rq.queryErr = model.BadRequest("The query string is malformed.")
		}
	}
	return rq.query, rq.queryErr
}

// str gives a query parameter, and whether it is there.
func (rq *request) str(name string) (string, bool) {
	if rq.r.URL.RawQuery == "" {
		return "", false
	}
	q, err := rq.q()
	if err != nil {
		return "", false
	}
	v, ok := q[name]
	if !ok || len(v) == 0 {
		return "", false
	}
	return v[0], true
}

// queryParseError is the error of a parameter that cannot be read.
func queryParseError(reason string) *model.Error {
	return &model.Error{Kind: model.KindBadRequest, Name: "query_parse_error", Reason: reason}
}

// boolean reads a true/false parameter.
func (rq *request) boolean(name string, def bool) (bool, error) {
	s, ok := rq.str(name)
	if !ok {
		return def, nil
	}
	return parseBool(s)
}

func parseBool(s string) (bool, error) {
	switch strings.ToLower(s) {
	case "true":
		return true, nil
	case "false":
		return false, nil
	}
	return false, queryParseError("Invalid boolean parameter: " + strconv.Quote(s))
}

// nonNegative reads a parameter that is an integer of at least 0.
func (rq *request) nonNegative(name string, def int64) (int64, error) {
	s, ok := rq.str(name)
	if !ok {
		return def, nil
	}
	return parseNonNegative(s)
}

func parseNonNegative(s string) (int64, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n < 0 {
		return 0, queryParseError("Invalid value for positive integer: " + strconv.Quote(s))
	}
	return n, nil
}

// jsonParam reads a parameter that is JSON, in normal form. nil when absent.
func (rq *request) jsonParam(names ...string) ([]byte, error) {
	for _, name := range names {
		if s, ok := rq.str(name); ok {
			v, err := rawjson.Normalize(nil, []byte(s), rq.api.Limits.MaxDepth)
			if err != nil {
				return nil, errInvalidJSON
			}
			return v, nil
		}
	}
	return nil, nil
}

// errInvalidJSON is what CouchDB says to any text that is not JSON.
var errInvalidJSON = model.BadRequest("invalid UTF-8 JSON")

// accepts tells whether the Accept header names the media type, by type or type/*;
// */* does not count as naming.
func (rq *request) accepts(mediaType string) bool {
	for _, h := range rq.r.Header["Accept"] {
		for len(h) > 0 {
			var part string
			part, h, _ = strings.Cut(h, ",")
			t, params, _ := strings.Cut(part, ";")
			t = strings.TrimSpace(t)
			if strings.EqualFold(t, mediaType) || (strings.HasSuffix(t, "/*") && t != "*/*" && strings.HasPrefix(mediaType, t[:len(t)-1])) {
				if !strings.Contains(strings.ReplaceAll(params, " ", ""), "q=0;") && !strings.HasSuffix(strings.TrimSpace(params), "q=0") {
					return true
				}
			}
		}
	}
	return false
}

const upperHex = "0123456789ABCDEF"

// escapeSegment writes a path segment so that it comes back as it is; a slash is %2F.
func escapeSegment(s string) string {
	plain := func(c byte) bool {
		return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-_.~:@!$'()*,;+=", c) >= 0
	}
	n := 0
	for i := 0; i < len(s); i++ {
		if !plain(s[i]) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	out := make([]byte, 0, len(s)+2*n)
	for i := 0; i < len(s); i++ {
		if c := s[i]; plain(c) {
			out = append(out, c)
		} else {
			out = append(out, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(out)
}
