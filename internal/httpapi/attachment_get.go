package httpapi

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// The headers every read of an attachment has in common. The sandbox keeps HTML
// that somebody stored from acting with the rights of whoever opens it.
var (
	headerSandbox    = []string{"sandbox"}
	headerRangesYes  = []string{"bytes"}
	headerRangesNone = []string{"none"}
)

// getAttachment answers GET and HEAD of an attachment.
func getAttachment(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	if _, err := rq.q(); err != nil {
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
	ans, err := a.Coordinator.ReadOne(rq.ctx(), db, q, 0)
	if err != nil {
		return err
	}
	if len(ans.Docs) == 0 {
		return model.ErrMissing
	}
	doc := &ans.Docs[0]
	if doc.Deleted && len(q.Revs) == 0 {
		return model.ErrDeleted
	}
	att := attachmentNamed(doc, rq.param("att"))
	if att == nil {
		return model.ErrMissingAtt
	}
	return a.writeAttachment(rq, db, doc.ID, att)
}

// attachmentNamed finds an attachment of a revision; nil if it has none such.
func attachmentNamed(doc *model.Doc, name string) *model.Attachment {
	for i := range doc.Atts {
		if doc.Atts[i].Name == name {
			return &doc.Atts[i]
		}
	}
	return nil
}

// writeAttachment answers with the bytes of an attachment, or with parts of them.
func (a *API) writeAttachment(rq *request, db *cluster.Database, docID string, att *model.Attachment) error {
	h := rq.w.Header()
	tag := string(append(base64.StdEncoding.AppendEncode([]byte{'"'}, att.Digest[:]), '"'))
	h["Etag"] = []string{tag}
	h["Cache-Control"] = headerMustRevalidate
	if att.Encoding != "" {
		h.Add("Vary", "Accept-Encoding")
	}
	if rq.etagMatches(tag) {
		rq.w.WriteHeader(http.StatusNotModified)
		return nil
	}
	h["Content-Type"] = []string{att.ContentType}
	h["Content-Security-Policy"] = headerSandbox
	if att.Encoding != "" {
		h["Accept-Ranges"] = headerRangesNone
		return a.writeEncoded(rq, db, docID, att)
	}
	h["Accept-Ranges"] = headerRangesYes
	ranges, err := rq.ranges(tag, att.Length)
	if err != nil {
		err = rq.forgetAttachment(err)
		h.Set("Content-Range", "bytes */"+strconv.FormatInt(att.Length, 10))
		return err
	}
	switch len(ranges) {
	case 0:
		return a.writeStored(rq, db, docID, att, http.StatusOK, byteRange{0, att.Length - 1})
	case 1:
		h["Content-Range"] = []string{ranges[0].contentRange(att.Length)}
		return a.writeStored(rq, db, docID, att, http.StatusPartialContent, ranges[0])
	}
	return a.writeByteRanges(rq, db, docID, att, ranges)
}

// ranges gives the parts that the client asks for; none means the whole.
func (rq *request) ranges(tag string, size int64) ([]byteRange, error) {
	header := rq.r.Header.Get("Range")
	if header == "" || rq.r.Method == http.MethodHead {
		return nil, nil
	}
	// If-Range: parts only if nothing has changed. We give no dates, so only our
	// tag can match.
	if cond := rq.r.Header.Get("If-Range"); cond != "" && cond != tag {
		return nil, nil
	}
	return parseRanges(header, size)
}

// writeEncoded sends an attachment that is stored gzipped: as it is to a client
// that takes gzip, unpacked on the way to any other.
func (a *API) writeEncoded(rq *request, db *cluster.Database, docID string, att *model.Attachment) error {
	h := rq.w.Header()
	if rq.acceptsGzip() {
		h["Content-Encoding"] = []string{att.Encoding}
		return a.writeStored(rq, db, docID, att, http.StatusOK, byteRange{0, att.EncodedLength - 1})
	}
	h["Content-Length"] = []string{strconv.FormatInt(att.Length, 10)}
	if rq.r.Method == http.MethodHead {
		rq.w.WriteHeader(http.StatusOK)
		return nil
	}
	r, err := a.Coordinator.OpenIdentity(rq.ctx(), db, docID, att, 0, -1)
	if err != nil {
		return rq.forgetAttachment(err)
	}
	rq.w.WriteHeader(http.StatusOK)
	return sendBlob(rq.w, r, att.Length)
}

// writeStored sends stored bytes as they are, with their length.
func (a *API) writeStored(rq *request, db *cluster.Database, docID string, att *model.Attachment, status int, part byteRange) error {
	rq.w.Header()["Content-Length"] = []string{strconv.FormatInt(part.length(), 10)}
	if rq.r.Method == http.MethodHead {
		rq.w.WriteHeader(status)
		return nil
	}
	r, err := a.Coordinator.OpenAttachment(rq.ctx(), db, docID, att, part.from, part.length())
	if err != nil {
		return rq.forgetAttachment(err)
	}
	rq.w.WriteHeader(status)
	return sendBlob(rq.w, r, part.length())
}

// forgetAttachment takes back the headers of bytes that will not be sent, so that
// the error body does not go out under their type, tag and length.
func (rq *request) forgetAttachment(err error) error {
	h := rq.w.Header()
	for _, name := range []string{"Etag", "Content-Type", "Content-Security-Policy", "Accept-Ranges", "Content-Range", "Content-Length", "Content-Encoding", "Vary"} {
		delete(h, name)
	}
	return err
}

// sendBlob writes exactly n bytes of r and closes it. A file goes through the
// kernel alone where the connection allows it. Fewer bytes than were promised are
// an error, which cuts the connection: half an attachment must not look whole.
func sendBlob(w *statusWriter, r io.ReadCloser, n int64) (err error) {
	defer func() { err = errors.Join(err, r.Close()) }()
	var sent int64
	if f, ok := r.(*os.File); ok {
		sent, err = w.ReadFrom(&io.LimitedReader{R: f, N: n})
	} else {
		sent, err = io.Copy(w, r)
	}
	if err == nil && sent != n {
		err = &model.Error{Kind: model.KindCorruption, Name: "corruption", Reason: fmt.Sprintf("The attachment has %d bytes, not %d.", sent, n)}
	}
	return err
}

// writeByteRanges answers with several parts as multipart/byteranges.
func (a *API) writeByteRanges(rq *request, db *cluster.Database, docID string, att *model.Attachment, ranges []byteRange) error {
	boundary := newBoundary()
	heads := make([][]byte, len(ranges))
	end := "\r\n--" + boundary + "--"
	size := int64(len(end))
	for i, r := range ranges {
		var b []byte
		if i > 0 {
			b = append(b, "\r\n"...)
		}
		b = append(b, "--"+boundary+"\r\nContent-Type: "+att.ContentType+"\r\nContent-Range: "+r.contentRange(att.Length)+"\r\n\r\n"...)
		heads[i] = b
		size += int64(len(b)) + r.length()
	}
	h := rq.w.Header()
	h["Content-Type"] = []string{`multipart/byteranges; boundary="` + boundary + `"`}
	h["Content-Length"] = []string{strconv.FormatInt(size, 10)}
	rq.w.WriteHeader(http.StatusPartialContent)
	for i, r := range ranges {
		if _, err := rq.w.Write(heads[i]); err != nil {
			return err
		}
		body, err := a.Coordinator.OpenAttachment(rq.ctx(), db, docID, att, r.from, r.length())
		if err != nil {
			return err
		}
		if err := sendBlob(rq.w, body, r.length()); err != nil {
			return err
		}
	}
	_, err := io.WriteString(rq.w, end)
	return err
}
