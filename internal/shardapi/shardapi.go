// Package shardapi is the contract of ONE shard copy: everything that may be
// asked of one copy of one range of one database. It has two implementations,
// shardhost (a copy on this node) and noderpc (a copy on another node), and one
// conformance suite (package shardapi/conformance) that both pass. The
// coordinator above it knows no disk; the copy below it knows no other copy.
//
// Promises every implementation keeps:
//
//  1. Write and WriteLocal return without error only after the edit is durable.
//  2. No call shows anything that is not durable (architecture, section 2 rule 2):
//     a read that meets a newer state waits for it to become durable.
//  3. Edits of one Write are applied together (one batch) and in order; edits of
//     one document in one Write see each other.
//  4. After Drop, every call on the copy fails with model.ErrCopyClosed.
//  5. Errors that mean something to a client are *model.Error, also across the wire.
package shardapi

import (
	"context"
	"io"

	"github.com/divandb/divan/internal/model"
)

// CopyID numbers a copy. Numbers are unique in the cluster and never reused.
type CopyID uint64

// Host holds the copies of one node.
type Host interface {
	// Shard gives the handle of a copy. It does no I/O; a copy comes into being
	// with its first write.
	Shard(id CopyID) Shard
	// Drop closes the copy for good and removes its data: constant time, the
	// space returns in the background.
	Drop(ctx context.Context, id CopyID) error
	// Tasks lists the background work on this node's copies.
	Tasks(ctx context.Context) ([]Task, error)
}

// Shard is one copy.
type Shard interface {
	// Write applies edits. The response has one result per edit, in order; an
	// error is of the whole call (nothing was written, or its fate is unknown).
	// Staged tickets in the edits are used up whatever the outcome.
	Write(ctx context.Context, req *WriteRequest) (*WriteResponse, error)
	// Read answers several documents at once, one answer per query, in order.
	Read(ctx context.Context, req *ReadRequest) (*ReadResponse, error)
	// RevsDiff tells which of the given revisions the copy does not know.
	RevsDiff(ctx context.Context, req *RevsDiffRequest) (*RevsDiffResponse, error)

	// WriteLocal writes a _local document: no history, not in any feed.
	WriteLocal(ctx context.Context, edit *LocalEdit) (model.Rev, error)
	// ReadLocal reads one; model.ErrMissing if there is none.
	ReadLocal(ctx context.Context, id string) (*model.Doc, error)

	// List streams documents in id order (plain byte order).
	List(ctx context.Context, req *ListRequest) (*ListHead, Stream[Row], error)
	// Changes streams the sequence log.
	Changes(ctx context.Context, req *ChangesRequest) (ChangeStream, error)
	// Pending counts the rows of the sequence log after since.
	Pending(ctx context.Context, since uint64) (int64, error)
	// Updated waits until the copy's durable sequence is above after, and gives it.
	Updated(ctx context.Context, after uint64) (uint64, error)

	// Info gives the copy's counters.
	Info(ctx context.Context) (*Info, error)
	// PartitionInfo counts the documents whose id starts with "partition:".
	PartitionInfo(ctx context.Context, partition string) (*PartitionInfo, error)
	// Sync returns once everything applied so far is durable.
	Sync(ctx context.Context) error

	// View streams the rows, or the groups, of a view of the copy's documents. The
	// index is built and brought up to date as the request says.
	View(ctx context.Context, req *ViewRequest) (*ViewHead, Stream[ViewRow], error)
	// ViewInfo tells of the indexes with these signatures.
	ViewInfo(ctx context.Context, sigs []string) (*ViewInfo, error)

	// Stage takes the bytes of an attachment, as they shall be stored, ahead of
	// the Write that names them. Bytes nobody names are removed after a while,
	// and after a restart.
	Stage(ctx context.Context, r io.Reader) (*Staged, error)
	// Unstage gives up a ticket that no Write will name.
	Unstage(ctx context.Context, ticket string) error
	// OpenBlob reads stored bytes from offset; length < 0 means to the end.
	// The reader of a large local blob is an *os.File or io.LimitedReader over
	// one, so that the network layer can hand it to the kernel.
	OpenBlob(ctx context.Context, id model.BlobID, offset, length int64) (io.ReadCloser, error)
}

// Stream gives items in order, in batches. A batch and everything in it is valid
// until the next call; it may be empty (work was done, nothing to show yet).
// At the end Next gives io.EOF. Close may be called at any time, more than once.
type Stream[T any] interface {
	Next() ([]T, error)
	Close() error
}

// ChangeStream is a Stream that also knows how far it has come.
type ChangeStream interface {
	Stream[Change]
	// Seq is the sequence up to which everything was given or filtered out.
	Seq() uint64
}

// WriteRequest is a batch of edits.
type WriteRequest struct {
	Edits     []model.Edit
	RevsLimit int // how many ancestors a branch keeps; 0 means 1000

	// What validation functions see of the writer.
	DB       string     // name of the database
	User     model.User // who writes
	Security []byte     // the database's security object, JSON; nil: {}
}

// WriteResponse answers a WriteRequest.
type WriteResponse struct {
	Results []model.EditResult
	// Seq is the copy's sequence after the write.
	Seq uint64
}

// Want says what of a document is to be read.
type Want uint16

