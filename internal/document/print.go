package document

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// AttForm is how an attachment is printed.
type AttForm uint8

// The forms.
const (
	AttStub    AttForm = iota // "stub":true with the length
	AttInline                 // "data" with the bytes in base64
	AttFollows                // "follows":true: the bytes come in a part of their own
)

// PrintOptions says what is printed of a document besides its id, revision, body
// and attachment stubs. A part that the Doc does not have is left out.
type PrintOptions struct {
	Revs             bool // _revisions, of Doc.Path
	RevsLimit        int  // how many of them at most; default 0: all
	RevsInfo         bool // _revs_info, of Doc.RevsInfo
	Conflicts        bool // _conflicts: the other live revisions of Doc.Leaves
	DeletedConflicts bool // _deleted_conflicts: the other deleted ones
	LocalSeq         bool // _local_seq: LocalSeqText, or Doc.Seq if there is none
	LocalSeqText     []byte
	AttEncodingInfo  bool // encoding and encoded_length of compressed attachments

	// Attachments chooses the form of each attachment; default: all are stubs.
	Attachments func(a *model.Attachment) AttForm
	// Open gives the identity bytes of an attachment. It is needed if
	// Attachments ever says AttInline.
	Open func(a *model.Attachment) (io.ReadCloser, error)
}

// plain is what nil options mean.
var plain PrintOptions

// Append appends the document as a client gets it, members in CouchDB's order.
// It fails only if the bytes of an inline attachment cannot be read. These come
// to lie in memory; see Write for large ones.
func Append(dst []byte, d *model.Doc, o *PrintOptions) ([]byte, error) {
	if o == nil {
		o = &plain
	}
	dst = appendHead(dst, d, o)
	for i := range d.Atts {
		a := &d.Atts[i]
		form := o.form(a)
		dst = appendAttStart(dst, a, form, i == 0)
		if form == AttInline {
			var err error
			if dst, err = appendData(dst, a, o); err != nil {
				return dst, err
			}
		}
		dst = appendAttEnd(dst, a, form, o)
	}
	return appendTail(dst, d), nil
}

// Write writes what Append appends, in constant memory: buf is the room for
// everything but inline data and may be nil. It gives back the grown room.
func Write(w io.Writer, buf []byte, d *model.Doc, o *PrintOptions) ([]byte, error) {
	if o == nil {
		o = &plain
	}
	buf = appendHead(buf[:0], d, o)
	for i := range d.Atts {
		a := &d.Atts[i]
		form := o.form(a)
		buf = appendAttStart(buf, a, form, i == 0)
		if form == AttInline {
			if _, err := w.Write(buf); err != nil {
				return buf, err
			}
			buf = buf[:0]
			if err := copyData(w, a, o); err != nil {
				return buf, err
			}
		}
		buf = appendAttEnd(buf, a, form, o)
	}
	buf = appendTail(buf, d)
	_, err := w.Write(buf)
	return buf, err
}

// form gives the form of one attachment.
func (o *PrintOptions) form(a *model.Attachment) AttForm {
	if o.Attachments == nil {
		return AttStub
	}
	return o.Attachments(a)
}

// appendHead appends everything before the attachments.
func appendHead(dst []byte, d *model.Doc, o *PrintOptions) []byte {
	dst = append(dst, `{"_id":`...)
	dst = rawjson.AppendString(dst, d.ID)
	if !d.Rev.IsZero() {
		dst = append(dst, `,"_rev":`...)
		dst = appendRev(dst, d.Rev)
	}
	if len(d.Body) > len("{}") {
		dst = append(dst, ',')
		dst = append(dst, d.Body[1:len(d.Body)-1]...)
	}
	if d.Deleted {
		dst = append(dst, `,"_deleted":true`...)
	}
	if o == &plain {
		return dst
	}
	return appendMeta(dst, d, o)
}

// appendMeta appends what a client asks for by name.
func appendMeta(dst []byte, d *model.Doc, o *PrintOptions) []byte {
	if o.Revs && len(d.Path) > 0 {
		dst = append(dst, `,"_revisions":{"start":`...)
		dst = strconv.AppendUint(dst, d.Path[0].Pos, 10)
		dst = append(dst, `,"ids":[`...)
		path := d.Path
		if o.RevsLimit > 0 && len(path) > o.RevsLimit {
			path = path[:o.RevsLimit]
		}
		for i := range path {
			dst = comma(dst, i == 0)
			dst = rawjson.AppendString(dst, path[i].Hash)
		}
		dst = append(dst, `]}`...)
	}
	if o.RevsInfo && len(d.RevsInfo) > 0 {
		dst = append(dst, `,"_revs_info":[`...)
		for i := range d.RevsInfo {
			dst = comma(dst, i == 0)
			dst = append(dst, `{"rev":`...)
			dst = appendRev(dst, d.RevsInfo[i].Rev)
			dst = append(dst, `,"status":`...)
			dst = rawjson.AppendString(dst, d.RevsInfo[i].Status)
			dst = append(dst, '}')
		}
		dst = append(dst, ']')
	}
	if o.Conflicts {
		dst = appendConflicts(dst, `,"_conflicts":[`, d, false)
	}
	if o.DeletedConflicts {
		dst = appendConflicts(dst, `,"_deleted_conflicts":[`, d, true)
	}
	if o.LocalSeq {
		dst = append(dst, `,"_local_seq":`...)
		if o.LocalSeqText != nil {
			dst = append(dst, o.LocalSeqText...)
		} else {
			dst = strconv.AppendUint(dst, d.Seq, 10)
		}
	}
	return dst
}

