package crash_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/divandb/divan/internal/testserver"
)

// patience bounds the wait for something that happens in the background.
const patience = time.Minute

// blobFiles looks at the attachment files below a data directory and says what is
// wrong: each must be named by a revision that is there. digests remembers files
// from one look to the next, as they never change; wait is how long compaction gets
// to remove one it has given up.
func (w *world) blobFiles(server *testserver.Server, data string, digests map[string]string, wait time.Duration) []string {
	i := &inspector{w: w, server: server}
	err := filepath.WalkDir(filepath.Join(data, "blobs"), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return ignoreMissing(err)
		}
		if digests[path] == "" {
			data, err := os.ReadFile(path)
			if err != nil {
				return ignoreMissing(err)
			}
			digests[path] = digestOf(data)
		}
		// Compaction may be about to remove it: its row goes first.
		for end := time.Now().Add(wait); ; time.Sleep(20 * time.Millisecond) {
			if i.named(digests[path]) {
				return nil
			}
			if _, err := os.Stat(path); err != nil {
				return ignoreMissing(err)
			}
			if time.Now().After(end) {
				i.wrong("%s: no revision names it; ledger: %+v", path, w.uses[digests[path]])
				return nil
			}
		}
	})
	if err != nil {
		i.wrong("%v", err)
	}
	return i.problems
}

func ignoreMissing(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// named tells whether a stored revision names an attachment.
func (i *inspector) named(digest string) bool {
	for _, u := range i.w.uses[digest] {
		if u.life != u.db.life || u.rev.rev == "" {
			continue
		}
		r, err := i.server.Try(context.Background(), "HEAD", u.db.path()+"/"+u.id+"/"+u.name+"?rev="+u.rev.rev, nil)
		if err != nil {
			i.wrong("%v", err)
		} else if r.Status == 200 {
			return true
		}
	}
	return false
}
