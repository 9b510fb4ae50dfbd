// Package view keeps the index of a view of one copy in the index store: its
// rows in key order, and reductions of runs of rows beside them, so that a
// reduction, a group, an offset or a count over any range costs the logarithm of
// the rows and not a walk over them. DESIGN.md tells how.
package view

import (
	"context"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/reduce"
	"github.com/divandb/divan/internal/shardapi"
)

// Options of an Index.
type Options struct {
	Store        *kv.Store // of indexes
	Copy         uint64
	Sig          string         // of the view's definition, at most 64 bytes
	Reducer      reduce.Reducer // nil: none
	RawCollation bool
	Partitioned  bool
}

// Index is the index of one view of one copy. One goroutine at a time may change
// it; any number may query it meanwhile.
type Index struct{ o Options }

// DocRows are all rows of one document; those it had before are replaced.
type DocRows struct {
	ID   string
	Rows []Row
}

// Row is what one emit made.
type Row struct{ Key, Value []byte }

// Open opens an index, which may not exist yet.
func Open(o Options) (*Index, error) { panic("not there yet") }

// Seq is the sequence up to which everything is in the index.
func (x *Index) Seq() uint64 { panic("not there yet") }

// Begin tells how many changes are ahead, so that the index can choose between
// keeping its reductions as it goes and computing them once at the end.
func (x *Index) Begin(changes int64) error { panic("not there yet") }

// Apply puts in the rows of changed documents and moves the index to seq. A
// document may stand in docs once. Row order within DocRows is the order of emits.
func (x *Index) Apply(ctx context.Context, docs []DocRows, seq uint64) error { panic("not there yet") }

// Finish ends what Begin began: what queries see is up to date afterwards.
func (x *Index) Finish(ctx context.Context) error { panic("not there yet") }

// Query answers from the index as it is.
func (x *Index) Query(ctx context.Context, req *shardapi.ViewRequest) (*shardapi.ViewHead, shardapi.Stream[shardapi.ViewRow], error) {
	panic("not there yet")
}

// Sizes of an index in bytes.
type Sizes struct{ File, Active, External int64 }

// Sizes measures the index.
func (x *Index) Sizes() (Sizes, error) { panic("not there yet") }

// Signatures lists the indexes that a copy has in the store.
func Signatures(store *kv.Store, copy uint64) ([]string, error) { panic("not there yet") }

// Copies lists the copies that have indexes in the store.
func Copies(store *kv.Store) ([]uint64, error) { panic("not there yet") }

// Drop removes an index, in constant time.
func Drop(store *kv.Store, copy uint64, sig string) error { panic("not there yet") }

// DropCopy removes all indexes of a copy, in constant time.
func DropCopy(store *kv.Store, copy uint64) error { panic("not there yet") }
