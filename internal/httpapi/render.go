package httpapi

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/design"
	"github.com/divandb/divan/internal/designs"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// renderRoutes are the functions of design documents that make answers: shows,
// lists, updates and rewrites. CouchDB calls them deprecated and serves them;
// people who come from there still have them.
func renderRoutes() []route {
	return []route{
		{"GET,POST", "/{db}/_design/{ddoc}/_show/{func}", dbReader, showDocument},
		{"GET,POST", "/{db}/_design/{ddoc}/_show/{func}/{doc...}", dbReader, showDocument},
		{"GET,POST", "/{db}/_design/{ddoc}/_list/{func}/{first}", dbReader, listView},
		{"GET,POST", "/{db}/_design/{ddoc}/_list/{func}/{first}/{second}", dbReader, listView},
		{"POST,PUT", "/{db}/_design/{ddoc}/_update/{func}", dbReadWrite, updateDocument},
		{"POST,PUT", "/{db}/_design/{ddoc}/_update/{func}/{doc...}", dbReadWrite, updateDocument},
		{"GET,PUT,POST,DELETE,COPY", "/{db}/_design/{ddoc}/_rewrite", dbAny, rewrite},
		{"GET,PUT,POST,DELETE,COPY", "/{db}/_design/{ddoc}/_rewrite/{rest...}", dbAny, rewrite},
	}
}

// script is a function of a design document that a request names.
type script struct {
	db   *cluster.Database
	prog jsvm.Program
	fn   string
}

// script finds the function of the path: member is what holds it in the design
// document.
func (a *API) script(rq *request, member string, of func(*design.Doc) map[string]string) (*script, error) {
	db, err := rq.database()
	if err != nil {
		return nil, err
	}
	d, err := a.Designs.Get(rq.ctx(), db, design.Prefix+rq.param("ddoc"))
	if err != nil {
		return nil, err
	}
	name := rq.param("func")
	fn, ok := of(d)[name]
	if !ok {
		return nil, &model.Error{Kind: model.KindNotFound, Name: "not_found", Reason: "missing " + member + " function " + name + " on design doc " + d.ID}
	}
	return &script{db: db, prog: designs.Program(db, d), fn: fn}, nil
}

// scriptDocument reads the document that a show or an update is about: nil if
// none is named or there is none.
func (a *API) scriptDocument(rq *request, db *cluster.Database, id string) ([]byte, error) {
	if id == "" {
		return nil, nil
	}
	answer, err := a.Coordinator.ReadOne(rq.ctx(), db, shardapi.DocQuery{ID: id, Want: shardapi.WantBody}, 0)
	if err != nil {
		return nil, err
	}
	if len(answer.Docs) == 0 || answer.Docs[0].Deleted {
		return nil, nil
	}
	return document.Append(nil, &answer.Docs[0], nil)
}

// scriptBody reads the body for the request object; nil if there is none.
func (rq *request) scriptBody() (body []byte, release func(), err error) {
	if rq.r.Body == nil || rq.r.Body == http.NoBody || rq.r.ContentLength == 0 {
		return nil, func() {}, nil
	}
	return rq.readBody(rq.api.Limits.MaxDocument)
}

// scriptArguments gives what a show or an update function gets: the document of the
// path, nil if there is none, and the request object.
func (a *API) scriptArguments(rq *request, db *cluster.Database) (doc, req []byte, err error) {
	id := rq.param("doc")
	if doc, err = a.scriptDocument(rq, db, id); err != nil {
		return nil, nil, err
	}
	body, release, err := rq.scriptBody()
	defer release()
	if err != nil {
		return nil, nil, err
	}
	req, err = a.scriptRequest(rq, db, id, body)
	return doc, req, err
}

// showDocument answers with what a show function makes of a document.
func showDocument(a *API, rq *request) error {
	s, err := a.script(rq, "show", func(d *design.Doc) map[string]string { return d.Shows })
	if err != nil {
		return err
	}
	doc, req, err := a.scriptArguments(rq, s.db)
	if err != nil {
		return err
	}
	answer, err := a.JS.Show(rq.ctx(), s.prog, s.fn, doc, req)
	if err != nil {
		return jsvm.ClientError("show", err)
	}
	rq.w.Header().Set("Vary", "Accept")
	return rq.rendered(answer, http.StatusOK)
}

