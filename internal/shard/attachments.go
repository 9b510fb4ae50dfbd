package shard

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
)

// blobRow says what is known of stored attachment bytes.
type blobRow struct {
	refs   uint64 // one per entry in the attachment list of a stored body
	length int64
	file   bool // the bytes are a file; otherwise they are in the inline table
}

// blobChange is what a batch does to the references of a blob.
type blobChange struct {
	id    model.BlobID
	delta int64
}

// appendBlobKey appends the key of a blob's row (tableBlob) or bytes (tableInline).
func (c *Copy) appendBlobKey(dst []byte, table byte, id *model.BlobID) []byte {
	return append(c.appendTable(dst, table), id[:]...)
}

// readBlobRow reads the row of a blob.
func (c *Copy) readBlobRow(id *model.BlobID) (row blobRow, found bool, err error) {
	var room [prefixLen + len(model.BlobID{})]byte
	val, found, err := c.store.Get(c.appendBlobKey(room[:0], tableBlob, id))
	if err != nil || !found {
		return row, false, err
	}
	defer val.Release()
	b := val.Bytes()
	refs, n := binary.Uvarint(b)
	if n <= 0 {
		return row, false, corrupt("attachment row")
	}
	length, m := binary.Uvarint(b[n:])
	if m <= 0 || len(b) != n+m+1 {
		return row, false, corrupt("attachment row")
	}
	return blobRow{refs: refs, length: int64(length), file: b[n+m] == 1}, true, nil
}

