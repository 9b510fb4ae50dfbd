package httpapi

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/rawjson"
)

// Whatever the paths are, a request ends up under the path of its host, segment by
// segment, or is refused.
func FuzzVirtualHost(f *testing.F) {
	f.Add("a.example:80", "/db", "/doc")
	f.Add("A.Example.", "/a%2Fb/_design/x/_rewrite", "/x//y%2f..%2fz?q")
	f.Add("[::1]:5984", "/db/_design%2Fd", "/%2e%2e/out")
	f.Add("a", "/ä", `/_session"`)
	f.Fuzz(func(t *testing.T, host, hostPath, target string) {
		if name, ok := normalHost(host); ok {
			if again, ok := normalHost(name); !ok || again != name || hostName(name+":80") != name || hostName(strings.ToUpper(name)+".") != name {
				t.Fatalf("%q became %q and %q, %q", host, name, again, hostName(name))
			}
		}
		_ = hostName(host)
		path, err := normalHostPath(hostPath)
		if err != nil || path == "" {
			return
		}
		if again, err := normalHostPath(path); err != nil || again != path {
			t.Fatalf("%q became %q and then %q, %v", hostPath, path, again, err)
		}
		u, err := url.ParseRequestURI(target)
		if err != nil {
			return
		}
		mapped, err := pathUnder(path, u.EscapedPath())
		if err != nil || mapped == "" {
			return
		}
		plain, err := url.PathUnescape(mapped)
		if err != nil {
			t.Fatalf("%q: %v", mapped, err)
		}
		// As underHost and serve do.
		final := (&url.URL{Path: plain, RawPath: mapped}).EscapedPath()
		under, ok := splitPath(path, nil)
		asked, ok2 := splitPath(u.EscapedPath(), nil)
		got, ok3 := splitPath(final, nil)
		if !ok || !ok2 || !ok3 || !slices.Equal(got, append(slices.Clone(under), asked...)) {
			t.Fatalf("%q under %q became %q: %q", u.EscapedPath(), path, final, got)
		}
		for _, seg := range got {
			if hasDots(seg) {
				t.Fatalf("%q under %q: %q", target, path, got)
			}
		}
	})
}

// The form of an origin is one, and it holds nothing that could end a header.
func FuzzOrigin(f *testing.F) {
	for _, s := range []string{"https://a.example:443", "http://[::1]:80", "http://[0:0::1]", "http://[:]", "HTTP://A", "null", "*", "app+x://h_1.", "https://a:080", "https://a:+1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		normal, ok := normalOrigin(s)
		if !ok {
			return
		}
		if again, ok := normalOrigin(normal); !ok || again != normal {
			t.Fatalf("%q became %q and then %q", s, normal, again)
		}
		if !strings.Contains(s, "[") && !strings.EqualFold(s, normal) && !strings.EqualFold(s, normal+":80") && !strings.EqualFold(s, normal+":443") {
			t.Fatalf("%q became %q", s, normal)
		}
		u, err := url.Parse(s)
		if err != nil || u.Path != "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(s, " \r\n\x00,*\"'<>\\") {
			t.Fatalf("%q is an origin? %v", s, err)
		}
	})
}

func FuzzReadCORS(f *testing.F) {
	f.Add([]byte(`{"enable_cors":true,"allow_credentials":true,"origins":["*","https://a.example"]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		norm, err := rawjson.Normalize(nil, text, 100)
		if err != nil {
			return
		}
		c, err := readCORS(norm)
		if err != nil && (c.enabled || c.any || c.origins != nil) {
			t.Fatalf("%s: refused, and %+v", text, c)
		}
	})
}
