package index

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shard"
	"github.com/divandb/divan/internal/shardapi"
)

// source is a real copy that a pass reads.
type source struct{ *shard.Copy }

// Changes implements Source.
func (s source) Changes(ctx context.Context, req *shardapi.ChangesRequest) (shardapi.ChangeStream, error) {
	return s.SteadyChanges(ctx, req)
}

// openStore opens a store on a file system.
func openStore(t testing.TB, fs kv.FS, dir string) *kv.Store {
	t.Helper()
	store, err := kv.Open(dir, kv.Options{FS: fs, MinFree: -1, CacheBytes: 8 << 20, NoSync: true, OnFatal: func(error) {},
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// newSource makes an empty copy.
func newSource(t testing.TB) source {
	t.Helper()
	store := openStore(t, kv.NewCrashFS().FS(), "store")
	t.Cleanup(func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	c, err := shard.Open(store, 1, shard.Prepare(shard.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	return source{c}
}

// write writes edits, all of which must be taken.
func (s source) write(t testing.TB, edits ...model.Edit) []model.EditResult {
	t.Helper()
	resp, err := s.Write(context.Background(), &shardapi.WriteRequest{Edits: edits})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range resp.Results {
		if r.Err != nil {
			t.Fatalf("%s: %v", r.ID, r.Err)
		}
	}
	return resp.Results
}

// fill writes n documents with bodies of about size bytes.
func (s source) fill(t testing.TB, n, size int) {
	t.Helper()
	var edits []model.Edit
	for i := range n {
		edits = append(edits, model.Edit{ID: fmt.Sprintf("d%06d", i), Body: fmt.Appendf(nil, `{"n":%d,"pad":%q}`, i, strings.Repeat("x", size))})
		if len(edits) == 500 || i == n-1 {
			s.write(t, edits...)
			edits = edits[:0]
		}
	}
}

// mapFunc is a map function in Go: what one view makes of a document.
type mapFunc func(doc []byte) jsvm.Emitted

// goMapper runs map functions in this process: their text is their name.
type goMapper struct {
	funcs map[string]mapFunc
	err   error // of the pool
	skip  bool  // as the pool does, skip the rest after too many kills

	mu    sync.Mutex
	calls int
	docs  int
}

// Map implements Mapper.
func (m *goMapper) Map(ctx context.Context, _ jsvm.Program, maps []string, docs [][]byte) ([][]jsvm.Emitted, error) {
	m.mu.Lock()
	m.calls++
	m.docs += len(docs)
	err := m.err
	m.mu.Unlock()
	if err != nil {
		return nil, err
	}
	out := make([][]jsvm.Emitted, len(docs))
	kills := 0
	for i, doc := range docs {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		for _, name := range maps {
			if m.skip && kills >= MaxKills {
				out[i] = append(out[i], jsvm.Emitted{Err: &jsvm.Killed{Skipped: true}})
				continue
			}
			e := m.funcs[name](doc)
			if errors.As(e.Err, new(*jsvm.Killed)) {
				kills++
			}
			out[i] = append(out[i], e)
		}
	}
	return out, nil
}

// captured is a logger whose lines can be read.
type captured struct {
	mu sync.Mutex
	sb strings.Builder
}

func (c *captured) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.sb.Write(p)
}

// lines gives those with a word.
func (c *captured) lines(word string) (out []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range strings.Split(c.sb.String(), "\n") {
		if strings.Contains(l, word) {
			out = append(out, l)
		}
	}
	return out
}

func logTo(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }
