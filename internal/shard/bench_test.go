package shard

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/kv"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/shardapi"
)

// benchCopy opens a copy on disk.
func benchCopy(b *testing.B) *Copy {
	b.Helper()
	dir := b.TempDir()
	store, err := kv.Open(dir+"/store", kv.Options{MinFree: -1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	if err := TidyBlobs(store, dir+"/blobs"); err != nil {
		b.Fatal(err)
	}
	c, err := Open(store, 1, Prepare(Options{BlobDir: dir + "/blobs"}))
	if err != nil {
		b.Fatal(err)
	}
	return c
}

// benchEdits makes n documents of about 1 KB.
func benchEdits(from, n int) []model.Edit {
	edits := make([]model.Edit, n)
	for i := range edits {
		edits[i].ID = fmt.Sprintf("%08x-document", uint32(from+i)*2654435761)
		edits[i].Body = []byte(fmt.Sprintf(`{"n":%d,"name":"some name","tags":["a","b"],"text":%q}`, from+i, strings.Repeat("lorem ipsum ", 80)))
	}
	return edits
}

// fill writes documents.
func fill(b *testing.B, c *Copy, docs int) {
	b.Helper()
	for at := 0; at < docs; at += 500 {
		if _, err := c.Write(context.Background(), &shardapi.WriteRequest{Edits: benchEdits(at, 500)}); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkBulkCreate is a write of 500 new documents; see ns/doc.
func BenchmarkBulkCreate(b *testing.B) {
	c := benchCopy(b)
	at := 0
	for b.Loop() {
		b.StopTimer()
		edits := benchEdits(at, 500)
		at += 500
		b.StartTimer()
		if _, err := c.Write(context.Background(), &shardapi.WriteRequest{Edits: edits}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/500, "ns/doc")
}

// BenchmarkRead reads one document.
func BenchmarkRead(b *testing.B) {
	c := benchCopy(b)
	fill(b, c, 10_000)
	ids := benchEdits(0, 10_000)
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i = (i + 7919) % len(ids)
		resp, err := c.Read(context.Background(), &shardapi.ReadRequest{Queries: []shardapi.DocQuery{{ID: ids[i].ID, Want: shardapi.WantBody}}})
		if err != nil || len(resp.Answers[0].Docs) != 1 {
			b.Fatal(err)
		}
	}
}

// BenchmarkChanges walks the log of 50,000 documents; see ns/row.
func BenchmarkChanges(b *testing.B) {
	for _, docs := range []bool{false, true} {
		b.Run(fmt.Sprintf("docs=%v", docs), func(b *testing.B) {
			c := benchCopy(b)
			fill(b, c, 50_000)
			b.ReportAllocs()
			for b.Loop() {
				st, err := c.Changes(context.Background(), &shardapi.ChangesRequest{Limit: -1, IncludeDocs: docs})
				if err != nil {
					b.Fatal(err)
				}
				for {
					if _, err := st.Next(); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/50_000, "ns/row")
		})
	}
}

// BenchmarkList walks 50,000 documents; see ns/row.
func BenchmarkList(b *testing.B) {
	for _, docs := range []bool{false, true} {
		b.Run(fmt.Sprintf("docs=%v", docs), func(b *testing.B) {
			c := benchCopy(b)
			fill(b, c, 50_000)
			b.ReportAllocs()
			for b.Loop() {
				_, st, err := c.List(context.Background(), &shardapi.ListRequest{Limit: -1, IncludeDocs: docs})
				if err != nil {
					b.Fatal(err)
				}
				for {
					if _, err := st.Next(); errors.Is(err, io.EOF) {
						break
					} else if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/50_000, "ns/row")
		})
	}
}

// BenchmarkStage stages 1 MiB and gives it up.
func BenchmarkStage(b *testing.B) {
	c := benchCopy(b)
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		st, err := c.Stage(context.Background(), bytes.NewReader(data))
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Unstage(context.Background(), st.Ticket); err != nil {
			b.Fatal(err)
		}
	}
}
