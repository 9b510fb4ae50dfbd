package httpapi

import (
	"math"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/model"
)

// rangeReads are the path segments whose routes read as many things as there are.
var rangeReads = map[string]bool{
	"_all_docs": true, "_design_docs": true, "_local_docs": true, "_changes": true, "_bulk_get": true,
	"_view": true, "_list": true, "_find": true, "_search": true, "_geo": true,
	"_all_dbs": true, "_dbs_info": true, "_db_updates": true,
}

// class gives the class of a request to the route, as rate limits know them: a query
// is a range read, a write changes something, a lookup is the rest. All of it follows
// from the route table, so a new route has a class without being told.
func (rt *route) class(method string) auth.Class {
	for seg := range strings.SplitSeq(rt.shape, "/") {
		if rangeReads[seg] {
			return auth.ClassQuery
		}
	}
	if method == http.MethodGet || method == http.MethodHead {
		return auth.ClassLookup
	}
	switch rt.need {
	case dbWriter, dbReadWrite, dbLocalWrite, dbAdmin, serverAdmin:
		return auth.ClassWrite
	}
	return auth.ClassLookup // logins, which have limits of their own; _revs_diff and its like
}

// classNames are the words of the refusal.
var classNames = map[auth.Class]string{auth.ClassLookup: "lookups", auth.ClassWrite: "writes", auth.ClassQuery: "queries"}

// limit takes a request from the rate of its caller. Server administrators have none:
// whoever has to look at an overloaded server must get through. Neither has /_up,
// which a load balancer asks in nobody's name.
func (a *API) limit(rq *request, rt *route) error {
	if a.limiter == nil || rq.who.ServerAdmin || rt.shape == "/_up" {
		return nil
	}
	class := rt.class(rq.method)
	ok, after := a.limiter.Allow(rq.caller(), class)
	if ok {
		return nil
	}
	rq.retryAfter(after)
	return &model.Error{Kind: model.KindTooMany, Name: "too_many_requests",
		Reason: "You've exceeded your rate limit of " + classNames[class] + " per second; try again later."}
}

// caller names who asks: the user, or the address of one without credentials. A user
// cannot take the name of an address, nor the other way round.
func (rq *request) caller() string {
	if rq.who.Name != "" {
		return "user " + rq.who.Name
	}
	return "addr " + auth.ClientAddr(rq.r.RemoteAddr).String()
}

// retryAfter says when to come back, in whole seconds.
func (rq *request) retryAfter(after time.Duration) {
	seconds := max(1, int(math.Ceil(after.Seconds())))
	rq.w.Header().Set("Retry-After", strconv.Itoa(seconds))
}

// What is said where nobody knows better: failed logins leak away within a minute, and
// a server that starts, stops or is busy needs a moment.
const (
	retryTooMany     = time.Minute
	retryUnavailable = 5 * time.Second
)

// retryLater says it where a refusal did not.
func (rq *request) retryLater(status int) {
	if rq.w.Header().Get("Retry-After") != "" {
		return
	}
	switch status {
	case http.StatusTooManyRequests:
		rq.retryAfter(retryTooMany)
	case http.StatusServiceUnavailable:
		rq.retryAfter(retryUnavailable)
	}
}
