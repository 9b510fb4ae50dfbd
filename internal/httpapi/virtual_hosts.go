package httpapi

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// hostsSetting is the name under which the registry keeps the virtual hosts: an array
// of [host, path].
const hostsSetting = "virtual-hosts"

// The bounds of virtual hosts.
const (
	maxHosts    = 1000
	maxHostName = 253 // bytes, as in the domain name system
	maxHostPath = 1000
)

// virtualHost is a host name and the path that its requests are put under. Both are in
// normal form; an empty path leaves them where they are.
type virtualHost struct{ host, path string }

// virtualHosts is all of them. The zero value is none.
type virtualHosts struct {
	list  []virtualHost
	paths map[string]string
}

var (
	errDots     = model.BadRequest("A path of a virtual host has no segments . and .. in it.")
	errBadPath  = model.BadRequest("The path holds a percent sign that two hex digits do not follow.")
	errCopyAway = model.BadRequest("A virtual host of less than a database offers no COPY.")
)

// underHost puts a request to a virtual host under the host's path. The road behind
// this sees the real path only, and rights are asked for there.
func (a *API) underHost(rq *request) error {
	hosts := a.hosts.get(a.Registry, a.Log)
	if len(hosts.paths) == 0 {
		return nil
	}
	r := rq.r
	path := hosts.paths[hostName(r.Host)]
	if path == "" {
		return nil
	}
	mapped, err := pathUnder(path, r.URL.EscapedPath())
	if err != nil || mapped == "" {
		return err
	}
	// The header names a document of the database, wherever in it the host's path is.
	if r.Header["Destination"] != nil && strings.Count(path, "/") > 1 && !strings.Contains(path, "/_rewrite") {
		return errCopyAway
	}
	plain, err := url.PathUnescape(mapped)
	if err != nil {
		return errBadPath
	}
	rq.outer, rq.hostPath = r.URL.EscapedPath(), path
	// Nothing but path and query goes on: the target may have named a host too.
	r.URL = &url.URL{Path: plain, RawPath: mapped, RawQuery: r.URL.RawQuery}
	return nil
}

// pathUnder gives the path of a request (both escaped) under the path of its host;
// empty for what is the same on every host. Segments are put behind segments and none
// is taken away, so nothing outside is reached; what reads dots in paths later (rules
// of _rewrite do) gets none to read.
func pathUnder(hostPath, path string) (string, error) {
	segs, ok := splitPath(path, nil)
	if !ok {
		return "", errBadPath
	}
	if len(segs) == 1 && segs[0] == "_session" {
		return "", nil
	}
	for _, seg := range segs {
		if hasDots(seg) {
			return "", errDots
		}
	}
	if !strings.HasPrefix(path, "/") {
		path = "/" + path
	}
	return hostPath + path, nil
}

// outside gives a path as it is called from outside: without what the virtual host put
// before it.
func (rq *request) outside(path string) string {
	if rest, ok := strings.CutPrefix(path, rq.hostPath); ok && (rest == "" || rest[0] == '/') {
		return rest
	}
	return path
}

