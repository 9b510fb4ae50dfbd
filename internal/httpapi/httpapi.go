// Package httpapi is the outside of Divan: the route table (method, path shape,
// the right a caller needs, handler), parameters, content negotiation, error
// bodies. Only here are status codes known. There is one file per family of
// endpoints; each handler turns a request into one call of a service below and
// that call's result into bytes.
package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/divandb/divan/internal/auth"
	"github.com/divandb/divan/internal/changes"
	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/designs"
	"github.com/divandb/divan/internal/jsvm"
	"github.com/divandb/divan/internal/model"
)

// ProtocolVersion is the version of the protocol that we are compatible with, as
// clients expect it in the greeting.
const ProtocolVersion = "3.5.2"

// Limits bounds what a client can size.
type Limits struct {
	MaxURL        int   // bytes of a request target; default 8,000
	MaxBody       int64 // bytes of a JSON body after decompression; default 256 MiB
	MaxDocument   int64 // bytes of one document without attachments; default 8,000,000
	MaxAttachment int64 // bytes of one attachment; default 1 GiB
	MaxDepth      int   // nesting of JSON; default 1,000
	MaxBodyTotal  int64 // bytes of JSON bodies in memory at one time, all requests; default 1 GiB
	MaxQ          int   // ranges of a database; default 256
}

// WithDefaults fills what is zero.
func (l Limits) WithDefaults() Limits {
	set := func(p *int64, v int64) {
		if *p <= 0 {
			*p = v
		}
	}
	set(&l.MaxBody, 256<<20)
	set(&l.MaxDocument, 8_000_000)
	set(&l.MaxAttachment, 1<<30)
	set(&l.MaxBodyTotal, 1<<30)
	if l.MaxURL <= 0 {
		l.MaxURL = 8000
	}
	if l.MaxDepth <= 0 {
		l.MaxDepth = 1000
	}
	if l.MaxQ <= 0 {
		l.MaxQ = 256
	}
	return l
}

// Authenticator says who asks.
type Authenticator interface {
	// Authenticate looks at the request's credentials. No credentials, or a scheme
	// it does not know, is the anonymous Principal and no error; wrong credentials
	// are an error of kind Unauthorized.
	Authenticate(r *http.Request) (Principal, error)
	// Login checks a name and a password of a request and gives the value of a
	// session cookie.
	Login(r *http.Request, name, password string) (Principal, string, error)
	// SessionLife is how long a session lasts when nobody uses it.
	SessionLife() time.Duration
	// UserSecrets hashes the password of a user: the members, without braces, that
	// its document keeps.
	UserSecrets(ctx context.Context, password string) ([]byte, error)
	// Known tells whether somebody has this name.
	Known(ctx context.Context, name string) bool
	// NewKey makes and stores an API key.
	NewKey(ctx context.Context) (name, password string, err error)
	Administrators
}

// Administrators manages the administrators of the server.
type Administrators interface {
	// AdminNames gives their names in order.
	AdminNames() []string
	// SetAdmin adds one, or gives one a new password.
	SetAdmin(name, password string) error
	// RemoveAdmin removes one; an error of kind Forbidden if it is the last one.
	RemoveAdmin(name string) error
}

// Principal is who asks. The zero value is anonymous.
type Principal struct {
	Name        string
	Roles       []string // of the user document or token; not to be changed
	ServerAdmin bool
	Key         bool   // an API key
	Method      string // how it is known: "cookie", "default", "jwt"; empty for anonymous
	Renew       string // value of a new session cookie; usually empty
}

// allRoles gives the caller's roles everywhere.
func (p *Principal) allRoles() []string {
	if !p.ServerAdmin {
		return p.Roles
	}
	return append([]string{"_admin"}, p.Roles...)
}

// userOf gives the caller as validation functions and scripts of a database see
// it: with the roles that its security object names.
func (p *Principal) userOf(db *cluster.Database) model.User {
	u := model.User{Name: p.Name, Roles: p.allRoles()}
	if here := db.Access.Roles(p.Name); len(here) > 0 {
		u.Roles = append(append([]string(nil), u.Roles...), here...)
	}
	return u
}

// Options is what an API is made of.
type Options struct {
	Registry    cluster.Registry
	Coordinator *coordinator.Coordinator
	Changes     *changes.Service
	Designs     *designs.Service
	JS          *jsvm.Pool
	Auth        Authenticator
	Log         *slog.Logger
	Limits      Limits
	Rates       auth.Limits // of requests per second and user

	UUID       string // of the server
	Version    string // of Divan
	Build      string // vendor.service_build
	Account    string // account in _db_updates rows
	DefaultQ   int    // ranges of a new database
	DefaultN   int    // copies of a new database; 3
	DiskFormat int    // disk_format_version of the database information
}

// API serves the interface of the spec.
type API struct {
	Options
	routes *routeTree
	bodies *bodyBudget
	uuids  *uuidSource

	serverHeader []string // the value of Server, the same in all answers
	bodyPatience time.Duration

	cors    setting[corsConfig]
	hosts   setting[virtualHosts]
	hostsMu sync.Mutex // held while the virtual hosts are changed

	limiter  *auth.Limiter // nil: no limits
	refusals *auth.Limiter // of lines in the log
}

// New makes an API. A route table that cannot be right is a programmer's error
// and panics, so that no server starts with it.
func New(o Options) *API {
	o.Limits = o.Limits.WithDefaults()
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.DefaultN == 0 {
		o.DefaultN = 3
	}
	return &API{
		Options: o,
		routes:  buildRoutes(routeTable()),
		bodies:  newBodyBudget(o.Limits.MaxBodyTotal),
		uuids:   newUUIDSource(),

		serverHeader: []string{"Divan/" + o.Version},
		bodyPatience: bodyPatience,

		cors:  setting[corsConfig]{name: corsSetting, read: readCORS},
		hosts: setting[virtualHosts]{name: hostsSetting, read: readHosts},

		limiter:  auth.NewLimiter(o.Rates, nil),
		refusals: newRefusalLimiter(),
	}
}
