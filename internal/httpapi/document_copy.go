package httpapi

import (
	"net/url"
	"strings"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// mustExist refuses to delete what was never there with 404, and what is there
// without saying which revision with 409.
func (a *API) mustExist(rq *request, db *cluster.Database, id string, rev model.Rev) error {
	answers, err := a.Coordinator.Read(rq.ctx(), db, []shardapi.DocQuery{{ID: id}}, 0)
	if err != nil {
		return err
	}
	ans := &answers[0]
	switch {
	case !ans.Found:
		return model.ErrMissing
	case rev.IsZero() && len(ans.Docs) > 0 && ans.Docs[0].Deleted:
		return model.ErrDeleted
	case rev.IsZero():
		return model.ErrConflict
	}
	return nil
}

// destination reads the Destination header of COPY: an id, perhaps with ?rev=.
func (rq *request) destination() (id string, rev model.Rev, err error) {
	h := rq.r.Header.Get("Destination")
	if h == "" {
		return "", rev, model.BadRequest("Destination header is mandatory for COPY.")
	}
	if strings.HasPrefix(h, "http://") || strings.HasPrefix(h, "https://") {
		return "", rev, model.BadRequest("Destination URL must be relative.")
	}
	path, query, _ := strings.Cut(h, "?")
	if id, err = url.PathUnescape(strings.TrimPrefix(path, "/")); err != nil {
		return "", rev, model.BadRequest("The Destination header is malformed.")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return "", rev, model.BadRequest("The Destination header is malformed.")
	}
	if s := values.Get("rev"); s != "" {
		if rev, err = model.ParseRev(s); err != nil {
			return "", rev, err
		}
	}
	return id, rev, nil
}

// copyDocument answers COPY: the source is read, its attachments too, and written
// under the other id.
func copyDocument(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	mode, err := rq.writeMode()
	if err != nil {
		return err
	}
	to, toRev, err := rq.destination()
	if err != nil {
		return err
	}
	if err := document.ValidateID(to, db.Partitioned); err != nil {
		return err
	}
	q := shardapi.DocQuery{ID: rq.docID(), Want: shardapi.WantBody}
	if s, ok := rq.str("rev"); ok {
		rev, err := model.ParseRev(s)
		if err != nil {
			return err
		}
		q.Revs = []model.Rev{rev}
	}
	answers, err := a.Coordinator.Read(rq.ctx(), db, []shardapi.DocQuery{q}, 0)
	if err != nil {
		return err
	}
	if len(answers[0].Docs) == 0 {
		return model.ErrMissing
	}
	src := &answers[0].Docs[0]
	if src.Deleted && len(q.Revs) == 0 {
		return model.ErrDeleted
	}
	if strings.HasPrefix(to, "_local/") {
		return a.writeLocalParsed(rq, db, &document.Parsed{ID: to, Rev: toRev, Body: src.Body})
	}
	edit := model.Edit{ID: to, Parent: toRev, Body: src.Body, Deleted: src.Deleted}
	if edit.Atts, err = a.Coordinator.CopyAttachments(rq.ctx(), db, src.ID, src.Atts, to); err != nil {
		return err
	}
	return a.writeOne(rq, db, edit, mode)
}
