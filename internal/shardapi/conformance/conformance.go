// Package conformance is the one suite that every implementation of shardapi
// passes: a copy in this process and a copy behind the wire must not be told
// apart. It checks the promises of shardapi only, never how they are kept.
package conformance

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// patience is how long anything may take before a test calls it hung. No test
// passes because of it.
const patience = 2 * time.Minute

// Run checks a host. newHost is called once and must give an empty host, with a
// store of indexes and workers for JavaScript; the tests run side by side on copies
// of their own.
func Run(t *testing.T, newHost func(t *testing.T) shardapi.Host) {
	host := newHost(t)
	var copies atomic.Uint64
	groups := [][]scene{documentScenes, batchScenes, localScenes, listScenes, changeScenes, attachmentScenes, lifeScenes,
		viewScenes, groupScenes, scriptScenes}
	for _, group := range groups {
		for _, s := range group {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				id := shardapi.CopyID(copies.Add(1))
				s.play(&trial{T: t, ctx: ctx, host: host, id: id, shard: host.Shard(id)})
			})
		}
	}
}

// scene is one test of the suite.
type scene struct {
	name string
	play func(t *trial)
}

// trial is a scene under way, on a copy of its own.
type trial struct {
	*testing.T
	ctx   context.Context
	host  shardapi.Host
	id    shardapi.CopyID
	shard shardapi.Shard
}

// no ends the test on an error.
func (t *trial) no(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is wants an error, as errors.Is finds it.
func (t *trial) is(err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, not %v", err, want)
	}
}

// write writes edits, none of which may be refused, and gives their revisions.
func (t *trial) write(edits ...model.Edit) []model.Rev {
	t.Helper()
	resp, err := t.shard.Write(t.ctx, &shardapi.WriteRequest{Edits: edits})
	t.no(err)
	if len(resp.Results) != len(edits) {
		t.Fatalf("%d results for %d edits", len(resp.Results), len(edits))
	}
	revs := make([]model.Rev, len(edits))
	for i, r := range resp.Results {
		if r.Err != nil {
			t.Fatalf("edit %d of %q: %v", i, edits[i].ID, r.Err)
		}
		if r.ID != edits[i].ID {
			t.Fatalf("result %d is of %q, not %q", i, r.ID, edits[i].ID)
		}
		revs[i] = r.Rev
	}
	return revs
}

// put writes a version of a document.
func (t *trial) put(id, body string, parent model.Rev) model.Rev {
	t.Helper()
	return t.write(model.Edit{ID: id, Body: []byte(body), Parent: parent})[0]
}

// remove deletes a document.
func (t *trial) remove(id string, parent model.Rev) model.Rev {
	t.Helper()
	return t.write(model.Edit{ID: id, Body: []byte(`{}`), Parent: parent, Deleted: true})[0]
}

// merge writes a replicated revision.
func (t *trial) merge(id, body string, deleted bool, path ...string) {
	t.Helper()
	e := model.Edit{ID: id, Body: []byte(body), Deleted: deleted, Replicated: true, Path: revs(path...)}
	if got := t.write(e)[0]; got != e.Path[0] {
		t.Fatalf("merged %v, asked for %v", got, e.Path[0])
	}
}

// refused writes one edit and gives the refusal.
func (t *trial) refused(e model.Edit) *model.Error {
	t.Helper()
	resp, err := t.shard.Write(t.ctx, &shardapi.WriteRequest{Edits: []model.Edit{e}})
	t.no(err)
	if resp.Results[0].Err == nil {
		t.Fatalf("edit of %q was taken as %v", e.ID, resp.Results[0].Rev)
	}
	return resp.Results[0].Err
}

// ask reads one document.
func (t *trial) ask(q shardapi.DocQuery) shardapi.DocAnswer {
	t.Helper()
	resp, err := t.shard.Read(t.ctx, &shardapi.ReadRequest{Queries: []shardapi.DocQuery{q}})
	t.no(err)
	return resp.Answers[0]
}

// winner reads the winner of a document with its body.
func (t *trial) winner(id string) model.Doc {
	t.Helper()
	a := t.ask(shardapi.DocQuery{ID: id, Want: shardapi.WantBody})
	if !a.Found || len(a.Docs) != 1 {
		t.Fatalf("%q: found %v, %d documents", id, a.Found, len(a.Docs))
	}
	return a.Docs[0]
}

// drain reads a stream to its end; keep takes what it needs of each item, as a
// batch is valid until the next one only.
func drain[T any](t *trial, s shardapi.Stream[T], keep func(T)) {
	t.Helper()
	defer func() { t.no(s.Close()) }()
	for {
		batch, err := s.Next()
		if err == io.EOF {
			if _, err := s.Next(); err != io.EOF {
				t.Fatalf("after the end: %v", err)
			}
			return
		}
		t.no(err)
		for _, item := range batch {
			keep(item)
		}
	}
}

// rev reads a revision that the test wrote itself.
func rev(text string) model.Rev {
	r, err := model.ParseRev(text)
	if err != nil {
		panic(text)
	}
	return r
}

// revs reads several.
func revs(texts ...string) []model.Rev {
	out := make([]model.Rev, len(texts))
	for i, s := range texts {
		out[i] = rev(s)
	}
	return out
}

// same compares lists.
func same[T comparable](t *trial, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
}
