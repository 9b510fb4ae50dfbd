package model

import "errors"

// Kind says what sort of fault an Error is. Code decides by kind; only httpapi
// turns a kind into a status.
type Kind uint8

// The kinds.
const (
	KindInternal         Kind = iota // a fault of ours
	KindBadRequest                   // the request cannot be understood or breaks a rule
	KindUnauthorized                 // who are you
	KindForbidden                    // you may not
	KindNotFound                     // there is no such thing
	KindNotAllowed                   // the method does not fit the resource
	KindNotAcceptable                // no form the client accepts
	KindConflict                     // the edit is based on an outdated revision
	KindGone                         // was there once and will not come back
	KindPrecondition                 // exists already, or a stub that names nothing
	KindTooLarge                     // over a size limit
	KindURITooLong                   // over the limit of a URL
	KindUnsupportedMedia             // a content type or encoding we do not read
	KindRange                        // a byte range outside the attachment
	KindExpectation                  // all_or_nothing and its like
	KindTooMany                      // over a rate limit
	KindNotImplemented               // known and not offered
	KindUnavailable                  // overloaded, closing, or the store is shut
	KindStorageFull                  // no room on the disk: read-only
	KindCorruption                   // stored bytes that cannot be right; never hidden
	KindTimeout                      // took too long
)

// Error is the one error type that crosses package borders with a meaning for
// the client. Name and Reason are the words of the answer; Err is the cause, for
// the log only.
type Error struct {
	Kind   Kind
	Name   string
	Reason string
	Err    error `cbor:"-"` // never crosses to another node
}

// Error implements error.
func (e *Error) Error() string {
	s := e.Name + ": " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap gives the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is makes errors.Is compare kind, name and reason, so that an error that came
// over the wire from another node still equals the one declared here.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && e.Kind == t.Kind && e.Name == t.Name && e.Reason == t.Reason
}

// KindOf gives the kind of err: that of the first *Error in its chain, and
// KindInternal where there is none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return KindInternal
}

// BadRequest makes the commonest error.
func BadRequest(reason string) *Error {
	return &Error{Kind: KindBadRequest, Name: "bad_request", Reason: reason}
}

// The errors that several layers speak of.
var (
	ErrDBNotFound  = &Error{Kind: KindNotFound, Name: "not_found", Reason: "no_db_file"}
	ErrDBExists    = &Error{Kind: KindPrecondition, Name: "file_exists", Reason: "The database could not be created, the file already exists."}
	ErrMissing     = &Error{Kind: KindNotFound, Name: "not_found", Reason: "missing"}
	ErrDeleted     = &Error{Kind: KindNotFound, Name: "not_found", Reason: "deleted"}
	ErrConflict    = &Error{Kind: KindConflict, Name: "conflict", Reason: "Document update conflict."}
	ErrMissingAtt  = &Error{Kind: KindNotFound, Name: "not_found", Reason: "Document is missing attachment"}
	ErrStorageFull = &Error{Kind: KindStorageFull, Name: "insufficient_storage", Reason: "The disk is nearly full: the server takes no writes until space is freed. Reads and the deletion of databases work."}
	ErrClosed      = &Error{Kind: KindUnavailable, Name: "service_unavailable", Reason: "The store is closed."}
	ErrCopyClosed  = &Error{Kind: KindUnavailable, Name: "service_unavailable", Reason: "This copy of the range is closed."}
)

// MissingStub is the answer to a stub that names no attachment of the document.
func MissingStub(docID, name string) *Error {
	return &Error{Kind: KindPrecondition, Name: "missing_stub", Reason: "Invalid attachment stub in " + docID + " for " + name}
}
