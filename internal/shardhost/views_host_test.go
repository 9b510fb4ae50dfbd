package shardhost_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/divandb/divan/internal/index/view"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
	"github.com/divandb/divan/internal/shardhost"
	"github.com/divandb/divan/internal/testserver"
)

// viewHost is a host with indexes on real stores and real workers.
type viewHost struct {
	t     testing.TB
	dir   string
	fs    kv.FS
	js    jsvm.Options
	opts  shardhost.Options
	space func() (int64, error)
	defs  defs
	log   logLines

	host  *shardhost.Host
	store *kv.Store
	index *kv.Store
	pool  *jsvm.Pool
}

// newViewHost makes one; change sets it up.
func newViewHost(t testing.TB, change func(v *viewHost)) *viewHost {
	t.Helper()
	v := &viewHost{t: t, dir: t.TempDir(), js: jsvm.Options{Command: []string{testserver.Binary(t), "js-worker"}, Workers: 2}}
	v.opts = shardhost.Options{IndexDelay: time.Hour, IndexGrace: time.Hour}
	v.defs.defined.Store(&shardhost.Defined{})
	if change != nil {
		change(v)
	}
	v.start()
	t.Cleanup(func() {
		if v.host != nil {
			v.stop()
		}
	})
	return v
}

// start opens the stores and the host.
func (v *viewHost) start() {
	v.t.Helper()
	logger := slog.New(slog.NewTextHandler(&v.log, nil))
	var err error
	open := func(name string, o kv.Options) (s *kv.Store) {
		if err == nil {
			o.FS, o.CacheBytes, o.Logger = v.fs, 8<<20, logger
			s, err = kv.Open(v.dir+"/"+name, o)
		}
		return s
	}
	v.store = open("store", kv.Options{MinFree: -1})
	indexes := kv.Options{MinFree: -1, NoSync: true}
	if v.space != nil {
		indexes.MinFree, indexes.FreeSpace, indexes.FreeEvery = 1000, v.space, time.Millisecond
	}
	v.index = open("index", indexes)
	if err != nil {
		v.t.Fatal(err)
	}
	v.js.Log = logger
	v.pool = jsvm.New(v.js)
	o := v.opts
	o.Index, o.JS, o.Definitions, o.Logger = v.index, v.pool, &v.defs, logger
	if v.host, err = shardhost.New(v.store, v.dir, o); err != nil {
		v.t.Fatal(err)
	}
}

// stop closes what start opened.
func (v *viewHost) stop() {
	v.t.Helper()
	if err := errors.Join(v.host.Close(), v.pool.Close(), v.index.Close(), v.store.Close()); err != nil {
		v.t.Error(err)
	}
	v.host = nil
}

// define makes the definition of a view of a design document.
func define(design, name, fn, reduce string) shardapi.ViewDef {
	return shardapi.ViewDef{
		Sig: fmt.Sprintf("%s-%s-%d", strings.TrimPrefix(design, "_design/"), name, len(fn)), Design: design, Name: name, Map: fn, Reduce: reduce,
		Program: jsvm.Program{Key: design, Design: []byte(`{}`)},
	}
}

// designs sets the design documents of all copies.
func (v *viewHost) designs(docs ...shardhost.DesignViews) {
	v.defs.defined.Store(&shardhost.Defined{Views: docs})
}

// auto is a design document whose views are kept warm.
func auto(views ...shardapi.ViewDef) shardhost.DesignViews {
	return shardhost.DesignViews{Design: views[0].Design, AutoUpdate: true, Views: views}
}

// put writes a document, over the one that is there.
func (v *viewHost) put(id shardapi.CopyID, docID, body string) {
	v.t.Helper()
	v.edit(id, model.Edit{ID: docID, Body: []byte(body)})
}

// edit writes on top of what is there.
func (v *viewHost) edit(id shardapi.CopyID, e model.Edit) {
	v.t.Helper()
	s := v.host.Shard(id)
	resp, err := s.Read(context.Background(), &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: e.ID}}})
	if err != nil {
		v.t.Fatal(err)
	}
	if a := &resp.Answers[0]; a.Found && !a.Docs[0].Deleted {
		e.Parent = a.Docs[0].Rev
	}
	w, err := s.Write(context.Background(), &shardapi.WriteRequest{Edits: []model.Edit{e}})
	if err != nil {
		v.t.Fatal(err)
	}
	if w.Results[0].Err != nil {
		v.t.Fatal(w.Results[0].Err)
	}
}

