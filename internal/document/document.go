// Package document is the wire form of a document: it takes apart the JSON that
// a client sends into id, revisions, body and attachments, puts together the JSON
// that a client gets, and names new revisions. It works on bytes that rawjson has
// normalised, and knows no store and no HTTP.
package document

import "github.com/divandb/divan/internal/model"

// ErrNeedsRevision refuses a replicated edit that names no revision.
var ErrNeedsRevision = model.BadRequest("When `new_edits: false`, the document needs `_rev` or `_revisions` specified")

// docValidation makes the error of a special member that cannot be taken.
func docValidation(reason string) *model.Error {
	return &model.Error{Kind: model.KindBadRequest, Name: "doc_validation", Reason: reason}
}

// badMember is the answer to a special member that is unknown, or of the wrong
// type.
func badMember(name string) *model.Error {
	return docValidation("Bad special document member: " + name)
}
