package httpapi

import (
	"strings"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
)

// The refusals: who has shown no credentials may try some; who has is told no.
var (
	errWho       = &model.Error{Kind: model.KindUnauthorized, Name: "unauthorized", Reason: "You are not authorized to access this db."}
	errWhoServer = &model.Error{Kind: model.KindUnauthorized, Name: "unauthorized", Reason: "You are not a server admin."}
	errNot       = &model.Error{Kind: model.KindForbidden, Name: "forbidden", Reason: "You are not allowed to access this db."}
	errNotServer = &model.Error{Kind: model.KindForbidden, Name: "forbidden", Reason: "You are not a server admin."}
	errNotAdmin  = &model.Error{Kind: model.KindForbidden, Name: "forbidden", Reason: "You are not a db or server admin."}
	errWhoAdmin  = &model.Error{Kind: model.KindUnauthorized, Name: "unauthorized", Reason: "You are not a db or server admin."}
)

// refusal chooses the answer by whether the caller is known.
func (p *Principal) refusal(unknown, known *model.Error) error {
	if p.Name == "" {
		return unknown
	}
	return known
}

// rights gives what the caller may do with a database.
func (p *Principal) rights(db *cluster.Database) auth.Rights {
	if p.ServerAdmin {
		return auth.AllRights
	}
	return db.Access.Rights(p.Name, p.Roles)
}

// allow decides whether the caller has the right that a route needs.
func (a *API) allow(rq *request, authErr error, need right) error {
	if authErr != nil {
		a.auditRefusal(rq, rq.claimedName(), authErr)
		return authErr
	}
	who := &rq.who
	switch {
	case need == public || who.ServerAdmin:
		return nil
	case need == knownUser:
		if who.Name == "" {
			return errWhoServer
		}
		return nil
	case need == dbUpdates:
		return a.allowUpdates(who)
	}
	sets, ok := dbRights[need]
	if !ok {
		return who.refusal(errWhoServer, errNotServer)
	}
	db, err := rq.database()
	if err != nil {
		if who.Name == "" {
			return errWho // what databases there are is nobody's business
		}
		return err
	}
	if isUsers(db.Name) {
		return rq.allowUsers(db, need)
	}
	have := who.rights(db)
	for _, set := range sets {
		if have.Has(set) {
			return rq.allowReplicator(db, have, need)
		}
	}
	if need == dbAdmin {
		return who.refusal(errWhoAdmin, errNotAdmin)
	}
	return who.refusal(errWho, errNot)
}

// allowReplicator keeps documents that make the server act, and hold credentials of
// other servers, to those who may.
func (rq *request) allowReplicator(db *cluster.Database, have auth.Rights, need right) error {
	if !isReplicator(db.Name) || have.Has(auth.DBAdmin) {
		return nil
	}
	switch need {
	case dbReader, dbWriter, dbReadWrite:
		return rq.who.refusal(errWhoAdmin, errNotAdmin)
	}
	return nil
}

// isReplicator tells whether documents of a database are replication jobs.
func isReplicator(name string) bool {
	return name == "_replicator" || strings.HasSuffix(name, "/_replicator")
}

// allowUpdates admits to the global feed whoever may see the events of at least
// one database.
func (a *API) allowUpdates(who *Principal) error {
	for name := range a.Registry.Names(cluster.NamesQuery{Limit: -1}) {
		if db, err := a.Registry.Get(name); err == nil && who.rights(db).Has(auth.DBUpdates) {
			return nil
		}
	}
	return who.refusal(errWho, errNot)
}
