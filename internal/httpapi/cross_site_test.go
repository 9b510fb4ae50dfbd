package httpapi

import (
	"net/http/httptest"
	"testing"
)

// Which POSTs a page of another site could have made its reader send.
func TestCheckSite(t *testing.T) {
	t.Parallel()
	listed := &corsConfig{enabled: true, any: true, origins: map[string]bool{"https://a.example": true}}
	const form = "application/x-www-form-urlencoded"
	for _, c := range []struct {
		method, contentType string
		header              []string
		refused             bool
	}{
		{"POST", form, nil, false},
		{"POST", form, []string{"Origin", "https://evil.example"}, true},
		{"POST", "Text/Plain; x=application/json", []string{"Origin", "https://evil.example"}, true},
		{"POST", "multipart/form-data; boundary=x", []string{"Origin", "https://evil.example"}, true},
		{"POST", "", []string{"Origin", "https://evil.example"}, true},
		{"POST", " ;", []string{"Origin", "https://evil.example"}, true},
		{"POST", "application/json", []string{"Origin", "https://evil.example"}, false},
		{"POST", "Application/JSON; charset=utf-8", []string{"Origin", "https://evil.example"}, false},
		{"POST", "multipart/related; boundary=x", []string{"Origin", "https://evil.example"}, false},
		{"PUT", form, []string{"Origin", "https://evil.example"}, false},
		{"POST", form, []string{"Origin", "null"}, true},
		{"POST", form, []string{"Origin", "https://a.example"}, false},
		{"POST", form, []string{"Origin", "https://A.example:443", "Sec-Fetch-Site", "cross-site"}, false},
		{"POST", form, []string{"Origin", "http://db.example:5984"}, false},
		{"POST", form, []string{"Origin", "https://DB.example:5984"}, false}, // a proxy may end TLS
		{"POST", form, []string{"Origin", "http://db.example"}, true},
		{"POST", form, []string{"Origin", "http://db.example:5984.evil.example"}, true},
		{"POST", form, []string{"Origin", "https://outer.example", "X-Forwarded-Host", "outer.example"}, false},
		{"POST", form, []string{"Origin", "https://x.example", "Sec-Fetch-Site", "same-origin"}, false},
		{"POST", form, []string{"Sec-Fetch-Site", "none"}, false},
		{"POST", form, []string{"Origin", "http://db.example:5984", "Sec-Fetch-Site", "cross-site"}, true},
		{"POST", form, []string{"Sec-Fetch-Site", "cross-site"}, true},
		{"POST", form, []string{"Sec-Fetch-Site", "same-site", "Origin", "http://other.db.example"}, true},
		{"POST", form, []string{"Referer", "http://db.example:5984/x"}, false},
		{"POST", form, []string{"Referer", "http://evil.example/http://db.example:5984"}, true},
		{"POST", form, []string{"Referer", "x"}, true},
		{"POST", form, []string{"Origin", "http://db.example:5984", "Referer", "http://evil.example/"}, false},
	} {
		r := httptest.NewRequest(c.method, "/", nil)
		r.Host = "db.example:5984"
		r.Header.Set("Content-Type", c.contentType)
		for i := 0; i < len(c.header); i += 2 {
			r.Header.Set(c.header[i], c.header[i+1])
		}
		if err := checkSite(r, listed); (err != nil) != c.refused {
			t.Errorf("%+v: %v", c, err)
		}
		off := *listed
		off.enabled = false
		if err := checkSite(r, &off); c.refused && err == nil {
			t.Errorf("%+v without CORS: let in", c)
		}
	}
}
