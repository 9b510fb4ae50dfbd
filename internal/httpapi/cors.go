package httpapi

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// corsSetting is the name under which the registry keeps the CORS configuration.
const corsSetting = "cors"

// maxOrigins bounds how many origins are listed.
const maxOrigins = 1000

// corsConfig says which web pages of other origins may read answers. The zero value
// is none.
type corsConfig struct {
	enabled     bool
	credentials bool            // for the origins that are listed by themselves
	any         bool            // "*": every origin, without credentials
	origins     map[string]bool // in normal form
}

// lists tells whether an origin, in normal form, is listed by itself.
func (c *corsConfig) lists(origin string) bool { return c.enabled && c.origins[origin] }

// corsGrant is what the answer to a request says of CORS.
type corsGrant struct {
	enabled     bool     // answers differ with the origin
	origin      []string // who may read the answer, in the caller's spelling; nil: no page
	credentials bool     // and may have sent credentials
}

// grant decides about a request.
func (c *corsConfig) grant(r *http.Request) corsGrant {
	g := corsGrant{enabled: c.enabled}
	header := r.Header["Origin"]
	if !c.enabled || len(header) != 1 {
		return g
	}
	origin, ok := normalOrigin(header[0])
	if !ok {
		return g
	}
	// Who is let in by "*" alone never gets credentials: any page could then read
	// whatever its reader may read.
	listed := c.origins[origin]
	if listed || c.any {
		g.origin = header[:1:1]
		g.credentials = listed && c.credentials
	}
	return g
}

// What the answers say. The methods are all there are; the exposed headers are those
// that clients read.
var (
	headerTrue        = []string{"true"}
	headerVaryOrigin  = []string{"Origin"}
	headerExposed     = []string{"Accept-Ranges, ETag, Server, X-Couch-Request-ID, X-Couch-Update-NewRev, X-CouchDB-Body-Time"}
	headerCORSMethods = []string{"GET, HEAD, POST, PUT, DELETE, COPY, OPTIONS"}
	headerMaxAge      = []string{"600"}
)

// put sets the headers, the last thing before an answer goes out: no handler and no
// function of a design document has a say in them.
func (g *corsGrant) put(h http.Header) {
	if !g.enabled {
		return
	}
	if h["Vary"] == nil {
		h["Vary"] = headerVaryOrigin
	} else {
		h.Add("Vary", "Origin")
	}
	if g.origin == nil {
		return
	}
	h["Access-Control-Allow-Origin"] = g.origin
	h["Access-Control-Expose-Headers"] = headerExposed
	if g.credentials {
		h["Access-Control-Allow-Credentials"] = headerTrue
	}
}

// askedHeaders are the request headers that a page may send: what clients of this
// protocol do send.
var askedHeaders = map[string]bool{
	"accept": true, "accept-encoding": true, "accept-language": true, "authorization": true, "cache-control": true,
	"content-encoding": true, "content-language": true, "content-length": true, "content-md5": true,
	"content-range": true, "content-type": true, "destination": true, "expires": true, "if-match": true,
	"if-modified-since": true, "if-none-match": true, "if-range": true, "last-event-id": true, "last-modified": true,
	"origin": true, "pragma": true, "prefer": true, "range": true, "user-agent": true, "x-couch-full-commit": true,
	"x-couch-persist": true, "x-couch-request-id": true, "x-couchdb-vhost-path": true,
	"x-couchdb-www-authenticate": true, "x-http-method-override": true, "x-requested-with": true,
}

// isPreflight tells whether a browser asks, before a request, whether a page may send
// it. Nobody's credentials come with the question.
func (g *corsGrant) isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && g.origin != nil && r.Header.Get("Access-Control-Request-Method") != ""
}

// preflight answers it. What is not allowed is left out, and the browser refuses.
func (rq *request) preflight() {
	h := rq.w.Header()
	h["Access-Control-Allow-Methods"] = headerCORSMethods
	h["Access-Control-Max-Age"] = headerMaxAge
	h["Vary"] = []string{"Access-Control-Request-Method, Access-Control-Request-Headers"}
	var allowed []string
	for name := range strings.SplitSeq(rq.r.Header.Get("Access-Control-Request-Headers"), ",") {
		if name = strings.ToLower(strings.TrimSpace(name)); askedHeaders[name] {
			allowed = append(allowed, name)
		}
	}
	if allowed != nil {
		h.Set("Access-Control-Allow-Headers", strings.Join(allowed, ", "))
	}
	rq.w.WriteHeader(http.StatusNoContent)
}

// getCORS shows the CORS configuration.
func getCORS(a *API, rq *request) error {
	text, ok := a.Registry.Setting(corsSetting)
	if !ok {
		text = []byte(`{"enable_cors":false,"allow_credentials":false,"origins":[]}`)
	}
	rq.json(http.StatusOK, append([]byte(nil), text...))
	return nil
}

// putCORS replaces the CORS configuration as a whole.
func putCORS(a *API, rq *request) error {
	obj, err := rq.readSetting()
	if err != nil {
		return err
	}
	c, err := readCORS(obj)
	if err != nil {
		return err
	}
	list, ok := rawjson.Get(obj, "origins")
	if !ok {
		list = []byte("[]")
	}
	text := append([]byte(`{"enable_cors":`), strconv.FormatBool(c.enabled)...)
	text = append(append(text, `,"allow_credentials":`...), strconv.FormatBool(c.credentials)...)
	text = append(append(append(text, `,"origins":`...), list...), '}')
	if err := a.Registry.SetSetting(rq.ctx(), corsSetting, text); err != nil {
		return err
	}
	a.audit(rq, "CORS configuration changed", "enabled", c.enabled, "credentials", c.credentials, "origins", string(list))
	return rq.ok(http.StatusOK)
}

// readCORS reads a CORS configuration. Whoever sends one without saying so wants it to
// count; credentials must be asked for.
func readCORS(obj []byte) (corsConfig, error) {
	if err := onlyMembers(obj, "enable_cors", "allow_credentials", "origins"); err != nil {
		return corsConfig{}, err
	}
	c := corsConfig{enabled: true}
	for _, m := range []struct {
		name string
		to   *bool
	}{{"enable_cors", &c.enabled}, {"allow_credentials", &c.credentials}} {
		v, ok := rawjson.Get(obj, m.name)
		if !ok {
			continue
		}
		if *m.to, ok = rawjson.Bool(v); !ok {
			return corsConfig{}, model.BadRequest(m.name + " must be true or false.")
		}
	}
	list, ok := rawjson.Get(obj, "origins")
	if !ok {
		return c, nil
	}
	if rawjson.KindOf(list) != rawjson.KindArray {
		return corsConfig{}, model.BadRequest("origins must be an array of strings.")
	}
	if rawjson.Len(list) > maxOrigins {
		return corsConfig{}, model.BadRequest(fmt.Sprintf("At most %d origins can be listed.", maxOrigins))
	}
	c.origins = make(map[string]bool, rawjson.Len(list))
	for v := range rawjson.Elements(list) {
		text, ok := rawjson.String(v)
		if !ok {
			return corsConfig{}, model.BadRequest("origins must be an array of strings.")
		}
		if text == "*" {
			c.any = true
			continue
		}
		origin, ok := normalOrigin(text)
		if !ok {
			return corsConfig{}, model.BadRequest(fmt.Sprintf("%q is no origin: one has a scheme, a host and perhaps a port, as https://app.example.com:8443, and nothing after it.", text))
		}
		c.origins[origin] = true
	}
	return c, nil
}
