// Package kivik_test runs the test suite of kivik, the Go client for CouchDB,
// against a server: its packages client and db, through kt. The root package of
// the suite is not used; it only starts other servers in containers.
package kivik_test

import (
	"net/url"
	"testing"

	kivik "github.com/go-kivik/kivik/v4"
	"github.com/go-kivik/kivik/v4/couchdb"
	_ "github.com/go-kivik/kivik/v4/kiviktest/client" // registers its tests with kt
	_ "github.com/go-kivik/kivik/v4/kiviktest/db"     // registers its tests with kt
	"github.com/go-kivik/kivik/v4/kiviktest/kt"

	"github.com/divandb/divan/test/serverprocess"
)

// TestKivik needs a server without databases of others, because the suite
// compares the whole list of databases.
func TestKivik(t *testing.T) {
	address, err := url.Parse(serverprocess.Start(t))
	if err != nil {
		t.Fatal(err)
	}
	name := address.User.Username()
	password, _ := address.User.Password()
	address.User = nil // kivik would log in with a cookie session, which is not served yet

	for _, deviation := range deviations {
		t.Logf("deviation: %s", deviation.reason)
	}
	suite := &kt.Context{
		RW:     true,
		Admin:  connect(t, address.String(), couchdb.BasicAuth(name, password)),
		NoAuth: connect(t, address.String()),
		Config: expectations(),
	}
	kt.RunSubtests(t, suite)
}

// connect opens a client that is closed when the test ends.
func connect(t *testing.T, address string, options ...kivik.Option) *kivik.Client {
	t.Helper()
	client, err := kivik.New("couch", address, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
	})
	return client
}
