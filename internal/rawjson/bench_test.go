package rawjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// benchDocs are documents of about 1 KB: an ordinary one compact and indented,
// one of text beyond ASCII, one of numbers.
var benchDocs = func() map[string][]byte {
	var b strings.Builder
	b.WriteString(`{"_id":"customer:000042","type":"customer","name":"Ada Example","email":"ada@example.org","active":true,"balance":-1234.56,"created":"2024-05-17T09:30:00Z"`)
	for i := range 12 {
		fmt.Fprintf(&b, `,"field_%d":"value %d with some more words in it"`, i, i)
	}
	b.WriteString(`,"tags":["red","green","blue"],"address":{"street":"1 Long Road","city":"Springfield","zip":"12345","geo":[51.5074,-0.1278]},"notes":"`)
	b.WriteString(strings.Repeat("lorem ipsum ", 8) + `"}`)
	compact := []byte(b.String())
	var indented bytes.Buffer
	if err := json.Indent(&indented, compact, "", "  "); err != nil {
		panic(err)
	}
	numbers := `{"v":[` + strings.TrimSuffix(strings.Repeat("0.12345678,-17,", 70), ",") + `]}`
	return map[string][]byte{
		"compact": compact, "indented": indented.Bytes(), "numbers": []byte(numbers),
		"cyrillic": []byte(`{"текст":"` + strings.Repeat("Широкая электрификация ", 23) + `"}`),
	}
}()

// BenchmarkNormalize is the cost of taking in one document.
func BenchmarkNormalize(b *testing.B) {
	for name, doc := range benchDocs {
		b.Run(name, func(b *testing.B) {
			dst := make([]byte, 0, len(doc))
			b.SetBytes(int64(len(doc)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := Normalize(dst, doc, 1000); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkNormalizeHostile takes in objects of up to a million members, all
// distinct or all of one name. The throughput must not fall in proportion to the
// size, as it would if names were compared with one another.
func BenchmarkNormalizeHostile(b *testing.B) {
	for _, size := range []int{10_000, 100_000, 1_000_000} {
		var distinct strings.Builder
		for i := range size {
			fmt.Fprintf(&distinct, `,"%07d":0`, i)
		}
		for name, members := range map[string]string{"distinct": distinct.String(), "same": strings.Repeat(`,"a":0`, size)} {
			doc := []byte("{" + members[1:] + "}")
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				b.SetBytes(int64(len(doc)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := Normalize(nil, doc, 1000); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkMembers walks over one document without entering its values.
func BenchmarkMembers(b *testing.B) {
	doc := benchDocs["compact"]
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		for name, value := range Members(doc) {
			if len(name) == 0 || len(value) == 0 {
				b.Fatal("empty")
			}
		}
	}
}

// BenchmarkGet picks the last member of a document.
func BenchmarkGet(b *testing.B) {
	doc := benchDocs["compact"]
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if _, ok := Get(doc, "notes"); !ok {
			b.Fatal("not found")
		}
	}
}

// BenchmarkEqual compares a document with one that differs in its last member
// only, by an escape.
func BenchmarkEqual(b *testing.B) {
	doc := benchDocs["compact"]
	other := bytes.Replace(doc, []byte("lorem"), []byte(`\u006corem`), 1)
	b.SetBytes(int64(len(doc)))
	b.ReportAllocs()
	for b.Loop() {
		if !Equal(doc, other) {
			b.Fatal("differs")
		}
	}
}

// BenchmarkAppendString writes a document as one string.
func BenchmarkAppendString(b *testing.B) {
	text := string(benchDocs["compact"])
	dst := make([]byte, 0, 2*len(text))
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		AppendString(dst, text)
	}
}
