package httpapi

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"net/http"
	"strings"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// asModelError gives the *model.Error in err, nil if there is none.
func asModelError(err error) *model.Error {
	var e *model.Error
	if errors.As(err, &e) {
		return e
	}
	return nil
}

// localETag is the tag of a local document: its revision counts from 1 again after
// a deletion, so the content is part of it.
func localETag(rev model.Rev, body []byte) string {
	h := md5.New()
	h.Write(rev.Append(nil))
	h.Write(body)
	return `"` + hex.EncodeToString(h.Sum(nil)) + `"`
}

func getLocal(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	doc, err := a.Coordinator.ReadLocal(rq.ctx(), db, rq.docID())
	if err != nil {
		return err
	}
	tag := localETag(doc.Rev, doc.Body)
	rq.w.Header().Set("ETag", tag)
	if rq.etagMatches(tag) {
		rq.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	b, err := document.Append(make([]byte, 0, len(doc.Body)+64), doc, nil)
	if err != nil {
		return err
	}
	rq.json(http.StatusOK, b)
	return nil
}

// localAttachment refuses what would be an attachment of a local document. A slash
// in the name of one must be written %2F.
func localAttachment(_ *API, rq *request) error {
	if _, err := rq.database(); err != nil {
		return err
	}
	return model.BadRequest("_local documents do not accept attachments.")
}

func putLocal(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	id := rq.docID()
	if err := document.ValidateID(id, false); err != nil {
		return err
	}
	mode, err := rq.writeMode()
	if err != nil {
		return err
	}
	body, release, err := rq.readJSON()
	defer release()
	if err != nil {
		return err
	}
	p, err := document.Parse(body, a.parseOptions(db, id, mode.replicated))
	if err != nil {
		return err
	}
	if p.Rev, err = rq.checkRevs(p); err != nil {
		return err
	}
	return a.writeLocalParsed(rq, db, p)
}

// writeLocal writes a parsed _local document.
func (a *API) writeLocal(rq *request, db *cluster.Database, p *document.Parsed) (model.Rev, error) {
	if len(p.Atts) > 0 {
		return model.Rev{}, model.BadRequest("Local documents have no attachments.")
	}
	return a.Coordinator.WriteLocal(rq.ctx(), db, &shardapi.LocalEdit{ID: p.ID, Rev: p.Rev, Deleted: p.Deleted, Body: p.Body})
}

// writeLocalParsed writes a _local document and answers.
func (a *API) writeLocalParsed(rq *request, db *cluster.Database, p *document.Parsed) error {
	rev, err := a.writeLocal(rq, db, p)
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if p.Deleted {
		status = http.StatusOK
	} else {
		rq.location(db.Name, "_local", strings.TrimPrefix(p.ID, "_local/"))
	}
	rq.w.Header().Set("ETag", localETag(rev, p.Body))
	rq.json(status, appendOK(nil, p.ID, rev, true))
	return nil
}

func deleteLocal(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	if _, err := rq.q(); err != nil {
		return err
	}
	rev, err := rq.revParam()
	if err != nil {
		return err
	}
	id := rq.docID()
	if _, err := a.Coordinator.ReadLocal(rq.ctx(), db, id); err != nil {
		return err
	}
	return a.writeLocalParsed(rq, db, &document.Parsed{ID: id, Rev: rev, Deleted: true, Body: []byte("{}")})
}

// copyLocal answers COPY of a local document.
func copyLocal(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	mode, err := rq.writeMode()
	if err != nil {
		return err
	}
	to, rev, err := rq.destination()
	if err != nil {
		return err
	}
	if err := document.ValidateID(to, db.Partitioned); err != nil {
		return err
	}
	src, err := a.Coordinator.ReadLocal(rq.ctx(), db, rq.docID())
	if err != nil {
		return err
	}
	if strings.HasPrefix(to, "_local/") {
		return a.writeLocalParsed(rq, db, &document.Parsed{ID: to, Rev: rev, Body: src.Body})
	}
	return a.writeOne(rq, db, model.Edit{ID: to, Parent: rev, Body: src.Body}, mode)
}
