package shardhost

import (
	"context"
	"slices"

	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// candidate is an edit that must pass functions.
type candidate struct {
	at  int         // in the request
	old []model.Rev // revisions of which the first that has a body is the old document
}

// present finds the revisions that the edits at these places build on. An edit
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
			q.Want = shardapi.WantLeaves
		}
	}
	resp, err := v.c.Read(ctx, &shardapi.ReadRequest{Queries: queries})
	if err != nil {
		return nil, err
	}
	out := make([]candidate, 0, len(at))
	for i, p := range at {
		e, answer := &v.req.Edits[p], &resp.Answers[i]
		k := candidate{at: p}
		if !e.Replicated {
			if inConflict(e, answer) {
				v.refuse(p, model.ErrConflict)
				continue
			}
			if !e.Parent.IsZero() {
				k.old = queries[i].Revs
			}
		} else if answer.Found && len(e.Path) > 0 {
			known, err := v.known(ctx, e.ID, e.Path[:1])
			if err != nil {
				return nil, err
			}
			if known {
				v.verdicts[p] = verdict{done: true, rev: e.Path[0]}
				continue
			}
			for d := range answer.Docs {
				k.old = append(k.old, answer.Docs[d].Rev)
			}
		}
		out = append(out, k)
	}
	return out, nil
}

// inConflict tells whether a new edit builds on something that is not there any
// more. The rules are those of shard.Write.
func inConflict(e *model.Edit, answer *shardapi.DocAnswer) bool {
	if e.Parent.IsZero() {
		return answer.Found && (e.Deleted || !answer.Docs[0].Deleted)
	}
	if len(answer.Docs) == 0 {
		return true
	}
	old := &answer.Docs[0]
	leaf := slices.ContainsFunc(old.Leaves, func(l model.Leaf) bool { return l.Rev == e.Parent })
	return !leaf || e.Deleted && old.Deleted
}

// known tells whether the copy has a revision, with its body or without.
func (v *validation) known(ctx context.Context, id string, rev []model.Rev) (bool, error) {
	resp, err := v.c.RevsDiff(ctx, &shardapi.RevsDiffRequest{IDs: []string{id}, Revs: [][]model.Rev{rev}})
	if err != nil {
		return false, err
	}
	return len(resp.Diffs[0].Missing) == 0, nil
}

// old reads the document that an edit builds on, nil if there is none.
func (v *validation) old(ctx context.Context, k *candidate) (*model.Doc, error) {
	for i := range k.old {
		resp, err := v.c.Read(ctx, &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{
			ID: v.req.Edits[k.at].ID, Revs: k.old[i : i+1], Want: shardapi.WantBody | shardapi.WantPath}}})
		if err != nil {
			return nil, err
		}
		if docs := resp.Answers[0].Docs; len(docs) > 0 {
			return &docs[0], nil
		}
		// Compaction took the body since.
	}
	return nil, nil
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
