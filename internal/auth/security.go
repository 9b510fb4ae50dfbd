package auth

import (
	"fmt"
	"strings"

	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// Rights is what somebody may do with a database: a set.
type Rights uint16

// The rights on a database, one for each role of the spec's table.
const (
	Reader      Rights = 1 << iota // read everything, design documents included
	Writer                         // write documents other than design documents, and _local
	DBAdmin                        // everything, and alone: design documents, indexes, security
	Replicator                     // database information, _local, _revs_diff and its kin
	DBUpdates                      // the database's events in the global feed
	Design                         // read design documents
	Shards                         // where the ranges are
	SeeSecurity                    // read the security object

	// AllRights is what an administrator has.
	AllRights = Reader | Writer | DBAdmin | Replicator | DBUpdates | Design | Shards | SeeSecurity
)

// Has tells whether all of need are there.
func (r Rights) Has(need Rights) bool { return r&need == need }

// roleRights are the roles of a security object.
var roleRights = map[string]Rights{
	"_reader":     Reader | Design,
	"_writer":     Writer,
	"_admin":      AllRights,
	"_replicator": Replicator,
	"_db_updates": DBUpdates,
	"_design":     Design,
	"_shards":     Shards,
	"_security":   SeeSecurity,
}

// memberRights is what members have: all but what is an administrator's.
const memberRights = Reader | Writer | Replicator | Design

// Nobody is the name that stands for requests without credentials.
const Nobody = "nobody"

// Security is a database's security object, ready to be asked. It does not change.
type Security struct {
	grants   map[string]grant // by name, of service
	members  group
	admins   group
	authOnly bool // service_auth_only: only members and admins count
}

// grant is what one name has.
type grant struct {
	rights Rights
	roles  []string
}

// group is names and roles of members or admins.
type group struct{ names, roles map[string]bool }

// has tells whether somebody belongs to the group.
func (g *group) has(name string, roles []string) bool {
	if name != "" && g.names[name] {
		return true
	}
	for _, r := range roles {
		if g.roles[r] {
			return true
		}
	}
	return false
}

// Rights gives what somebody with this name (empty: nobody) and these roles has.
// Being an administrator of the server is not looked at here.
func (s *Security) Rights(name string, roles []string) Rights {
	if s == nil {
		return 0
	}
	var have Rights
	if !s.authOnly {
		who := name
		if who == "" {
			who = Nobody
		}
		have = s.grants[who].rights
	}
	if s.members.has(name, roles) {
		have |= memberRights
	}
	if s.admins.has(name, roles) {
		have |= AllRights
	}
	return have
}

// Roles gives the roles that the object names for somebody, beside those of its
// own: validation functions see both.
func (s *Security) Roles(name string) []string {
	if s == nil || s.authOnly {
		return nil
	}
	if name == "" {
		name = Nobody
	}
	return s.grants[name].roles
}

// securityError is the answer to an object of the wrong shape.
func securityError(format string, args ...any) error {
	return model.BadRequest(fmt.Sprintf(format, args...))
}

// The members that have another name in unmodified clients.
var synonyms = map[string]string{"cloudant": "service", "couchdb_auth_only": "service_auth_only"}

// NormalSecurity gives a security object (normalised JSON) as it is stored: the
// names that unmodified clients use become ours, `_id` goes. It refuses objects
// of the wrong shape.
func NormalSecurity(obj []byte) ([]byte, error) {
	if rawjson.KindOf(obj) != rawjson.KindObject {
		return nil, securityError("The security object must be a JSON object.")
	}
	out := []byte{'{'}
	seen := map[string]bool{}
	for name, value := range rawjson.Members(obj) {
		member := string(name)
		if member == "_id" {
			continue
		}
		if ours, ok := synonyms[member]; ok {
			member = ours
		}
		if seen[member] {
			return nil, securityError("The security object says %s twice, under two names.", member)
		}
		seen[member] = true
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = rawjson.AppendString(out, member)
		out = append(append(out, ':'), value...)
	}
	out = append(out, '}')
	_, err := ParseSecurity(out)
	return out, err
}

// ParseSecurity reads a stored security object; nil gives one that admits nobody.
func ParseSecurity(obj []byte) (*Security, error) {
	s := &Security{}
	if len(obj) == 0 {
		return s, nil
	}
	if v, ok := rawjson.Get(obj, "service_auth_only"); ok {
		if s.authOnly, ok = rawjson.Bool(v); !ok {
			return nil, securityError("service_auth_only must be true or false.")
		}
	}
	if v, ok := rawjson.Get(obj, "service"); ok {
		if err := s.readGrants(v); err != nil {
			return nil, err
		}
	}
	for _, part := range []struct {
		name string
		to   *group
	}{{"members", &s.members}, {"admins", &s.admins}} {
		v, ok := rawjson.Get(obj, part.name)
		if !ok {
			continue
		}
		if rawjson.KindOf(v) != rawjson.KindObject {
			return nil, securityError("%s must be a JSON object with names and roles.", part.name)
		}
		var err error
		if part.to.names, err = readNames(v, part.name, "names"); err != nil {
			return nil, err
		}
		if part.to.roles, err = readNames(v, part.name, "roles"); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// readGrants reads the service member.
func (s *Security) readGrants(obj []byte) error {
	if rawjson.KindOf(obj) != rawjson.KindObject {
		return securityError("service must be a JSON object of names, each with an array of roles.")
	}
	s.grants = make(map[string]grant, rawjson.Len(obj))
	for name, list := range rawjson.Members(obj) {
		if rawjson.KindOf(list) != rawjson.KindArray {
			return securityError("service: the roles of %q must be an array of strings.", name)
		}
		var g grant
		for v := range rawjson.Elements(list) {
			role, ok := rawjson.String(v)
			if !ok {
				return securityError("service: the roles of %q must be an array of strings.", name)
			}
			rights, known := roleRights[role]
			if !known && strings.HasPrefix(role, "_") {
				return securityError("service: there is no role %q; roles that begin with an underscore are _reader, _writer, _admin, _replicator, _db_updates, _design, _shards and _security.", role)
			}
			g.rights |= rights
			g.roles = append(g.roles, role)
		}
		s.grants[string(name)] = g
	}
	return nil
}

// readNames reads an array of strings.
func readNames(obj []byte, of, member string) (map[string]bool, error) {
	list, ok := rawjson.Get(obj, member)
	if !ok {
		return nil, nil
	}
	if rawjson.KindOf(list) != rawjson.KindArray {
		return nil, securityError("%s.%s must be an array of strings.", of, member)
	}
	set := make(map[string]bool, rawjson.Len(list))
	for v := range rawjson.Elements(list) {
		s, ok := rawjson.String(v)
		if !ok {
			return nil, securityError("%s.%s must be an array of strings.", of, member)
		}
		set[s] = true
	}
	return set, nil
}
