package model

// BlobID names the stored bytes of an attachment by a collision-resistant hash
// (BLAKE3, 256 bits). The MD5 in Attachment.Digest is for the wire only.
type BlobID [32]byte

// Attachment is what a stored revision knows of one of its attachments.
type Attachment struct {
	Name          string
	ContentType   string
	RevPos        uint64   // position of the revision that brought these bytes
	Digest        [16]byte // MD5 of the stored (perhaps gzipped) bytes
	Length        int64    // identity length
	Encoding      string   // "" or "gzip"
	EncodedLength int64    // stored length; equals Length for identity
	Blob          BlobID
}

// AttachmentEdit is an attachment as a write brings it. Exactly one of three:
// staged bytes (Staged is the ticket of Stage), bytes that the document's
// history has (Stub), or bytes the copy holds under Blob already.
type AttachmentEdit struct {
	Attachment
	Staged string // ticket from Shard.Stage on the same copy; empty if none
	Stub   bool   // take the bytes from the parent; RevPos, when not 0, must match
}

// Edit is one document write on its way to a shard copy. Body is the document
// without its underscore members, normalised by rawjson (no whitespace, no
// duplicate members); it is stored as it stands.
type Edit struct {
	ID      string
	Deleted bool
	Body    []byte
	Atts    []AttachmentEdit

	// With new edits (Replicated false): Parent is the revision the writer saw,
	// zero for a create; the copy makes the new revision.
	Parent Rev
	// With replicated edits: Path is the history, newest first, Path[0] the
	// revision itself; it is merged as it is.
	Replicated bool
	Path       []Rev
}

// EditResult answers one Edit. Err, when set, is a *Error whose words go to the
// client.
type EditResult struct {
	ID  string
	Rev Rev
	Err *Error
}

// Leaf is a revision nobody has built on.
type Leaf struct {
	Rev     Rev
	Deleted bool
}

// RevStatus is a row of _revs_info.
type RevStatus struct {
	Rev    Rev
	Status string // available, missing, deleted
}

// Doc is one revision as read from a copy.
type Doc struct {
	ID      string
	Rev     Rev
	Deleted bool
	Body    []byte // as stored; valid for as long as the Doc
	Atts    []Attachment

	Path     []Rev       // when asked for: this revision's known history, newest first
	RevsInfo []RevStatus // when asked for
	Leaves   []Leaf      // when asked for: every leaf of the document, winner first
	Seq      uint64      // the copy's sequence at which the document last changed
}

// User is who writes, as validation functions see it.
type User struct {
	Name  string // empty: anonymous
	Roles []string
}
