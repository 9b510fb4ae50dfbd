package httpapi

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// newBoundary makes a boundary that no attachment can hold, short of guessing 128
// random bits.
func newBoundary() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return hex.EncodeToString(b[:])
}

// relatedDoc is a document with the attachments whose bytes follow it, ready to be
// written as multipart/related; without any, it is plain JSON.
type relatedDoc struct {
	boundary string
	doc      *model.Doc
	json     []byte
	atts     []*model.Attachment
}

// newRelatedDoc prints a document and chooses what follows. Bytes go out as they are
// stored, so the document always says how they are encoded.
func (a *API) newRelatedDoc(rq *request, db *cluster.Database, doc *model.Doc, view *docView) (*relatedDoc, error) {
	rd := &relatedDoc{doc: doc}
	o := view.options(rq.ctx(), a, db, doc, document.AttFollows)
	o.AttEncodingInfo = true
	for i := range doc.Atts {
		if view.sendsBytes(doc, &doc.Atts[i]) {
			rd.atts = append(rd.atts, &doc.Atts[i])
		}
	}
	if len(rd.atts) > 0 {
		rd.boundary = newBoundary()
	}
	var err error
	rd.json, err = document.Append(make([]byte, 0, len(doc.Body)+256), doc, o)
	return rd, err
}

// appendOpening appends what stands before the bytes of the first attachment's
// headers: the document itself.
func (rd *relatedDoc) appendOpening(b []byte) []byte {
	if len(rd.atts) == 0 {
		return append(b, rd.json...)
	}
	b = append(b, "--"+rd.boundary+"\r\nContent-Type: application/json\r\n\r\n"...)
	b = append(b, rd.json...)
	return append(b, "\r\n--"+rd.boundary...)
}

// appendPartHead appends the headers of one attachment.
func appendPartHead(b []byte, att *model.Attachment) []byte {
	b = append(b, "\r\nContent-Disposition: attachment; filename=\""...)
	b = appendHeaderText(b, att.Name, true)
	b = append(b, "\"\r\nContent-Type: "...)
	b = append(b, att.ContentType...)
	b = append(b, "\r\nContent-Length: "...)
	b = strconv.AppendInt(b, att.EncodedLength, 10)
	if att.Encoding != "" {
		b = append(b, "\r\nContent-Encoding: "...)
		b = append(b, att.Encoding...)
	}
	return append(b, "\r\n\r\n"...)
}

// appendHeaderText appends a name that a client chose so that it cannot end the
// header it stands in: controls are percent-encoded, and within quotes a quote or
// backslash gets a backslash.
func appendHeaderText(b []byte, s string, quoted bool) []byte {
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c < ' ' || c == 0x7f:
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		case quoted && (c == '"' || c == '\\'):
			b = append(b, '\\', c)
		default:
			b = append(b, c)
		}
	}
	return b
}

// size is how many bytes write will write.
func (rd *relatedDoc) size() int64 {
	n := int64(len(rd.appendOpening(nil)))
	for _, att := range rd.atts {
		n += int64(len(appendPartHead(nil, att))) + att.EncodedLength + int64(len("\r\n--")+len(rd.boundary))
	}
	if len(rd.atts) > 0 {
		n += int64(len("--"))
	}
	return n
}

// write sends it. Attachments go straight from the store to the connection.
func (rd *relatedDoc) write(a *API, rq *request, db *cluster.Database, st *stream) error {
	st.buf = rd.appendOpening(st.buf)
	for _, att := range rd.atts {
		st.buf = appendPartHead(st.buf, att)
		if err := st.send(); err != nil {
			return err
		}
		if rq.r.Method != http.MethodHead {
			r, err := a.Coordinator.OpenAttachment(rq.ctx(), db, rd.doc.ID, att, 0, -1)
			if err != nil {
				return err
			}
			if err := sendBlob(rq.w, r, att.EncodedLength); err != nil {
				return err
			}
		}
		st.buf = append(st.buf, "\r\n--"+rd.boundary...)
	}
	if len(rd.atts) > 0 {
		st.buf = append(st.buf, "--"...)
	}
	return st.sendIfFull()
}

// writeDocMultipart answers with one document as multipart/related, its length told
// in advance; as plain JSON when no attachment follows.
func (a *API) writeDocMultipart(rq *request, db *cluster.Database, doc *model.Doc, view *docView) error {
	rd, err := a.newRelatedDoc(rq, db, doc, view)
	if err != nil {
		return err
	}
	h := rq.w.Header()
	if len(rd.atts) == 0 {
		h["Content-Type"] = headerJSON
	} else {
		h["Content-Type"] = []string{`multipart/related; boundary="` + rd.boundary + `"`}
	}
	h["Content-Length"] = []string{strconv.FormatInt(rd.size(), 10)}
	st := rq.startStream(http.StatusOK, false)
	if err := rd.write(a, rq, db, st); err != nil {
		return err
	}
	return st.end()
}

