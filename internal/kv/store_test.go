package kv

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/model"
)

// quiet is a log nobody reads: the tests provoke errors.
var quiet = slog.New(slog.DiscardHandler)

// open opens a store for a test, closed at its end.
func open(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	if o.Logger == nil {
		o.Logger = quiet
	}
	s, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil && !errors.Is(err, model.ErrClosed) {
			t.Error(err)
		}
	})
	return s
}

// put writes one key durably.
func put(s *Store, key, value string) error {
	b := s.NewBatch()
	defer b.Close()
	b.Set([]byte(key), []byte(value))
	c, err := s.Apply(b)
	if err != nil {
		return err
	}
	return c.Wait()
}

// get reads one key.
func get(t testing.TB, s *Store, key string) (string, bool) {
	t.Helper()
	v, ok, err := s.Get([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	defer v.Release()
	return string(v.Bytes()), ok
}

func TestReadBackWhatWasApplied(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), Options{})
	b := s.NewBatch()
	b.Set([]byte("a"), []byte("1"))
	k, v := b.SetDeferred(1, 3)
	copy(k, "b")
	copy(v, "two")
	b.Set([]byte("c"), nil)
	if b.Len() != 3 || b.Size() == 0 {
		t.Fatalf("Len %d Size %d", b.Len(), b.Size())
	}
	c, err := s.Apply(b)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if v, ok := get(t, s, "b"); !ok || v != "two" {
		t.Fatalf("before Wait: %q %v", v, ok)
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if v, ok := get(t, s, "c"); !ok || v != "" {
		t.Fatalf("empty value: %q %v", v, ok)
	}
	if _, ok := get(t, s, "d"); ok {
		t.Fatal("found what is not there")
	}

	snap := s.NewSnapshot()
	defer snap.Close()
	b = s.NewBatch()
	b.Delete([]byte("a"))
	b.DeleteRange([]byte("b"), []byte("c"))
	if c, err = s.Apply(b); err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(); err != nil {
		t.Fatal(err)
	}
	if got := keys(t, s.NewIter, nil, nil); got != "c" {
		t.Fatalf("after deletion: %q", got)
	}
	if got := keys(t, snap.NewIter, nil, nil); got != "abc" {
		t.Fatalf("snapshot: %q", got)
	}
	if got := keys(t, snap.NewIter, []byte("b"), []byte("c")); got != "b" {
		t.Fatalf("bounds: %q", got)
	}
	if v, ok, err := snap.Get([]byte("a")); err != nil || !ok || !bytes.Equal(v.Bytes(), []byte("1")) {
		t.Fatalf("snapshot get: %v %v", ok, err)
	} else {
		v.Release()
	}
}

// keys joins the keys of a range, forwards, having checked that backwards gives
// the same.
func keys(t *testing.T, iter func(lower, upper []byte) (*Iter, error), lower, upper []byte) string {
	t.Helper()
	it, err := iter(lower, upper)
	if err != nil {
		t.Fatal(err)
	}
	var fwd, back []byte
	for ok := it.First(); ok; ok = it.Next() {
		fwd = append(fwd, it.Key()...)
	}
	for ok := it.Last(); ok; ok = it.Prev() {
		back = append(append([]byte(nil), it.Key()...), back...)
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(fwd, back) {
		t.Fatalf("forwards %q, backwards %q", fwd, back)
	}
	return string(fwd)
}

func TestSecondOpenIsRefusedInWords(t *testing.T) {
	t.Parallel()
	for name, fs := range map[string]FS{"disk": DiskFS(), "memory": NewCrashFS().FS()} {
		dir := t.TempDir()
		open(t, dir, Options{FS: fs})
		_, err := Open(dir, Options{FS: fs, Logger: quiet})
		var e *model.Error
		if !errors.As(err, &e) || e.Kind != model.KindUnavailable || !strings.Contains(e.Reason, "in use") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClosedStoreAnswers(t *testing.T) {
	t.Parallel()
	s := open(t, t.TempDir(), Options{})
	b := s.NewBatch()
	b.Set([]byte("a"), nil)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Apply(b); !errors.Is(err, model.ErrClosed) {
		t.Errorf("Apply: %v", err)
	}
	if _, _, err := s.Get([]byte("a")); !errors.Is(err, model.ErrClosed) {
		t.Errorf("Get: %v", err)
	}
	if _, err := s.NewIter(nil, nil); !errors.Is(err, model.ErrClosed) {
		t.Errorf("NewIter: %v", err)
	}
	if _, err := s.NewSnapshot().NewIter(nil, nil); !errors.Is(err, model.ErrClosed) {
		t.Errorf("NewSnapshot: %v", err)
	}
	if err := s.Close(); !errors.Is(err, model.ErrClosed) {
		t.Errorf("Close: %v", err)
	}
}

// lockProbe names the directory that the test binary, started as a second
// process, tries to open.
const lockProbe = "DIVAN_KV_LOCK_PROBE"

func TestSecondProcessIsRefusedInWords(t *testing.T) {
	if dir := os.Getenv(lockProbe); dir != "" {
		_, err := Open(dir, Options{Logger: quiet})
		fmt.Printf("probe: kind %d, %v\n", model.KindOf(err), err)
		return
	}
	t.Parallel()
	dir := t.TempDir()
	open(t, dir, Options{})
	cmd := exec.Command(os.Args[0], "-test.run=^TestSecondProcessIsRefusedInWords$")
	cmd.Env = append(os.Environ(), lockProbe+"="+dir)
	out, err := cmd.CombinedOutput()
	want := fmt.Sprintf("probe: kind %d, service_unavailable: The data directory %s is in use by another process.", model.KindUnavailable, dir)
	if err != nil || !strings.Contains(string(out), want) {
		t.Errorf("%v: %s", err, out)
	}
}
