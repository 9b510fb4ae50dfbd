package changes

import (
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"strconv"
	"strings"
)

// updatesVersion opens the payload of a _db_updates token; it differs from
// tokenVersion so that one kind is never taken for the other.
const updatesVersion = 0x81

// AppendUpdatesToken appends the token of an event of _db_updates. service is the
// uuid of the service, so that a token of another one is known for what it is.
func AppendUpdatesToken(dst []byte, service string, event uint64) []byte {
	var space [32]byte
	p := append(space[:0], updatesVersion)
	p = binary.BigEndian.AppendUint32(p, crc32.ChecksumIEEE([]byte(service)))
	p = binary.AppendUvarint(p, event)
	p = binary.BigEndian.AppendUint32(p, crc32.ChecksumIEEE(p))
	dst = strconv.AppendUint(dst, event, 10)
	dst = append(dst, '-')
	return base64.RawURLEncoding.AppendEncode(dst, p)
}

// DecodeUpdatesToken reads one. The empty text, "0" and a token of another
// service are the beginning; what is no token is ErrSince.
func DecodeUpdatesToken(service, text string) (uint64, error) {
	if text == "" || text == "0" {
		return 0, nil
	}
	front, body, ok := strings.Cut(text, "-")
	if !ok || len(text) > 64 {
		return 0, ErrSince
	}
	p, err := base64.RawURLEncoding.Strict().DecodeString(body)
	if err != nil || len(p) < 1+4+1+4 || p[0] != updatesVersion {
		return 0, ErrSince
	}
	p, check := p[:len(p)-4], p[len(p)-4:]
	event, n := binary.Uvarint(p[5:])
	if crc32.ChecksumIEEE(p) != binary.BigEndian.Uint32(check) || n != len(p)-5 ||
		front != strconv.FormatUint(event, 10) {
		return 0, ErrSince
	}
	if binary.BigEndian.Uint32(p[1:]) != crc32.ChecksumIEEE([]byte(service)) {
		return 0, nil
	}
	return event, nil
}
