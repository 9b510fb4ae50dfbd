package httpapi

import (
	"crypto/md5"
	"encoding/base64"
	"hash"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// The errors of an upload.
var (
	errMissingRev  = &model.Error{Kind: model.KindConflict, Name: "not_found", Reason: "missing_rev"}
	errMD5Mismatch = &model.Error{Kind: model.KindBadRequest, Name: "content_md5_mismatch", Reason: "Possible message corruption."}
	// errBodyCut holds no cause on purpose: io.ErrUnexpectedEOF somewhere in the
	// chain would read like the proper end of a stream to whoever stores it.
	errBodyCut         = model.BadRequest("The request body could not be read to its end.")
	errContentEncoding = &model.Error{Kind: model.KindUnsupportedMedia, Name: "bad_content_type", Reason: "Only gzip and identity content-encodings are supported"}
)

// incoming is the bytes of an attachment on their way in, with what the client
// says of them. Lengths below 0 and a nil digest say nothing.
type incoming struct {
	name, contentType string
	encoding          string // "" or "gzip": how the bytes come
	length            int64  // of the bytes as they come
	identity          int64  // of the bytes without encoding
	digest            *[md5.Size]byte
	body              io.Reader
}

// countingReader passes bytes on, counts them, hashes them if there is a hash, and
// ends with an error of our own words when there are too many or they are cut short.
type countingReader struct {
	in    *incoming
	limit int64
	count int64
	sum   hash.Hash
	err   error
}

// Read implements io.Reader.
func (c *countingReader) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.in.body.Read(p)
	c.count += int64(n)
	switch {
	case c.count > c.limit:
		c.err = attachmentTooLarge(c.in.name)
		return 0, c.err
	case err == io.EOF:
		c.err = io.EOF
	case err != nil && model.KindOf(err) != model.KindInternal:
		c.err = err
	case err != nil:
		c.err = errBodyCut
	}
	if c.sum != nil {
		c.sum.Write(p[:n])
	}
	return n, c.err
}

// stageIncoming brings bytes to the copy that will hold them and checks them
// against what the client said. After an error nothing stays staged.
func (a *API) stageIncoming(rq *request, db *cluster.Database, docID string, in *incoming) (model.AttachmentEdit, error) {
	if in.length > a.Limits.MaxAttachment || in.identity > a.Limits.MaxAttachment {
		return model.AttachmentEdit{}, attachmentTooLarge(in.name)
	}
	body := &countingReader{in: in, limit: a.Limits.MaxAttachment}
	// The store hashes what it stores. Where that will be the gzipped form of what
	// comes, the client's digest needs a hash of its own.
	if in.digest != nil && in.encoding == "" && coordinator.Compressible(in.contentType) {
		body.sum = md5.New()
	}
	edit, err := a.Coordinator.Stage(rq.ctx(), db, coordinator.StageRequest{
		DocID: docID, Name: in.name, ContentType: in.contentType, Encoding: in.encoding, Length: -1, MaxLength: a.Limits.MaxAttachment, Body: body})
	if err != nil {
		if body.err != nil && body.err != io.EOF {
			return edit, body.err // the true reason, whatever became of it on the way
		}
		return edit, err
	}
	if err := in.check(&edit, body); err != nil {
		a.unstage(rq, db, &model.Edit{ID: docID, Atts: []model.AttachmentEdit{edit}})
		return edit, err
	}
	return edit, nil
}

// check compares what came with what the client said would come.
func (in *incoming) check(edit *model.AttachmentEdit, body *countingReader) error {
	if in.length >= 0 && body.count != in.length || in.identity >= 0 && edit.Length != in.identity {
		return model.BadRequest("The length of attachment " + in.name + " is not the one that was announced.")
	}
	if in.digest == nil {
		return nil
	}
	got := edit.Digest
	if body.sum != nil {
		body.sum.Sum(got[:0])
	}
	if got != *in.digest {
		return errMD5Mismatch
	}
	return nil
}

// editedDocument reads the revision that an attachment is written to, before any
// of its bytes are taken: a gigabyte that ends in a conflict helps nobody. Without
// a revision the document must be new (or deleted), and the result is empty.
func (a *API) editedDocument(rq *request, db *cluster.Database, id string, rev model.Rev) (*model.Doc, error) {
	q := shardapi.DocQuery{ID: id, Want: shardapi.WantBody | shardapi.WantLeaves}
	if !rev.IsZero() {
		q.Revs = []model.Rev{rev}
	}
	ans, err := a.Coordinator.ReadOne(rq.ctx(), db, q, 0)
	if err != nil {
		return nil, err
	}
	if rev.IsZero() {
		if ans.Found && (len(ans.Docs) == 0 || !ans.Docs[0].Deleted) {
			return nil, model.ErrConflict
		}
		return &model.Doc{ID: id, Body: []byte("{}")}, nil
	}
	if len(ans.Docs) == 0 {
		return nil, errMissingRev
	}
	doc := &ans.Docs[0]
	if !isLeaf(doc, rev) {
		return nil, model.ErrConflict
	}
	return doc, nil
}

