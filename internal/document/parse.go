package document

import (
	"strings"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// ParseOptions says for which database, and by which kind of write, a document
// is read. The zero value is an ordinary edit of an ordinary database.
type ParseOptions struct {
	ID          string // the id that the URL gives; it wins over _id. Default: _id alone counts
	Replicated  bool   // new_edits=false: the revision is not made but given
	Partitioned bool   // ids must be "partition:id"
	MaxSize     int64  // of the body, attachments not counted; default 0: no limit
}

// Parsed is a document taken apart.
type Parsed struct {
	ID      string
	HasID   bool
	Rev     model.Rev   // of _revisions, else of _rev; zero if there is neither
	Path    []model.Rev // of _revisions, newest first; with Replicated of _rev if there is nothing else
	Deleted bool
	Body    []byte // without the special members, at least "{}"; part of the text given to Parse where possible
	Atts    []Att  // in the order of the JSON
}

// Parse takes apart one document, which rawjson.Normalize must have passed.
// A replicated document without a revision is not refused here, as the request
// may give one; see ErrNeedsRevision.
func Parse(norm []byte, o ParseOptions) (*Parsed, error) {
	if rawjson.KindOf(norm) != rawjson.KindObject {
		return nil, model.BadRequest("Document must be a JSON object")
	}
	p := &Parsed{ID: o.ID, HasID: o.ID != ""}
	body := bodyCutter{norm: norm, run: 1}
	at := 1 // where the member begins in norm
	for name, value := range rawjson.Members(norm) {
		end := nameEnd(norm, at) + len(":") + len(value)
		if len(name) > 0 && name[0] == '_' {
			keep, err := p.special(string(name), value, &o)
			if err != nil {
				return nil, err
			}
			if !keep {
				body.cut(at, end)
			}
		}
		at = end + len(",")
	}
	p.Body = body.finish()
	if o.MaxSize > 0 && int64(len(p.Body)) > o.MaxSize {
		return nil, &model.Error{Kind: model.KindTooLarge, Name: "document_too_large", Reason: p.ID}
	}
	if o.Replicated && p.Path == nil && !p.Rev.IsZero() && !strings.HasPrefix(p.ID, localPrefix) {
		if p.Rev.Pos == 0 {
			return nil, model.ErrRevFormat // only local documents have such, and no history
		}
		p.Path = []model.Rev{p.Rev}
	}
	return p, nil
}

// special takes one member whose name starts with an underscore, and tells
// whether it belongs to the body nevertheless.
func (p *Parsed) special(name string, value []byte, o *ParseOptions) (keep bool, err error) {
	switch name {
	case "_id":
		id, ok := rawjson.String(value)
		if !ok {
			return false, illegalID("Document id must be a string")
		}
		if o.ID == "" {
			p.ID, p.HasID = id, true
		}
		return false, ValidateID(id, o.Partitioned)
	case "_rev":
		text, ok := rawjson.String(value)
		if !ok {
			return false, model.ErrRevFormat
		}
		rev, err := model.ParseRev(text)
		if err != nil {
			return false, err
		}
		if p.Path == nil {
			p.Rev = rev
		}
		return false, nil
	case "_revisions":
		return false, p.revisions(value)
	case "_deleted":
		deleted, ok := rawjson.Bool(value)
		if !ok {
			return false, badMember(name)
		}
		p.Deleted = deleted
		return false, nil
	case "_attachments":
		if rawjson.KindOf(value) != rawjson.KindObject {
			return false, badMember(name)
		}
		p.Atts, err = parseAttachments(value)
		return false, err
	case "_revs_info", "_local_seq", "_conflicts", "_deleted_conflicts":
		// What a read prints may be written back; it says nothing.
		return false, nil
	case "_access",
		"_replication_state", "_replication_state_time", "_replication_state_reason",
		"_replication_id", "_replication_stats":
		// In any database: replication documents are copied and backed up like others.
		return true, nil
	}
	return false, badMember(name)
}

// revisions reads {"start":3,"ids":["c","b","a"]}.
func (p *Parsed) revisions(value []byte) error {
	if rawjson.KindOf(value) != rawjson.KindObject {
		return badMember("_revisions")
	}
	startText, _ := rawjson.Get(value, "start")
	start, ok := rawjson.Int(startText)
	if !ok || start < 0 {
		return docValidation("_revisions.start isn't an integer.")
	}
	ids, _ := rawjson.Get(value, "ids")
	if rawjson.KindOf(ids) != rawjson.KindArray {
		return docValidation("_revisions.ids isn't a array.")
	}
	count := int64(rawjson.Len(ids))
	if count == 0 && start == 0 {
		return nil // the history of a document that has none
	}
	// A local document, whose revisions are 0-N, has one that is its own: what a
	// read of it says can be written back.
	local := start == 0 && count == 1
	if !local && (count == 0 || count > start) || start >= maxPos {
		return docValidation("_revisions.start doesn't fit the number of _revisions.ids.")
	}
	path := make([]model.Rev, 0, count)
	var text []byte
	for id := range rawjson.Elements(ids) {
		// Together with a position it is the text of a revision, under the same
		// rules as any other.
		text, ok = rawjson.AppendUnquoted(append(text[:0], "0-"...), id)
		if !ok {
			return docValidation("RevId isn't a string")
		}
		rev, err := model.ParseRev(string(text))
		if err != nil {
			return err
		}
		path = append(path, model.Rev{Pos: uint64(start) - uint64(len(path)), Hash: rev.Hash})
	}
	if local {
		// Not a path: no tree has a position 0. It counts only where _rev is missing.
		if p.Rev.IsZero() {
			p.Rev = path[0]
		}
		return nil
	}
	p.Path, p.Rev = path, path[0]
	return nil
}

// maxPos is where positions end: what ParseRev takes in 18 digits.
const maxPos = 1e18

// nameEnd gives the position after the member name whose opening quote is at i.
func nameEnd(norm []byte, i int) int {
	for i++; i < len(norm) && norm[i] != '"'; i++ {
		if norm[i] == '\\' {
			i++
		}
	}
	return i + 1
}

// bodyCutter leaves members out of an object. It copies only if it must, and then
// by runs: documents often have no special member, or have them at the start.
type bodyCutter struct {
	norm []byte
	run  int    // where the run of members begins that are to be kept
	out  []byte // nil until a member was cut
}

// cut leaves out the member from at to end.
func (c *bodyCutter) cut(at, end int) {
	if c.out == nil {
		c.out = append(make([]byte, 0, len(c.norm)), '{')
	}
	c.keep(at - len(","))
	c.run = min(end+len(","), len(c.norm))
}

// keep copies the run that ends before to.
func (c *bodyCutter) keep(to int) {
	if to <= c.run {
		return
	}
	if len(c.out) > 1 {
		c.out = append(c.out, ',')
	}
	c.out = append(c.out, c.norm[c.run:to]...)
}

// finish gives the object.
func (c *bodyCutter) finish() []byte {
	if c.out == nil {
		return c.norm
	}
	c.keep(len(c.norm) - len("}"))
	return append(c.out, '}')
}

// cleanHeaderText tells whether a text can stand in a header.
func cleanHeaderText(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
}
