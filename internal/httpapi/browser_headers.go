package httpapi

import (
	"net/http"
	"strings"
)

// What answers say to browsers.
var (
	nosniff    = []string{"nosniff"}
	noReferrer = []string{"no-referrer"}
	noFrames   = []string{"DENY"}
	httpsOnly  = []string{"max-age=31536000"}
)

// strictTransport tells browsers to come back over TLS only. That binds a host name
// with all its ports, so the name of one's own machine is left alone: other people's
// servers run there.
func strictTransport(h http.Header, r *http.Request) {
	if host := hostName(r.Host); host != "localhost" && !strings.HasSuffix(host, ".localhost") {
		h["Strict-Transport-Security"] = httpsOnly
	}
}
