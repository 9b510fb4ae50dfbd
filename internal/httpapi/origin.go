package httpapi

import (
	"net/netip"
	"strconv"
	"strings"
)

// maxOrigin bounds an origin: a scheme, a host name of at most 253 bytes, a port.
const maxOrigin = 300

// normalOrigin gives an origin (scheme://host or scheme://host:port) in the one form
// in which two that are the same are equal: lower case, and without the port that the
// scheme has anyway. Anything else, `null` too, is none.
func normalOrigin(s string) (string, bool) {
	scheme, rest, ok := strings.Cut(s, "://")
	if !ok || len(s) > maxOrigin || !isScheme(scheme) {
		return "", false
	}
	scheme = strings.ToLower(scheme)
	host, port := rest, ""
	if at := strings.LastIndexByte(rest, ':'); at > strings.LastIndexByte(rest, ']') {
		host, port = rest[:at], rest[at+1:]
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' || port[0] == '+' {
			return "", false
		}
	}
	if host, ok = originHost(host); !ok {
		return "", false
	}
	if port == "" || scheme == "http" && port == "80" || scheme == "https" && port == "443" {
		return scheme + "://" + host, true
	}
	return scheme + "://" + host + ":" + port, true
}

// isScheme tells whether s is the scheme of an address. Apps have schemes of their own.
func isScheme(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i] | 0x20
		if 'a' <= c && c <= 'z' {
			continue
		}
		if i == 0 || !('0' <= s[i] && s[i] <= '9' || s[i] == '+' || s[i] == '-' || s[i] == '.') {
			return false
		}
	}
	return s != ""
}

// originHost gives the host of an origin, a name or an address, in normal form.
func originHost(s string) (string, bool) {
	if inner, ok := strings.CutPrefix(s, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		addr, err := netip.ParseAddr(inner)
		return "[" + addr.String() + "]", ok && err == nil && addr.Is6() && addr.Zone() == ""
	}
	for i := 0; i < len(s); i++ {
		if !isHostByte(s[i]) {
			return "", false
		}
	}
	return strings.ToLower(s), s != ""
}

// isHostByte tells whether a host name may hold c. Names in other scripts reach a
// server in their ASCII form.
func isHostByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '.' || c == '_'
}
