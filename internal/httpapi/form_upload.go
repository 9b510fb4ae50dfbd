package httpapi

import (
	"io"
	"mime"
	"net/http"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
)

// maxFormParts bounds the fields and files of one form.
const maxFormParts = 1000

// formUpload is what a form has brought so far.
type formUpload struct {
	parsed  *document.Parsed // of _doc; nil if there was none
	release func()
	rev     model.Rev  // of _rev
	files   model.Edit // ID and the staged files of _attachments
}

// postDocumentForm answers POST of an HTML form to a document: _attachments are
// files to add, on top of _doc (a whole document as JSON), or of the revision that
// _rev names.
func postDocumentForm(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	id := rq.docID()
	if err := document.ValidateID(id, db.Partitioned); err != nil {
		return err
	}
	contentType := rq.r.Header.Get("Content-Type")
	if t, _, err := mime.ParseMediaType(contentType); err != nil || t != "multipart/form-data" {
		return &model.Error{Kind: model.KindUnsupportedMedia, Name: "bad_content_type", Reason: "Content-Type must be multipart/form-data"}
	}
	mode, err := rq.writeMode()
	if err != nil {
		return err
	}
	src, err := rq.decodedBody()
	if err != nil {
		return err
	}
	parts, err := newPartReader(contentType, src, maxFormParts)
	if err != nil {
		return err
	}
	form := &formUpload{release: func() {}, files: model.Edit{ID: id}}
	defer func() { form.release() }()
	for {
		p, err := parts.next()
		if err == io.EOF {
			break
		}
		if err == nil {
			err = form.take(a, rq, db, p)
		}
		if err != nil {
			a.unstage(rq, db, &form.files)
			return err
		}
	}
	edit, err := form.edit(a, rq, db)
	if err != nil {
		a.unstage(rq, db, &form.files)
		return err
	}
	if form.parsed != nil {
		if err := a.stageInline(rq, db, form.parsed, &edit); err != nil {
			a.unstage(rq, db, &form.files)
			return err
		}
	}
	edit.Atts = append(form.files.Atts, edit.Atts...)
	res, accepted, err := a.writeEdit(rq, db, edit, mode)
	if err != nil {
		return err
	}
	rq.w.Header()["Etag"] = []string{quoteRev(res.Rev)}
	rq.attachmentDone(http.StatusCreated, id, res, accepted)
	return nil
}

// take takes one field of the form. Fields it does not know say nothing.
func (f *formUpload) take(a *API, rq *request, db *cluster.Database, p *part) error {
	switch p.disposition("name") {
	case "_doc":
		f.release()
		parsed, release, err := a.readDocumentPart(rq, p, a.parseOptions(db, f.files.ID, false))
		f.parsed, f.release = parsed, release
		return err
	case "_rev":
		text, release, err := rq.readPart(p, 1<<10)
		release()
		if err != nil {
			return err
		}
		f.rev, err = model.ParseRev(string(text))
		return err
	case "_attachments":
		name := p.disposition("filename")
		if name == "" {
			return nil // a form whose file was not chosen
		}
		if err := document.ValidateAttachmentName(name); err != nil {
			return err
		}
		in := &incoming{name: name, contentType: p.contentType(), length: -1, identity: -1, body: p}
		if err := validContentType(in.contentType); err != nil {
			return err
		}
		if f.has(name) {
			return model.BadRequest("Attachment " + name + " comes twice.")
		}
		staged, err := a.stageIncoming(rq, db, f.files.ID, in)
		if err != nil {
			return err
		}
		f.files.Atts = append(f.files.Atts, staged)
	}
	return nil
}

// has tells whether the form brings a file of that name.
func (f *formUpload) has(name string) bool {
	for i := range f.files.Atts {
		if f.files.Atts[i].Name == name {
			return true
		}
	}
	return false
}

// edit makes the edit without the files: of the form's document, or of the revision
// that is there.
func (f *formUpload) edit(a *API, rq *request, db *cluster.Database) (model.Edit, error) {
	if f.parsed != nil {
		rev, err := rq.checkRevs(f.parsed)
		if err != nil {
			return model.Edit{}, err
		}
		if rev.IsZero() {
			rev = f.rev
		}
		// An inline attachment that a file replaces is never stored.
		kept := f.parsed.Atts[:0]
		for _, att := range f.parsed.Atts {
			if !f.has(att.Name) {
				kept = append(kept, att)
			}
		}
		f.parsed.Atts = kept
		return newEdit(f.parsed, rev, false)
	}
	doc, err := a.editedDocument(rq, db, f.files.ID, f.rev)
	if err != nil {
		return model.Edit{}, err
	}
	return model.Edit{ID: doc.ID, Parent: f.rev, Body: doc.Body, Atts: keepOthers(doc, f.has)}, nil
}
