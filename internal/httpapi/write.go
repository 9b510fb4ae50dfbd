package httpapi

import (
	"strings"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/model"
)

// write writes the edits of a request: the one road of all documents from here to
// the copies. The path of a request does not tell what its body names, so rights
// that depend on the document are asked for here; what is refused keeps its place
// in the results.
func (a *API) write(rq *request, db *cluster.Database, edits []model.Edit, mode writeMode) (coordinator.WriteResult, error) {
	o := coordinator.WriteOptions{W: mode.w, User: rq.who.userOf(db)}
	check := a.editCheck(rq, db)
	if check == nil {
		out, err := a.Coordinator.Write(rq.ctx(), db, edits, o)
		if err == nil {
			a.auditWrite(rq, db, edits, out.Results)
		}
		return out, err
	}
	results := make([]model.EditResult, len(edits))
	good := make([]model.Edit, 0, len(edits))
	place := make([]int, 0, len(edits))
	for i := range edits {
		refused, err := check(&edits[i])
		if err != nil {
			for k := range edits {
				a.unstage(rq, db, &edits[k])
			}
			return coordinator.WriteResult{}, err
		}
		if refused != nil {
			a.unstage(rq, db, &edits[i])
			results[i] = model.EditResult{ID: edits[i].ID, Err: refused}
			continue
		}
		good, place = append(good, edits[i]), append(place, i)
	}
	out, err := a.Coordinator.Write(rq.ctx(), db, good, o)
	if err != nil {
		return out, err
	}
	a.auditWrite(rq, db, good, out.Results)
	for i, p := range place {
		results[p] = out.Results[i]
	}
	out.Results = results
	return out, nil
}

// editCheck gives what each edit of a request must pass; nil if there is nothing.
// It may change an edit: a clear password becomes its hash.
func (a *API) editCheck(rq *request, db *cluster.Database) func(*model.Edit) (*model.Error, error) {
	if isUsers(db.Name) {
		return func(e *model.Edit) (*model.Error, error) { return a.checkUser(rq, db, e) }
	}
	if rq.who.rights(db).Has(auth.DBAdmin) {
		return nil
	}
	return func(e *model.Edit) (*model.Error, error) {
		if !strings.HasPrefix(e.ID, "_design/") {
			return nil, nil
		}
		if rq.who.Name == "" {
			return errWhoAdmin, nil
		}
		return errNotAdmin, nil
	}
}