// withBytes gives the view with the bytes of attachments: a client that asks for
// several documents in parts is a replicator, which wants them without saying so.
func (v *docView) withBytes() *docView {
	own := *v
	own.attachments = true
	return &own
}

// multipartType gives the type of an answer of many parts that the client accepts.
func (rq *request) multipartType() string {
	if rq.accepts("multipart/mixed") {
		return "multipart/mixed"
	}
	return "multipart/related"
}

// writeOpenRevsMultipart answers open_revs as parts: each a document, alone or with
// its attachments, or a revision that is missing.
func (a *API) writeOpenRevsMultipart(rq *request, db *cluster.Database, ans *shardapi.DocAnswer, view *docView) error {
	view = view.withBytes()
	outer := newBoundary()
	rq.w.Header()["Content-Type"] = []string{`multipart/mixed; boundary="` + outer + `"`}
	st := rq.startStream(http.StatusOK, false)
	st.buf = append(st.buf, "--"+outer...)
	for i := range ans.Docs {
		rd, err := a.newRelatedDoc(rq, db, &ans.Docs[i], view)
		if err != nil {
			return err
		}
		if len(rd.atts) == 0 {
			st.buf = append(st.buf, "\r\nContent-Type: application/json\r\n\r\n"...)
		} else {
			st.buf = append(st.buf, "\r\nContent-Type: multipart/related; boundary=\""+rd.boundary+"\"\r\n\r\n"...)
		}
		if err := rd.write(a, rq, db, st); err != nil {
			return err
		}
		st.buf = append(st.buf, "\r\n--"+outer...)
	}
	for _, rev := range ans.Missing {
		st.buf = append(st.buf, "\r\nContent-Type: application/json; error=\"true\"\r\n\r\n{\"missing\":\""...)
		st.buf = rev.Append(st.buf)
		st.buf = append(st.buf, "\"}\r\n--"+outer...)
	}
	st.buf = append(st.buf, "--"...)
	return st.end()
}

// writeBulkGetMultipart answers _bulk_get as parts.
func (a *API) writeBulkGetMultipart(rq *request, db *cluster.Database, items []bulkGetItem, view *docView) error {
	outer := "--" + newBoundary()
	rq.w.Header()["Content-Type"] = []string{rq.multipartType() + `; boundary="` + outer + `"`}
	st := rq.startStream(http.StatusOK, false)
	err := a.eachBulkGet(rq, db, items, func(i int, ans *shardapi.DocAnswer) error {
		it := &items[i]
		if ans == nil || len(ans.Docs) == 0 {
			st.buf = append(st.buf, "\r\n--"+outer+"\r\nContent-Type: application/json; error=\"true\"\r\n\r\n"...)
			st.buf = it.appendPartError(st.buf)
			return st.sendIfFull()
		}
		own := it.viewOf(view).withBytes()
		for k := range ans.Docs {
			rd, err := a.newRelatedDoc(rq, db, &ans.Docs[k], own)
			if err != nil {
				return err
			}
			st.buf = append(st.buf, "\r\n--"+outer...)
			if len(rd.atts) == 0 {
				st.buf = append(st.buf, "\r\nContent-Type: application/json\r\n\r\n"...)
			} else {
				st.buf = append(st.buf, "\r\nX-Doc-Id: "...)
				st.buf = appendHeaderText(st.buf, rd.doc.ID, false)
				st.buf = append(st.buf, "\r\nX-Rev-Id: "...)
				st.buf = rd.doc.Rev.Append(st.buf)
				st.buf = append(st.buf, "\r\nContent-Type: multipart/related; boundary="+rd.boundary+"\r\n\r\n"...)
			}
			if err := rd.write(a, rq, db, st); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	st.buf = append(st.buf, "\r\n--"+outer+"--\r\n"...)
	return st.end()
}

// appendPartError is the body of an error part: as in the JSON answer, but a
// revision that was asked for and is not there has no id, as CouchDB has it.
func (it *bulkGetItem) appendPartError(b []byte) []byte {
	if it.err != nil || len(it.query.Revs) == 0 {
		return it.appendError(b)
	}
	b = append(b, `{"rev":`...)
	b = append(b, it.rev...)
	return append(b, `,"error":"not_found","reason":"missing"}`...)
}
