package model

import "strings"

// MaxDBName bounds the name of a database: it is part of a key and of a URL.
const MaxDBName = 238

// The names of the databases that the service itself reads.
const (
	DBUsers         = "_users"
	DBReplicator    = "_replicator"
	DBGlobalChanges = "_global_changes"
)

// ValidDBName tells whether name may be the name of a database: a small letter,
// then small letters, digits and _$()+/-; or one of the system names, alone or
// after a valid prefix and a slash ("team/_users").
func ValidDBName(name string) bool {
	if name == "" || len(name) > MaxDBName {
		return false
	}
	if SystemDBName(name) {
		at := strings.LastIndexByte(name, '/')
		return at < 0 || plainDBName(name[:at])
	}
	return plainDBName(name)
}

// SystemDBName tells whether name ends in the name of a system database, as a
// whole part: such databases have rules of their own.
func SystemDBName(name string) bool {
	last := name[strings.LastIndexByte(name, '/')+1:]
	return last == DBUsers || last == DBReplicator || last == DBGlobalChanges
}

func plainDBName(name string) bool {
	if name == "" || name[0] < 'a' || name[0] > 'z' {
		return false
	}
	for i := 1; i < len(name); i++ {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
		case c == '_', c == '$', c == '(', c == ')', c == '+', c == '/', c == '-':
		default:
			return false
		}
	}
	return true
}

// IllegalDBName is the answer to a name that ValidDBName refuses.
func IllegalDBName(name string) *Error {
	if len(name) > MaxDBName {
		return &Error{Kind: KindForbidden, Name: "database_name_too_long", Reason: "The name of a database has at most 238 characters."}
	}
	return &Error{Kind: KindForbidden, Name: "illegal_database_name", Reason: "Name: '" + name + "'. Only lowercase characters (a-z), digits (0-9), and any of the characters _, $, (, ), +, -, and / are allowed. Must begin with a letter."}
}
