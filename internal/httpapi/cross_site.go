package httpapi

import (
	"net/http"
	"net/url"
	"strings"

	"github.com/divandb/divan/internal/model"
)

// errCrossSite is the answer to what a page of another site should not be able to do.
var errCrossSite = &model.Error{Kind: model.KindForbidden, Name: "forbidden",
	Reason: "A page of another origin may send nothing but JSON here, unless the CORS configuration lists its origin."}

// checkSite refuses a POST that a page of another site can have made its reader send.
// Browsers ask first (see preflight) about all requests but GET, HEAD and the POST of
// a form, or of nothing, and those they send with the cookies and credentials that the
// reader has here. Programs that are no browsers send none of the three headers.
func checkSite(r *http.Request, c *corsConfig) error {
	if r.Method != http.MethodPost || !formLike(r.Header.Get("Content-Type")) {
		return nil
	}
	origin := r.Header.Get("Origin")
	if origin == "" {
		origin = originOf(r.Header.Get("Referer"))
	}
	switch r.Header.Get("Sec-Fetch-Site") {
	case "same-origin", "none":
		return nil
	case "":
		if origin == "" || sameHost(origin, r) {
			return nil
		}
	}
	if normal, ok := normalOrigin(origin); ok && c.lists(normal) {
		return nil
	}
	return errCrossSite
}

// originOf gives the origin of the page that a Referer names: all that old browsers
// send.
func originOf(referer string) string {
	if referer == "" {
		return ""
	}
	u, err := url.Parse(referer)
	if err != nil || u.Host == "" {
		return "null"
	}
	return u.Scheme + "://" + u.Host
}

// formLike tells whether a body of this type needs no preflight.
func formLike(contentType string) bool {
	if contentType == typeJSON {
		return false
	}
	t, _, _ := strings.Cut(contentType, ";")
	switch strings.ToLower(strings.TrimSpace(t)) {
	case "", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain":
		return true
	}
	return false
}

// sameHost tells whether a page comes from the host that is asked. Behind a proxy
// that is the name before it, which a page of another site cannot set.
func sameHost(origin string, r *http.Request) bool {
	normal, ok := normalOrigin(origin)
	if !ok {
		return false
	}
	scheme, _, _ := strings.Cut(normal, "://") // a proxy may end TLS, so it is not ours to say
	for _, host := range []string{r.Host, r.Header.Get("X-Forwarded-Host")} {
		if own, ok := normalOrigin(scheme + "://" + host); ok && own == normal {
			return true
		}
	}
	return false
}
