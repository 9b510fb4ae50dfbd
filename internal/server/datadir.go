package server

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// formatVersion is the layout of a data directory that this program writes. It
// grows when an older program could no longer read what this one leaves behind.
const formatVersion = 1

// formatFile names the file that says which layout a directory has.
const formatFile = "FORMAT"

const formatWord = "divan"

// prepareDataDir makes a data directory, or checks one: it must be of a version
// that this program reads. A directory that holds other things is refused, as
// it was hardly meant.
func prepareDataDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("the data directory cannot be made: %w", err)
	}
	path := filepath.Join(dir, formatFile)
	data, err := os.ReadFile(path)
	switch {
	case err == nil:
		return checkFormat(dir, string(data))
	case !errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("the data directory cannot be read: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("the data directory cannot be read: %w", err)
	}
	for _, e := range entries {
		// A mounted file system has lost+found; a start that was cut short leaves
		// the unfinished format file.
		if e.Name() != "lost+found" && e.Name() != formatFile+".new" {
			return fmt.Errorf("the directory %s is not empty and is not a data directory of Divan", dir)
		}
	}
	return writeFormat(dir)
}

// checkFormat judges the text of a format file.
func checkFormat(dir, text string) error {
	word, number, _ := strings.Cut(strings.TrimSpace(text), " ")
	version, err := strconv.Atoi(number)
	if word != formatWord || err != nil || version < 1 {
		return fmt.Errorf("the file %s says nothing that this program understands", filepath.Join(dir, formatFile))
	}
	if version > formatVersion {
		return fmt.Errorf("the data directory %s has format %d; this program knows formats up to %d: use a newer one", dir, version, formatVersion)
	}
	return nil
}

// writeFormat marks a new data directory. The file appears whole or not at all.
func writeFormat(dir string) error {
	path := filepath.Join(dir, formatFile)
	err := func() error {
		f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(f, "%s %d\n", formatWord, formatVersion)
		if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
			return err
		}
		if err := os.Rename(path+".new", path); err != nil {
			return err
		}
		d, err := os.Open(dir)
		if err != nil {
			return err
		}
		return errors.Join(d.Sync(), d.Close())
	}()
	if err != nil {
		return fmt.Errorf("the data directory cannot be written: %w", err)
	}
	return nil
}
