package shard

import (
	"context"
	"fmt"
	"sync"

	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/revtree"
	"github.com/divandb/divan/internal/shardapi"
)

// DefaultRevsLimit is how many ancestors a branch keeps when nobody says.
const DefaultRevsLimit = 1000

// docState is a document while a write works on it.
type docState struct {
	id      string
	found   bool   // the store has it
	changed bool   // this write has changed it
	joined  bool   // this write has at most added to its known history
	old     header // as stored
	atts    bool   // some revision has attachments
	tree    revtree.Tree
	stale   []staleRev  // revisions whose body this write superseded
	fresh   []freshAtts // attachment lists this write has stored
}

// freshAtts is the attachment list of a revision that the store does not show
// yet; a later edit of the same write may have stubs of it.
type freshAtts struct {
	rev  model.Rev
	atts []model.Attachment
}

// staleRev is a revision that was a leaf and is none any more.
type staleRev struct {
	rev   model.Rev
	bytes int64
}

// writer is the working memory of one Write. It is pooled: a bulk write touches
// some hundred kilobytes of it.
type writer struct {
	c      *Copy
	batch  *kv.Batch
	next   counters
	limit  int
	now    int64
	states []*docState
	used   int
	byID   map[string]*docState
	revs   []model.Rev // made ahead of the sequencer; zero where that was not possible
	blobs  blobChanges
	gone   []model.BlobID // file blobs that lost their last reference
	seqs   []seqDelta
	ids    []idDelta
	leaves []int
	revBuf []model.Rev
	key    []byte
	val    []byte
}

var writers = sync.Pool{New: func() any { return &writer{byID: make(map[string]*docState)} }}

// Write applies edits: one batch, decided under the sequencer, durable on return.
func (c *Copy) Write(ctx context.Context, req *shardapi.WriteRequest) (*shardapi.WriteResponse, error) {
	staged, err := c.claimStaged(req.Edits)
	if err != nil {
		return nil, err
	}
	// Placed blobs are pinned until the batch that names them is in the store.
	defer c.releaseStaged(staged)
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := c.placeStaged(staged); err != nil {
		return nil, err
	}

	w := writers.Get().(*writer)
	defer w.recycle()
	w.c = c
	w.limit = req.RevsLimit
	if w.limit <= 0 {
		w.limit = DefaultRevsLimit
	}
	w.now = c.opts.Now().UnixMilli()
	w.makeRevs(req.Edits)

	resp := &shardapi.WriteResponse{Results: make([]model.EditResult, len(req.Edits))}
	p, base, changed, err := w.run(req, resp, staged)
	if err != nil {
		return nil, err
	}
	if changed {
		if err := c.finish(p); err != nil {
			return nil, fmt.Errorf("write: %w", err)
		}
		if c.opts.OnUpdate != nil {
			c.opts.OnUpdate(c.id, p.seq)
		}
		c.unlinkGone(w.gone)
		// A failure leaves things as they were: every look goes to the store, and a
		// store that cannot be read says so there.
		_ = c.makeKnown()
		return resp, nil
	}
	// Nothing to write, but the refusals (and the "known already") speak of
	// revisions that must be durable before anyone hears of them.
	if err := c.mark.waitSeq(ctx, base); err != nil {
		return nil, err
	}
	return resp, nil
}

// makeRevs computes, outside the sequencer, the revisions that depend on nothing
// in the store: hashing bodies is the larger part of a write's work.
func (w *writer) makeRevs(edits []model.Edit) {
	w.revs = append(w.revs[:0], make([]model.Rev, len(edits))...)
	for i := range edits {
		e := &edits[i]
		if !e.Replicated && len(e.Atts) == 0 {
			w.revs[i] = document.NewRev(e.Parent, e.Deleted, e.Body, nil)
		}
	}
}