// updateDocument writes what an update function makes of a document.
func updateDocument(a *API, rq *request) error {
	s, err := a.script(rq, "update", func(d *design.Doc) map[string]string { return d.Updates })
	if err != nil {
		return err
	}
	mode, err := rq.writeMode()
	if err != nil {
		return err
	}
	doc, req, err := a.scriptArguments(rq, s.db)
	if err != nil {
		return err
	}
	made, answer, err := a.JS.Update(rq.ctx(), s.prog, s.fn, doc, req)
	if err != nil {
		return jsvm.ClientError("update", err)
	}
	if made == nil {
		return rq.rendered(answer, http.StatusOK)
	}
	res, accepted, err := a.writeMade(rq, s.db, made, mode)
	if err != nil {
		return err
	}
	rq.w.Header().Set("X-Couch-Update-NewRev", res.Rev.String())
	rq.w.Header().Set("X-Couch-Id", url.PathEscape(res.ID))
	status := http.StatusCreated
	if accepted {
		status = http.StatusAccepted
	}
	return rq.rendered(answer, status)
}

// writeMade writes a document that a function made.
func (a *API) writeMade(rq *request, db *cluster.Database, made []byte, mode writeMode) (*model.EditResult, bool, error) {
	norm, err := rawjson.Normalize(nil, made, a.Limits.MaxDepth)
	if err != nil || rawjson.KindOf(norm) != rawjson.KindObject {
		return nil, false, model.BadRequest("Document must be a JSON object")
	}
	p, err := document.Parse(norm, a.parseOptions(db, "", false))
	if err != nil {
		return nil, false, err
	}
	if !p.HasID {
		return nil, false, &model.Error{Kind: model.KindBadRequest, Name: "illegal_docid", Reason: "Document id must not be empty"}
	}
	edit, err := newEdit(p, p.Rev, false)
	if err != nil {
		return nil, false, err
	}
	if err := a.stageInline(rq, db, p, &edit); err != nil {
		return nil, false, err
	}
	mode.replicated = false
	return a.writeEdit(rq, db, edit, mode)
}

// ownHeaders are the server's to set, whatever a function says.
var ownHeaders = map[string]bool{
	"Content-Length": true, "Transfer-Encoding": true, "Connection": true, "Content-Encoding": true, "Trailer": true,
	"Content-Security-Policy": true, "X-Content-Type-Options": true, "Server": true, "X-Couch-Request-Id": true,
	"Www-Authenticate": true, "Upgrade": true, "Keep-Alive": true,
	// These say something of the whole server.
	"Strict-Transport-Security": true, "Clear-Site-Data": true, "Service-Worker-Allowed": true, "Alt-Svc": true,
}

// renderedHead sets the headers of an answer that a function made and gives its
// status; contentType is what it is when the function does not say.
func (rq *request) renderedHead(answer []byte, status int, contentType string) (int, error) {
	if code, ok := rawjson.Get(answer, "code"); ok {
		n, isInt := rawjson.Int(code)
		if !isInt || n < 200 || n > 599 {
			return 0, &model.Error{Kind: model.KindInternal, Name: "external_response_error", Reason: "The function answered with a code that is no status."}
		}
		status = int(n)
	}
	h := rq.w.Header()
	h.Set("Content-Type", contentType)
	if headers, ok := rawjson.Get(answer, "headers"); ok && rawjson.KindOf(headers) == rawjson.KindObject {
		for name, value := range rawjson.Members(headers) {
			text, ok := rawjson.String(value)
			if !ok {
				text = string(value)
			}
			key := http.CanonicalHeaderKey(string(name))
			// A design document may not log its readers in as somebody else. Browsers are
			// lenient about how a cookie is written, so it may not even name that one.
			if ownHeaders[key] || strings.HasPrefix(key, "Access-Control-") || key == "Set-Cookie" && strings.Contains(text, sessionCookie) {
				continue
			}
			h.Set(key, text)
		}
	}
	h.Set("Content-Security-Policy", "sandbox")
	return status, nil
}

// rendered answers with the response object that a function made.
func (rq *request) rendered(answer []byte, status int) error {
	contentType := "text/html; charset=utf-8"
	var body []byte
	if v, ok := rawjson.Get(answer, "json"); ok {
		contentType, body = typeJSON, append([]byte(nil), v...)
	} else if v, ok := rawjson.Get(answer, "base64"); ok {
		text, _ := rawjson.String(v)
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return &model.Error{Kind: model.KindInternal, Name: "external_response_error", Reason: "The function answered with base64 that cannot be decoded."}
		}
		contentType, body = "application/binary", data
	} else if v, ok := rawjson.Get(answer, "body"); ok {
		text, isText := rawjson.String(v)
		if !isText {
			text = string(v)
		}
		body = []byte(text)
	}
	status, err := rq.renderedHead(answer, status, contentType)
	if err != nil {
		return err
	}
	rq.body(status, body)
	return nil
}
