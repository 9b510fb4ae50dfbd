package auth

import (
	"fmt"
	"testing"

	"github.com/divandb/divan/internal/model"
)

func TestSecurityRights(t *testing.T) {
	t.Parallel()
	const object = `{"service":{"ann":["_reader"],"bob":["_writer","clerk"],"cat":["_admin"],"dan":["_replicator","_db_updates"],` +
		`"eve":["_design"],"fay":["_shards"],"gus":["_security"],"hal":[],"nobody":["_reader"]},` +
		`"members":{"names":["mia"],"roles":["staff"]},"admins":{"names":["amy"],"roles":["boss"]}%s}`
	open, err := ParseSecurity([]byte(fmt.Sprintf(object, "")))
	if err != nil {
		t.Fatal(err)
	}
	closed, err := ParseSecurity([]byte(fmt.Sprintf(object, `,"service_auth_only":true`)))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name           string
		roles          []string
		open, authOnly Rights
	}{
		{"ann", nil, Reader | Design, 0},
		{"bob", nil, Writer, 0},
		{"cat", nil, AllRights, 0},
		{"dan", nil, Replicator | DBUpdates, 0},
		{"eve", nil, Design, 0},
		{"fay", nil, Shards, 0},
		{"gus", nil, SeeSecurity, 0},
		{"hal", nil, 0, 0},
		{"stranger", nil, 0, 0},
		{"", nil, Reader | Design, 0},
		{"", []string{"staff"}, Reader | Design | memberRights, memberRights},
		{"mia", nil, memberRights, memberRights},
		{"zoe", []string{"x", "staff"}, memberRights, memberRights},
		{"amy", nil, AllRights, AllRights},
		{"zoe", []string{"boss"}, AllRights, AllRights},
		{"ann", []string{"staff"}, Reader | Design | memberRights, memberRights},
	} {
		if got := open.Rights(c.name, c.roles); got != c.open {
			t.Errorf("%q %v: %b, want %b", c.name, c.roles, got, c.open)
		}
		if got := closed.Rights(c.name, c.roles); got != c.authOnly {
			t.Errorf("%q %v with service_auth_only: %b, want %b", c.name, c.roles, got, c.authOnly)
		}
	}
	if r := open.Roles("bob"); len(r) != 2 || r[1] != "clerk" {
		t.Errorf("roles of bob: %v", r)
	}
	none, err := ParseSecurity(nil)
	if err != nil || none.Rights("ann", []string{"staff"}) != 0 || none.Rights("", nil) != 0 {
		t.Error("a database without a security object admits somebody")
	}
}

func TestNormalSecurity(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"_id":"_security","cloudant":{"a":["_reader"]},"couchdb_auth_only":false,"other":1}`: `{"service":{"a":["_reader"]},"service_auth_only":false,"other":1}`,
		`{}`: `{}`,
	} {
		got, err := NormalSecurity([]byte(in))
		if err != nil || string(got) != want {
			t.Errorf("%s: %s %v", in, got, err)
		}
	}
	for _, in := range []string{
		`[]`, `"x"`, `{"service":[]}`, `{"service":{"a":"_reader"}}`, `{"service":{"a":[1]}}`, `{"service":{"a":["_foo"]}}`,
		`{"members":[]}`, `{"members":{"names":"x"}}`, `{"members":{"roles":[1]}}`, `{"admins":{"names":{}}}`,
		`{"service_auth_only":"yes"}`, `{"cloudant":{},"service":{}}`, `{"members":null}`,
	} {
		if _, err := NormalSecurity([]byte(in)); model.KindOf(err) != model.KindBadRequest {
			t.Errorf("%s: %v", in, err)
		}
	}
}

// Names are compared exactly: a member that differs in case grants nothing.
func TestSecurityMembersByCase(t *testing.T) {
	t.Parallel()
	s, err := ParseSecurity([]byte(`{"Service":{"a":["_admin"]},"Members":{"names":["a"]},"members":{"Names":["a"]},"ADMINS":{"names":["a"]}}`))
	if err != nil || s.Rights("a", nil) != 0 {
		t.Errorf("%v %v", s.Rights("a", nil), err)
	}
}
