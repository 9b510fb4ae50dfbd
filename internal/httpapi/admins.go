package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// Administrators are managed where clients of CouchDB manage them: in the section
// `admins` of a node's configuration. Here all nodes have the same ones.

// hiddenPassword stands where CouchDB shows the hash of a password: whoever has it
// could try passwords out.
const hiddenPassword = "********"

// maxAdminBody bounds the body with a password.
const maxAdminBody = 64 << 10

// errNoConfig is CouchDB's answer for a value that is not there.
var errNoConfig = &model.Error{Kind: model.KindNotFound, Name: "not_found", Reason: "unknown_config_value"}

// checkNode refuses the name of a node that is none of ours.
func (a *API) checkNode(rq *request) error {
	node := rq.param("node")
	if node == "_local" {
		return nil
	}
	for _, n := range a.Registry.Nodes() {
		if n.Name == node {
			return nil
		}
	}
	return &model.Error{Kind: model.KindNotFound, Name: "not_found", Reason: "no such node: " + node}
}

// getAdmins lists the administrators.
func getAdmins(a *API, rq *request) error {
	if err := a.checkNode(rq); err != nil {
		return err
	}
	b := []byte{'{'}
	for i, name := range a.Auth.AdminNames() {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, name)
		b = append(b, `:"`+hiddenPassword+`"`...)
	}
	rq.json(http.StatusOK, append(b, '}'))
	return nil
}

// getAdmin tells whether there is an administrator of that name.
func getAdmin(a *API, rq *request) error {
	if err := a.checkNode(rq); err != nil {
		return err
	}
	if !a.isAdmin(rq.param("name")) {
		return errNoConfig
	}
	rq.json(http.StatusOK, []byte(`"`+hiddenPassword+`"`))
	return nil
}

func (a *API) isAdmin(name string) bool { return slices.Contains(a.Auth.AdminNames(), name) }

// putAdmin makes an administrator, or gives one a new password. The answer is what was
// there before, as in CouchDB.
func putAdmin(a *API, rq *request) error {
	if err := a.checkNode(rq); err != nil {
		return err
	}
	raw, release, err := rq.readBody(maxAdminBody)
	defer release()
	if err != nil {
		return err
	}
	norm, err := rawjson.Normalize(nil, raw, a.Limits.MaxDepth)
	if err != nil {
		return errInvalidJSON
	}
	password, ok := rawjson.String(norm)
	if !ok {
		return model.BadRequest("The body must be the password, as a JSON string.")
	}
	// CouchDB takes these for hashes. To take one for a password would make an account
	// whose password is what somebody thought was secret.
	for _, scheme := range []string{"-pbkdf2-", "-pbkdf2:", "-hashed-"} {
		if strings.HasPrefix(password, scheme) {
			return model.BadRequest("A hashed password is not taken here; send the password itself.")
		}
	}
	name, before := rq.param("name"), ""
	if a.isAdmin(name) {
		before = hiddenPassword
	}
	if err := a.Auth.SetAdmin(name, password); err != nil {
		return err
	}
	action := "administrator added"
	if before != "" {
		action = "password of an administrator set"
	}
	a.audit(rq, action, "name", name)
	rq.json(http.StatusOK, rawjson.AppendString(nil, before))
	return nil
}

// deleteAdmin removes an administrator.
func deleteAdmin(a *API, rq *request) error {
	if err := a.checkNode(rq); err != nil {
		return err
	}
	name := rq.param("name")
	if !a.isAdmin(name) {
		return errNoConfig
	}
	if err := a.Auth.RemoveAdmin(name); err != nil {
		if model.KindOf(err) == model.KindForbidden {
			return model.BadRequest("The last administrator cannot be removed.")
		}
		return err
	}
	a.audit(rq, "administrator removed", "name", name)
	rq.json(http.StatusOK, []byte(`"`+hiddenPassword+`"`))
	return nil
}
