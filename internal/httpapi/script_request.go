package httpapi

import (
	"net"
	"net/url"
	"slices"
	"strings"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/rawjson"
)

// hiddenHeaders never reach a script: they are how a caller shows who it is, and a
// design document's author is somebody else.
var hiddenHeaders = map[string]bool{
	"Authorization": true, "Proxy-Authorization": true, "Cookie": true, "Cookie2": true, "Set-Cookie": true,
	"X-Csrf-Token": true, "X-Xsrf-Token": true, "X-Api-Key": true,
}

// scriptRequest makes the request object that filters, shows, lists, updates and
// rewrites get. id is the document's, empty for null; body is the request's, nil
// where it has none.
func (a *API) scriptRequest(rq *request, db *cluster.Database, id string, body []byte) ([]byte, error) {
	query, err := rq.q()
	if err != nil {
		return nil, err
	}
	b := append(make([]byte, 0, 2048), `{"info":`...)
	if b, err = a.appendInfo(rq, b, db); err != nil {
		return nil, err
	}
	b = append(b, `,"id":`...)
	if id == "" {
		b = append(b, "null"...)
	} else {
		b = rawjson.AppendString(b, id)
	}
	b = append(b, `,"uuid":`...)
	b = rawjson.AppendString(b, a.uuids.next())
	b = append(b, `,"method":`...)
	b = rawjson.AppendString(b, strings.ToValidUTF8(rq.method, ""))
	path, requested := rq.r.URL.EscapedPath(), rq.outer
	if requested == "" {
		requested = path
	}
	b = appendSegments(append(b, `,"requested_path":`...), requested)
	b = appendSegments(append(b, `,"path":`...), path)
	b = append(b, `,"raw_path":`...)
	b = rawjson.AppendString(b, strings.ToValidUTF8(rq.r.URL.RequestURI(), "\uFFFD"))
	b = append(b, `,"query":{`...)
	b = appendQuery(b, query)
	b = append(b, `},"headers":{`...)
	b = appendHeaders(b, rq)
	b = append(b, `},"body":`...)
	if body == nil {
		b = append(b, `"undefined"`...)
	} else {
		b = rawjson.AppendString(b, strings.ToValidUTF8(string(body), "\uFFFD"))
	}
	b = append(b, `,"peer":`...)
	host, _, err := net.SplitHostPort(rq.r.RemoteAddr)
	if err != nil {
		host = rq.r.RemoteAddr
	}
	b = rawjson.AppendString(b, host)
	b = append(b, `,"form":{`...)
	if body != nil && strings.HasPrefix(rq.r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") {
		// What cannot be read is no form; the script still has the body.
		if form, err := url.ParseQuery(string(body)); err == nil {
			b = appendValues(b, form)
		}
	}
	b = append(b, `},"cookie":{},"userCtx":`...)
	b = a.appendUserCtx(b, rq, db)
	b = append(b, `,"secObj":`...)
	if len(db.Security) > 0 {
		b = append(b, db.Security...)
	} else {
		b = append(b, "{}"...)
	}
	return append(b, '}'), nil
}

// appendUserCtx appends who asks, as scripts see it.
func (a *API) appendUserCtx(b []byte, rq *request, db *cluster.Database) []byte {
	user := rq.who.userOf(db)
	b = append(b, `{"db":`...)
	b = rawjson.AppendString(b, db.Name)
	b = append(b, `,"name":`...)
	if user.Name == "" {
		b = append(b, "null"...)
	} else {
		b = rawjson.AppendString(b, user.Name)
	}
	b = append(b, `,"roles":[`...)
	for i, role := range user.Roles {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, role)
	}
	return append(b, "]}"...)
}

// appendSegments appends the parts of a path, decoded, as an array.
func appendSegments(b []byte, path string) []byte {
	segs, _ := splitPath(path, nil) // a path that cannot be split was refused before
	b = append(b, '[')
	for i, s := range segs {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, strings.ToValidUTF8(s, "\uFFFD"))
	}
	return append(b, ']')
}

// jsonKeys are parameters whose values are JSON, for scripts too.
var jsonKeys = map[string]bool{
	"key": true, "startkey": true, "start_key": true, "endkey": true, "end_key": true,
}

// appendQuery appends the parameters as members; of one that is given twice the
// first counts, as everywhere.
func appendQuery(b []byte, query url.Values) []byte {
	for i, name := range sortedNames(query) {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, strings.ToValidUTF8(name, "\uFFFD"))
		b = append(b, ':')
		value := query[name][0]
		if jsonKeys[name] {
			if norm, err := rawjson.Normalize(nil, []byte(value), 1000); err == nil {
				b = append(b, norm...)
				continue
			}
		}
		b = rawjson.AppendString(b, strings.ToValidUTF8(value, "\uFFFD"))
	}
	return b
}

// appendValues appends the fields of a form as members.
func appendValues(b []byte, form url.Values) []byte {
	for i, name := range sortedNames(form) {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, strings.ToValidUTF8(name, "\uFFFD"))
		b = append(b, ':')
		b = rawjson.AppendString(b, strings.ToValidUTF8(form[name][0], "\uFFFD"))
	}
	return b
}

// appendHeaders appends the headers that a script may see.
func appendHeaders(b []byte, rq *request) []byte {
	b = append(b, `"Host":`...)
	b = rawjson.AppendString(b, strings.ToValidUTF8(rq.r.Host, "\uFFFD"))
	for _, name := range sortedNames(url.Values(rq.r.Header)) {
		if hiddenHeaders[name] || strings.HasPrefix(name, "X-Auth-") {
			continue
		}
		b = append(b, ',')
		b = rawjson.AppendString(b, strings.ToValidUTF8(name, "\uFFFD"))
		b = append(b, ':')
		b = rawjson.AppendString(b, strings.ToValidUTF8(strings.Join(rq.r.Header[name], ", "), "\uFFFD"))
	}
	return b
}

// sortedNames gives the names that have a value, in order.
func sortedNames(m url.Values) []string {
	names := make([]string, 0, len(m))
	for name, values := range m {
		if len(values) > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}
