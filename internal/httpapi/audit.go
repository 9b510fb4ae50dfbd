package httpapi

import "time"

// audit logs an administrative action: who did what, to what, from where. Secrets
// are no part of it.
func (a *API) audit(rq *request, action string, what ...any) {
	who := rq.who.Name
	if who == "" {
		who = "nobody"
	}
	args := append([]any{"action", action, "user", who, "from", rq.r.RemoteAddr, "request", rq.id, "at", time.Now().UTC().Format(time.RFC3339)}, what...)
	a.Log.Info("audit", args...)
}