// appendBlobRow appends the stored form.
func appendBlobRow(dst []byte, row blobRow) []byte {
	dst = binary.AppendUvarint(dst, row.refs)
	dst = binary.AppendUvarint(dst, uint64(row.length))
	if row.file {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// blobChanges is what a batch does to the references of all its blobs, one entry
// for each. A document may have very many attachments, so a long list has an index.
type blobChanges struct {
	list []blobChange
	at   map[model.BlobID]int // place in list; nil while it is short
}

// indexFrom is how long a list of attachments or blobs is searched one by one.
const indexFrom = 16

// add notes that references come or go.
func (c *blobChanges) add(id model.BlobID, delta int64) {
	if c.at != nil {
		if i, ok := c.at[id]; ok {
			c.list[i].delta += delta
			return
		}
		c.at[id] = len(c.list)
	} else {
		for i := range c.list {
			if c.list[i].id == id {
				c.list[i].delta += delta
				return
			}
		}
	}
	c.list = append(c.list, blobChange{id, delta})
	if c.at == nil && len(c.list) > indexFrom {
		c.at = make(map[model.BlobID]int, 2*len(c.list))
		for i := range c.list {
			c.at[c.list[i].id] = i
		}
	}
}

// reset empties the list.
func (c *blobChanges) reset() { c.list, c.at = c.list[:0], nil }

// emitBlobs writes the rows of the blobs whose references this write changes.
func (w *writer) emitBlobs(staged stagedSet) (err error) {
	if len(w.blobs.list) == 0 {
		return nil
	}
	w.gone, err = w.c.applyBlobChanges(w.batch, &w.next, w.blobs.list, staged, w.gone)
	return err
}

// applyBlobChanges puts changed blob rows into a batch (I6). It appends to gone
// the blobs whose file has lost its last reference; the file may go once the
// batch is durable.
func (c *Copy) applyBlobChanges(b *kv.Batch, next *counters, changes []blobChange, staged stagedSet, gone []model.BlobID) ([]model.BlobID, error) {
	byBlob := staged.byBlob()
	for _, ch := range changes {
		if ch.delta == 0 {
			continue
		}
		row, found, err := c.readBlobRow(&ch.id)
		if err != nil {
			return gone, err
		}
		if !found {
			s := byBlob(ch.id)
			if s == nil {
				return gone, fmt.Errorf("attachment %x: %w", ch.id[:8], corrupt("attachment reference"))
			}
			row = blobRow{length: s.length, file: s.inline == nil}
			if row.file {
				next.fileBytes += row.length
			} else {
				b.Set(c.appendBlobKey(nil, tableInline, &ch.id), s.inline)
			}
		}
		key := c.appendBlobKey(nil, tableBlob, &ch.id)
		refs := int64(row.refs) + ch.delta
		if refs > 0 {
			row.refs = uint64(refs)
			b.Set(key, appendBlobRow(nil, row))
			continue
		}
		b.Delete(key)
		if row.file {
			next.fileBytes -= row.length
			gone = append(gone, ch.id)
		} else {
			b.Delete(c.appendBlobKey(nil, tableInline, &ch.id))
		}
	}
	return gone, nil
}

// resolveAtts turns the attachments of an edit into what will be stored: staged
// bytes get what was learned of them, stubs become the attachment they stand for.
func (w *writer) resolveAtts(st *docState, e *model.Edit, parent int, staged stagedSet) ([]model.Attachment, *model.Error, error) {
	if len(e.Atts) == 0 {
		return nil, nil, nil
	}
	out := make([]model.Attachment, len(e.Atts))
	var stubs []int
	for i := range e.Atts {
		a := &e.Atts[i]
		switch {
		case a.Staged != "":
			s := staged[a.Staged]
			out[i] = a.Attachment
			out[i].Blob, out[i].Digest, out[i].EncodedLength = s.id, s.digest, s.length
			if a.Encoding == "" {
				out[i].Length = s.length
			}
		case a.Stub:
			stubs = append(stubs, i)
		default:
			row, found, err := w.c.readBlobRow(&a.Blob)
			if err != nil {
				return nil, nil, err
			}
			if !found {
				return nil, model.MissingStub(e.ID, a.Name), nil
			}
			out[i] = a.Attachment
			out[i].EncodedLength = row.length
			if a.Encoding == "" {
				out[i].Length = row.length
			}
		}
	}
	if len(stubs) > 0 {
		missing, err := w.resolveStubs(st, e, parent, stubs, out)
		if err != nil {
			return nil, nil, err
		}
		if missing >= 0 {
			return nil, model.MissingStub(e.ID, e.Atts[missing].Name), nil
		}
	}
	return out, nil, nil
}

// resolveStubs fills in the attachments that stubs stand for. Each revision that
// may have them is read once, whatever the number of stubs. missing is the first
// stub that names nothing, -1 if all do.
func (w *writer) resolveStubs(st *docState, e *model.Edit, parent int, stubs []int, out []model.Attachment) (missing int, err error) {
	for _, i := range w.stubSources(st, e, parent) {
		n := st.tree.Node(i)
		if !n.HasBody {
			continue
		}
		atts, err := w.attsOf(st, n.Rev)
		if err != nil {
			return -1, err
		}
		find := attFinder(atts, len(stubs))
		open := stubs[:0]
		for _, k := range stubs {
			if a := find(e.Atts[k].Name); a != nil && meant(a, &e.Atts[k], e.Replicated) {
				out[k] = *a
			} else {
				open = append(open, k)
			}
		}
		if stubs = open; len(stubs) == 0 {
			return -1, nil
		}
	}
	return stubs[0], nil
}

// stubSources gives the revisions whose attachments the stubs of an edit may mean.
// A new edit may only mean its parent's; a replicated one may mean those of any
// ancestor, the nearest first, or leaf.
func (w *writer) stubSources(st *docState, e *model.Edit, parent int) []int {
	if !e.Replicated {
		if parent < 0 {
			return nil
		}
		return []int{parent}
	}
	// One pass over the tree: a history and a tree of thousands must not multiply.
	var out []int
	top := e.Path[0].Pos
	for i := range st.tree.Len() {
		r := st.tree.Node(i).Rev
		if r.Pos < top && top-r.Pos < uint64(len(e.Path)) && e.Path[top-r.Pos] == r {
			out = append(out, i)
		}
	}
	slices.SortStableFunc(out, func(a, b int) int {
		return cmp.Compare(st.tree.Node(b).Rev.Pos, st.tree.Node(a).Rev.Pos)
	})
	return st.tree.AppendLeaves(out)
}

// attFinder finds attachments by name; lookups is about how often it will be asked.
func attFinder(atts []model.Attachment, lookups int) func(name string) *model.Attachment {
	if len(atts) <= indexFrom || lookups <= indexFrom {
		return func(name string) *model.Attachment {
			for i := range atts {
				if atts[i].Name == name {
					return &atts[i]
				}
			}
			return nil
		}
	}
	byName := make(map[string]*model.Attachment, len(atts))
	for i := range atts {
		byName[atts[i].Name] = &atts[i]
	}
	return func(name string) *model.Attachment { return byName[name] }
}

// meant tells whether a stub stands for an attachment of its name. With byDigest,
// equal bytes count even if the positions differ: histories of two servers may
// count them differently.
func meant(a *model.Attachment, stub *model.AttachmentEdit, byDigest bool) bool {
	if byDigest && stub.Digest != [16]byte{} {
		return a.Digest == stub.Digest
	}
	return stub.RevPos == 0 || stub.RevPos == a.RevPos
}

// attsOf gives the attachment list of a stored revision.
func (w *writer) attsOf(st *docState, rev model.Rev) ([]model.Attachment, error) {
	for i := range st.fresh {
		if st.fresh[i].rev == rev {
			return st.fresh[i].atts, nil
		}
	}
	w.key = w.c.appendBodyKey(w.key[:0], st.id, rev)
	val, found, err := w.c.store.Get(w.key)
	if err != nil || !found {
		return nil, err
	}
	defer val.Release()
	atts, _, err := parseBody(val.Bytes())
	return atts, err
}

// replaceForgotten prepares for a revision that the tree does not know but whose
// body may be here: stemming forgot it, and compaction has not come yet. The body
// is about to be overwritten, so its references go.
func (w *writer) replaceForgotten(st *docState, rev model.Rev) error {
	if !st.found || !st.atts {
		return nil
	}
	atts, err := w.attsOf(st, rev)
	if err != nil {
		return err
	}
	for i := range atts {
		w.blobs.add(atts[i].Blob, -1)
	}
	return nil
}

// setRevPos marks what a new edit has brought with the position of its revision.
func setRevPos(atts []model.Attachment, edits []model.AttachmentEdit, pos uint64) {
	for i := range atts {
		if !edits[i].Stub {
			atts[i].RevPos = pos
		}
	}
}

// setReplicatedRevPos keeps the positions a replicated edit brought, where they
// can be true.
func setReplicatedRevPos(atts []model.Attachment, pos uint64) {
	for i := range atts {
		if atts[i].RevPos == 0 || atts[i].RevPos > pos {
			atts[i].RevPos = pos
		}
	}
}
