package shard

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
)

// TidyBlobs readies the directory of attachment files before any copy is opened:
// it removes what a crash has left, that is staged bytes and files that no row
// names (I6).
func TidyBlobs(store *kv.Store, dir string) error {
	temp := filepath.Join(dir, TempDir)
	if err := os.RemoveAll(temp); err != nil {
		return fmt.Errorf("tidy attachments: %w", err)
	}
	if err := os.MkdirAll(temp, 0o700); err != nil {
		return fmt.Errorf("tidy attachments: %w", err)
	}
	// A copy's directory is durable only if the one it stands in is.
	if err := syncDir(filepath.Dir(dir)); err != nil {
		return fmt.Errorf("tidy attachments: %w", err)
	}
	copies, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("tidy attachments: %w", err)
	}
	for _, entry := range copies {
		id, err := strconv.ParseUint(entry.Name(), 10, 64)
		if err != nil || !entry.IsDir() {
			continue // not ours: the temporary directory, or something of the operator's
		}
		if err := tidyCopy(store, dir, id); err != nil {
			return fmt.Errorf("tidy attachments: %w", err)
		}
	}
	return nil
}

// tidyCopy removes the unnamed files of one copy, and its directory when empty.
func tidyCopy(store *kv.Store, dir string, id uint64) error {
	c := &Copy{id: id, prefix: copyPrefix(id), store: store}
	path := BlobPath(dir, id)
	d, err := os.Open(path)
	if err != nil {
		return err
	}
	defer d.Close()
	kept := 0
	for {
		names, err := d.Readdirnames(1024)
		for _, name := range names {
			var blob model.BlobID
			if n, err := hex.Decode(blob[:], []byte(name)); err != nil || n != len(blob) || len(name) != 2*len(blob) {
				kept++
				continue
			}
			_, found, err := c.readBlobRow(&blob)
			if err != nil {
				return err
			}
			if found {
				kept++
				continue
			}
			if err := os.Remove(filepath.Join(path, name)); err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
		if err != nil || len(names) == 0 {
			break // io.EOF; any other error leaves files for the next start
		}
	}
	if kept == 0 {
		return os.Remove(path)
	}
	return nil
}