// run does what must be done under the sequencer. base is the newest sequence
// that the answers rest on.
func (w *writer) run(req *shardapi.WriteRequest, resp *shardapi.WriteResponse, staged stagedSet) (p pending, base uint64, changed bool, err error) {
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed != nil {
		return p, 0, false, c.closed
	}
	w.next = c.count
	w.batch = c.store.NewBatch()
	for i := range req.Edits {
		e := &req.Edits[i]
		st, err := w.state(e.ID, len(req.Edits))
		if err != nil {
			w.abandon()
			return p, 0, false, err
		}
		base = max(base, st.old.seq)
		res := &resp.Results[i]
		res.ID = e.ID
		res.Rev, res.Err, err = w.edit(st, e, w.revs[i], staged)
		if err != nil {
			w.abandon()
			return p, 0, false, fmt.Errorf("write: %w", err)
		}
	}
	for _, st := range w.states[:w.used] {
		if st.tree.Len() > w.limit {
			st.tree.Stem(w.limit) // bodies of what goes are noted as stale already
		}
		if st.joined && !st.changed {
			if st.changed, err = w.differs(st); err != nil {
				w.abandon()
				return p, 0, false, err
			}
		}
		if st.changed {
			w.emit(st)
			changed = true
		}
	}
	resp.Seq = w.next.seq
	if !changed {
		w.abandon()
		return p, base, false, nil
	}
	if err := w.emitBlobs(staged); err != nil {
		w.abandon()
		return p, 0, false, fmt.Errorf("write: %w", err)
	}
	c.pinGone(w.gone)
	p, err = c.apply(w.batch, &w.next)
	if err != nil {
		w.abandon()
		for _, id := range w.gone {
			c.blobs.unpin(id)
		}
		return p, 0, false, err
	}
	w.batch = nil
	c.noteSeqs(w.seqs)
	c.noteIDs(w.ids)
	return p, base, true, nil
}

// abandon gives up the batch.
func (w *writer) abandon() {
	_ = w.batch.Close() // nothing of it was applied, so nothing can be lost
	w.batch = nil
}

// recycle returns the working memory to the pool without references to the
// caller's data.
func (w *writer) recycle() {
	for _, st := range w.states[:w.used] {
		st.id, st.old.winner = "", model.Rev{}
		clear(st.stale)
		clear(st.fresh)
		st.stale, st.fresh = st.stale[:0], st.fresh[:0]
		st.tree.Reset()
	}
	clear(w.byID)
	clear(w.revs)
	clear(w.ids)
	clear(w.revBuf)
	w.c, w.used = nil, 0
	w.blobs.reset()
	w.gone, w.seqs, w.ids = w.gone[:0], w.seqs[:0], w.ids[:0]
	if cap(w.val) > 1<<20 || len(w.states) > 10_000 {
		return // an outsized write does not leave its memory behind
	}
	writers.Put(w)
}

// state gives the document as this write knows it, so that two edits of one
// document see each other.
func (w *writer) state(id string, edits int) (*docState, error) {
	if edits > 1 {
		if st := w.byID[id]; st != nil {
			return st, nil
		}
	}
	if w.used == len(w.states) {
		w.states = append(w.states, new(docState))
	}
	st := w.states[w.used]
	w.used++
	st.id, st.found, st.changed, st.joined, st.atts = id, false, false, false, false
	st.old = header{}
	st.tree.Reset()
	if w.c.mayExist(id) {
		if err := w.load(st); err != nil {
			return nil, err
		}
	}
	if edits > 1 {
		w.byID[id] = st
	}
	return st, nil
}

// load reads a document from the store.
func (w *writer) load(st *docState) error {
	w.key = w.c.appendInfoKey(w.key[:0], st.id)
	val, found, err := w.c.store.Get(w.key)
	if err != nil {
		return fmt.Errorf("read document: %w", err)
	}
	if !found {
		w.c.missed()
		return nil
	}
	tree, err := parseInfo(val.Bytes(), &st.old)
	if err == nil {
		err = st.tree.Decode(tree)
	}
	val.Release()
	st.found, st.atts = true, st.old.atts
	return err
}

