package shard

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/revtree"
)

// checkCopy counts everything a copy stores again and holds it against the
// counters and the invariants of the package.
func checkCopy(c *Copy) error {
	var k counters
	noted := make(map[string]bool) // body keys with a note that they are superseded
	err := eachRow(c, tableStale, func(key, val []byte) error {
		s, err := parseStale(val)
		if err != nil {
			return err
		}
		k.staleBytes += s.bytes
		k.staleRevs++
		noted[string(key[8:])] = true
		return nil
	})
	if err != nil {
		return err
	}
	bodies := make(map[string]bool) // body keys a tree says are there
	seqs := 0
	err = eachRow(c, tableInfo, func(key, val []byte) error {
		var h header
		stored, err := parseInfo(val, &h)
		if err != nil {
			return err
		}
		t, err := revtree.Decode(stored)
		if err != nil {
			return err
		}
		seqs++
		return checkInfo(c, string(key), &h, t, &k, bodies, noted)
	})
	if err != nil {
		return err
	}
	err = eachRow(c, tableSeq, func(key, _ []byte) error {
		seqs--
		k.seq = max(k.seq, binary.BigEndian.Uint64(key))
		return nil
	})
	if err != nil {
		return err
	}
	if seqs != 0 {
		return fmt.Errorf("%d more documents than rows in the log", seqs)
	}
	refs := make(map[model.BlobID]uint64)
	err = eachRow(c, tableBody, func(key, val []byte) error {
		if !bodies[string(key)] && !noted[string(key)] {
			return fmt.Errorf("body %q: no tree has it and no note says that it may go", key)
		}
		delete(bodies, string(key))
		atts, _, err := parseBody(val)
		for i := range atts {
			refs[atts[i].Blob]++
		}
		return err
	})
	if err != nil {
		return err
	}
	if len(bodies) != 0 {
		return fmt.Errorf("missing bodies: %v", bodies)
	}
	if err := checkBlobs(c, refs, &k); err != nil {
		return err
	}
	if c.count != k {
		return fmt.Errorf("counters %+v, counted %+v", c.count, k)
	}
	return nil
}

// checkInfo checks one document and adds it to the recount.
func checkInfo(c *Copy, id string, h *header, t *revtree.Tree, k *counters, bodies, noted map[string]bool) error {
	leaves := t.Leaves()
	win := t.Node(leaves[0])
	if win.Rev != h.winner || win.Deleted != h.deleted {
		return fmt.Errorf("%q: header says %v, tree %v", id, h.winner, win.Rev)
	}
	row := appendText(nil, id)
	var external, active int64
	for _, i := range leaves {
		n := t.Node(i)
		row = appendLeaf(row, n.Rev, n.Deleted)
		external += n.Size
		active += n.Active
		if !n.HasBody {
			return fmt.Errorf("%q: leaf %v has no body", id, n.Rev)
		}
	}
	key := c.appendSeqKey(nil, h.seq)
	val, found, err := c.store.Get(key)
	if err != nil || !found {
		return fmt.Errorf("%q: no row %d in the log (%v)", id, h.seq, err)
	}
	defer val.Release()
	if string(val.Bytes()) != string(row) {
		return fmt.Errorf("%q: the log says %q, the tree %q", id, val.Bytes(), row)
	}
	active += int64(len(key) + len(row))
	if external != h.external || active != h.active {
		return fmt.Errorf("%q: sizes %d %d, counted %d %d", id, h.external, h.active, external, active)
	}
	k.external += external
	k.active += active
	if h.deleted {
		k.dels++
	} else {
		k.docs++
	}
	for i := range t.Len() {
		if n := t.Node(i); n.HasBody {
			key := string(c.appendBodyKey(nil, id, n.Rev)[prefixLen:])
			bodies[key] = true
			if !t.IsLeaf(i) && !noted[key] {
				return fmt.Errorf("%q: nobody will remove the body of %v", id, n.Rev)
			}
		}
	}
	return nil
}

// checkBlobs holds references, rows and files against each other.
func checkBlobs(c *Copy, refs map[model.BlobID]uint64, k *counters) error {
	files, inline := make(map[string]bool), make(map[model.BlobID]bool)
	err := eachRow(c, tableInline, func(key, _ []byte) error {
		inline[model.BlobID(key)] = true
		return nil
	})
	if err != nil {
		return err
	}
	err = eachRow(c, tableBlob, func(key, _ []byte) error {
		id := model.BlobID(key)
		row, _, err := c.readBlobRow(&id)
		if err != nil {
			return err
		}
		if refs[id] != row.refs {
			return fmt.Errorf("blob %x has %d references, counted %d", id[:4], row.refs, refs[id])
		}
		delete(refs, id)
		if row.file == inline[id] {
			return fmt.Errorf("blob %x: file %v, inline %v", id[:4], row.file, inline[id])
		}
		delete(inline, id)
		if row.file {
			files[hex.EncodeToString(id[:])] = true
			k.fileBytes += row.length
		}
		return nil
	})
	if err != nil {
		return err
	}
	if len(refs) != 0 || len(inline) != 0 {
		return fmt.Errorf("blobs without a row: %v, inline bytes without a row: %v", refs, inline)
	}
	if c.opts == nil || c.opts.BlobDir == "" {
		return nil
	}
	entries, err := os.ReadDir(c.blobDir())
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		if !files[e.Name()] {
			return fmt.Errorf("file %s belongs to nobody", e.Name())
		}
		delete(files, e.Name())
	}
	if len(files) != 0 {
		return fmt.Errorf("missing files: %v", files)
	}
	return nil
}

// eachRow walks a table; fn gets keys without their prefix.
func eachRow(c *Copy, table byte, fn func(key, val []byte) error) error {
	it, err := c.store.NewIter(c.tableRange(table))
	if err != nil {
		return err
	}
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		err = fn(it.Key()[prefixLen:], it.Value())
	}
	if cerr := it.Close(); err == nil {
		err = cerr
	}
	return err
}

// openStore opens a small store for a test.
func openStore(fs kv.FS, noSync bool) (*kv.Store, error) {
	return kv.Open("store", kv.Options{FS: fs, MinFree: -1, CacheBytes: 4 << 20, NoSync: noSync, OnFatal: func(error) {}})
}
