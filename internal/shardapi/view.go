package shardapi

import (
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
)

// ViewDef is the definition of a view as its index needs it. Sig names the index
// and covers all that its rows depend on.
type ViewDef struct {
	Sig    string
	Design string // id of the design document, for tasks and logs
	Name   string // of the view
	// Program is where the functions run.
	Program jsvm.Program
	Map     string
	Reduce  string // empty: none

	IncludeDesign bool
	LocalSeq      bool
	RawCollation  bool
	Partitioned   bool // rows are kept by partition; a query must name one
}

// Freshness says what a query does about an index that is behind.
type Freshness uint8

// The ways.
const (
	UpdateFirst Freshness = iota // update=true: answers from an index that has all that is durable
	UpdateNever                  // update=false: answers at once
	UpdateAfter                  // update=lazy: answers at once, then updates
)

// Group levels beside the numbers of array elements.
const (
	GroupNone  = 0  // one group of everything
	GroupExact = -1 // one group per key
)

// KeyRange is a run of view keys in the direction of travel; keys are normalised
// JSON, nil means open. The ids narrow the rows at the border keys and count only
// beside them.
type KeyRange struct {
	Start, End     []byte
	StartID, EndID string
	HasStartID     bool
	HasEndID       bool
	ExclusiveEnd   bool
}

// ViewRequest asks a view. Ranges are answered one after the other in their order
// (each key of `keys` is a range of its own).
type ViewRequest struct {
	Def        ViewDef
	Update     Freshness
	Partition  string // of a partitioned view
	Ranges     []KeyRange
	Descending bool
	Limit      int64 // rows or groups in all; <0: no limit
	Reduce     bool
	GroupLevel int  // with Reduce
	Offset     bool // fill ViewHead.Offset
}

// ViewHead comes before the rows.
type ViewHead struct {
	TotalRows int64  // rows of the view (of the partition)
	Offset    int64  // rows before the first range's start in the direction of travel
	Seq       uint64 // sequence the index is at
}

// ViewRow is a row, or with Reduce a group. Rows come in the order of (Range,
// Sort, ID), reversed within a range with Descending.
type ViewRow struct {
	Range int    // index into Ranges
	Sort  []byte // bytes that sort like the key; of a group: like the group's key
	Key   []byte // JSON; of a group: the key cut to its level, null for the group of everything
	ID    string // empty for a group
	Value []byte // JSON; of a group: the state of package reduce

	// Err is what a client sees in the place of a group whose reduction does not
	// shrink. The coordinator sets it, which makes values final; copies do not.
	Err *model.Error `cbor:"-"`
}

// ViewInfo is the state of a copy's indexes taken together.
type ViewInfo struct {
	Seq          uint64 // the lowest sequence among them
	CopySeq      uint64 // the copy's own
	SizeFile     int64
	SizeActive   int64
	SizeExternal int64
	Updating     bool
	Waiting      int64 // requests that wait for an update
}

// Script is a filter that is a function of a design document.
type Script struct {
	Program jsvm.Program
	Func    string
	// Map means that Func is a map function: a document passes for which it emits.
	Map bool
	Req []byte // the request object that a filter function gets, JSON
	// AllLeaves asks of every leaf (style=all_docs) and not of the winner alone; a
	// change then shows the leaves that pass.
	AllLeaves bool
}
