package httpapi

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"time"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
)

// audit logs an administrative action: who did what, to what, from where. Secrets
// are no part of it.
func (a *API) audit(rq *request, action string, what ...any) {
	a.auditAt(rq, slog.LevelInfo, action, what...)
}

func (a *API) auditAt(rq *request, level slog.Level, action string, what ...any) {
	who := rq.who.Name
	if who == "" {
		who = "nobody"
	}
	args := append([]any{"action", action, "user", who, "from", rq.r.RemoteAddr, "request", rq.id, "at", time.Now().UTC().Format(time.RFC3339)}, what...)
	a.Log.Log(context.Background(), level, "audit", args...)
}

// auditWrite logs what an administrator has written: design documents, and users
// other than oneself.
func (a *API) auditWrite(rq *request, db *cluster.Database, edits []model.Edit, results []model.EditResult) {
	users := isUsers(db.Name)
	for i := range results {
		if results[i].Err != nil {
			continue
		}
		id, action := edits[i].ID, ""
		switch {
		case strings.HasPrefix(id, "_design/"):
			action = "design document written"
			if edits[i].Deleted {
				action = "design document deleted"
			}
		case users && id != userPrefix+rq.who.Name:
			action = "user written"
			if edits[i].Deleted {
				action = "user deleted"
			}
		default:
			continue
		}
		a.audit(rq, action, "database", db.Name, "document", id)
	}
}

// The refusals of credentials are logged at most this often for a caller: somebody who
// goes on after being locked must not fill the disk.
const (
	tokensPerSecond = 1
	locksPerSecond  = 1.0 / 60
)

// auditRefusal logs credentials that were refused. name is what they said; it is
// shown only if somebody has it, since people type passwords into the wrong field.
func (a *API) auditRefusal(rq *request, name string, err error) {
	action, class := "", auth.ClassLookup
	switch {
	case errors.Is(err, auth.ErrIncorrect):
		action = "login failed"
	case errors.Is(err, auth.ErrLocked):
		action, class = "login locked", auth.ClassWrite
	case errors.Is(err, auth.ErrTooMany):
		action, class = "logins of the address slowed", auth.ClassWrite
		name = ""
	case model.KindOf(err) == model.KindUnauthorized:
		action, class = "token refused", auth.ClassQuery
	default:
		return
	}
	if name != "" && !a.Auth.Known(rq.ctx(), name) {
		name = "(unknown)"
	}
	// Wrong passwords are all logged: there are few of them before the lock.
	key := auth.ClientAddr(rq.r.RemoteAddr).String() + " " + action + " " + name
	if ok, _ := a.refusals.Allow(key, class); !ok {
		return
	}
	what := []any{"name", name}
	if name == "" {
		what = nil
	}
	var e *model.Error
	if class == auth.ClassQuery && errors.As(err, &e) {
		what = append(what, "reason", e.Reason)
	}
	a.auditAt(rq, slog.LevelWarn, action, what...)
}

// newRefusalLimiter bounds the lines of auditRefusal.
func newRefusalLimiter() *auth.Limiter {
	return auth.NewLimiter(auth.Limits{Write: locksPerSecond, Query: tokensPerSecond}, nil)
}

// claimedName gives the name of basic credentials.
func (rq *request) claimedName() string {
	name, _, _ := rq.r.BasicAuth()
	return name
}
