package coordinator

import (
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// Compressible tells whether bytes of a content type are worth gzipping: text/*,
// and JavaScript, JSON and XML in their many spellings.
func Compressible(contentType string) bool {
	kind, _, _ := strings.Cut(contentType, ";")
	kind = strings.ToLower(strings.TrimSpace(kind))
	major, minor, ok := strings.Cut(kind, "/")
	if !ok {
		return false
	}
	switch minor {
	case "javascript", "json", "xml":
		return true
	}
	return major == "text" || strings.HasSuffix(minor, "+json") || strings.HasSuffix(minor, "+xml")
}

// gzipPool keeps compressors: each has some hundred KB of tables.
type gzipPool struct{ pool sync.Pool }

// gzipReader gives the gzipped form of what it reads, with one small buffer and
// no goroutine.
type gzipReader struct {
	from  io.Reader
	zw    *gzip.Writer
	read  int64 // identity bytes read
	in    []byte
	out   []byte // gzipped bytes not given yet
	given int
	begun bool // enough was read to know that the text is not a small one
	err   error
}

func (p *gzipPool) get(from io.Reader, level int) *gzipReader {
	g, _ := p.pool.Get().(*gzipReader)
	if g == nil {
		g = &gzipReader{in: make([]byte, 32<<10)}
		zw, err := gzip.NewWriterLevel(g, level)
		if err != nil {
			panic(err) // the level is checked by New
		}
		g.zw = zw
	}
	g.zw.Reset(g)
	g.from, g.read, g.out, g.given, g.err = from, 0, g.out[:0], 0, nil
	g.begun = false
	return g
}

func (p *gzipPool) put(g *gzipReader) {
	g.from = nil
	if cap(g.out) > 256<<10 {
		g.out = nil
	}
	p.pool.Put(g)
}

// Write takes what the compressor gives.
func (g *gzipReader) Write(p []byte) (int, error) {
	g.out = append(g.out, p...)
	return len(p), nil
}

// Read gives gzipped bytes.
func (g *gzipReader) Read(p []byte) (int, error) {
	for g.given == len(g.out) {
		if g.err != nil {
			return 0, g.err
		}
		g.out, g.given = g.out[:0], 0
		n, err := g.from.Read(g.in)
		for !g.begun && err == nil && n <= smallText {
			var more int
			more, err = g.from.Read(g.in[n:])
			n += more
		}
		g.read += int64(n)
		if !g.begun && err == io.EOF && n <= smallText {
			g.out, g.err = appendSmallGzip(g.out, g.in[:n]), io.EOF
			continue
		}
		g.begun = true
		if n > 0 {
			if _, werr := g.zw.Write(g.in[:n]); werr != nil {
				g.err = werr
				return 0, werr
			}
		}
		if err == io.EOF {
			if cerr := g.zw.Close(); cerr != nil {
				err = cerr
			}
		}
		g.err = err
		if err != nil && err != io.EOF {
			return 0, err // half a stream must not look like a whole one
		}
	}
	n := copy(p, g.out[g.given:])
	g.given += n
	return n, nil
}