// edit decides one edit and merges it. A refusal is for the client; an error
// ends the whole write.
func (w *writer) edit(st *docState, e *model.Edit, made model.Rev, staged stagedSet) (rev model.Rev, refusal *model.Error, err error) {
	if e.Replicated {
		return w.merge(st, e, staged)
	}
	parent, parentAt := e.Parent, -1
	winner := st.tree.Winner()
	switch {
	case !parent.IsZero():
		parentAt = st.tree.Find(parent)
		if parentAt < 0 || !st.tree.IsLeaf(parentAt) {
			return model.Rev{}, model.ErrConflict, nil
		}
		if e.Deleted && st.tree.Node(parentAt).Deleted {
			return model.Rev{}, model.ErrConflict, nil
		}
	case winner >= 0:
		// A create on a document that is there. On a deleted one it goes on from
		// the winning tombstone, so that it wins over it everywhere.
		if e.Deleted || !st.tree.Node(winner).Deleted {
			return model.Rev{}, model.ErrConflict, nil
		}
		parentAt, parent, made = winner, st.tree.Node(winner).Rev, model.Rev{}
	}
	atts, refusal, err := w.resolveAtts(st, e, parentAt, staged)
	if refusal != nil || err != nil {
		return model.Rev{}, refusal, err
	}
	if made.IsZero() {
		made = document.NewRev(parent, e.Deleted, e.Body, atts)
	}
	if st.tree.Find(made) >= 0 {
		// The same edit on the same parent was made before (and then replaced by a
		// replicated branch, say): to the writer that is a conflict.
		return model.Rev{}, model.ErrConflict, nil
	}
	setRevPos(atts, e.Atts, made.Pos)
	if err := w.replaceForgotten(st, made); err != nil {
		return model.Rev{}, nil, err
	}
	if parentAt >= 0 {
		w.supersede(st, parentAt)
		w.revBuf = append(w.revBuf[:0], made, parent)
	} else {
		w.revBuf = append(w.revBuf[:0], made)
	}
	leaf, _ := st.tree.Merge(w.revBuf, e.Deleted)
	w.store(st, leaf, e, atts)
	return made, nil, nil
}

// merge takes a replicated revision as it is.
func (w *writer) merge(st *docState, e *model.Edit, staged stagedSet) (rev model.Rev, refusal *model.Error, err error) {
	if len(e.Path) == 0 || e.Path[0].Pos == 0 {
		return model.Rev{}, model.ErrRevFormat, nil
	}
	rev = e.Path[0]
	known := st.tree.Find(rev) >= 0
	var atts []model.Attachment
	if !known {
		if atts, refusal, err = w.resolveAtts(st, e, -1, staged); refusal != nil || err != nil {
			return model.Rev{}, refusal, err
		}
		setReplicatedRevPos(atts, rev.Pos)
		if err := w.replaceForgotten(st, rev); err != nil {
			return model.Rev{}, nil, err
		}
	}
	joined := st.tree.Joined()
	leaf, added := st.tree.Merge(e.Path, e.Deleted)
	if !added && st.tree.Joined() == joined {
		return rev, nil, nil
	}
	for _, r := range st.tree.Covered() {
		w.supersede(st, st.tree.Find(r))
	}
	if added {
		w.store(st, leaf, e, atts)
	} else {
		st.joined = true
	}
	return rev, nil, nil
}

// supersede notes that the leaf is about to be, or was, built on.
func (w *writer) supersede(st *docState, i int) {
	n := st.tree.Node(i)
	if n.HasBody {
		st.stale = append(st.stale, staleRev{n.Rev, n.Active})
	}
}

// store writes the body of a new leaf.
func (w *writer) store(st *docState, leaf int, e *model.Edit, atts []model.Attachment) {
	n := st.tree.Node(leaf)
	w.key = w.c.appendBodyKey(w.key[:0], e.ID, n.Rev)
	w.val = appendAtts(w.val[:0], atts)
	size := len(w.val) + len(e.Body)
	k, v := w.batch.SetDeferred(len(w.key), size)
	copy(k, w.key)
	copy(v[copy(v, w.val):], e.Body)
	n.HasBody = true
	n.Size, n.Active = int64(len(e.Body)), int64(len(w.key)+size)
	for i := range atts {
		n.Size += atts[i].Length
		n.Active += atts[i].EncodedLength
		w.blobs.add(atts[i].Blob, 1)
	}
	if len(atts) > 0 {
		st.atts = true
		st.fresh = append(st.fresh, freshAtts{n.Rev, atts})
	}
	st.changed = true
}

