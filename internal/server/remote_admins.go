package server

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/divandb/divan/internal/config"
)

// remoteAdmins are those of a running server, managed through its interface.
type remoteAdmins struct {
	base   string
	who    config.Credentials
	client *http.Client
}

const (
	adminsPath = "/_node/_local/_config/admins"
	// remoteTimeout is ample: two hashes of passwords.
	remoteTimeout = time.Minute
	maxAnswer     = 16 << 20
)

func newRemoteAdmins(address string, who config.Credentials) (administrators, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("--url is no address of the form http://host:port")
	}
	if u.User != nil {
		return nil, errors.New("--url must not hold credentials, which other users see; put them into DIVAN_ADMIN=name:password")
	}
	if who.Name == "" {
		return nil, errors.New("DIVAN_ADMIN=name:password of an administrator of the server is missing")
	}
	return &remoteAdmins{base: strings.TrimSuffix(u.Scheme+"://"+u.Host+u.EscapedPath(), "/"), who: who, client: &http.Client{
		Timeout: remoteTimeout,
		// The credentials are for this server and no other.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// ask sends a request and reads the answer into out.
func (a *remoteAdmins) ask(method, name string, body, out any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return err
	}
	target := a.base + adminsPath
	if name != "" {
		target += "/" + url.PathEscape(name)
	}
	var content io.Reader
	if body != nil {
		content = bytes.NewReader(data)
	}
	r, err := http.NewRequest(method, target, content)
	if err != nil {
		return err
	}
	r.SetBasicAuth(a.who.Name, a.who.Password)
	r.Header.Set("Content-Type", "application/json")
	res, err := a.client.Do(r)
	if err != nil {
		return err
	}
	defer func() { _ = res.Body.Close() }() // it was read
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		var e struct{ Reason string }
		if json.Unmarshal(answer, &e) != nil || e.Reason == "" {
			return fmt.Errorf("the server answered %s", res.Status)
		}
		return fmt.Errorf("the server answered %s: %s", res.Status, e.Reason)
	}
	if err := json.Unmarshal(answer, out); err != nil {
		return fmt.Errorf("the server's answer is not understood: %w", err)
	}
	return nil
}

func (a *remoteAdmins) set(name, password string) (bool, error) {
	var before string // empty where there was none
	err := a.ask(http.MethodPut, name, password, &before)
	return before == "", err
}

func (a *remoteAdmins) remove(name string) error {
	var before string
	return a.ask(http.MethodDelete, name, nil, &before)
}

func (a *remoteAdmins) list() ([]string, error) {
	var admins map[string]string
	err := a.ask(http.MethodGet, "", nil, &admins)
	return slices.Sorted(maps.Keys(admins)), err
}

func (a *remoteAdmins) close() error {
	a.client.CloseIdleConnections()
	return nil
}