// fill writes n new documents d0…, each with its number.
func (v *viewHost) fill(id shardapi.CopyID, n int) {
	v.t.Helper()
	edits := make([]model.Edit, n)
	for i := range edits {
		edits[i] = model.Edit{ID: fmt.Sprintf("d%05d", i), Body: fmt.Appendf(nil, `{"n":%d}`, i)}
	}
	if _, err := v.host.Shard(id).Write(context.Background(), &shardapi.WriteRequest{Edits: edits}); err != nil {
		v.t.Fatal(err)
	}
}

// everything asks for all rows of a view.
func everything(def shardapi.ViewDef, how shardapi.Freshness) *shardapi.ViewRequest {
	return &shardapi.ViewRequest{Def: def, Update: how, Ranges: []shardapi.KeyRange{{}}, Limit: -1}
}

// rows asks a view; rows are words "key id value".
func (v *viewHost) rows(ctx context.Context, id shardapi.CopyID, def shardapi.ViewDef, how shardapi.Freshness) ([]string, error) {
	_, st, err := v.host.Shard(id).View(ctx, everything(def, how))
	if err != nil {
		return nil, err
	}
	return readRows(st)
}

// readRows reads a stream to its end.
func readRows(st shardapi.Stream[shardapi.ViewRow]) (out []string, err error) {
	defer st.Close()
	for {
		rows, err := st.Next()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		for i := range rows {
			out = append(out, fmt.Sprintf("%s %s %s", rows[i].Key, rows[i].ID, rows[i].Value))
		}
	}
}

// must is rows that must come.
func (v *viewHost) must(id shardapi.CopyID, def shardapi.ViewDef, how shardapi.Freshness) []string {
	v.t.Helper()
	rows, err := v.rows(context.Background(), id, def, how)
	if err != nil {
		v.t.Fatal(err)
	}
	return rows
}

// info tells of an index.
func (v *viewHost) info(id shardapi.CopyID, defs ...shardapi.ViewDef) *shardapi.ViewInfo {
	v.t.Helper()
	var sigs []string
	for i := range defs {
		sigs = append(sigs, defs[i].Sig)
	}
	info, err := v.host.Shard(id).ViewInfo(context.Background(), sigs)
	if err != nil {
		v.t.Fatal(err)
	}
	return info
}

// tasks lists the indexers.
func (v *viewHost) tasks() []shardapi.Task {
	v.t.Helper()
	all, err := v.host.Tasks(context.Background())
	if err != nil {
		v.t.Fatal(err)
	}
	var out []shardapi.Task
	for _, t := range all {
		if t.Type == "indexer" {
			out = append(out, t)
		}
	}
	return out
}

// stored lists the indexes of a copy in the store.
func (v *viewHost) stored(id shardapi.CopyID) []string {
	v.t.Helper()
	sigs, err := view.Signatures(v.index, uint64(id))
	if err != nil {
		v.t.Fatal(err)
	}
	return sigs
}

// until waits for what happens in the background.
func (v *viewHost) until(what string, ok func() bool) {
	v.t.Helper()
	for end := time.Now().Add(30 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			v.t.Fatalf("it does not happen: %s\n%s", what, v.log.text())
		}
	}
}

// logLines is what was logged.
type logLines struct {
	mu sync.Mutex
	sb strings.Builder
}

func (l *logLines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sb.Write(p)
}

func (l *logLines) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.sb.String()
}

// count tells how many lines hold all the words.
func (l *logLines) count(words ...string) (n int) {
lines:
	for _, line := range strings.Split(l.text(), "\n") {
		for _, w := range words {
			if !strings.Contains(line, w) {
				continue lines
			}
		}
		n++
	}
	return n
}

// The map functions of the tests.
const (
	emitN = `function(doc) { if (doc.n !== undefined) emit(doc.n, null); }`
	// slowly takes some milliseconds for each document.
	slowly = `function(doc) { var end = Date.now() + 4; while (Date.now() < end); emit(doc.n, 1); }`
	// forever never ends at a bad document.
	forever = `function(doc) { while (doc.bad); emit(doc.n, null); }`
)
