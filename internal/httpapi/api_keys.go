package httpapi

import (
	"net/http"

	"github.com/divandb/divan/internal/rawjson"
)

// postAPIKey makes an API key. The password is shown this once; the key may do nothing
// until a security object names it.
func postAPIKey(a *API, rq *request) error {
	// It takes no body; one that is sent is at least no form of another site's page.
	if rq.r.ContentLength != 0 {
		if err := rq.requireJSON(); err != nil {
			return err
		}
	}
	name, password, err := a.Auth.NewKey(rq.ctx())
	if err != nil {
		return err
	}
	a.audit(rq, "API key created", "key", name)
	rq.w.Header().Set("Cache-Control", "no-store")
	b := rawjson.AppendString([]byte(`{"password":`), password)
	b = rawjson.AppendString(append(b, `,"key":`...), name)
	rq.json(http.StatusCreated, append(b, `,"ok":true}`...))
	return nil
}
