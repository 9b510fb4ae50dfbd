package httpapi

import (
	"context"
	"io"
	"strings"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// docID gives the id of the document that the path names.
func (rq *request) docID() string {
	for i := range rq.params {
		switch p := &rq.params[i]; p.name {
		case "doc":
			return p.value
		case "ddoc":
			return "_design/" + p.value
		case "local":
			return "_local/" + p.value
		}
	}
	return ""
}

// docView is what a reader wants to see of a document: the parameters that GET,
// _bulk_get, _all_docs and _changes have in common.
type docView struct {
	want        shardapi.Want
	print       document.PrintOptions
	attachments bool        // bodies of attachments, inline or as parts
	attsSince   []model.Rev // …only of those younger than these
	hasSince    bool
	extras      bool // something besides the revision decides the bytes: no ETag
}

// params reads booleans and values by name: from a query string or a JSON body.
type params interface {
	boolean(name string, def bool) (bool, error)
}

// readView reads the parameters that shape a document.
func readView(p params) (*docView, error) {
	v := &docView{want: shardapi.WantBody}
	var err error
	flag := func(name string) bool {
		var b bool
		if err == nil {
			b, err = p.boolean(name, false)
		}
		return b
	}
	v.attachments = flag("attachments")
	v.print.AttEncodingInfo = flag("att_encoding_info")
	v.print.Revs = flag("revs")
	v.print.RevsInfo = flag("revs_info")
	v.print.Conflicts = flag("conflicts")
	v.print.DeletedConflicts = flag("deleted_conflicts")
	v.print.LocalSeq = flag("local_seq")
	if flag("meta") {
		v.print.RevsInfo, v.print.Conflicts, v.print.DeletedConflicts = true, true, true
	}
	if err != nil {
		return nil, err
	}
	if v.print.Revs || v.attachments {
		v.want |= shardapi.WantPath // atts_since asks which ancestors are known
	}
	if v.print.RevsInfo {
		v.want |= shardapi.WantRevsInfo
	}
	if v.print.Conflicts || v.print.DeletedConflicts {
		v.want |= shardapi.WantLeaves
	}
	v.extras = v.print.RevsInfo || v.print.Conflicts || v.print.DeletedConflicts || v.print.LocalSeq
	return v, nil
}

// readAttsSince reads atts_since, a JSON array of revisions.
func (v *docView) readAttsSince(value []byte) error {
	if value == nil {
		return nil
	}
	revs, err := parseRevs(value)
	if err != nil {
		return err
	}
	v.attsSince, v.hasSince = revs, true
	if len(revs) > 0 {
		v.attachments = true
		v.want |= shardapi.WantPath
	}
	return nil
}

// parseRevs reads a JSON array of revisions.
func parseRevs(value []byte) ([]model.Rev, error) {
	if rawjson.KindOf(value) != rawjson.KindArray {
		return nil, model.BadRequest("A list of revisions must be a JSON array of strings.")
	}
	n := rawjson.Len(value)
	if err := checkEntries(n); err != nil {
		return nil, err
	}
	revs := make([]model.Rev, 0, n)
	for e := range rawjson.Elements(value) {
		s, ok := rawjson.String(e)
		if !ok {
			return nil, model.ErrRevFormat
		}
		r, err := model.ParseRev(s)
		if err != nil {
			return nil, err
		}
		revs = append(revs, r)
	}
	return revs, nil
}

// sendsBytes tells whether the bytes of an attachment go along: those that came
// after the newest revision the reader has.
func (v *docView) sendsBytes(d *model.Doc, att *model.Attachment) bool {
	if !v.attachments {
		return false
	}
	var since uint64
	for _, have := range v.attsSince {
		for _, r := range d.Path {
			if r == have && r.Pos > since {
				since = r.Pos
			}
		}
	}
	return att.RevPos > since
}

// options gives the print options for one document: form is how attachments whose
// bytes go along are shown.
func (v *docView) options(ctx context.Context, a *API, db *cluster.Database, d *model.Doc, form document.AttForm) *document.PrintOptions {
	o := v.print
	o.RevsLimit = db.RevsLimit // the tree keeps more until its next edit
	if v.attachments && len(d.Atts) > 0 {
		o.Attachments = func(att *model.Attachment) document.AttForm {
			if v.sendsBytes(d, att) {
				return form
			}
			return document.AttStub
		}
		o.Open = func(att *model.Attachment) (io.ReadCloser, error) {
			return a.Coordinator.OpenIdentity(ctx, db, d.ID, att, 0, -1)
		}
	}
	return &o
}

// ifMatch gives the revision of an If-Match header, zero if there is none.
func (rq *request) ifMatch() (model.Rev, error) {
	h := strings.TrimSpace(rq.r.Header.Get("If-Match"))
	if h == "" || h == "*" {
		return model.Rev{}, nil
	}
	return model.ParseRev(strings.Trim(strings.TrimPrefix(h, "W/"), `"`))
}

// revParam gives the revision of ?rev= or If-Match, which must agree.
func (rq *request) revParam() (model.Rev, error) {
	var rev model.Rev
	if s, ok := rq.str("rev"); ok {
		var err error
		if rev, err = model.ParseRev(s); err != nil {
			return rev, err
		}
	}
	header, err := rq.ifMatch()
	if err != nil {
		return rev, err
	}
	switch {
	case header.IsZero():
		return rev, nil
	case rev.IsZero():
		return header, nil
	case rev != header:
		return rev, model.BadRequest("Document rev and etag have different values")
	}
	return rev, nil
}

// etagMatches tells whether the If-None-Match header names the tag.
func (rq *request) etagMatches(tag string) bool {
	for _, h := range rq.r.Header["If-None-Match"] {
		for _, part := range strings.Split(h, ",") {
			part = strings.TrimPrefix(strings.TrimSpace(part), "W/")
			if part == "*" || part == tag || part == strings.Trim(tag, `"`) {
				return true
			}
		}
	}
	return false
}

// quorum reads w or r: how many copies the client wants; 0 if it does not say.
func (rq *request) quorum(name string) (int, error) {
	n, err := rq.nonNegative(name, 0)
	if err != nil || n > maxN {
		return 0, model.BadRequest("The `" + name + "` value should be a positive integer.")
	}
	return int(n), nil
}