// isLeaf tells whether nobody has built on a revision of the document yet.
func isLeaf(doc *model.Doc, rev model.Rev) bool {
	for i := range doc.Leaves {
		if doc.Leaves[i].Rev == rev {
			return true
		}
	}
	return false
}

// keepOthers gives the attachments of a document, without the named ones, as stubs:
// so they keep the position of the revision that brought them.
func keepOthers(doc *model.Doc, dropped func(name string) bool) []model.AttachmentEdit {
	kept := make([]model.AttachmentEdit, 0, len(doc.Atts)+1)
	for i := range doc.Atts {
		if !dropped(doc.Atts[i].Name) {
			kept = append(kept, model.AttachmentEdit{Attachment: doc.Atts[i], Stub: true})
		}
	}
	return kept
}

// putAttachment answers PUT of an attachment.
func putAttachment(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	id, in := rq.docID(), &incoming{name: rq.param("att"), length: rq.r.ContentLength, identity: -1, body: rq.source()}
	if err := document.ValidateID(id, db.Partitioned); err != nil {
		return err
	}
	if err := document.ValidateAttachmentName(in.name); err != nil {
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
	if err := in.readHeaders(rq.r.Header); err != nil {
		return err
	}
	if in.length > a.Limits.MaxAttachment {
		return attachmentTooLarge(in.name)
	}
	doc, err := a.editedDocument(rq, db, id, rev)
	if err != nil {
		return err
	}
	staged, err := a.stageIncoming(rq, db, id, in)
	if err != nil {
		return err
	}
	others := keepOthers(doc, func(name string) bool { return name == in.name })
	edit := model.Edit{ID: id, Parent: rev, Body: doc.Body, Atts: append([]model.AttachmentEdit{staged}, others...)}
	res, accepted, err := a.writeEdit(rq, db, edit, mode)
	if err != nil {
		return err
	}
	if ddoc, ok := strings.CutPrefix(id, "_design/"); ok {
		rq.location(db.Name, "_design", ddoc, in.name)
	} else {
		rq.location(db.Name, id, in.name)
	}
	rq.attachmentDone(http.StatusCreated, id, res, accepted)
	return nil
}

// readHeaders reads what the request says of the bytes in its body.
func (in *incoming) readHeaders(h http.Header) error {
	in.contentType = h.Get("Content-Type")
	if in.contentType == "" {
		in.contentType = document.DefaultContentType
	}
	if err := validContentType(in.contentType); err != nil {
		return err
	}
	switch strings.ToLower(strings.TrimSpace(h.Get("Content-Encoding"))) {
	case "", "identity":
	case "gzip":
		in.encoding = "gzip"
	default:
		return errContentEncoding
	}
	if text := strings.TrimSpace(h.Get("Content-MD5")); text != "" {
		sum, err := base64.StdEncoding.DecodeString(text)
		if err != nil || len(sum) != md5.Size {
			return model.BadRequest("The Content-MD5 header is malformed.")
		}
		in.digest = (*[md5.Size]byte)(sum)
	}
	return nil
}

// validContentType refuses a type that could not stand in JSON and in a header when
// the attachment is read.
func validContentType(t string) error {
	if !utf8.ValidString(t) || strings.IndexFunc(t, func(r rune) bool { return r < ' ' || r == 0x7f }) >= 0 {
		return model.BadRequest("The Content-Type of an attachment must be UTF-8 text without control characters.")
	}
	return nil
}

// attachmentDone answers a write of an attachment.
func (rq *request) attachmentDone(status int, id string, res *model.EditResult, accepted bool) {
	if accepted {
		status = http.StatusAccepted
	}
	rq.json(status, appendOK(make([]byte, 0, 96), id, res.Rev, true))
}

// deleteAttachment answers DELETE of an attachment: a new revision without it.
func deleteAttachment(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	id, name := rq.docID(), rq.param("att")
	mode, err := rq.writeMode()
	if err != nil {
		return err
	}
	rev, err := rq.revParam()
	if err != nil {
		return err
	}
	switch err := a.mustExist(rq, db, id, rev); {
	case err == model.ErrMissing && !rev.IsZero():
		return errMissingRev // an edit of something that is not there, as the peer sees it
	case err != nil:
		return err
	}
	doc, err := a.editedDocument(rq, db, id, rev)
	if err != nil {
		return err
	}
	if attachmentNamed(doc, name) == nil {
		return model.ErrMissingAtt
	}
	edit := model.Edit{ID: id, Parent: rev, Deleted: doc.Deleted, Body: doc.Body,
		Atts: keepOthers(doc, func(n string) bool { return n == name })}
	res, accepted, err := a.writeEdit(rq, db, edit, mode)
	if err != nil {
		return err
	}
	rq.attachmentDone(http.StatusOK, id, res, accepted)
	return nil
}
