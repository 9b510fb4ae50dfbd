package httpapi

import (
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// sessionCookie is part of the protocol: clients look for the name.
const sessionCookie = "AuthSession"

// maxLogin bounds the body of a login.
const maxLogin = 64 << 10

// setSession sends a session cookie; an empty value ends the session.
func (rq *request) setSession(value string) {
	life := rq.api.Auth.SessionLife()
	site := http.SameSiteLaxMode
	if rq.r.TLS != nil && rq.w.cors.credentials {
		// A page of a listed origin, perhaps on another site, is to send it again.
		site = http.SameSiteNoneMode
	}
	c := http.Cookie{Name: sessionCookie, Value: value, Path: "/", HttpOnly: true, Secure: rq.r.TLS != nil,
		SameSite: site, MaxAge: int(life.Seconds()), Expires: time.Now().Add(life)}
	if value == "" {
		c.MaxAge, c.Expires = -1, time.Unix(0, 0)
	}
	rq.w.Header().Add("Set-Cookie", c.String())
}

// postSession answers a login.
func postSession(a *API, rq *request) error {
	name, password, err := rq.readLogin()
	if err != nil {
		return err
	}
	who, cookie, err := a.Auth.Login(rq.r, name, password)
	if err == nil && who.Key {
		// The dashboard is for people; what a key may do it does without one.
		if dashboard, perr := rq.boolean("dashboard", false); perr != nil || dashboard {
			err = &model.Error{Kind: model.KindForbidden, Name: "forbidden", Reason: "An API key cannot log in to the dashboard."}
		}
	}
	if err != nil {
		a.auditRefusal(rq, name, err)
		if model.KindOf(err) == model.KindUnauthorized {
			rq.setSession("")
		}
		return err
	}
	rq.who = who
	rq.setSession(cookie)
	b := append([]byte(`{"ok":true,`), rq.who.appendUser(nil)...)
	rq.json(http.StatusOK, append(b, '}'))
	return nil
}

// readLogin reads name and password from a form or JSON.
func (rq *request) readLogin() (name, password string, err error) {
	body, release, err := rq.readBody(maxLogin)
	defer release()
	if err != nil {
		return "", "", err
	}
	ct, _, _ := strings.Cut(rq.r.Header.Get("Content-Type"), ";")
	switch strings.ToLower(strings.TrimSpace(ct)) {
	case "application/x-www-form-urlencoded":
		form, err := url.ParseQuery(string(body))
		if err != nil {
			return "", "", model.BadRequest("The form is malformed.")
		}
		name, password = form.Get("name"), form.Get("password")
		if name == "" {
			name = form.Get("username")
		}
	case typeJSON:
		norm, err := rawjson.Normalize(nil, body, rq.api.Limits.MaxDepth)
		if err != nil {
			return "", "", errInvalidJSON
		}
		text := func(member string) string {
			v, _ := rawjson.Get(norm, member)
			s, _ := rawjson.String(v)
			return s
		}
		name, password = text("name"), text("password")
		if name == "" {
			name = text("username")
		}
	default:
		return "", "", &model.Error{Kind: model.KindUnsupportedMedia, Name: "bad_content_type",
			Reason: "Content-Type must be application/x-www-form-urlencoded or application/json"}
	}
	return name, password, nil
}

// appendUser appends name and roles.
func (p Principal) appendUser(b []byte) []byte {
	b = append(b, `"name":`...)
	if p.Name == "" {
		b = append(b, "null"...)
	} else {
		b = rawjson.AppendString(b, p.Name)
	}
	b = append(b, `,"roles":[`...)
	for i, role := range p.allRoles() {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, role)
	}
	return append(b, ']')
}

// getSession tells who asks.
func getSession(_ *API, rq *request) error {
	b := append([]byte(`{"ok":true,"userCtx":{`), rq.who.appendUser(nil)...)
	b = append(b, `},"info":{"authentication_handlers":["cookie","default"]`...)
	if rq.who.Name != "" {
		b = append(b, `,"authenticated":`...)
		b = rawjson.AppendString(b, rq.who.Method)
	}
	rq.json(http.StatusOK, append(b, "}}"...))
	return nil
}

// deleteSession answers a logout.
func deleteSession(_ *API, rq *request) error {
	rq.setSession("")
	return rq.ok(http.StatusOK)
}