// The parts of a document.
const (
	WantBody     Want = 1 << iota // Body and Atts
	WantPath                      // Path
	WantRevsInfo                  // RevsInfo
	WantLeaves                    // Leaves
)

// DocQuery asks for one document.
type DocQuery struct {
	ID string
	// Revs asks for these revisions; empty asks for the winner.
	Revs []model.Rev
	// AllLeaves asks for every leaf (open_revs=all); Revs is ignored.
	AllLeaves bool
	// Latest gives, in the place of each asked revision, the leaves that descend from it.
	Latest bool
	Want   Want
}

// ReadRequest asks for several documents.
type ReadRequest struct {
	Queries []DocQuery
}

// DocAnswer answers a DocQuery. Found is false when the copy has never seen the
// document. For the winner Docs has one entry, deleted or not. A revision whose
// body is gone (or was never there), or that is unknown, stands in Missing, not
// in Docs. Order follows the query; with AllLeaves the winner is first.
type DocAnswer struct {
	Found   bool
	Docs    []model.Doc
	Missing []model.Rev
}

// ReadResponse answers a ReadRequest.
type ReadResponse struct {
	Answers []DocAnswer
}

// RevsDiffRequest asks, per document, which revisions are unknown.
type RevsDiffRequest struct {
	IDs  []string
	Revs [][]model.Rev // parallel to IDs
}

// RevsDiff is the answer for one document. PossibleAncestors are the leaves whose
// position is below that of some missing revision.
type RevsDiff struct {
	Missing           []model.Rev
	PossibleAncestors []model.Rev
}

// RevsDiffResponse is parallel to the request.
type RevsDiffResponse struct {
	Diffs []RevsDiff
}

// LocalEdit writes a _local document. ID includes "_local/". Rev is the revision
// the writer saw; zero overwrites whatever is there, as the peers do. A Rev that is
// not the present one is a conflict; Replicated skips the check.
type LocalEdit struct {
	ID         string
	Rev        model.Rev
	Deleted    bool
	Body       []byte
	Replicated bool
}

// Table chooses what List lists.
type Table uint8

// The tables.
const (
	TableDocs   Table = iota // every live document, design documents included
	TableDesign              // only _design/…
	TableLocal               // only _local/…
)

// ListRequest asks for a run of documents. Start and End are ids in the direction
// of travel (for Descending, Start is the high end); nil means open.
type ListRequest struct {
	Table        Table
	Start, End   *string
	ExclusiveEnd bool
	Descending   bool
	Limit        int64 // <0: no limit
	IncludeDocs  bool  // fill Row.Doc
	Want         Want  // beside WantBody, with IncludeDocs
	Offset       bool  // fill ListHead.Offset
}

// ListHead comes before the rows.
type ListHead struct {
	TotalRows int64  // live documents in the table (docs); 0 for local
	Offset    int64  // live documents before Start in the direction of travel
	Seq       uint64 // durable sequence the list is at least as new as
}

// Row is one live document.
type Row struct {
	ID  string
	Rev model.Rev
	Doc *model.Doc // with IncludeDocs
}

// ChangesRequest asks for a part of the sequence log: since < seq <= the present.
type ChangesRequest struct {
	Since       uint64
	Descending  bool  // from the present back; Since is then ignored as a start, and rows at or below it are not shown
	Limit       int64 // rows after filtering; <0: no limit
	IncludeDocs bool  // fill Change.Doc with the winner
	Want        Want  // beside WantBody, with IncludeDocs

	// At most one filter. The copy applies it, so that what nobody wants is not sent.
	DocIDs   []string // only these
	Design   bool     // only design documents
	Selector []byte   // only documents whose winner matches (normalised JSON)
	Script   *Script  // only documents that a function of a design document wants
}

// Change is one row of the sequence log: a document and its leaves, winner first.
type Change struct {
	Seq    uint64
	ID     string
	Leaves []model.Leaf
	Doc    *model.Doc // with IncludeDocs; nil if its body is gone
}

// Deleted tells whether the document as a whole is deleted.
func (c *Change) Deleted() bool { return len(c.Leaves) > 0 && c.Leaves[0].Deleted }

// Info is the state of a copy.
type Info struct {
	Seq           uint64 // durable sequence
	DocCount      int64
	DocDelCount   int64
	SizeFile      int64 // bytes on disk and bytes not flushed yet, attachments included
	SizeExternal  int64 // uncompressed user data of the current revisions, attachments included
	SizeActive    int64 // bytes stored, without superseded revisions
	StaleBytes    int64 // superseded bodies that compaction will remove
	Compacting    bool
	StaleRevsKept int64
}

// PartitionInfo is the state of one partition.
type PartitionInfo struct {
	DocCount, DocDelCount    int64
	SizeExternal, SizeActive int64
}

// Staged is what Stage learned of the bytes.
type Staged struct {
	Ticket string
	Blob   model.BlobID
	Digest [16]byte // MD5
	Length int64
}

// Task is a row of _active_tasks, without what only the node above knows.
type Task struct {
	Type         string // database_compaction, …
	Copy         CopyID
	StartedOn    int64 // epoch seconds
	UpdatedOn    int64
	ChangesDone  int64
	TotalChanges int64
	Phase        string
	Design       string // of an indexer: the design document's id
}
