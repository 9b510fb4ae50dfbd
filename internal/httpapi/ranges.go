package httpapi

import (
	"strconv"
	"strings"

	"github.com/divandb/divan/internal/model"
)

// maxRanges is how many ranges one request may have; with more, the whole is sent,
// since gathering crumbs costs the server more than it saves the client.
const maxRanges = 9

// errRange is the answer when no range lies inside the attachment.
var errRange = &model.Error{Kind: model.KindRange, Name: "requested_range_not_satisfiable", Reason: "Requested range not satisfiable"}

// byteRange is a part of an attachment, both ends included.
type byteRange struct {
	from, to int64
}

func (r byteRange) length() int64 { return r.to - r.from + 1 }

// contentRange is the value of the header of that name.
func (r byteRange) contentRange(size int64) string {
	b := append(make([]byte, 0, 48), "bytes "...)
	b = strconv.AppendInt(b, r.from, 10)
	b = append(b, '-')
	b = strconv.AppendInt(b, r.to, 10)
	b = append(b, '/')
	return string(strconv.AppendInt(b, size, 10))
}

// parseRanges reads a Range header. No ranges and no error means: send the whole,
// which is also what a header that cannot be read gets. Ranges that begin beyond
// the end are passed over; if none is left, or one is reversed, errRange.
func parseRanges(header string, size int64) ([]byteRange, error) {
	unit, list, ok := strings.Cut(header, "=")
	if !ok || !strings.EqualFold(strings.TrimSpace(unit), "bytes") {
		return nil, nil
	}
	var ranges []byteRange
	var total int64
	count := 0
	for list != "" {
		var spec string
		spec, list, _ = strings.Cut(list, ",")
		if spec = strings.TrimSpace(spec); spec == "" {
			continue
		}
		if count++; count > maxRanges {
			return nil, nil
		}
		first, last, ok := strings.Cut(spec, "-")
		if !ok {
			return nil, nil
		}
		r := byteRange{to: size - 1}
		if first == "0" && last == "" {
			return nil, nil // a range without bounds is the whole, as CouchDB has it
		}
		if first == "" {
			n, ok := parseOffset(last)
			if !ok {
				return nil, nil
			}
			if n == 0 {
				continue // the last no bytes
			}
			r.from = max(0, size-n)
		} else {
			if r.from, ok = parseOffset(first); !ok {
				return nil, nil
			}
			if last != "" {
				to, ok := parseOffset(last)
				if !ok {
					return nil, nil
				}
				if to < r.from {
					return nil, errRange
				}
				r.to = min(to, size-1)
			}
		}
		if r.from >= size {
			continue
		}
		total += r.length()
		ranges = append(ranges, r)
	}
	switch {
	case count == 0:
		return nil, nil
	case len(ranges) == 0:
		return nil, errRange
	case total > size:
		return nil, nil // they overlap: the whole is shorter than its parts
	}
	return ranges, nil
}

// parseOffset reads digits; a number too long for int64 is as good as the largest.
func parseOffset(s string) (int64, bool) {
	if s == "" {
		return 0, false
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
	}
	n, _ := strconv.ParseInt(s, 10, 64) // out of range gives the largest
	return n, true
}
