// Package selector reads Mango selectors and tells which documents match. It is
// pure: no disk, no index, no JavaScript.
//
// A selector is brought into one form while it is read, as CouchDB does it, so
// that a planner can later see key ranges in it: every condition is explicit
// ({"a":1} is {"a":{"$eq":1}}), several conditions are an explicit $and, field
// names stand directly above one condition with their full dotted path, and
// negations are moved down to the conditions as far as they go. That form has
// visible effects, which are kept: {"$not":{"a":{"$gt":1}}} is {"a":{"$lte":1}}
// and so does not match a document without a; only {"$exists":false} does.
//
// Values are compared by collate, across types. _id alone is compared by its
// bytes, because documents are stored in that order.
//
// Regular expressions are Go's (RE2), which run in linear time. Where they part
// from CouchDB's PCRE: no look-around, no back-references and no possessive or
// atomic groups (all refused as bad_arg), `.` takes a character and not a byte,
// and `$` is the end of the text only, not also the place before a last newline.
package selector
