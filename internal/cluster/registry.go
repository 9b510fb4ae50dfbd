package cluster

import (
	"context"
	"iter"

	"github.com/divandb/divan/internal/shardapi"
)

// CreateSpec describes a database to be created. Zero means the default.
type CreateSpec struct {
	Name        string
	Q, N        int
	Partitioned bool
}

// NamesQuery asks for database names in byte order. Start and End are in the
// direction of travel; nil means open.
type NamesQuery struct {
	Start, End   *string
	ExclusiveEnd bool
	Descending   bool
	Skip         int64
	Limit        int64 // <0: no limit
}

// EventType says what happened to a database.
type EventType uint8

// The types of events.
const (
	EventCreated EventType = 1 + iota
	EventUpdated
	EventDeleted
)

// String gives the word on the wire.
func (t EventType) String() string {
	switch t {
	case EventCreated:
		return "created"
	case EventUpdated:
		return "updated"
	case EventDeleted:
		return "deleted"
	}
	return "unknown"
}

// Event is a row of _db_updates. Only the newest of a database and a type exists.
type Event struct {
	Seq  uint64
	Type EventType
	Name string
}

// Node is a member of the cluster.
type Node struct {
	Name string
	Live bool
}

// Registry is what the rest of Divan may ask of the cluster's state.
type Registry interface {
	// Get gives a database; model.ErrDBNotFound if there is none. It does no I/O.
	Get(name string) (*Database, error)
	// ByCopy gives the database that a copy belongs to.
	ByCopy(id shardapi.CopyID) (*Database, bool)
	// Create makes a database; model.ErrDBExists if the name is taken.
	Create(ctx context.Context, spec CreateSpec) (*Database, error)
	// Delete removes one and drops its copies.
	Delete(ctx context.Context, name string) (*Database, error)
	// SetRevsLimit changes how many ancestors a branch keeps.
	SetRevsLimit(ctx context.Context, name string, limit int) (*Database, error)
	// SetSecurity keeps a security object (raw JSON, checked by the caller).
	SetSecurity(ctx context.Context, name string, security []byte) (*Database, error)
	// Names gives the names of databases in order.
	Names(q NamesQuery) iter.Seq[string]

	// Nodes lists the members in order of name.
	Nodes() []Node
	// Self is the name of this node.
	Self() string
	// UUID names the service as a whole.
	UUID() string
	// Account is the account name shown in _db_updates.
	Account() string
	// Setting gives a server setting; false if it was never set.
	Setting(name string) ([]byte, bool)
	// SetSetting keeps one; nil removes it.
	SetSetting(ctx context.Context, name string, value []byte) error

	// Events gives the events after since, or, descending, from the newest down to
	// since (excluded). limit < 0 means none.
	Events(since uint64, descending bool, limit int64) iter.Seq[Event]
	// LastEvent is the number of the newest event.
	LastEvent() uint64
	// WaitEvents waits until LastEvent is above after, and gives it.
	WaitEvents(ctx context.Context, after uint64) (uint64, error)
	// Touched tells that a copy has a new durable sequence. It never blocks.
	Touched(id shardapi.CopyID, seq uint64)
}
