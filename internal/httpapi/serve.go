package httpapi

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/divandb/divan/internal/model"
)

// ServeHTTP implements http.Handler: the one road every request takes.
func (a *API) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	start := time.Now()
	rq := &request{api: a, r: r, id: requestID(r), writer: statusWriter{ResponseWriter: w}}
	rq.w = &rq.writer
	rq.incoming.rq, rq.incoming.patience = rq, a.bodyPatience
	rq.writer.incoming = &rq.incoming
	rq.incoming.begin(start)
	h := w.Header()
	rq.values[0] = rq.id
	h["X-Couch-Request-Id"] = rq.values[0:1:1]
	h["Server"] = a.serverHeader
	h["X-Content-Type-Options"] = nosniff
	h["Referrer-Policy"] = noReferrer
	if r.TLS != nil {
		strictTransport(h, r)
	}
	defer func() {
		if p := recover(); p != nil {
			if p == http.ErrAbortHandler {
				panic(p)
			}
			rq.panicked(p)
		}
		rq.w.done()
		rq.logDone(start)
	}()
	if err := a.admit(rq); err != nil {
		rq.fail(err)
	}
}

// admit looks at what browsers and virtual hosts bring along, once, and sends the
// request on its way.
func (a *API) admit(rq *request) error {
	cors := a.cors.get(a.Registry, a.Log)
	rq.writer.cors = cors.grant(rq.r)
	if rq.writer.cors.isPreflight(rq.r) {
		rq.preflight()
		return nil
	}
	if err := checkSite(rq.r, &cors); err != nil {
		return err
	}
	if err := a.underHost(rq); err != nil {
		return err
	}
	return a.serve(rq)
}

func (a *API) serve(rq *request) error {
	r := rq.r
	if len(r.RequestURI) > a.Limits.MaxURL {
		return &model.Error{Kind: model.KindURITooLong, Name: "too_long", Reason: fmt.Sprintf("The request target is longer than %d bytes.", a.Limits.MaxURL)}
	}
	method := r.Method
	if method == http.MethodPost {
		if o := r.Header.Get("X-HTTP-Method-Override"); o != "" {
			method = strings.ToUpper(o)
		}
	}
	rq.method = method

	segs, ok := splitPath(r.URL.EscapedPath(), rq.segArr[:0])
	if !ok {
		return errBadPath
	}
	who, authErr := a.Auth.Authenticate(r)
	rq.who = who
	// An escaped slash in _design%2Fname or _local%2Fname still means that sort of
	// document, and the rights that go with it: mend the path before the table is asked.
	if len(segs) > 1 && strings.HasPrefix(segs[1], "_") {
		if kind, name, ok := strings.Cut(segs[1], "/"); ok && (kind == "_design" || kind == "_local") {
			segs = append([]string{segs[0], kind, name}, segs[2:]...)
			if kind == "_design" && len(segs) == 3 && (method == "GET" || method == "HEAD") {
				rq.params = append(rq.paramArr[:0], pathParam{"db", segs[0]})
				if err := a.allow(rq, authErr, dbDesign); err != nil {
					return err
				}
				return rq.redirectDesign(segs)
			}
		}
	}
	node, params := a.routes.match(segs, rq.paramArr[:0])
	rq.params = params
	if node == nil {
		if err := a.allow(rq, authErr, knownUser); err != nil {
			return err
		}
		return &model.Error{Kind: model.KindNotFound, Name: "not_found", Reason: "missing"}
	}
	rt := node.methods[method]
	if rt == nil {
		if err := a.allow(rq, authErr, knownUser); err != nil {
			return err
		}
		rq.w.Header().Set("Allow", node.allowed())
		return &model.Error{Kind: model.KindNotAllowed, Name: "method_not_allowed", Reason: "Only " + node.allowed() + " allowed"}
	}
	if err := a.allow(rq, authErr, rt.need); err != nil {
		return err
	}
	if err := a.limit(rq, rt); err != nil {
		return err
	}
	rq.route = rt
	// Only a percent sign or a semicolon can make a query string unreadable. A
	// parameter must not be lost because another one is.
	if strings.ContainsAny(r.URL.RawQuery, "%;") {
		if _, err := rq.q(); err != nil {
			return err
		}
	}
	if who.Renew != "" {
		rq.setSession(who.Renew)
	}
	return rt.handle(a, rq)
}

// redirectDesign sends a reader of _design%2Fname to the proper spelling.
func (rq *request) redirectDesign(segs []string) error {
	loc := rq.outside("/" + escapeSegment(segs[0]) + "/_design/" + escapeSegment(segs[2]))
	if q := rq.r.URL.RawQuery; q != "" {
		loc += "?" + q
	}
	rq.w.Header().Set("Location", loc)
	rq.json(http.StatusMovedPermanently, []byte(`{"ok":true}`))
	return nil
}

