// Package model is the vocabulary of Divan: revisions, documents, hash ranges,
// names, and the one error type. It imports nothing of the project, knows no
// disk and no HTTP, and is imported by everyone.
package model
