package httpapi

import (
	"net/http"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/rawjson"
)

// maxSecurity bounds a security object: it is held in memory.
const maxSecurity = 1 << 20

// getSecurity shows a database's security object.
func getSecurity(_ *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	b := []byte(`{"_id":"_security"`)
	if len(db.Security) > 2 {
		b = append(append(b, ','), db.Security[1:]...)
	} else {
		b = append(b, '}')
	}
	rq.json(http.StatusOK, b)
	return nil
}

// putSecurity replaces a database's security object as a whole.
func putSecurity(a *API, rq *request) error {
	if _, err := rq.database(); err != nil {
		return err
	}
	raw, release, err := rq.readBody(maxSecurity)
	defer release()
	if err != nil {
		return err
	}
	obj, err := rawjson.Normalize(nil, raw, a.Limits.MaxDepth)
	if err != nil {
		return errInvalidJSON
	}
	if obj, err = auth.NormalSecurity(obj); err != nil {
		return err
	}
	if _, err := a.Registry.SetSecurity(rq.ctx(), rq.param("db"), obj); err != nil {
		return err
	}
	a.audit(rq, "security changed", "database", rq.param("db"))
	return rq.ok(http.StatusOK)
}