// appendConflicts appends the list of the other leaves, if there are any.
func appendConflicts(dst []byte, opening string, d *model.Doc, deleted bool) []byte {
	first := true
	for i := range d.Leaves {
		leaf := &d.Leaves[i]
		if leaf.Deleted != deleted || leaf.Rev == d.Rev {
			continue
		}
		if first {
			dst = append(dst, opening...)
		}
		dst = comma(dst, first)
		dst = appendRev(dst, leaf.Rev)
		first = false
	}
	if !first {
		dst = append(dst, ']')
	}
	return dst
}

// appendAttStart appends an attachment up to where its inline bytes go.
func appendAttStart(dst []byte, a *model.Attachment, form AttForm, first bool) []byte {
	if first {
		dst = append(dst, `,"_attachments":{`...)
	}
	dst = comma(dst, first)
	dst = rawjson.AppendString(dst, a.Name)
	dst = append(dst, `:{"content_type":`...)
	dst = rawjson.AppendString(dst, a.ContentType)
	dst = append(dst, `,"revpos":`...)
	dst = strconv.AppendUint(dst, a.RevPos, 10)
	dst = append(dst, `,"digest":"md5-`...)
	dst = base64.StdEncoding.AppendEncode(dst, a.Digest[:])
	if form == AttInline {
		return append(dst, `","data":"`...)
	}
	dst = append(dst, `","length":`...)
	dst = strconv.AppendInt(dst, a.Length, 10)
	if form == AttFollows {
		return append(dst, `,"follows":true`...)
	}
	return append(dst, `,"stub":true`...)
}

// appendAttEnd appends the rest of an attachment.
func appendAttEnd(dst []byte, a *model.Attachment, form AttForm, o *PrintOptions) []byte {
	if form == AttInline {
		dst = append(dst, '"')
	}
	if o.AttEncodingInfo && a.Encoding != "" {
		dst = append(dst, `,"encoding":`...)
		dst = rawjson.AppendString(dst, a.Encoding)
		dst = append(dst, `,"encoded_length":`...)
		dst = strconv.AppendInt(dst, a.EncodedLength, 10)
	}
	return append(dst, '}')
}

// appendTail closes what is open.
func appendTail(dst []byte, d *model.Doc) []byte {
	if len(d.Atts) > 0 {
		dst = append(dst, '}')
	}
	return append(dst, '}')
}

// appendRev appends a revision as a JSON string. Stored revisions have passed
// ParseRev and need no escapes.
func appendRev(dst []byte, r model.Rev) []byte {
	dst = append(dst, '"')
	dst = r.Append(dst)
	return append(dst, '"')
}

// comma appends one unless this is the first of a list.
func comma(dst []byte, first bool) []byte {
	if first {
		return dst
	}
	return append(dst, ',')
}

// appendWriter is a writer to the end of a slice.
type appendWriter struct{ b []byte }

// Write implements io.Writer.
func (w *appendWriter) Write(p []byte) (int, error) {
	w.b = append(w.b, p...)
	return len(p), nil
}

// appendData appends the bytes of an attachment in base64.
func appendData(dst []byte, a *model.Attachment, o *PrintOptions) ([]byte, error) {
	w := &appendWriter{b: dst}
	err := copyData(w, a, o)
	return w.b, err
}

// copyData writes the bytes of an attachment in base64. Fewer or more bytes than
// the document says are a fault that must not pass for an attachment.
func copyData(w io.Writer, a *model.Attachment, o *PrintOptions) (err error) {
	r, err := o.Open(a)
	if err != nil {
		return fmt.Errorf("attachment %q: %w", a.Name, err)
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	enc := base64.NewEncoder(base64.StdEncoding, w)
	n, err := io.Copy(enc, r)
	if err == nil {
		err = enc.Close()
	}
	if err == nil && n != a.Length {
		err = &model.Error{Kind: model.KindCorruption, Name: "corruption",
			Reason: fmt.Sprintf("Attachment %q has %d bytes, not %d.", a.Name, n, a.Length)}
	}
	return err
}
