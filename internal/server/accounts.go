package server

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/shardapi"
)

// What accounts are made of: documents of one database, and settings.
const (
	usersDatabase = "_users"
	userPrefix    = "org.couchdb.user:"
	keySetting    = "api-key/"
)

// accounts finds users and API keys. Every request with credentials asks, so what
// was found is kept until the database of users changes.
type accounts struct {
	registry atomic.Pointer[cluster.Local]
	coord    atomic.Pointer[coordinator.Coordinator]
	changes  atomic.Uint64 // counts the changes of the database of users

	mu    sync.RWMutex
	users map[string]knownUser
}

// knownUser is what was found, and when; account is nil where there is nobody.
type knownUser struct {
	changes uint64
	account *auth.Account
}

// maxKnownUsers bounds what is kept: names are what clients send.
const maxKnownUsers = 10_000

func newAccounts() *accounts { return &accounts{users: make(map[string]knownUser)} }

// own names the registry, and bind what reads documents; nobody asks before.
func (a *accounts) own(registry *cluster.Local)         { a.registry.Store(registry) }
func (a *accounts) bind(coord *coordinator.Coordinator) { a.coord.Store(coord) }

// touched hears of every change of documents.
func (a *accounts) touched(id shardapi.CopyID) {
	if r := a.registry.Load(); r != nil {
		if db, ok := r.ByCopy(id); ok && db.Name == usersDatabase {
			a.changes.Add(1)
		}
	}
}

// Account implements auth.Accounts.
func (a *accounts) Account(ctx context.Context, name string) (*auth.Account, error) {
	registry := a.registry.Load()
	if hash, ok := registry.Setting(keySetting + name); ok {
		v, err := auth.ParseVerifier(string(hash))
		if err != nil {
			return nil, fmt.Errorf("the stored API key %s: %w", name, err)
		}
		return &auth.Account{Name: name, Verifier: v, Key: true, Version: string(hash)}, nil
	}
	// The count is taken before the document is read: what changes meanwhile makes
	// the answer one that is not kept.
	now := a.changes.Load()
	a.mu.RLock()
	known, ok := a.users[name]
	a.mu.RUnlock()
	if ok && known.changes == now {
		return known.account, nil
	}
	account, err := a.read(ctx, registry, name)
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.users) >= maxKnownUsers {
		clear(a.users)
	}
	a.users[name] = knownUser{changes: now, account: account}
	return account, nil
}

// read reads a user's document.
func (a *accounts) read(ctx context.Context, registry *cluster.Local, name string) (*auth.Account, error) {
	db, err := registry.Get(usersDatabase)
	if err != nil {
		return nil, nil // deleted: there are no users
	}
	answer, err := a.coord.Load().ReadOne(ctx, db, shardapi.DocQuery{ID: userPrefix + name, Want: shardapi.WantBody}, 0)
	if err != nil || len(answer.Docs) == 0 || answer.Docs[0].Deleted {
		return nil, err
	}
	d := &answer.Docs[0]
	return auth.ReadUser(name, d.Rev.String(), d.Body), nil
}
