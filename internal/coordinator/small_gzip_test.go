package coordinator

import (
	"bytes"
	"crypto/md5"
	"encoding/base64"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// TestSmallGzipIsZlibs compares with digests that CouchDB gives, and clients expect.
func TestSmallGzipIsZlibs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"":                              "cCkGbCesb17xjWYNV0GXmg==",
		"This is a base64 encoded text": "qUUYqS41RhwF0TrCsTAxFg==",
		"Hello, world":                  "A1i+mIDX+Yjk7/iEJhLdyA==",
	} {
		sum := md5.Sum(appendSmallGzip(nil, []byte(text)))
		if got := base64.StdEncoding.EncodeToString(sum[:]); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

// FuzzGzip holds that whatever is packed comes back, however it is read.
func FuzzGzip(f *testing.F) {
	for _, s := range []string{"", "a", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "abcabcabcabcd", strings.Repeat("ab", 32), strings.Repeat("ab", 33),
		"\xff\xfe\xfd\xfc\xfb\xfa\xf9\xf8\xf7\xf6\xf5\xf4\xf3\xf2\xf1\xf0\xef\xee\xed\xec\xeb\xea\xe9\xe8", strings.Repeat("long text ", 20_000)} {
		f.Add([]byte(s))
	}
	var pool gzipPool
	f.Fuzz(func(t *testing.T, text []byte) {
		g := pool.get(bytes.NewReader(text), 6)
		packed, err := io.ReadAll(g)
		if err != nil || g.read != int64(len(text)) {
			t.Fatalf("%v, %d of %d bytes", err, g.read, len(text))
		}
		pool.put(g)
		zr, err := gzip.NewReader(bytes.NewReader(packed))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(zr); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("%q came back as %q: %v", text, got, err)
		}
	})
}
