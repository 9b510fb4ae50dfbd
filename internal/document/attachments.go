package document

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// DefaultContentType is the type of an attachment that comes without one.
const DefaultContentType = "application/octet-stream"

// Att is an attachment as a document on the wire brings it. Exactly one of Stub,
// Inline and Follows is true. RevPos, and for stubs and following parts Length,
// EncodedLength, Encoding and Digest, are what the client says, to be checked by
// whoever has the bytes; Staged and Blob are not set.
type Att struct {
	model.AttachmentEdit
	Data      []byte // the bytes of an Inline one, decoded
	Inline    bool   // "data"
	Follows   bool   // the bytes come in a part of their own
	HasLength bool   // Length was given (Inline: counted)
	HasDigest bool   // Digest was given
}

// invalidAttachment is the answer to an attachment that cannot be understood.
func invalidAttachment(name string) *model.Error {
	return model.BadRequest("Invalid attachment data for " + name)
}

// parseAttachments reads the value of _attachments.
func parseAttachments(obj []byte) ([]Att, error) {
	atts := make([]Att, 0, rawjson.Len(obj))
	for rawName, value := range rawjson.Members(obj) {
		name := string(rawName)
		if err := ValidateAttachmentName(name); err != nil {
			return nil, err
		}
		if rawjson.KindOf(value) != rawjson.KindObject {
			return nil, invalidAttachment(name)
		}
		a := Att{}
		a.Name, a.ContentType = name, DefaultContentType
		if err := a.parse(value); err != nil {
			return nil, err
		}
		atts = append(atts, a)
	}
	return atts, nil
}

// parse reads the members of one attachment. Unknown ones say nothing.
func (a *Att) parse(obj []byte) error {
	var data []byte
	for name, value := range rawjson.Members(obj) {
		ok := true
		switch string(name) {
		case "stub":
			a.Stub = string(value) == "true"
		case "follows":
			a.Follows = string(value) == "true"
		case "data":
			data = value
		case "content_type":
			a.ContentType, ok = rawjson.String(value)
			ok = ok && cleanHeaderText(a.ContentType)
		case "revpos":
			var pos int64
			pos, ok = rawjson.Int(value)
			ok = ok && pos >= 0
			a.RevPos = uint64(max(pos, 0))
		case "length":
			a.Length, ok = rawjson.Int(value)
			ok = ok && a.Length >= 0
			a.HasLength = true
		case "encoded_length":
			a.EncodedLength, ok = rawjson.Int(value)
			ok = ok && a.EncodedLength >= 0
		case "encoding":
			a.Encoding, ok = rawjson.String(value)
			if a.Encoding == "identity" {
				a.Encoding = ""
			}
			ok = ok && (a.Encoding == "" || a.Encoding == "gzip")
		case "digest":
			a.digest(value)
		}
		if !ok {
			return invalidAttachment(a.Name)
		}
	}
	switch {
	case a.Stub:
		a.Follows = false
	case a.Follows:
	default:
		return a.inline(data)
	}
	if a.Encoding == "" || a.EncodedLength == 0 {
		a.EncodedLength = a.Length
	}
	return nil
}

// inline takes the bytes of "data". They are the identity bytes, and say more
// than the other members could.
func (a *Att) inline(data []byte) error {
	var ok bool
	if a.Data, ok = decodeBase64(data); !ok {
		return invalidAttachment(a.Name)
	}
	a.Inline, a.HasLength, a.HasDigest = true, true, false
	a.Length, a.EncodedLength = int64(len(a.Data)), int64(len(a.Data))
	a.Encoding, a.Digest = "", [md5.Size]byte{}
	return nil
}

// digest reads "md5-<base64>". A digest of another kind cannot be checked and
// counts as none.
func (a *Att) digest(value []byte) {
	text, ok := rawjson.AppendUnquoted(nil, value)
	text, isMD5 := bytes.CutPrefix(text, []byte("md5-"))
	if !ok || !isMD5 {
		return
	}
	sum, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil || len(sum) != md5.Size {
		return
	}
	a.Digest, a.HasDigest = [md5.Size]byte(sum), true
}

// decodeBase64 decodes a JSON string of base64 text. White space inside it is
// passed over, as encoders break lines.
func decodeBase64(value []byte) (data []byte, ok bool) {
	if rawjson.KindOf(value) != rawjson.KindString {
		return nil, false
	}
	text := value[1 : len(value)-1]
	if bytes.IndexByte(text, '\\') >= 0 {
		text, _ = rawjson.AppendUnquoted(make([]byte, 0, len(text)), value)
	}
	if bytes.ContainsAny(text, " \t") {
		text = bytes.Join(bytes.Fields(text), nil)
	}
	data, err := base64.StdEncoding.AppendDecode(make([]byte, 0, base64.StdEncoding.DecodedLen(len(text))), text)
	return data, err == nil
}
