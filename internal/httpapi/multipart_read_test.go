package httpapi

import (
	"bytes"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// readAllParts takes a body apart as the handlers do.
func readAllParts(body io.Reader, limit int) (parts [][]byte, err error) {
	pr, err := newPartReader(`multipart/related; boundary="bnd"`, body, limit)
	if err != nil {
		return nil, err
	}
	for {
		p, err := pr.next()
		if err == io.EOF {
			return parts, nil
		}
		if err != nil {
			return parts, err
		}
		data, err := io.ReadAll(p)
		parts = append(parts, data)
		if err != nil {
			return parts, err
		}
	}
}

// FuzzMultipartRelated checks two things: a body that was put together comes apart
// into the same parts, however it arrives, and no start of it passes for the whole;
// and whatever else comes ends in an error or an end, with no more bytes than went in.
func FuzzMultipartRelated(f *testing.F) {
	f.Add([]byte("{}"), []byte("abc"), "Content-Type: text/plain", false)
	f.Add([]byte("\r\n--bn"), []byte("--bnd"), "", true)
	f.Add([]byte("--bnd\r\n\r\nx\r\n--bnd--"), []byte("\r\n--bnd"), "A: b", false)
	f.Add([]byte(""), bytes.Repeat([]byte("\r\n--bnd-\r"), 1000), "X:", true)
	f.Add([]byte("0"), []byte("0"), "AAAA:", false)
	f.Fuzz(func(t *testing.T, one, two []byte, header string, lf bool) {
		for _, raw := range [][]byte{one, append(append([]byte("--bnd\r\n\r\n"), one...), two...)} {
			total := 0
			parts, _ := readAllParts(bytes.NewReader(raw), 1000) // any error will do
			for _, p := range parts {
				total += len(p)
			}
			if total > len(raw) {
				t.Fatalf("%d bytes out of %d", total, len(raw))
			}
		}
		newline := "\r\n"
		if lf {
			newline = "\n"
		}
		for _, p := range [][]byte{one, two} {
			if bytes.Contains(append([]byte("\n"), p...), []byte("\n--bnd")) {
				return // no writer may choose a boundary that its bytes hold
			}
		}
		if name, value, ok := strings.Cut(header, ":"); !ok || name == "" || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" || strings.ContainsAny(value, "\r\n\x00") {
			header = "Content-Type: x/y"
		}
		body := "--bnd" + newline + newline + string(one) + newline + "--bnd" + newline + header + newline + newline + string(two) + newline + "--bnd--"
		for _, r := range []io.Reader{strings.NewReader(body), iotest.OneByteReader(strings.NewReader(body)), iotest.DataErrReader(strings.NewReader(body))} {
			parts, err := readAllParts(r, 2)
			if err != nil || len(parts) != 2 || !bytes.Equal(parts[0], one) || !bytes.Equal(parts[1], two) {
				t.Fatalf("%q: %q, %v", body, parts, err)
			}
		}
		if _, err := readAllParts(strings.NewReader(body), 1); err == nil {
			t.Fatal("a part more than allowed was taken")
		}
		for _, cut := range []int{len(body) - 1, len(body) - 2, len(body) - 7 - len(newline), len(body) / 2, len(one) + 14, len(one) + 17 + len(header)} {
			if parts, err := readAllParts(strings.NewReader(body[:min(max(cut, 0), len(body)-1)]), 2); err == nil {
				t.Fatalf("cut at %d of %q passes for %q", cut, body, parts)
			}
		}
	})
}

// FuzzRanges checks that ranges lie inside, in the order asked, and are not more
// work than the whole.
func FuzzRanges(f *testing.F) {
	for _, h := range []string{"bytes=0-1,4-5", "bytes=-3", "bytes=9-", "bytes=5-2", "bytes=", "bytes=99999999999999999999-", "bytes=,,1-1"} {
		f.Add(h, int64(16))
	}
	f.Fuzz(func(t *testing.T, header string, size int64) {
		if size < 0 {
			return
		}
		ranges, err := parseRanges(header, size)
		if err != nil && ranges != nil || len(ranges) > maxRanges {
			t.Fatalf("%v, %v", ranges, err)
		}
		var total int64
		for _, r := range ranges {
			if r.from < 0 || r.to < r.from || r.to >= size {
				t.Fatalf("%v of %d", r, size)
			}
			total += r.length()
		}
		if total > size {
			t.Fatalf("%v of %d", ranges, size)
		}
	})
}
