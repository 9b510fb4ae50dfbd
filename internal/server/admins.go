package server

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/httpapi"
)

// adminSetting is the name under which the registry keeps the administrators:
// the whole service has the same ones.
const adminSetting = "admins"

// adminStore keeps the administrators in the registry.
type adminStore struct{ registry settings }

// settings are those of a registry, or of a store that no server has open.
type settings interface {
	Setting(name string) ([]byte, bool)
	SetSetting(ctx context.Context, name string, value []byte) error
}

// storedAdmin is the form on disk. Divan alone writes it.
type storedAdmin struct {
	Name string `json:"name"`
	Hash string `json:"hash"`
}

// LoadAdmins implements auth.Store.
func (s adminStore) LoadAdmins() ([]auth.Admin, error) {
	stored, err := s.read()
	if err != nil {
		return nil, err
	}
	list := make([]auth.Admin, len(stored))
	for i, a := range stored {
		list[i] = auth.Admin(a)
	}
	return list, nil
}

// SaveAdmin implements auth.Store. auth.Service calls it one at a time.
func (s adminStore) SaveAdmin(a auth.Admin) error {
	list, err := s.read()
	if err != nil {
		return err
	}
	if at := slices.IndexFunc(list, func(o storedAdmin) bool { return o.Name == a.Name }); at >= 0 {
		list[at] = storedAdmin(a)
	} else {
		list = append(list, storedAdmin(a))
	}
	return s.write(list)
}

// DeleteAdmin implements auth.Store. auth.Service calls it one at a time.
func (s adminStore) DeleteAdmin(name string) error {
	list, err := s.read()
	if err != nil {
		return err
	}
	return s.write(slices.DeleteFunc(list, func(o storedAdmin) bool { return o.Name == name }))
}

func (s adminStore) write(list []storedAdmin) error {
	data, err := json.Marshal(list)
	if err != nil {
		return err
	}
	return s.registry.SetSetting(context.Background(), adminSetting, data)
}

func (s adminStore) read() ([]storedAdmin, error) {
	data, ok := s.registry.Setting(adminSetting)
	if !ok {
		return nil, nil
	}
	var list []storedAdmin
	if err := json.Unmarshal(data, &list); err != nil {
		return nil, fmt.Errorf("the stored list of administrators: %w", err)
	}
	return list, nil
}

// authenticator gives httpapi what auth knows. The two packages do not know each
// other.
type authenticator struct {
	service  *auth.Service
	registry cluster.Registry
}

// Authenticate implements httpapi.Authenticator.
func (a authenticator) Authenticate(r *http.Request) (httpapi.Principal, error) {
	id, err := a.service.Authenticate(r)
	return principal(id), err
}

// Login implements httpapi.Authenticator.
func (a authenticator) Login(r *http.Request, name, password string) (httpapi.Principal, string, error) {
	id, cookie, err := a.service.Login(r.Context(), name, password, auth.ClientAddr(r.RemoteAddr))
	return principal(id), cookie, err
}

// SessionLife implements httpapi.Authenticator.
func (a authenticator) SessionLife() time.Duration { return a.service.SessionLife() }

// Known implements httpapi.Authenticator.
func (a authenticator) Known(ctx context.Context, name string) bool {
	return a.service.Known(ctx, name)
}

// NewKey implements httpapi.Authenticator.
func (a authenticator) NewKey(ctx context.Context) (name, password string, err error) {
	name, password, hash := auth.NewAPIKey()
	if err := a.registry.SetSetting(ctx, keySetting+name, []byte(hash)); err != nil {
		return "", "", fmt.Errorf("keep an API key: %w", err)
	}
	return name, password, nil
}

// AdminNames implements httpapi.Administrators.
func (a authenticator) AdminNames() []string { return a.service.AdminNames() }

// SetAdmin implements httpapi.Administrators.
func (a authenticator) SetAdmin(name, password string) error {
	return a.service.SetAdmin(name, password)
}

