package shardhost

import (
	"context"
	"slices"

	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// present finds the documents that the edits at these places build on. An edit
// that is in conflict is refused here and now: were it left to the write, the
// document could change meanwhile so that it is written after all, unseen by any
// function. An edit that the copy has already is done.
func (v *validation) present(ctx context.Context, at []int) ([]candidate, error) {
	queries := make([]shardapi.DocQuery, len(at))
	for i, p := range at {
		e := &v.req.Edits[p]
		q := &queries[i]
		q.ID = e.ID
		switch {
		case e.Replicated:
			q.Revs = e.Path
		case !e.Parent.IsZero():
			q.Revs = []model.Rev{e.Parent}
			q.Want = shardapi.WantBody | shardapi.WantPath | shardapi.WantLeaves
		}
	}
	resp, err := v.c.Read(ctx, &shardapi.ReadRequest{Queries: queries})
	if err != nil {
		return nil, err
	}
	out := make([]candidate, 0, len(at))
	for i, p := range at {
		e, answer := &v.req.Edits[p], &resp.Answers[i]
		if e.Replicated {
			old, known, err := v.ancestor(ctx, e, answer)
			switch {
			case err != nil:
				return nil, err
			case known:
				v.verdicts[p] = verdict{done: true, rev: e.Path[0]}
			default:
				out = append(out, candidate{at: p, old: old})
			}
			continue
		}
		old, conflict := parent(e, answer)
		if conflict {
			v.refuse(p, model.ErrConflict)
			continue
		}
		out = append(out, candidate{at: p, old: old})
	}
	return out, nil
}

// parent gives the document that a new edit replaces, nil for a create. The rules
// are those of shard.Write.
func parent(e *model.Edit, answer *shardapi.DocAnswer) (old *model.Doc, conflict bool) {
	if e.Parent.IsZero() {
		if !answer.Found {
			return nil, false
		}
		return nil, e.Deleted || !answer.Docs[0].Deleted
	}
	if len(answer.Docs) == 0 {
		return nil, true
	}
	old = &answer.Docs[0]
	leaf := slices.ContainsFunc(old.Leaves, func(l model.Leaf) bool { return l.Rev == e.Parent })
	if !leaf || e.Deleted && old.Deleted {
		return nil, true
	}
	old.Leaves = nil
	return old, false
}

// ancestor gives the nearest ancestor of a replicated edit that has a body here,
// nil if there is none. known tells that the copy has the revision itself.
func (v *validation) ancestor(ctx context.Context, e *model.Edit, answer *shardapi.DocAnswer) (old *model.Doc, known bool, err error) {
	if len(e.Path) == 0 || !answer.Found {
		return nil, false, nil
	}
	diff, err := v.c.RevsDiff(ctx, &shardapi.RevsDiffRequest{IDs: []string{e.ID}, Revs: [][]model.Rev{e.Path[:1]}})
	if err != nil {
		return nil, false, err
	}
	if len(diff.Diffs[0].Missing) == 0 {
		return nil, true, nil
	}
	for i := range answer.Docs {
		resp, err := v.c.Read(ctx, &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{
			ID: e.ID, Revs: []model.Rev{answer.Docs[i].Rev}, Want: shardapi.WantBody | shardapi.WantPath}}})
		if err != nil {
			return nil, false, err
		}
		if docs := resp.Answers[0].Docs; len(docs) > 0 {
			return &docs[0], false, nil
		}
		// Compaction took the body since.
	}
	return nil, false, nil
}

// appendNewDoc appends an edit as validation functions see it: with the revision
// that it builds on, or, replicated, that it is.
func appendNewDoc(dst []byte, e *model.Edit, old *model.Doc) ([]byte, error) {
	d := model.Doc{ID: e.ID, Rev: e.Parent, Deleted: e.Deleted, Body: e.Body}
	pos := e.Parent.Pos + 1
	if e.Replicated {
		d.Rev, d.Path = model.Rev{}, e.Path
		if len(e.Path) > 0 {
			d.Rev = e.Path[0]
		}
		pos = d.Rev.Pos
	} else if !e.Parent.IsZero() {
		d.Path = []model.Rev{e.Parent}
	}
	if len(e.Atts) > 0 {
		d.Atts = make([]model.Attachment, len(e.Atts))
		var had map[string]*model.Attachment
		if old != nil {
			had = make(map[string]*model.Attachment, len(old.Atts))
			for i := range old.Atts {
				had[old.Atts[i].Name] = &old.Atts[i]
			}
		}
		for i := range e.Atts {
			a := &e.Atts[i]
			d.Atts[i] = a.Attachment
			switch known := had[a.Name]; {
			case a.Stub && known != nil:
				d.Atts[i] = *known
			case !a.Stub && (!e.Replicated || a.RevPos == 0 || a.RevPos > pos):
				d.Atts[i].RevPos = pos
			}
		}
	}
	return document.Append(dst, &d, &document.PrintOptions{Revs: true})
}
