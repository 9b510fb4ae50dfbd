package design

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"

	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/reduce"
)

// hashDigits is the length of a signature and of a name of modules.
const hashDigits = 32

// setLib takes the modules of views.
func (d *Doc) setLib(views []byte) {
	lib, ok := rawjson.Get(views, "lib")
	if !ok {
		d.ViewsDesign = []byte("{}")
		return
	}
	const before, after = `{"views":{"lib":`, `}}`
	all := make([]byte, 0, len(before)+len(lib)+len(after))
	all = append(append(append(all, before...), lib...), after...)
	d.ViewsDesign = all
	d.Lib = all[len(before) : len(before)+len(lib) : len(before)+len(lib)]
	d.LibHash = digest(lib)
}

// signature names the index of a view. Every part goes in with its length, so that
// no two definitions can be written as the same bytes; the versions are there
// because rows and reductions are stored in their forms.
func signature(d *Doc, v *View) string {
	b := make([]byte, 0, 256+len(v.Map)+len(v.Reduce))
	b = appendPart(b, collate.TableVersion)
	b = appendPart(b, d.Language)
	b = appendPart(b, v.Map)
	b = appendPart(b, v.Reduce)
	if v.Reduce != "" {
		b = binary.AppendUvarint(b, reduce.Version)
	}
	if d.Lib == nil {
		b = append(b, 0)
	} else {
		b = append(b, 1)
	}
	b = appendPart(b, d.LibHash)
	for _, option := range []bool{v.IncludeDesign, v.LocalSeq, v.RawCollation, v.Partitioned} {
		if option {
			b = append(b, 1)
		} else {
			b = append(b, 0)
		}
	}
	return digest(b)
}

// appendPart appends a text after its length.
func appendPart(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

// digest is SHA-256, cut as revisions are.
func digest(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:hashDigits/2])
}
