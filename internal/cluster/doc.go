// Package cluster knows what exists and where it lies: the nodes, the databases,
// their ranges and the copies of each range, and the log of global events that
// _db_updates shows. It holds no document.
//
// Registry is the interface; Local keeps it in the node's own store, for a
// service of one node. A control plane that several nodes agree on takes its
// place behind the same interface.
//
// Promises of Local:
//
//  1. Nothing is visible before it is durable: a database, a setting or an event
//     appears to readers only after the fsync of the batch that made it.
//  2. Changes become visible in the order in which they entered the log, whoever
//     waits for them first; a reader of events never sees one and later an older one.
//  3. A registry change and its event are one batch.
//  4. No lock is held during an fsync; changes of one name follow one another.
//  5. Copy numbers are never reused. Copies of a deleted database are noted in the
//     batch that removes it, until they are dropped; a start finishes what a crash left.
//  6. Keys: 'r'+name a database, 'u'+number an event, 'm'+word everything else.
package cluster
