package conformance

import (
	"context"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// localScenes is the documents without history.
var localScenes = []scene{
	{"LocalLife", localLife},
	{"LocalConflicts", localConflicts},
	{"LocalReplicated", localReplicated},
}

// local is a revision of a local document.
func local(n string) model.Rev { return model.Rev{Hash: n} }

// A local document counts its writes and is in no feed.
func localLife(t *trial) {
	_, err := t.shard.ReadLocal(t.ctx, "_local/c")
	t.is(err, model.ErrMissing)
	r, err := t.shard.WriteLocal(t.ctx, &shardapi.LocalEdit{ID: "_local/c", Body: []byte(`{"x":1}`)})
	t.no(err)
	if r != local("1") {
		t.Fatalf("first revision %v", r)
	}
	r, err = t.shard.WriteLocal(t.ctx, &shardapi.LocalEdit{ID: "_local/c", Rev: r, Body: []byte(`{"x":2}`)})
	t.no(err)
	d, err := t.shard.ReadLocal(t.ctx, "_local/c")
	t.no(err)
	if r != local("2") || d.Rev != r || d.ID != "_local/c" || string(d.Body) != `{"x":2}` {
		t.Fatalf("second revision %v, read %+v", r, d)
	}
	if rows, seq := t.changes(shardapi.ChangesRequest{Limit: -1}); len(rows) != 0 || seq != 0 {
		t.Fatalf("in the log: %v up to %d", rows, seq)
	}
	if _, rows := t.list(shardapi.ListRequest{Limit: -1}); len(rows) != 0 {
		t.Fatalf("among the documents: %v", rows)
	}
	info, err := t.shard.Info(t.ctx)
	t.no(err)
	if info.DocCount != 0 || info.Seq != 0 {
		t.Fatalf("counted: %+v", info)
	}
	r, err = t.shard.WriteLocal(t.ctx, &shardapi.LocalEdit{ID: "_local/c", Rev: r, Deleted: true})
	t.no(err)
	if r != local("0") {
		t.Fatalf("deleted as %v", r)
	}
	_, err = t.shard.ReadLocal(t.ctx, "_local/c")
	t.is(err, model.ErrMissing)
	r, err = t.shard.WriteLocal(t.ctx, &shardapi.LocalEdit{ID: "_local/c", Body: []byte(`{}`)})
	t.no(err)
	if r != local("1") {
		t.Fatalf("recreated as %v", r)
	}
}

// A revision that is not the present one is a conflict; none at all overwrites.
func localConflicts(t *trial) {
	write := func(e shardapi.LocalEdit) error {
		e.ID = "_local/c"
		e.Body = []byte(`{}`)
		_, err := t.shard.WriteLocal(t.ctx, &e)
		return err
	}
	t.is(write(shardapi.LocalEdit{Rev: local("3")}), model.ErrConflict)
	t.is(write(shardapi.LocalEdit{Deleted: true}), model.ErrMissing)
	t.no(write(shardapi.LocalEdit{}))
	t.no(write(shardapi.LocalEdit{}))
	t.is(write(shardapi.LocalEdit{Rev: local("1")}), model.ErrConflict)
	t.is(write(shardapi.LocalEdit{Rev: local("3"), Deleted: true}), model.ErrConflict)
	t.no(write(shardapi.LocalEdit{Rev: local("2")}))
	d, err := t.shard.ReadLocal(t.ctx, "_local/c")
	t.no(err)
	if d.Rev != local("3") {
		t.Fatalf("read %+v", d)
	}
	ctx, cancel := context.WithCancel(t.ctx)
	cancel()
	_, err = t.shard.WriteLocal(ctx, &shardapi.LocalEdit{ID: "_local/d", Body: []byte(`{}`)})
	t.is(err, context.Canceled)
}

// A replicated edit is not checked.
func localReplicated(t *trial) {
	for range 2 {
		_, err := t.shard.WriteLocal(t.ctx, &shardapi.LocalEdit{ID: "_local/c", Body: []byte(`{"r":1}`), Replicated: true})
		t.no(err)
	}
	d, err := t.shard.ReadLocal(t.ctx, "_local/c")
	t.no(err)
	if string(d.Body) != `{"r":1}` {
		t.Fatalf("read %+v", d)
	}
	_, err = t.shard.WriteLocal(t.ctx, &shardapi.LocalEdit{ID: "_local/c", Deleted: true, Replicated: true, Rev: local("77")})
	t.no(err)
	_, err = t.shard.ReadLocal(t.ctx, "_local/c")
	t.is(err, model.ErrMissing)
}