// requestID takes the client's id if it is safe to repeat in a header and a log,
// and makes one otherwise.
func requestID(r *http.Request) string {
	if v := r.Header.Get("X-Couch-Request-ID"); v != "" && len(v) <= 36 {
		safe := true
		for i := 0; i < len(v); i++ {
			c := v[i]
			safe = safe && (c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z')
		}
		if safe {
			return v
		}
	}
	// Only to find a request in the log: it gives no rights, so it may be guessed.
	var b [8]byte
	var text [10]byte
	binary.LittleEndian.PutUint64(b[:], rand.Uint64())
	hex.Encode(text[:], b[:5])
	return string(text[:])
}

// fail answers with an error body, or cuts the connection when part of another
// answer is out already.
func (rq *request) fail(err error) {
	if errors.Is(err, context.Canceled) && rq.r.Context().Err() != nil {
		return // the client has gone; nobody reads an answer
	}
	if g := (*goneError)(nil); errors.As(err, &g) {
		panic(http.ErrAbortHandler) // as below
	}
	var e *model.Error
	if !errors.As(err, &e) {
		if errors.Is(err, context.DeadlineExceeded) {
			e = &model.Error{Kind: model.KindTimeout, Name: "timeout", Reason: "The request could not be processed in a reasonable amount of time."}
		} else {
			e = &model.Error{Kind: model.KindInternal, Name: "internal_server_error", Reason: "An unexpected fault; the server's log has it under this request's id, " + rq.id + "."}
		}
	}
	status := statusOf(e.Kind)
	// A full disk has its own line in the log; one per refused write would flood it.
	if status >= 500 && e.Kind != model.KindNotImplemented && e.Kind != model.KindStorageFull {
		rq.api.Log.Error("request failed", "request", rq.id, "method", rq.method, "path", rq.r.URL.Path, "error", err)
	}
	if rq.w.status != 0 {
		// The status line is out: the only honest end of a broken body is a broken
		// connection, never a body that looks complete.
		panic(http.ErrAbortHandler)
	}
	rq.drainBody()
	rq.retryLater(status)
	if status == http.StatusUnauthorized {
		rq.w.Header().Set("WWW-Authenticate", `Basic realm="divan"`)
	}
	rq.json(status, errorBody(e.Name, e.Reason))
}

// panicked answers a panic in a handler: a 500 with a reference, logged; the
// process lives on.
func (rq *request) panicked(p any) {
	rq.api.Log.Error("panic in a handler", "request", rq.id, "method", rq.method, "path", rq.r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	if rq.w.status != 0 {
		panic(http.ErrAbortHandler)
	}
	rq.w.Header().Set("X-Couch-Stack-Hash", rq.id)
	rq.json(http.StatusInternalServerError, []byte(`{"error":"internal_server_error","reason":"An unexpected fault; the server's log has it under this reference.","ref":"`+rq.id+`"}`))
}

func (rq *request) logDone(start time.Time) {
	if !rq.api.Log.Enabled(rq.r.Context(), slog.LevelDebug) {
		return
	}
	// The path without its query, and no header: nothing that could hold a secret.
	rq.api.Log.Debug("request", "request", rq.id, "user", rq.who.Name, "method", rq.r.Method, "path", rq.r.URL.Path,
		"status", rq.w.status, "duration", time.Since(start).Round(time.Microsecond))
}

// statusOf is the one place where a kind becomes a status.
func statusOf(k model.Kind) int {
	switch k {
	case model.KindBadRequest:
		return http.StatusBadRequest
	case model.KindUnauthorized:
		return http.StatusUnauthorized
	case model.KindForbidden:
		return http.StatusForbidden
	case model.KindNotFound:
		return http.StatusNotFound
	case model.KindNotAllowed:
		return http.StatusMethodNotAllowed
	case model.KindNotAcceptable:
		return http.StatusNotAcceptable
	case model.KindConflict:
		return http.StatusConflict
	case model.KindGone:
		return http.StatusGone
	case model.KindPrecondition:
		return http.StatusPreconditionFailed
	case model.KindTooLarge:
		return http.StatusRequestEntityTooLarge
	case model.KindURITooLong:
		return http.StatusRequestURITooLong
	case model.KindUnsupportedMedia:
		return http.StatusUnsupportedMediaType
	case model.KindRange:
		return http.StatusRequestedRangeNotSatisfiable
	case model.KindExpectation:
		return http.StatusExpectationFailed
	case model.KindTooMany:
		return http.StatusTooManyRequests
	case model.KindNotImplemented:
		return http.StatusNotImplemented
	case model.KindUnavailable:
		return http.StatusServiceUnavailable
	case model.KindStorageFull:
		return http.StatusInsufficientStorage
	}
	return http.StatusInternalServerError
}
