package shardhost

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"

	"github.com/divandb/divan/internal/design"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shard"
	"github.com/divandb/divan/internal/shardapi"
)

// validateBatch is how many edits go through the validation functions at a time;
// validateBytes is how much text of documents, new and old, makes a batch full.
const (
	validateBatch = 256
	validateBytes = 1 << 20
)

// oldRevisions is how many revisions of its history a validation function sees of
// the document that is there, as in CouchDB.
const oldRevisions = 20

// checkedWrite is Write with all that design documents have to do with it. All
// edits are judged by what was there before the write, as in CouchDB: two edits of
// one document do not see each other here. Whatever is refused keeps its place in
// the results; the rest is written together.
func (s handle) checkedWrite(ctx context.Context, c *shard.Copy, req *shardapi.WriteRequest) (*shardapi.WriteResponse, error) {
	defined, err := s.h.defined(ctx, s.id)
	if err != nil {
		s.h.giveUp(ctx, c, req.Edits)
		return nil, err
	}
	designs := false
	for i := range req.Edits {
		designs = designs || isDesign(&req.Edits[i])
	}
	if !designs && len(defined.Validators) == 0 {
		return c.Write(ctx, req)
	}
	v := &validation{h: s.h, c: c, req: req, defined: defined, verdicts: make([]verdict, len(req.Edits))}
	if err := v.run(ctx); err != nil {
		s.h.giveUp(ctx, c, req.Edits)
		return nil, err
	}
	resp, err := v.write(ctx)
	if designs && s.h.opts.OnDesign != nil && (err != nil || v.wroteDesign(resp)) {
		s.h.opts.OnDesign(s.id) // after an error the fate of the edits is unknown
	}
	return resp, err
}

func isDesign(e *model.Edit) bool { return strings.HasPrefix(e.ID, design.Prefix) }

// giveUp removes the staged bytes of edits that are not written, also on behalf of
// somebody who has gone.
func (h *Host) giveUp(ctx context.Context, c *shard.Copy, edits []model.Edit) {
	for i := range edits {
		for k := range edits[i].Atts {
			t := edits[i].Atts[k].Staged
			if t == "" {
				continue
			}
			if err := c.Unstage(context.WithoutCancel(ctx), t); err != nil {
				// The next start removes it. What else the write did stands.
				h.opts.Logger.Warn("bytes of a refused attachment stay for now", "error", err)
			}
		}
	}
}

// validation is a write on its way through the validation functions.
type validation struct {
	h        *Host
	c        *shard.Copy
	req      *shardapi.WriteRequest
	defined  *Defined
	verdicts []verdict // per edit

	user, security []byte // as the functions see them
}

// verdict is what becomes of an edit. At first it is to be written.
type verdict struct {
	done    bool         // decided: it is not written
	rev     model.Rev    // of one that is there already
	refusal *model.Error // of one that is refused
}

// refuse decides an edit.
func (v *validation) refuse(i int, why *model.Error) {
	v.verdicts[i] = verdict{done: true, refusal: why}
}

// run judges all edits.
func (v *validation) run(ctx context.Context) error {
	v.user = appendUserCtx(nil, v.req.DB, &v.req.User)
	if v.security = v.req.Security; v.security == nil {
		v.security = []byte("{}")
	}
	for from := 0; from < len(v.req.Edits); from += validateBatch {
		if err := v.batch(ctx, from, min(from+validateBatch, len(v.req.Edits))); err != nil {
			return err
		}
	}
	return nil
}

// batch judges the edits from a place to another.
func (v *validation) batch(ctx context.Context, from, to int) error {
	var at []int
	for i := from; i < to; i++ {
		if e := &v.req.Edits[i]; isDesign(e) {
			if e.Deleted || v.h.opts.JS == nil {
				continue // may go whatever it says
			}
		} else if len(v.defined.Validators) == 0 {
			continue
		}
		at = append(at, i)
	}
	if len(at) == 0 {
		return nil
	}
	candidates, err := v.present(ctx, at)
	if err != nil {
		return err
	}
	var calls []jsvm.ValidateCall
	var open []int // the edits of the calls
	size := 0
	for i := range candidates {
		k := &candidates[i]
		if e := &v.req.Edits[k.at]; isDesign(e) {
			refusal, err := v.h.checkDesign(ctx, e, v.defined.Partitioned)
			if err != nil {
				return err
			}
			if refusal != nil {
				v.refuse(k.at, refusal)
			}
			continue
		}
		call, ok, err := v.call(ctx, k)
		if err != nil {
			return err
		}
		if !ok {
			continue
		}
		calls, open = append(calls, call), append(open, k.at)
		// The documents that are there may be far larger than those that replace them.
		if size += len(call.NewDoc) + len(call.OldDoc); size >= validateBytes {
			if err := v.ask(ctx, calls, open); err != nil {
				return err
			}
			calls, open, size = nil, nil, 0
		}
	}
	return v.ask(ctx, calls, open)
}

// call makes the arguments for one edit. ok is false if it is refused meanwhile.
func (v *validation) call(ctx context.Context, k *candidate) (call jsvm.ValidateCall, ok bool, err error) {
	e := &v.req.Edits[k.at]
	old, err := v.old(ctx, k)
	if err != nil {
		return call, false, err
	}
	if old == nil && !e.Replicated && !e.Parent.IsZero() {
		v.refuse(k.at, model.ErrConflict) // replaced, and compacted, since it was looked at
		return call, false, nil
	}
	call.UserCtx, call.Security = v.user, v.security
	if call.NewDoc, err = appendNewDoc(nil, e, old); err != nil {
		return call, false, err
	}
	if old != nil {
		call.OldDoc, err = document.Append(nil, old, &document.PrintOptions{Revs: true, RevsLimit: oldRevisions})
	}
	return call, err == nil, err
}

