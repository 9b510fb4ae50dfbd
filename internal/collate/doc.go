// Package collate is the order of JSON values, as a comparison and as bytes that
// sort alike: null, false, true, numbers, text, arrays, objects. Numbers go by
// value, text by the Unicode collation algorithm with CLDR's root table, arrays
// element by element, objects member by member in the order they are written
// (the name, then the value), the shorter first. Views with options.collation
// "raw" have another order, that of Erlang's terms, which raw.go tells.
//
// The table is our own, made from CLDR by gen: the one in golang.org/x/text is
// of Unicode 6.2 and puts many pairs in another order than CouchDB does. Against
// ICU 72 (Unicode 15) three things differ: characters that Unicode 15 brought
// sort as unknown ones, behind all others; the Tibetan marks U+0F82 and U+0F83
// have no weight before CLDR 42; and text whose combining marks stand out of
// canonical order sorts as its normal form does, where ICU, with normalisation
// off, takes the marks as they stand.
package collate
