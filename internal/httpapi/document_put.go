package httpapi

import (
	"bytes"
	"context"
	"net/http"
	"strings"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// parseOptions says how documents of this database are read.
func (a *API) parseOptions(db *cluster.Database, id string, replicated bool) document.ParseOptions {
	return document.ParseOptions{
		ID:          id,
		Replicated:  replicated,
		Partitioned: db.Partitioned,
		MaxSize:     a.Limits.MaxDocument,
	}
}

// writeMode is what the query string says about a write.
type writeMode struct {
	w          int
	replicated bool // new_edits=false
	batch      bool // batch=ok: the client does not wait for the revision
}

func (rq *request) writeMode() (writeMode, error) {
	var m writeMode
	if _, err := rq.q(); err != nil {
		return m, err
	}
	w, err := rq.quorum("w")
	if err != nil {
		return m, err
	}
	newEdits, err := rq.boolean("new_edits", true)
	if err != nil {
		return m, err
	}
	batch, _ := rq.str("batch")
	return writeMode{w: w, replicated: !newEdits, batch: batch == "ok"}, nil
}

// checkRevs brings together the revision of the body with that of the query string
// and header.
func (rq *request) checkRevs(p *document.Parsed) (model.Rev, error) {
	outer, err := rq.revParam()
	if err != nil {
		return outer, err
	}
	switch {
	case outer.IsZero():
		return p.Rev, nil
	case !p.Rev.IsZero() && p.Rev != outer:
		return outer, model.BadRequest("Document rev from request body and query string have different values")
	}
	return outer, nil
}

// putDocument answers PUT.
func putDocument(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	id := rq.docID()
	if err := document.ValidateID(id, db.Partitioned); err != nil {
		return err
	}
	mode, err := rq.writeMode()
	if err != nil {
		return err
	}
	if isMultipartRelated(rq.r.Header.Get("Content-Type")) {
		return a.putDocumentMultipart(rq, db, id)
	}
	if _, err := rq.revParam(); err != nil { // before the body is read
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
	return a.putParsed(rq, db, p, mode)
}

func isMultipartRelated(contentType string) bool {
	t, _, _ := strings.Cut(contentType, ";")
	return strings.EqualFold(strings.TrimSpace(t), "multipart/related")
}

// putParsed writes one document that is taken apart already, and answers.
func (a *API) putParsed(rq *request, db *cluster.Database, p *document.Parsed, mode writeMode) error {
	rev, err := rq.checkRevs(p)
	if err != nil {
		return err
	}
	edit, err := newEdit(p, rev, mode.replicated)
	if err != nil {
		return err
	}
	if err := a.stageInline(rq, db, p, &edit); err != nil {
		return err
	}
	return a.writeOne(rq, db, edit, mode)
}

// newEdit makes the edit of a parsed document.
func newEdit(p *document.Parsed, rev model.Rev, replicated bool) (model.Edit, error) {
	e := model.Edit{ID: p.ID, Deleted: p.Deleted, Body: p.Body, Parent: rev, Replicated: replicated}
	if replicated {
		e.Path = p.Path
		if len(e.Path) == 0 && !rev.IsZero() {
			e.Path = []model.Rev{rev}
		}
		if len(e.Path) == 0 {
			return e, document.ErrNeedsRevision
		}
	}
	for i := range p.Atts {
		if p.Atts[i].Follows {
			return e, model.BadRequest("Attachment " + p.Atts[i].Name + " follows, but the request has no further parts.")
		}
		e.Atts = append(e.Atts, p.Atts[i].AttachmentEdit)
	}
	return e, nil
}

// stageInline brings the inline attachments of a document to the copies that will
// hold it. On an error whatever was brought is given up again.
func (a *API) stageInline(rq *request, db *cluster.Database, p *document.Parsed, edit *model.Edit) error {
	for i := range p.Atts {
		att := &p.Atts[i]
		if !att.Inline {
			continue
		}
		if int64(len(att.Data)) > a.Limits.MaxAttachment {
			a.unstage(rq, db, edit)
			return attachmentTooLarge(att.Name)
		}
		staged, err := a.Coordinator.Stage(rq.ctx(), db, coordinator.StageRequest{
			DocID: p.ID, Name: att.Name, ContentType: att.ContentType, Body: bytes.NewReader(att.Data)})
		if err != nil {
			a.unstage(rq, db, edit)
			return err
		}
		staged.RevPos = att.RevPos
		edit.Atts[i] = staged
	}
	return nil
}

// unstage gives up what was staged for an edit that will not be written.
func (a *API) unstage(rq *request, db *cluster.Database, edit *model.Edit) {
	for i := range edit.Atts {
		if t := edit.Atts[i].Staged; t != "" {
			// The client may be the reason that nothing is written, and gone.
			if err := a.Coordinator.Unstage(context.WithoutCancel(rq.ctx()), db, edit.ID, t); err != nil {
				// The copy removes it by itself after a while.
				a.Log.Debug("unstage", "request", rq.id, "error", err)
			}
		}
	}
}

func attachmentTooLarge(name string) *model.Error {
	return &model.Error{Kind: model.KindTooLarge, Name: "attachment_too_large", Reason: name}
}

// writeOne writes one edit and answers as PUT, POST, COPY and DELETE do.
func (a *API) writeOne(rq *request, db *cluster.Database, edit model.Edit, mode writeMode) error {
	res, accepted, err := a.writeEdit(rq, db, edit, mode)
	if mode.batch && (rq.method == http.MethodPut || rq.method == http.MethodPost) {
		return a.batchDone(rq, edit.ID, err)
	}
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if edit.Deleted && rq.method != http.MethodPost {
		status = http.StatusOK
	}
	if accepted {
		status = http.StatusAccepted
	}
	if rq.method != http.MethodPost {
		rq.w.Header()["Etag"] = []string{quoteRev(res.Rev)}
	}
	if rq.method != http.MethodDelete {
		rq.locationOfDocument(db, edit.ID)
	}
	rq.json(status, appendOK(make([]byte, 0, 96), edit.ID, res.Rev, true))
	return nil
}

// batchDone answers a write with batch=ok. The protocol lets the server write later,
// so its clients expect no revision, and no conflict either: many of them write one
// document over and over. We write at once, and say so where the store has failed.
func (a *API) batchDone(rq *request, id string, err error) error {
	if err != nil {
		if model.KindOf(err) != model.KindConflict {
			return err
		}
		a.Log.Debug("batch write refused", "request", rq.id, "error", err)
	}
	rq.json(http.StatusAccepted, appendOK(make([]byte, 0, 64), id, model.Rev{}, false))
	return nil
}

// writeEdit writes one edit.
func (a *API) writeEdit(rq *request, db *cluster.Database, edit model.Edit, mode writeMode) (*model.EditResult, bool, error) {
	out, err := a.write(rq, db, []model.Edit{edit}, mode)
	if err != nil {
		return nil, false, err
	}
	if err := out.Results[0].Err; err != nil {
		return nil, false, err
	}
	return &out.Results[0], out.Accepted, nil
}

// appendOK is {"ok":true,"id":…,"rev":…}.
func appendOK(b []byte, id string, rev model.Rev, withRev bool) []byte {
	b = append(b, `{"ok":true,"id":`...)
	b = rawjson.AppendString(b, id)
	if withRev {
		b = append(b, `,"rev":"`...)
		b = rev.Append(b)
		b = append(b, '"')
	}
	return append(b, '}')
}

// locationOfDocument sets Location; the slash of _design/ stays a slash.
func (rq *request) locationOfDocument(db *cluster.Database, id string) {
	if name, ok := strings.CutPrefix(id, "_design/"); ok {
		rq.location(db.Name, "_design", name)
		return
	}
	rq.location(db.Name, id)
}

// postDocument answers POST /{db}: the server may choose the id.
func postDocument(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	if err := rq.requireJSON(); err != nil {
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
	p, err := document.Parse(body, a.parseOptions(db, "", mode.replicated))
	if err != nil {
		return err
	}
	if err := a.nameDocument(db, p); err != nil {
		return err
	}
	if strings.HasPrefix(p.ID, "_local/") {
		return a.writeLocalParsed(rq, db, p)
	}
	return a.putParsed(rq, db, p, mode)
}

// nameDocument gives a document without an id one.
func (a *API) nameDocument(db *cluster.Database, p *document.Parsed) error {
	if p.HasID {
		return nil // Parse has checked it
	}
	if db.Partitioned {
		return document.ValidateID(a.uuids.next(), true) // an id that we make has no partition
	}
	p.ID = a.uuids.next()
	return nil
}

// deleteDocument answers DELETE.
func deleteDocument(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	mode, err := rq.writeMode()
	if err != nil {
		return err
	}
	rev, err := rq.revParam()
	if err != nil {
		return err
	}
	id := rq.docID()
	if err := document.ValidateID(id, false); err != nil {
		return err
	}
	edit := model.Edit{ID: id, Deleted: true, Parent: rev, Body: []byte("{}")}
	if mode.replicated {
		if rev.IsZero() {
			return document.ErrNeedsRevision
		}
		edit.Replicated, edit.Path = true, []model.Rev{rev}
	} else if err := a.mustExist(rq, db, id, rev); err != nil {
		return err
	}
	return a.writeOne(rq, db, edit, mode)
}