// ask runs the validation functions one after the other, each over the edits that
// those before it let pass.
func (v *validation) ask(ctx context.Context, calls []jsvm.ValidateCall, open []int) error {
	for i := range v.defined.Validators {
		if len(calls) == 0 {
			return nil
		}
		f := &v.defined.Validators[i]
		if f.Err != nil {
			for _, at := range open {
				v.refuse(at, f.Err)
			}
			return nil
		}
		errs, err := v.h.opts.JS.Validate(ctx, f.Program, f.Func, calls)
		if err != nil {
			return err
		}
		kept := 0
		for k, err := range errs {
			if err == nil {
				calls[kept], open[kept] = calls[k], open[k]
				kept++
				continue
			}
			refusal, failed := validationError(err)
			if failed != nil {
				return failed
			}
			v.refuse(open[k], refusal)
		}
		calls, open = calls[:kept], open[:kept]
	}
	return nil
}

// validationError puts a refusal into words for the client. A function that fails
// or is stopped has not said that the edit may be written. failed is an error that
// is none of a function.
func validationError(err error) (refusal *model.Error, failed error) {
	var thrown *jsvm.Thrown
	if errors.As(err, &thrown) {
		e := &model.Error{Kind: model.KindInternal, Name: thrown.Name, Reason: thrown.Reason}
		switch thrown.Name {
		case "forbidden":
			e.Kind = model.KindForbidden
		case "unauthorized":
			e.Kind = model.KindUnauthorized
		case "", "error":
			e.Name = "unknown_error" // something was thrown that is no Error
		}
		return e, nil
	}
	words := jsvm.ClientError("validate_doc_update", err)
	if errors.As(words, &refusal) {
		return refusal, nil
	}
	return nil, err
}

// checkDesign tells why a design document cannot be taken.
func (h *Host) checkDesign(ctx context.Context, e *model.Edit, partitioned bool) (*model.Error, error) {
	d, err := design.Parse(e.ID, e.Body, design.Options{Partitioned: partitioned})
	if err != nil {
		var refusal *model.Error
		if errors.As(err, &refusal) {
			return refusal, nil
		}
		return nil, err
	}
	functions := d.Functions()
	if len(functions) == 0 {
		return nil, nil
	}
	texts := make([]string, len(functions))
	for i := range functions {
		texts[i] = functions[i].Text
	}
	// To find out whether a text is a function it may have to be evaluated, so what is
	// checked never shares an engine with anything else.
	sum := sha256.Sum256(e.Body)
	prog := jsvm.Program{Key: "check/" + hex.EncodeToString(sum[:]), Design: e.Body}
	errs, err := h.opts.JS.Check(ctx, prog, texts)
	if err != nil {
		return nil, err
	}
	for i, err := range errs {
		if err == nil {
			continue
		}
		var thrown *jsvm.Thrown
		if errors.As(err, &thrown) {
			return functions[i].CompileError(thrown.Reason), nil
		}
		return functions[i].CompileError(err.Error()), nil
	}
	return nil, nil
}

// write writes what may be written and puts the results together.
func (v *validation) write(ctx context.Context) (*shardapi.WriteResponse, error) {
	refused := 0
	for i := range v.verdicts {
		if v.verdicts[i].done {
			refused++
		}
	}
	if refused == 0 {
		return v.c.Write(ctx, v.req)
	}
	rest := *v.req
	rest.Edits = make([]model.Edit, 0, len(v.req.Edits)-refused)
	gone := make([]model.Edit, 0, refused)
	for i := range v.verdicts {
		if v.verdicts[i].done {
			gone = append(gone, v.req.Edits[i])
		} else {
			rest.Edits = append(rest.Edits, v.req.Edits[i])
		}
	}
	written, err := v.c.Write(ctx, &rest)
	v.h.giveUp(ctx, v.c, gone) // only now: edits may share a ticket
	if err != nil {
		return nil, err
	}
	resp := &shardapi.WriteResponse{Results: make([]model.EditResult, len(v.req.Edits)), Seq: written.Seq}
	next := 0
	for i := range v.verdicts {
		if d := &v.verdicts[i]; d.done {
			resp.Results[i] = model.EditResult{ID: v.req.Edits[i].ID, Rev: d.rev, Err: d.refusal}
			continue
		}
		resp.Results[i] = written.Results[next]
		next++
	}
	return resp, nil
}

// wroteDesign tells whether a design document was written.
func (v *validation) wroteDesign(resp *shardapi.WriteResponse) bool {
	for i := range resp.Results {
		if resp.Results[i].Err == nil && !v.verdicts[i].done && isDesign(&v.req.Edits[i]) {
			return true
		}
	}
	return false
}

// appendUserCtx appends who writes, as functions see it.
func appendUserCtx(b []byte, db string, u *model.User) []byte {
	b = append(b, `{"db":`...)
	b = rawjson.AppendString(b, db)
	b = append(b, `,"name":`...)
	if u.Name == "" {
		b = append(b, "null"...)
	} else {
		b = rawjson.AppendString(b, u.Name)
	}
	b = append(b, `,"roles":[`...)
	for i, role := range u.Roles {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, role)
	}
	return append(b, "]}"...)
}
