// Package collate is the order of JSON values, as a comparison and as bytes that
// sort alike: null, false, true, numbers, text, arrays, objects. Numbers go by
// value, text by the Unicode collation algorithm with CLDR's root table, arrays
// element by element, objects member by member in the order they are written
// (the name, then the value), the shorter first.
//
// The table is our own, made from CLDR by gen: the one in golang.org/x/text is
// of Unicode 6.2 and puts many pairs in another order than CouchDB does.
package collate
