package httpapi

import (
	"slices"
	"strings"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// usersDB is the database of users, and userPrefix begins the ids of their
// documents.
const (
	usersDB    = "_users"
	userPrefix = "org.couchdb.user:"
)

// isUsers tells whether documents of a database are users.
func isUsers(name string) bool { return name == usersDB }

// allowUsers decides about the database of users: whoever is no administrator of
// it has one document there, and does not learn of others.
func (rq *request) allowUsers(db *cluster.Database, need right) error {
	who := &rq.who
	if who.rights(db).Has(auth.DBAdmin) {
		return nil
	}
	if who.Name == "" {
		return errWho
	}
	id := rq.param("doc")
	if id == "" || need != dbReader && need != dbWriter {
		return errNot
	}
	if id != userPrefix+who.Name {
		return model.ErrMissing
	}
	return nil
}

// userError refuses a user document.
func userError(reason string) *model.Error {
	return &model.Error{Kind: model.KindForbidden, Name: "forbidden", Reason: reason}
}

// checkUser holds an edit in the database of users against its rules and hashes a
// clear password, so that none is ever stored.
func (a *API) checkUser(rq *request, db *cluster.Database, e *model.Edit) (*model.Error, error) {
	admin := rq.who.rights(db).Has(auth.DBAdmin)
	if strings.HasPrefix(e.ID, "_design/") {
		if !admin {
			return errNotAdmin, nil
		}
		return nil, nil
	}
	if !admin && e.ID != userPrefix+rq.who.Name {
		return model.ErrMissing, nil
	}
	if e.Deleted {
		// What is left of a user needs no password, least of all a clear one.
		e.Body = without(e.Body, nil, auth.PasswordMembers...)
		return nil, nil
	}
	roles, refused := readUser(e)
	if refused != nil {
		return refused, nil
	}
	if !admin {
		was, found, err := a.rolesBefore(rq, db, e.ID)
		switch {
		case err != nil:
			return nil, err
		case !found && len(roles) > 0:
			return userError("Only _admin may set roles"), nil
		case found && !sameRoles(was, roles):
			return userError("Only _admin may edit roles"), nil
		}
	}
	return a.hidePassword(rq, e)
}

// readUser checks a user document and gives its roles.
func readUser(e *model.Edit) ([]string, *model.Error) {
	text := func(member string) (string, bool) {
		v, _ := rawjson.Get(e.Body, member)
		return rawjson.String(v)
	}
	if t, _ := text("type"); t != "user" {
		return nil, userError("doc.type must be user")
	}
	name, ok := text("name")
	if !ok || name == "" {
		return nil, userError("doc.name is required")
	}
	list, ok := rawjson.Get(e.Body, "roles")
	if !ok {
		return nil, userError("doc.roles must exist")
	}
	if rawjson.KindOf(list) != rawjson.KindArray {
		return nil, userError("doc.roles must be an array")
	}
	var roles []string
	for v := range rawjson.Elements(list) {
		role, ok := rawjson.String(v)
		if !ok {
			return nil, userError("doc.roles can only contain strings")
		}
		roles = append(roles, role)
	}
	if e.ID != userPrefix+name {
		return nil, userError("Doc ID must be of the form org.couchdb.user:name")
	}
	for _, role := range roles {
		if strings.HasPrefix(role, "_") {
			return nil, userError("No system roles (starting with underscore) in users db.")
		}
	}
	if strings.HasPrefix(name, "_") {
		return nil, userError("Username may not start with underscore.")
	}
	if strings.Contains(name, ":") {
		return nil, userError("Character `:` is not allowed in usernames.")
	}
	return roles, nil
}

// rolesBefore gives the roles that a user's document has now.
func (a *API) rolesBefore(rq *request, db *cluster.Database, id string) (roles []string, found bool, err error) {
	answer, err := a.Coordinator.ReadOne(rq.ctx(), db, shardapi.DocQuery{ID: id, Want: shardapi.WantBody}, 0)
	if err != nil || len(answer.Docs) == 0 || answer.Docs[0].Deleted {
		return nil, false, err
	}
	list, _ := rawjson.Get(answer.Docs[0].Body, "roles")
	if rawjson.KindOf(list) == rawjson.KindArray {
		for v := range rawjson.Elements(list) {
			role, _ := rawjson.String(v)
			roles = append(roles, role)
		}
	}
	return roles, true, nil
}

// sameRoles compares roles in any order.
func sameRoles(a, b []string) bool {
	x, y := slices.Clone(a), slices.Clone(b)
	slices.Sort(x)
	slices.Sort(y)
	return slices.Equal(x, y)
}

// hidePassword puts the hash of a clear password in its place.
func (a *API) hidePassword(rq *request, e *model.Edit) (*model.Error, error) {
	v, ok := rawjson.Get(e.Body, "password")
	if !ok || string(v) == "null" {
		if ok {
			e.Body = without(e.Body, nil, "password")
		}
		if _, err := auth.ReadSecrets(e.Body); err != nil {
			if m := asModelError(err); m != nil {
				return userError(m.Reason), nil
			}
			return nil, err
		}
		return nil, nil
	}
	password, ok := rawjson.String(v)
	if !ok {
		return userError("Password must be a string."), nil
	}
	members, err := a.Auth.UserSecrets(rq.ctx(), password)
	if err != nil {
		if e := asModelError(err); e != nil && e.Kind == model.KindBadRequest {
			return e, nil
		}
		return nil, err
	}
	e.Body = without(e.Body, members, auth.PasswordMembers...)
	return nil, nil
}

// without gives an object without some members, begun with others.
func without(obj, begin []byte, names ...string) []byte {
	out := append(append(make([]byte, 0, len(obj)+len(begin)+2), '{'), begin...)
	for name, value := range rawjson.Members(obj) {
		if slices.Contains(names, string(name)) {
			continue
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = rawjson.AppendString(out, string(name))
		out = append(append(out, ':'), value...)
	}
	return append(out, '}')
}