// RemoveAdmin implements httpapi.Administrators.
func (a authenticator) RemoveAdmin(name string) error { return a.service.RemoveAdmin(name) }

// UserSecrets implements httpapi.Authenticator.
func (a authenticator) UserSecrets(ctx context.Context, password string) ([]byte, error) {
	secrets, err := a.service.UserSecrets(ctx, password)
	if err != nil {
		return nil, err
	}
	return secrets.AppendMembers(nil), nil
}

func principal(id auth.Identity) httpapi.Principal {
	return httpapi.Principal{Name: id.Name, Roles: id.Roles, ServerAdmin: id.Admin, Key: id.Key, Method: id.Method, Renew: id.Renew}
}

// authOptions gives auth its settings. What o has, from a test, stays.
func authOptions(cfg config.Config, o auth.Options) (auth.Options, error) {
	if o.Rounds == 0 {
		o.Rounds = cfg.PasswordRounds
	}
	if o.SessionLife == 0 {
		o.SessionLife = cfg.SessionTimeout
	}
	if o.LockAfter == 0 {
		if o.LockAfter = cfg.Lockout; cfg.Lockout == 0 {
			o.LockAfter = -1
		}
	}
	for _, spec := range cfg.JWTKeys {
		key, err := auth.ParseJWTKey(spec)
		if err != nil {
			return o, fmt.Errorf("jwt-key: %w", err)
		}
		o.JWT.Keys = append(o.JWT.Keys, key)
	}
	o.JWT.NameClaim, o.JWT.RolesClaim = cfg.JWTNameClaim, cfg.JWTRolesClaim
	o.JWT.Issuer, o.JWT.Audience = cfg.JWTIssuer, cfg.JWTAudience
	return o, nil
}

// auditStart logs with which settings and administrators a server starts.
func auditStart(log *slog.Logger, cfg *config.Config, service *auth.Service) {
	var settings []any
	for _, g := range cfg.Given() {
		settings = append(settings, g.Name, g.Value+" ("+g.Source+")")
	}
	log.Info("audit", "action", "start", "version", Version, "administrators", service.AdminNames(), slog.Group("settings", settings...))
}

// sessionSetting is the name under which the registry keeps the key of sessions.
const sessionSetting = "session-key"

// sessionKey gives the key that signs session cookies, and makes it at the first
// start: sessions outlive a restart, and all nodes honour them.
func sessionKey(ctx context.Context, registry cluster.Registry) ([]byte, error) {
	if key, ok := registry.Setting(sessionSetting); ok {
		return key, nil
	}
	key := []byte(rand.Text())
	if err := registry.SetSetting(ctx, sessionSetting, key); err != nil {
		return nil, fmt.Errorf("keep the key of sessions: %w", err)
	}
	return key, nil
}

// generatedAdmin is the name of the administrator that a first start makes.
const generatedAdmin = "admin"

// passwordLength gives 120 bits: rand.Text has 5 per character.
const passwordLength = 24

// ensureAdmin sets the administrator that was configured, or makes one when there
// is none at all: nobody is ever an administrator without a password.
func ensureAdmin(service *auth.Service, want config.Credentials, stdout io.Writer) error {
	if want.Name != "" {
		return service.SetAdmin(want.Name, want.Password)
	}
	if service.Admins() > 0 {
		return nil
	}
	if stdout == nil {
		return errors.New("there is no administrator, and nowhere to show the password of a new one")
	}
	password := rand.Text()[:passwordLength]
	// Shown first, stored then: a stop in between leaves no account whose password
	// nobody has seen.
	_, err := fmt.Fprintf(stdout, "This is the first start and no administrator was given, so one was made.\n"+
		"The password is shown only now; --admin name:password sets another one.\n"+
		"  name:     %s\n  password: %s\n", generatedAdmin, password)
	if err != nil {
		return fmt.Errorf("show the generated password: %w", err)
	}
	return service.SetAdmin(generatedAdmin, password)
}
