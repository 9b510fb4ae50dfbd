// Package kivik_test runs the test suite of kivik, the Go client for CouchDB,
// against a server: its packages client and db, through kt. The root package of
// the suite is not used; it only starts other servers in containers.
package kivik_test

import (
	"context"
	"net/url"
	"testing"

	kivik "github.com/go-kivik/kivik/v4"
	_ "github.com/go-kivik/kivik/v4/couchdb"          // the driver "couch"
	_ "github.com/go-kivik/kivik/v4/kiviktest/client" // registers its tests with kt
	_ "github.com/go-kivik/kivik/v4/kiviktest/db"     // registers its tests with kt
	"github.com/go-kivik/kivik/v4/kiviktest/kt"

	"github.com/divandb/divan/internal/testserver"
)

// TestKivik needs a server without databases of others, because the suite
// compares the whole list of databases.
func TestKivik(t *testing.T) {
	for _, deviation := range deviations {
		t.Logf("deviation: %s", deviation.reason)
	}
	suite := newSuite(t)
	suite.Config["DBUpdates.skip"] = true // TestKivikDBUpdates runs it
	kt.RunSubtests(t, suite)
}

// TestKivikDBUpdates runs the one test that needs a busy server: kivik opens the
// feed of database updates only when its first event has come, and the event
// that the test itself causes comes after that. So databases are made and
// dropped beside it, which the exact lists in TestKivik would not bear.
func TestKivikDBUpdates(t *testing.T) {
	suite := newSuite(t)
	suite.Config["skip"] = true // everything but what is named
	suite.Config["DBUpdates.skip"] = false

	ctx, cancel := context.WithCancel(t.Context())
	idle := make(chan error, 1)
	go func() { idle <- churn(ctx, suite.Admin, kt.TestDBName(t)) }()
	kt.RunSubtests(t, suite)
	cancel()
	if err := <-idle; err != nil {
		t.Error(err)
	}
}

// churn creates and drops a database until the context ends.
func churn(ctx context.Context, client *kivik.Client, name string) error {
	for ctx.Err() == nil {
		// not ctx: a request cut off in the middle could leave the database behind
		if err := client.CreateDB(context.Background(), name); err != nil {
			return err
		}
		if err := client.DestroyDB(context.Background(), name); err != nil {
			return err
		}
	}
	return nil
}

// newSuite is kivik's suite for a server, with and without credentials.
func newSuite(t *testing.T) *kt.Context {
	t.Helper()
	address, err := url.Parse(testserver.ProcessURL(t))
	if err != nil {
		t.Fatal(err)
	}
	admin := address.String() // kivik logs in with a cookie session
	address.User = nil
	return &kt.Context{
		RW:     true,
		Admin:  connect(t, admin),
		NoAuth: connect(t, address.String()),
		Config: expectations(),
	}
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
