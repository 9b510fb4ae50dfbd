// Package bench drives any CouchDB-compatible server over HTTP and prints what
// it costs: rate, latency, CPU time of the server per operation and its memory.
//
// The driver shares the machine with the server, so it is built to be cheap: it
// writes ready-made HTTP/1.1 requests on raw keep-alive connections and reads
// of the answers only what it needs. CPU time is read from the server's own
// process tree, so the driver's share is never counted; rates however depend on
// what else the machine does and are comparable only side by side.
//
// The figures to beat are CouchDB's (couchdb-baseline.md) and the bare limits
// measured in the same run: the same bytes written straight to the ordered
// store, and the same bytes answered by a bare net/http handler.
package bench
