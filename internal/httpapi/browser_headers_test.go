package httpapi

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/cluster"
)

// withSettings is a registry of settings.
type withSettings struct {
	cluster.Registry
	settings map[string][]byte
}

func (r withSettings) Setting(name string) ([]byte, bool) { v, ok := r.settings[name]; return v, ok }

// Over TLS, browsers are told to stay there, and a page of a listed origin can keep a
// session. Without TLS neither is said: the one would be ignored, the other refused.
func TestHeadersOverTLS(t *testing.T) {
	t.Parallel()
	a := New(Options{Auth: everybodyIsAdmin{}, Registry: withSettings{settings: map[string][]byte{
		corsSetting: []byte(`{"enable_cors":true,"allow_credentials":true,"origins":["https://a.example","*"]}`)}}})
	secure, open := httptest.NewTLSServer(a), httptest.NewServer(a)
	defer secure.Close()
	defer open.Close()
	for _, c := range []struct {
		server       *httptest.Server
		host, origin string
		strict, site string
	}{
		{secure, "db.example", "https://a.example", "max-age=31536000", "None"},
		{secure, "db.example:6984", "https://b.example", "max-age=31536000", "Lax"},
		{secure, "db.example", "", "max-age=31536000", "Lax"},
		{secure, "localhost:6984", "https://a.example", "", "None"},
		{secure, "a.localhost", "", "", "Lax"},
		{open, "db.example", "https://a.example", "", "Lax"},
	} {
		r, err := http.NewRequest("DELETE", c.server.URL+"/_session", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = c.host
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		resp, err := c.server.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		cookie := resp.Header.Get("Set-Cookie")
		if got := resp.Header.Get("Strict-Transport-Security"); got != c.strict {
			t.Errorf("%+v: %q", c, got)
		}
		if !strings.Contains(cookie, "SameSite="+c.site) || strings.Contains(cookie, "Secure") != (c.server == secure) {
			t.Errorf("%+v: %s", c, cookie)
		}
		if resp.Header.Get("Referrer-Policy") != "no-referrer" || resp.Header.Get("X-Frame-Options") != "DENY" || resp.Header.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%+v: %v", c, resp.Header)
		}
	}
}

// A setting that cannot be read counts as not set, and another text is read at once.
func TestSettingIsReadAgain(t *testing.T) {
	t.Parallel()
	registry := withSettings{settings: map[string][]byte{}}
	a := New(Options{Auth: everybodyIsAdmin{}, Registry: registry})
	for _, c := range []struct {
		text string
		want bool
	}{{`{"enable_cors":true}`, true}, {`{"enable_cors":false}`, false}, {`{"enable_cors":true}`, true}, {`[]`, false}, {`{"enable_cors":1}`, false}, {``, false}} {
		registry.settings[corsSetting] = []byte(c.text)
		for range 2 {
			if got := a.cors.get(registry, a.Log).enabled; got != c.want {
				t.Errorf("%s: %v", c.text, got)
			}
		}
	}
	registry.settings[hostsSetting] = []byte(`[["a"]]`)
	if h := a.hosts.get(registry, a.Log); h.list != nil || h.paths != nil {
		t.Errorf("%+v", h)
	}
}
