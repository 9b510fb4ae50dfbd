package rawjson

// Kind is the type of a JSON value.
type Kind uint8

// The kinds of JSON values, in the order in which views collate them. They carry
// the prefix because String and Bool are functions of this package.
const (
	// KindInvalid is the kind of bytes that are no value, such as none at all.
	KindInvalid Kind = iota
	KindNull
	KindBool
	KindNumber
	KindString
	KindArray
	KindObject
)

// KindOf tells the kind of a value by its first byte.
func KindOf(v []byte) Kind {
	if len(v) == 0 {
		return KindInvalid
	}
	switch c := v[0]; c {
	case '"':
		return KindString
	case '{':
		return KindObject
	case '[':
		return KindArray
	case 't', 'f':
		return KindBool
	case 'n':
		return KindNull
	default:
		if c == '-' || c-'0' <= 9 {
			return KindNumber
		}
		return KindInvalid
	}
}

// String names the kind as JSON does.
func (k Kind) String() string {
	switch k {
	case KindNull:
		return "null"
	case KindBool:
		return "boolean"
	case KindNumber:
		return "number"
	case KindString:
		return "string"
	case KindArray:
		return "array"
	case KindObject:
		return "object"
	default:
		return "invalid"
	}
}
