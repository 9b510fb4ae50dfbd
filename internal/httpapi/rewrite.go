package httpapi

import (
	"bytes"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/divandb/divan/internal/design"
	"github.com/divandb/divan/internal/designs"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// maxRewrites is how often a request may be sent on: a rule may lead to itself.
const maxRewrites = 20

// rewriteError is the error of rules that lead nowhere.
func rewriteError(kind model.Kind, reason string) error {
	return &model.Error{Kind: kind, Name: "rewrite_error", Reason: reason}
}

// rewrite sends a request on to where the rules of a design document say. It then
// takes the whole road again: what it needs there decides whether it may.
func rewrite(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	d, err := a.Designs.Get(rq.ctx(), db, design.Prefix+rq.param("ddoc"))
	if err != nil {
		return err
	}
	if rq.rewrites++; rq.rewrites > maxRewrites {
		return rewriteError(model.KindBadRequest, "Exceeded rewrite recursion limit")
	}
	base := []string{db.Name, "_design", strings.TrimPrefix(d.ID, design.Prefix)}
	switch {
	case d.Rewrites == nil:
		return rewriteError(model.KindNotFound, "Invalid path.")
	case rawjson.KindOf(d.Rewrites) == rawjson.KindString:
		fn, _ := rawjson.String(d.Rewrites)
		body, release, err := rq.scriptBody()
		defer release()
		if err != nil {
			return err
		}
		req, err := a.scriptRequest(rq, db, "", body)
		if err != nil {
			return err
		}
		result, err := a.JS.Rewrite(rq.ctx(), designs.Program(db, d), fn, req)
		if err != nil {
			return jsvm.ClientError("rewrite", err)
		}
		return a.rewriteBy(rq, base, result, body)
	}
	query, err := rq.q()
	if err != nil {
		return err
	}
	segs, ok := splitPath(rq.r.URL.EscapedPath(), nil)
	if !ok || len(segs) < 4 {
		return rewriteError(model.KindNotFound, "Invalid path.")
	}
	to, args, err := applyRules(d.Rewrites, rq.method, segs[4:], query)
	if err != nil {
		return err
	}
	path, err := resolvePath(base, to)
	if err != nil {
		return err
	}
	return a.sendOn(rq, rq.method, path, args, nil)
}

// rewriteBy sends a request on as a rewrite function said: a path, or an object
// with path, query, method, headers and body, or a whole answer.
func (a *API) rewriteBy(rq *request, base []string, result, body []byte) error {
	target, isText := rawjson.String(result)
	if !isText && rawjson.KindOf(result) != rawjson.KindObject {
		return rewriteError(model.KindNotFound, "Invalid path.")
	}
	if body == nil {
		body = []byte{}
	}
	method := rq.method
	args := url.Values{}
	var headers []byte
	if !isText {
		if _, ok := rawjson.Get(result, "code"); ok {
			return rq.rendered(result, http.StatusOK)
		}
		v, _ := rawjson.Get(result, "path")
		if target, isText = rawjson.String(v); !isText {
			return rewriteError(model.KindInternal, "Rewrite result must produce a new path.")
		}
		if v, ok := rawjson.Get(result, "method"); ok {
			if m, ok := rawjson.String(v); ok {
				method = strings.ToUpper(m)
			}
		}
		if v, ok := rawjson.Get(result, "query"); ok && rawjson.KindOf(v) == rawjson.KindObject {
			for name, value := range rawjson.Members(v) {
				args.Set(string(name), argument(value))
			}
		}
		if v, ok := rawjson.Get(result, "body"); ok {
			if text, ok := rawjson.String(v); ok {
				body = []byte(text)
			}
		}
		headers, _ = rawjson.Get(result, "headers")
	}
	target, raw, _ := strings.Cut(target, "?")
	if more, err := url.ParseQuery(raw); err == nil {
		for name, values := range more {
			args[name] = values
		}
	}
	path, err := resolvePath(base, strings.Split(target, "/"))
	if err != nil {
		return err
	}
	if rawjson.KindOf(headers) == rawjson.KindObject {
		for name, value := range rawjson.Members(headers) {
			key := http.CanonicalHeaderKey(string(name))
			// Whoever asks stays who it is.
			if text, ok := rawjson.String(value); ok && !hiddenHeaders[key] && !ownHeaders[key] {
				rq.r.Header.Set(key, text)
			}
		}
	}
	return a.sendOn(rq, method, path, args, body)
}

// sendOn serves the request again under another path. body replaces the request's;
// nil leaves it.
func (a *API) sendOn(rq *request, method string, path []string, args url.Values, body []byte) error {
	escaped := make([]string, len(path))
	for i, seg := range path {
		escaped[i] = url.PathEscape(seg)
	}
	target := "/" + strings.Join(escaped, "/")
	if q := args.Encode(); q != "" {
		target += "?" + q
	}
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return rewriteError(model.KindBadRequest, "The rewritten path is no path.")
	}
	r := rq.r.WithContext(rq.ctx())
	r.Header = rq.r.Header
	r.URL, r.RequestURI = u, target
	if r.Method != http.MethodHead || method != http.MethodGet {
		r.Method = method
	}
	r.Header.Del("X-HTTP-Method-Override")
	if body != nil {
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Del("Content-Encoding")
	}
	rq.r = r
	rq.query, rq.queryErr = nil, nil
	return a.serve(rq)
}

// resolvePath takes the dots out of a path relative to base. It stays in the database
// of base: the request goes on with the rights of whoever sent it, and an
// administrator of one database must not send that of another one, or of the server,
// to places of his choice.
func resolvePath(base, to []string) ([]string, error) {
	path := append([]string(nil), base...)
	for _, seg := range to {
		switch seg {
		case "", ".":
		case "..":
			if len(path) == 1 {
				return nil, &model.Error{Kind: model.KindBadRequest, Name: "insecure_rewrite_rule", Reason: "too many ../.. segments"}
			}
			path = path[:len(path)-1]
		default:
			path = append(path, seg)
		}
	}
	return path, nil
}

// argument gives a value as it stands in a query string: text as it is, anything
// else as JSON.
func argument(value []byte) string {
	if text, ok := rawjson.String(value); ok {
		return text
	}
	return string(value)
}
