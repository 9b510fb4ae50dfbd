package auth

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"unicode"
	"unicode/utf8"

	"github.com/divandb/divan/internal/model"
)

// Admin is a server administrator as it is stored.
type Admin struct {
	Name string
	Hash string // as HashPassword makes it
}

// maxAdminName bounds the name of an administrator, in bytes.
const maxAdminName = 255

// Store keeps the administrators.
type Store interface {
	LoadAdmins() ([]Admin, error)
	// SaveAdmin adds one, or replaces the one of that name, durably.
	SaveAdmin(Admin) error
	// DeleteAdmin removes the one of that name, durably.
	DeleteAdmin(name string) error
}

// admin is an administrator in memory. A new password makes a new one, so what
// was remembered of the old password goes with it.
type admin struct {
	name     string
	verifier *Verifier
	known    atomic.Pointer[remembered]
}

var (
	errNoAdmin   = &model.Error{Kind: model.KindNotFound, Name: "not_found", Reason: "There is no administrator of that name."}
	errLastAdmin = &model.Error{Kind: model.KindForbidden, Name: "forbidden", Reason: "The last administrator cannot be removed."}
)

// loadAdmins reads them from the store.
func (s *Service) loadAdmins() error {
	list, err := s.store.LoadAdmins()
	if err != nil {
		return fmt.Errorf("auth: load the administrators: %w", err)
	}
	admins := make(map[string]*admin, len(list))
	for _, a := range list {
		v, err := ParseVerifier(a.Hash)
		if err == nil && v.fast() {
			err = errHash // people choose these passwords
		}
		if err != nil {
			return fmt.Errorf("auth: administrator %q: %w", a.Name, err)
		}
		admins[a.Name] = &admin{name: a.Name, verifier: v}
	}
	s.admins.Store(&admins)
	return nil
}

// Admins tells how many administrators there are.
func (s *Service) Admins() int { return len(*s.admins.Load()) }

// AdminNames gives the names of the administrators in order.
func (s *Service) AdminNames() []string { return slices.Sorted(maps.Keys(*s.admins.Load())) }

// SetAdmin stores an administrator, or gives one a new password. A password that
// is the stored one already is left alone: a server started with the same flags
// every day writes nothing.
func (s *Service) SetAdmin(name, password string) error {
	if name == "" || password == "" || strings.Contains(name, ":") {
		return model.BadRequest("An administrator has a name without a colon and a password.")
	}
	if len(name) > maxAdminName || len(password) > maxPassword || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return model.BadRequest(fmt.Sprintf("An administrator has a name of at most %d bytes of text and a password of at most %d bytes.", maxAdminName, maxPassword))
	}
	s.change.Lock()
	defer s.change.Unlock()
	old := *s.admins.Load()
	if a := old[name]; a != nil && a.verifier.rounds == s.o.Rounds {
		if ok, err := a.verifier.matches(password); err != nil || ok {
			return err
		}
	}
	v, err := newVerifier(password, s.o.Rounds)
	if err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	if err := s.store.SaveAdmin(Admin{Name: name, Hash: v.String()}); err != nil {
		return fmt.Errorf("auth: save an administrator: %w", err)
	}
	next := maps.Clone(old)
	next[name] = &admin{name: name, verifier: v}
	s.admins.Store(&next)
	return nil
}

// RemoveAdmin removes an administrator, and with it every session of that name. The
// last one stays: a service without one can be managed by nobody.
func (s *Service) RemoveAdmin(name string) error {
	s.change.Lock()
	defer s.change.Unlock()
	old := *s.admins.Load()
	if old[name] == nil {
		return errNoAdmin
	}
	if len(old) == 1 {
		return errLastAdmin
	}
	if err := s.store.DeleteAdmin(name); err != nil {
		return fmt.Errorf("auth: remove an administrator: %w", err)
	}
	next := maps.Clone(old)
	delete(next, name)
	s.admins.Store(&next)
	return nil
}