// differs tells whether a document that got nothing but older history is other
// than it was: stemming may have taken all of it away again, and then a revision
// that is known, sent once more, must not make a change.
func (w *writer) differs(st *docState) (bool, error) {
	r := w.c.newReader()
	defer r.done()
	w.key = w.c.appendInfoKey(w.key[:0], st.id)
	val, found, err := w.c.store.Get(w.key)
	if err != nil || !found {
		return true, err
	}
	defer val.Release()
	if err := r.parse(val.Bytes(), true); err != nil {
		return false, err
	}
	if r.tree.Len() != st.tree.Len() {
		return true, nil
	}
	find := st.tree.Finder(r.tree.Len())
	for i := range r.tree.Len() {
		old := r.tree.Node(i)
		k := find(old.Rev)
		if k < 0 {
			return true, nil
		}
		var was, is model.Rev
		if old.Parent >= 0 {
			was = r.tree.Node(int(old.Parent)).Rev
		}
		if p := st.tree.Node(k).Parent; p >= 0 {
			is = st.tree.Node(int(p)).Rev
		}
		if was != is {
			return true, nil
		}
	}
	return false, nil
}

// emit writes the rows of a changed document other than its bodies.
func (w *writer) emit(st *docState) {
	c, next := w.c, &w.next
	next.seq++
	for _, s := range st.stale {
		w.key = c.appendStaleKey(w.key[:0], next.seq, st.id, s.rev)
		w.val = appendStale(w.val[:0], staleRow{at: w.now, bytes: s.bytes, atts: st.atts})
		w.batch.Set(w.key, w.val)
		next.staleBytes += s.bytes
		next.staleRevs++
	}

	w.leaves = st.tree.AppendLeaves(w.leaves[:0])
	winner := st.tree.Node(w.leaves[0])
	h := header{deleted: winner.Deleted, atts: st.atts, seq: next.seq, winner: winner.Rev}
	w.val = appendText(w.val[:0], st.id)
	for _, i := range w.leaves {
		n := st.tree.Node(i)
		h.external += n.Size
		h.active += n.Active
		w.val = appendLeaf(w.val, n.Rev, n.Deleted)
	}
	if st.found {
		w.key = c.appendSeqKey(w.key[:0], st.old.seq)
		w.batch.Delete(w.key)
	} else {
		c.noteKnown(st.id)
	}
	w.key = c.appendSeqKey(w.key[:0], next.seq)
	w.batch.Set(w.key, w.val)
	h.active += int64(len(w.key) + len(w.val))

	// The row's own length is left out of active: it would have to contain itself.
	w.key = c.appendInfoKey(w.key[:0], st.id)
	w.val = st.tree.Append(appendHeader(w.val[:0], &h))
	w.batch.Set(w.key, w.val)

	w.tally(st, &h)
}

// tally moves the counters from the document's old state to its new one.
func (w *writer) tally(st *docState, h *header) {
	next := &w.next
	next.external += h.external - st.old.external
	next.active += h.active - st.old.active
	was, is := st.found && !st.old.deleted, !h.deleted
	switch {
	case is && !was:
		next.docs++
		w.ids = append(w.ids, idDelta{st.id, 1})
	case was && !is:
		next.docs--
		w.ids = append(w.ids, idDelta{st.id, -1})
	}
	next.dels = next.dels + b2i(!is) - b2i(st.found && st.old.deleted)
	w.seqs = append(w.seqs, seqDelta{st.old.seq, h.seq})
}

// b2i counts a fact.
func b2i(b bool) int64 {
	if b {
		return 1
	}
	return 0
}

// appendLeaf appends a leaf as the sequence log keeps it.
func appendLeaf(dst []byte, r model.Rev, deleted bool) []byte {
	flag := byte(0)
	if deleted {
		flag = flagDeleted
	}
	return appendRev(append(dst, flag), r)
}
