// Package rawjson works on JSON as bytes: it validates, normalises, scans, picks
// and splices, and never decodes a document into maps. Number spelling, member
// order and string escapes are kept as the client wrote them.
//
// The functions come in two sorts. Normalize takes anything a client sent and
// either refuses it or gives back text with these properties: valid JSON, valid
// UTF-8, no lone surrogate escapes, no whitespace between tokens, no duplicate
// members (the last one wins), nesting within the limit. All other functions
// take such normalised text and rely on it; they never see raw input.
package rawjson
