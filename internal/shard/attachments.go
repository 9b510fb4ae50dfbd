package shard

import (
	"encoding/binary"
	"fmt"

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

// changeBlob notes that a batch adds or removes a reference.
func (w *writer) changeBlob(id model.BlobID, delta int64) {
	w.blobs = addBlobChange(w.blobs, id, delta)
}

// addBlobChange keeps one entry per blob.
func addBlobChange(list []blobChange, id model.BlobID, delta int64) []blobChange {
	for i := range list {
		if list[i].id == id {
			list[i].delta += delta
			return list
		}
	}
	return append(list, blobChange{id, delta})
}

// emitBlobs writes the rows of the blobs whose references this write changes.
func (w *writer) emitBlobs(staged stagedSet) (err error) {
	if len(w.blobs) == 0 {
		return nil
	}
	w.gone, err = w.c.applyBlobChanges(w.batch, &w.next, w.blobs, staged, w.gone)
	return err
}

// applyBlobChanges puts changed blob rows into a batch (I6). It appends to gone
// the blobs whose file has lost its last reference; the file may go once the
// batch is durable.
func (c *Copy) applyBlobChanges(b *kv.Batch, next *counters, changes []blobChange, staged stagedSet, gone []model.BlobID) ([]model.BlobID, error) {
	for _, ch := range changes {
		if ch.delta == 0 {
			continue
		}
		row, found, err := c.readBlobRow(&ch.id)
		if err != nil {
			return gone, err
		}
		if !found {
			s := staged.byBlob(ch.id)
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
			from, err := w.findStub(st, e, parent, a)
			if err != nil {
				return nil, nil, err
			}
			if from == nil {
				return nil, model.MissingStub(e.ID, a.Name), nil
			}
			out[i] = *from
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
	return out, nil, nil
}

// findStub looks for the attachment a stub stands for. A new edit may only mean
// its parent's; a replicated one may mean that of any ancestor or leaf whose body
// is here. nil: there is none.
func (w *writer) findStub(st *docState, e *model.Edit, parent int, stub *model.AttachmentEdit) (*model.Attachment, error) {
	if !e.Replicated {
		if parent < 0 {
			return nil, nil
		}
		return w.stubIn(st, parent, stub, false)
	}
	for _, rev := range e.Path[1:] {
		if i := st.tree.Find(rev); i >= 0 {
			if a, err := w.stubIn(st, i, stub, true); a != nil || err != nil {
				return a, err
			}
		}
	}
	for _, i := range st.tree.Leaves() {
		if a, err := w.stubIn(st, i, stub, true); a != nil || err != nil {
			return a, err
		}
	}
	return nil, nil
}

// stubIn looks for it in one revision. With byDigest, equal bytes count even if
// the positions differ: histories of two servers may count them differently.
func (w *writer) stubIn(st *docState, i int, stub *model.AttachmentEdit, byDigest bool) (*model.Attachment, error) {
	n := st.tree.Node(i)
	if !n.HasBody {
		return nil, nil
	}
	atts, err := w.attsOf(st, n.Rev)
	if err != nil {
		return nil, err
	}
	for k := range atts {
		a := &atts[k]
		if a.Name != stub.Name {
			continue
		}
		known := stub.Digest != [16]byte{}
		if byDigest && known {
			if a.Digest == stub.Digest {
				return a, nil
			}
			continue
		}
		if stub.RevPos == 0 || stub.RevPos == a.RevPos {
			return a, nil
		}
	}
	return nil, nil
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

// replaceForgotten prepares for a replicated revision that the tree does not
// know but whose body may be here: stemming forgot it, and compaction has not
// come yet. The body is about to be overwritten, so its references go.
func (w *writer) replaceForgotten(st *docState, rev model.Rev) error {
	if !st.atts {
		return nil
	}
	atts, err := w.attsOf(st, rev)
	if err != nil {
		return err
	}
	for i := range atts {
		w.changeBlob(atts[i].Blob, -1)
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
