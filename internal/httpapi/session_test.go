package httpapi_test

import (
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

// A login gives a cookie that opens what the credentials open.
func TestSession(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	name, password, _ := strings.Cut(strings.TrimPrefix(s.URL[:strings.LastIndex(s.URL, "@")], "http://"), ":")
	form := "name=" + name + "&password=" + password
	r := s.Do(t, "POST", "/_session", form, "Authorization", "", "Content-Type", "application/x-www-form-urlencoded").Want(200)
	if o := r.Object(); o["ok"] != true || o["name"] != name || o["roles"].([]any)[0] != "_admin" {
		t.Errorf("%s", r.Body)
	}
	set := r.Header.Get("Set-Cookie")
	cookie, _, _ := strings.Cut(set, ";")
	if !strings.HasPrefix(cookie, "AuthSession=") || !strings.Contains(set, "HttpOnly") || !strings.Contains(set, "Path=/") || !strings.Contains(set, "Max-Age=600") {
		t.Errorf("Set-Cookie %q", set)
	}
	s.Do(t, "GET", "/_all_dbs", nil, "Authorization", "", "Cookie", cookie).Want(200)
	who := s.Do(t, "GET", "/_session", nil, "Authorization", "", "Cookie", cookie).Want(200).Object()
	if who["userCtx"].(map[string]any)["name"] != name || who["info"].(map[string]any)["authenticated"] != "cookie" {
		t.Errorf("%v", who)
	}
	who = s.Do(t, "GET", "/_session", nil).Want(200).Object()
	if who["info"].(map[string]any)["authenticated"] != "default" {
		t.Errorf("%v", who)
	}
	s.Do(t, "POST", "/_session", map[string]string{"username": name, "password": password}, "Authorization", "").Want(200)
	bad := s.Do(t, "POST", "/_session", map[string]string{"name": name, "password": "no"}, "Authorization", "").Want(401)
	if !strings.HasPrefix(bad.Header.Get("Set-Cookie"), "AuthSession=;") {
		t.Errorf("Set-Cookie %q", bad.Header.Get("Set-Cookie"))
	}
	s.Do(t, "POST", "/_session", "x", "Authorization", "", "Content-Type", "text/plain").Want(415)
	nobody := s.Do(t, "GET", "/_session", nil, "Authorization", "").Want(200).Object()["userCtx"].(map[string]any)
	if nobody["name"] != nil || len(nobody["roles"].([]any)) != 0 {
		t.Errorf("%v", nobody)
	}
	s.Do(t, "GET", "/_all_dbs", nil, "Authorization", "", "Cookie", cookie[:len(cookie)-6]+"AAAAAA").Want(401)
	s.Do(t, "GET", "/_all_dbs", nil, "Authorization", "", "Cookie", "AuthSession=%%").Want(400)
	out := s.Do(t, "DELETE", "/_session", nil, "Cookie", cookie).Want(200)
	if !strings.HasPrefix(out.Header.Get("Set-Cookie"), "AuthSession=;") {
		t.Errorf("Set-Cookie %q", out.Header.Get("Set-Cookie"))
	}
}
