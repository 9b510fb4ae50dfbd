// Package shard is one copy of one range of one database, on kv: revision trees,
// bodies, attachments, local documents and the sequence log. It knows no other
// copy, no network and no HTTP.
//
// Invariants, cited in the code as I1 to I7:
//
//	I1  Everything a write changes is one batch; the batch carries the counters.
//	I2  The sequencer (Copy.mu) covers read, merge and Apply, never a sync.
//	I3  Nothing is shown above the durable marks. Batches of a copy are applied
//	    under the sequencer, so they stand in the log in order, and a later one
//	    being durable means that the earlier ones are.
//	I4  Every document has exactly one row in the sequence log.
//	I5  The body of a leaf is always there; only bodies of inner revisions go.
//	I6  A blob row exists exactly while its count of references is above 0, and
//	    its bytes are durable before a batch names them.
//	I7  A closed copy refuses everything.
package shard
