package cluster

import (
	"sort"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// DefaultRevsLimit is how many ancestors a branch keeps unless told otherwise.
const DefaultRevsLimit = 1000

// Copy is one copy of a range.
type Copy struct {
	ID    shardapi.CopyID
	Node  string
	Epoch uint32 // grows when the copy's sequence loses its meaning
}

// Shard is one range and its copies; the first is asked first.
type Shard struct {
	Range  model.Range
	Copies []Copy
}

// Database is what the registry knows of a database. It is an immutable value
// shared by all who asked: a change makes a new one.
type Database struct {
	Name        string
	Instance    [8]byte // random: a database created again under its name is another one
	Q           int     // ranges
	N           int     // copies as asked for; how many exist is Copies
	Partitioned bool
	RevsLimit   int
	MapEpoch    uint32  // grows with every change of Shards
	Shards      []Shard // in the order of the ranges, which cover the hash space
	Security    []byte  // raw JSON; nil if never set
	// Access is Security, ready to be asked; nil admits nobody.
	Access  *auth.Security
	Created int64 // seconds since 1970
}

// setSecurity takes a security object. One that cannot be read admits nobody: it
// was written by somebody who knew more than we do, and must not be taken for less.
func (d *Database) setSecurity(raw []byte) {
	d.Security, d.Access = raw, nil
	if len(raw) == 0 {
		return
	}
	if access, err := auth.ParseSecurity(raw); err == nil {
		d.Access = access
	}
}

// Copies is how many copies of each range exist. N may promise more.
func (d *Database) Copies() int { return len(d.Shards[0].Copies) }

// W is the default write quorum: a majority of the copies that exist.
func (d *Database) W() int { return d.Copies()/2 + 1 }

// R is the default read quorum: a majority of the copies that exist.
func (d *Database) R() int { return d.Copies()/2 + 1 }

// ShardOf gives the index in Shards of the range that holds the document.
func (d *Database) ShardOf(docID string) int {
	if len(d.Shards) == 1 {
		return 0
	}
	return d.shardOfHash(model.HashID(docID, d.Partitioned))
}

// ShardOfPartition gives the index of the range that holds a whole partition.
func (d *Database) ShardOfPartition(partition string) int {
	return d.ShardOf(partition + ":")
}

// shardOfHash finds the range by its end: the ranges are in order without a gap.
func (d *Database) shardOfHash(h uint32) int {
	if len(d.Shards) <= 8 {
		for i := range d.Shards {
			if h <= d.Shards[i].Range.End {
				return i
			}
		}
	}
	return sort.Search(len(d.Shards)-1, func(i int) bool { return h <= d.Shards[i].Range.End })
}
