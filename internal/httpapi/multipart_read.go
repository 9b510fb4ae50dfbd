package httpapi

import (
	"io"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// readPart reads a whole part, of at most limit bytes, into memory that counts
// against the budget of all requests. release gives it back.
func (rq *request) readPart(p io.Reader, limit int64) (body []byte, release func(), err error) {
	taken := int64(0)
	release = func() {
		if taken > 0 {
			rq.api.bodies.give(taken)
			taken = 0
		}
	}
	buf := make([]byte, 0, 4<<10)
	for {
		if len(buf) == cap(buf) {
			if grow := int64(cap(buf)); grow >= smallBody {
				if err := rq.api.bodies.take(rq.ctx(), grow); err != nil {
					return nil, release, err
				}
				taken += grow
			}
			buf = append(make([]byte, 0, 2*cap(buf)), buf...)
		}
		n, err := p.Read(buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		switch {
		case int64(len(buf)) > limit:
			return nil, release, errTooLarge
		case err == io.EOF:
			return buf, release, nil
		case err != nil:
			return nil, release, bodyError(err)
		}
	}
}

// readDocumentPart reads a part that is a document.
func (a *API) readDocumentPart(rq *request, p *part, o document.ParseOptions) (*document.Parsed, func(), error) {
	raw, release, err := rq.readPart(p, a.Limits.MaxBody)
	if err != nil {
		return nil, release, err
	}
	value, err := rawjson.Normalize(make([]byte, 0, len(raw)), raw, a.Limits.MaxDepth)
	if err != nil {
		return nil, release, errInvalidJSON
	}
	parsed, err := document.Parse(value, o)
	return parsed, release, err
}

// putDocumentMultipart answers PUT of a multipart/related body: the document, then
// the bytes of the attachments that it says follow, one after the other.
func (a *API) putDocumentMultipart(rq *request, db *cluster.Database, id string) error {
	mode, err := rq.writeMode()
	if err != nil {
		return err
	}
	if _, err := rq.revParam(); err != nil { // before the body is read
		return err
	}
	src, err := rq.decodedBody()
	if err != nil {
		return err
	}
	parts, err := newPartReader(rq.r.Header.Get("Content-Type"), src, 1)
	if err != nil {
		return err
	}
	first, err := parts.next()
	if err == io.EOF {
		return errMultipart("it has no part.")
	}
	if err != nil {
		return err
	}
	p, release, err := a.readDocumentPart(rq, first, a.parseOptions(db, id, mode.replicated))
	defer release()
	if err != nil {
		return err
	}
	var following []int
	for i := range p.Atts {
		if p.Atts[i].Follows {
			following = append(following, i)
			p.Atts[i].Follows = false // its bytes will be there when the edit is made
		}
	}
	rev, err := rq.checkRevs(p)
	if err != nil {
		return err
	}
	if !mode.replicated {
		if err := a.mustBeCurrent(rq, db, id, rev); err != nil {
			return err
		}
	}
	edit, err := newEdit(p, rev, mode.replicated)
	if err != nil {
		return err
	}
	if err := a.stageFollowing(rq, db, parts, p, following, &edit); err != nil {
		a.unstage(rq, db, &edit)
		return err
	}
	if err := a.stageInline(rq, db, p, &edit); err != nil {
		return err // it has given up everything
	}
	return a.writeOne(rq, db, edit, mode)
}

// mustBeCurrent refuses an edit that is a conflict already, before the bytes of its
// attachments are taken. The copy decides again when it writes.
func (a *API) mustBeCurrent(rq *request, db *cluster.Database, id string, rev model.Rev) error {
	ans, err := a.Coordinator.ReadOne(rq.ctx(), db, shardapi.DocQuery{ID: id, Want: shardapi.WantLeaves}, 0)
	if err != nil || !ans.Found || len(ans.Docs) == 0 {
		return err
	}
	doc := &ans.Docs[0]
	if rev.IsZero() && doc.Deleted || isLeaf(doc, rev) {
		return nil
	}
	return model.ErrConflict
}

// stageFollowing stages the parts of a body as the attachments that follow.
func (a *API) stageFollowing(rq *request, db *cluster.Database, parts *partReader, p *document.Parsed, following []int, edit *model.Edit) error {
	parts.limit = len(following)
	for len(following) > 0 {
		pt, err := parts.next()
		if err == io.EOF {
			return errMultipart("attachment " + p.Atts[following[0]].Name + " does not follow.")
		}
		if err != nil {
			return err
		}
		at := matchPart(pt.disposition("filename"), p, following)
		i := following[at]
		following = append(following[:at], following[at+1:]...)
		att := &p.Atts[i]
		staged, err := a.stageIncoming(rq, db, p.ID, incomingPart(att, pt))
		if err != nil {
			return err
		}
		staged.RevPos = att.RevPos
		edit.Atts[i] = staged
	}
	// The end mark must be there: without it the last part may not be whole.
	if _, err := parts.next(); err != io.EOF {
		return err
	}
	return nil
}

// matchPart says which of the attachments that still follow a part is: the one of
// its file name, or the next in the order of the document.
func matchPart(filename string, p *document.Parsed, following []int) int {
	if filename != "" {
		for at, i := range following {
			if p.Atts[i].Name == filename {
				return at
			}
		}
	}
	return 0
}

// incomingPart joins what the document says of an attachment with its bytes.
func incomingPart(att *document.Att, body io.Reader) *incoming {
	in := &incoming{name: att.Name, contentType: att.ContentType, encoding: att.Encoding, length: -1, identity: -1, body: body}
	if att.HasLength {
		switch {
		case att.Encoding == "":
			in.length = att.Length
		case att.EncodedLength != att.Length:
			in.length, in.identity = att.EncodedLength, att.Length
		}
		// An encoded one of which only one length is known: writers disagree which
		// of the two it is, and the gzip check finds bytes that are missing.
	}
	if att.HasDigest {
		in.digest = &att.Digest
	}
	return in
}