// hasDots tells whether a decoded segment is, or holds between slashes, . or ...
func hasDots(seg string) bool {
	for part := range strings.SplitSeq(seg, "/") {
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// hostName gives the host of a Host header in normal form: lower case, without a port
// and without the dot that may end a full name.
func hostName(host string) string {
	if at := strings.LastIndexByte(host, ':'); at > strings.LastIndexByte(host, ']') {
		host = host[:at]
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// normalHost checks a domain name. Addresses are none: they are how an administrator
// reaches the server whatever the virtual hosts are.
func normalHost(s string) (string, bool) {
	s = strings.ToLower(strings.TrimSuffix(s, "."))
	if s == "" || len(s) > maxHostName {
		return "", false
	}
	last := ""
	for label := range strings.SplitSeq(s, ".") {
		if label == "" || len(label) > 63 || label[0] == '-' || label[len(label)-1] == '-' {
			return "", false
		}
		for i := 0; i < len(label); i++ {
			if !isHostByte(label[i]) {
				return "", false
			}
		}
		last = label
	}
	return s, strings.Trim(last, "0123456789") != ""
}

// normalHostPath checks the path of a virtual host and spells it in one way.
func normalHostPath(s string) (string, error) {
	if s == "" || s == "/" {
		return "", nil
	}
	if s[0] != '/' || len(s) > maxHostPath || strings.ContainsAny(s, "?#") {
		return "", model.BadRequest(fmt.Sprintf("The path of a virtual host begins with a slash, has no query and at most %d bytes.", maxHostPath))
	}
	segs, ok := splitPath(s, nil)
	if !ok {
		return "", errBadPath
	}
	out := ""
	for i, seg := range segs {
		switch {
		case hasDots(seg):
			return "", errDots
		case seg == "" || !utf8.ValidString(seg) || strings.ContainsFunc(seg, func(r rune) bool { return r < ' ' || r == 0x7f }):
			return "", model.BadRequest("The path of a virtual host has an empty segment, or one that is no text.")
		case i == 1 && (strings.HasPrefix(seg, "_design/") || strings.HasPrefix(seg, "_local/")):
			return "", model.BadRequest("The slash after _design or _local must not be escaped here.")
		}
		out += "/" + escapeSegment(seg)
	}
	return out, nil
}

// readHosts reads the stored virtual hosts.
func readHosts(text []byte) (virtualHosts, error) {
	var hosts virtualHosts
	hosts.paths = map[string]string{}
	if rawjson.KindOf(text) != rawjson.KindArray {
		return virtualHosts{}, model.BadRequest("no array")
	}
	for pair := range rawjson.Elements(text) {
		var both []string
		if rawjson.KindOf(pair) == rawjson.KindArray {
			for v := range rawjson.Elements(pair) {
				s, _ := rawjson.String(v)
				both = append(both, s)
			}
		}
		if len(both) != 2 {
			return virtualHosts{}, model.BadRequest("no array of [host, path]")
		}
		hosts.list = append(hosts.list, virtualHost{both[0], both[1]})
		hosts.paths[both[0]] = both[1]
	}
	return hosts, nil
}

// appendHosts appends virtual hosts as they are stored and shown.
func appendHosts(b []byte, list []virtualHost) []byte {
	b = append(b, '[')
	for i, h := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(append(b, '['), h.host)
		b = rawjson.AppendString(append(b, ','), h.path)
		b = append(b, ']')
	}
	return append(b, ']')
}

// getVirtualHosts lists the virtual hosts.
func getVirtualHosts(a *API, rq *request) error {
	b := appendHosts([]byte(`{"virtual_hosts":`), a.hosts.get(a.Registry, a.Log).list)
	rq.json(http.StatusOK, append(b, '}'))
	return nil
}

// postVirtualHost sets the path of a host.
func postVirtualHost(a *API, rq *request) error {
	if err := rq.requireJSON(); err != nil {
		return err
	}
	obj, err := rq.readSetting()
	if err != nil {
		return err
	}
	host, err := hostMember(obj, "host", "path")
	if err != nil {
		return err
	}
	path := ""
	if v, ok := rawjson.Get(obj, "path"); ok && string(v) != "null" {
		text, ok := rawjson.String(v)
		if !ok {
			return model.BadRequest("path must be a string.")
		}
		if path, err = normalHostPath(text); err != nil {
			return err
		}
	}
	err = a.changeHosts(rq, func(list []virtualHost) ([]virtualHost, error) {
		for i := range list {
			if list[i].host == host {
				list[i].path = path
				return list, nil
			}
		}
		if len(list) >= maxHosts {
			return nil, model.BadRequest(fmt.Sprintf("There can be at most %d virtual hosts.", maxHosts))
		}
		return append(list, virtualHost{host, path}), nil
	})
	if err != nil {
		return err
	}
	a.audit(rq, "virtual host set", "host", host, "path", path)
	return rq.ok(http.StatusOK)
}

// deleteVirtualHost removes one.
func deleteVirtualHost(a *API, rq *request) error {
	obj, err := rq.readSetting()
	if err != nil {
		return err
	}
	host, err := hostMember(obj, "host")
	if err != nil {
		return err
	}
	err = a.changeHosts(rq, func(list []virtualHost) ([]virtualHost, error) {
		for i := range list {
			if list[i].host == host {
				return append(list[:i], list[i+1:]...), nil
			}
		}
		return nil, &model.Error{Kind: model.KindNotFound, Name: "not_found", Reason: "There is no virtual host of that name."}
	})
	if err != nil {
		return err
	}
	a.audit(rq, "virtual host removed", "host", host)
	return rq.ok(http.StatusOK)
}

// hostMember reads the host of a body that has these members.
func hostMember(obj []byte, members ...string) (string, error) {
	if err := onlyMembers(obj, members...); err != nil {
		return "", err
	}
	v, _ := rawjson.Get(obj, "host")
	if text, ok := rawjson.String(v); ok {
		if host, ok := normalHost(text); ok {
			return host, nil
		}
	}
	return "", model.BadRequest("host must be a domain name, without a scheme or a port.")
}

// changeHosts makes a new list of virtual hosts from a copy of the present one.
func (a *API) changeHosts(rq *request, change func([]virtualHost) ([]virtualHost, error)) error {
	a.hostsMu.Lock()
	defer a.hostsMu.Unlock()
	now := a.hosts.get(a.Registry, a.Log).list
	list, err := change(append(make([]virtualHost, 0, len(now)+1), now...))
	if err != nil {
		return err
	}
	return a.Registry.SetSetting(rq.ctx(), hostsSetting, appendHosts(nil, list))
}
