package httpapi_test

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/testserver"
)

// update is a row of _db_updates.
type update struct {
	DBName  string `json:"dbname"`
	DBName2 string `json:"db_name"`
	Type    string `json:"type"`
	Account string `json:"account"`
	Seq     string `json:"seq"`
	LastSeq string `json:"last_seq"`
}

// updatesOf asks for events and gives those of one database, in order, and last_seq.
func updatesOf(t *testing.T, s *testserver.Server, db, query string) (types []string, last string) {
	t.Helper()
	r := s.Do(t, "GET", "/_db_updates"+query, nil).Want(200)
	var list struct {
		Results []update `json:"results"`
		LastSeq string   `json:"last_seq"`
	}
	if err := json.Unmarshal(r.Body, &list); err != nil {
		t.Fatalf("%v: %s", err, r.Body)
	}
	for _, u := range list.Results {
		if u.DBName != u.DBName2 || u.Account == "" || u.Seq == "" {
			t.Errorf("row %+v", u)
		}
		if "/"+u.DBName == db {
			types = append(types, u.Type)
		}
	}
	return types, list.LastSeq
}

// awaitUpdate reads a continuous feed up to an event of a database.
func awaitUpdate(t *testing.T, l *lines, db, kind string) update {
	t.Helper()
	for {
		text, ok := l.line()
		if !ok {
			t.Fatalf("the feed ended before %s was %s", db, kind)
		}
		if text == "" {
			continue
		}
		var u update
		if err := json.Unmarshal([]byte(text), &u); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if "/"+u.DBName == db && u.Type == kind {
			return u
		}
	}
}

func TestDBUpdates(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	_, before := updatesOf(t, s, "", "")
	live := readLines(t, s.Stream(t, context.Background(), "GET", "/_db_updates?feed=continuous&since=now", nil))
	db := "/" + s.DB(t)
	created := awaitUpdate(t, live, db, "created")
	s.Do(t, "PUT", db+"/x", `{}`).Want(201)
	updated := awaitUpdate(t, live, db, "updated")
	if types, _ := updatesOf(t, s, db, "?since="+url.QueryEscape(before)); strings.Join(types, " ") != "created updated" {
		t.Errorf("since: %v", types)
	}
	if types, _ := updatesOf(t, s, db, "?since="+url.QueryEscape(created.Seq)); strings.Join(types, " ") != "updated" {
		t.Errorf("after created: %v", types)
	}
	if types, _ := updatesOf(t, s, db, "?descending=true"); strings.Join(types, " ") != "updated created" {
		t.Errorf("descending: %v", types)
	}
	if types, last := updatesOf(t, s, db, "?limit=1&since="+url.QueryEscape(created.Seq)); len(types) > 1 || last == "" {
		t.Errorf("limit: %v %s", types, last)
	}
	if types, last := updatesOf(t, s, db, "?limit=0&since="+url.QueryEscape(created.Seq)); types != nil || last != created.Seq {
		t.Errorf("limit 0: %v %s", types, last)
	}
	// A longpoll with something to tell tells it at once.
	if types, _ := updatesOf(t, s, db, "?feed=longpoll&since="+url.QueryEscape(created.Seq)); strings.Join(types, " ") != "updated" {
		t.Errorf("longpoll: %v", types)
	}
	s.Do(t, "DELETE", db, nil).Want(200)
	awaitUpdate(t, live, db, "deleted")
	if types, _ := updatesOf(t, s, db, "?since="+url.QueryEscape(updated.Seq)); strings.Join(types, " ") != "deleted" {
		t.Errorf("after updated: %v", types)
	}
	head := s.Do(t, "HEAD", "/_db_updates?feed=continuous", nil).Want(200)
	if len(head.Body) != 0 {
		t.Errorf("HEAD: %s", head.Body)
	}
	for query, reason := range map[string]string{
		"?feed=x":      "Supported `feed` types: normal, continuous, live, longpoll, eventsource",
		"?limit=x":     "The limit parameter should be a non-negative integer",
		"?since=x":     "Malformed sequence supplied in 'since' parameter.",
		"?since=5":     "Malformed sequence supplied in 'since' parameter.",
		"?heartbeat=x": "Invalid heartbeat value. Expecting a positive integer value (in milliseconds).",
	} {
		if r := s.Do(t, "GET", "/_db_updates"+query, nil).Want(400); r.Str("reason") != reason {
			t.Errorf("%s: %s", query, r.Body)
		}
	}
}

// asItIs changes nothing. It asks for a server of the test's own, not the one of
// DIVAN_URL.
func asItIs(*config.Config) {}

// The frames of the feed, on a server where nothing else happens.
func TestDBUpdatesLayout(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	row := func(name, kind string) string {
		return `{"db_name":"` + name + `","dbname":"` + name + `","type":"` + kind + `","account":"divan","seq":"T"}`
	}
	system := []string{row("_replicator", "created"), row("_users", "created")}
	r := s.Do(t, "GET", "/_db_updates", nil).Want(200)
	if strings.Index(string(r.Body), "_users") < strings.Index(string(r.Body), "_replicator") {
		system[0], system[1] = system[1], system[0]
	}
	s.Do(t, "PUT", "/one", nil).Want(201)
	all := append(system, row("one", "created"))
	whole := "{\"results\":[\n" + strings.Join(all, ",\r\n") + "\n],\n\"last_seq\":\"T\"}\n\n"
	for query, want := range map[string]string{
		"":                                   whole,
		"?feed=longpoll":                     whole,
		"?limit=0":                           "{\"results\":[\n\n],\n\"last_seq\":\"T\"}\n\n",
		"?since=now":                         "{\"results\":[\n\n],\n\"last_seq\":\"T\"}\n\n",
		"?descending=true&limit=1":           "{\"results\":[\n" + all[2] + "\n],\n\"last_seq\":\"T\"}\n\n",
		"?feed=continuous&timeout=10":        strings.Join(all, "\n") + "\n{\"last_seq\":\"T\"}\n\n",
		"?feed=continuous&limit=1":           all[0] + "\n{\"last_seq\":\"T\"}\n\n",
		"?feed=longpoll&since=now&timeout=1": "{\"results\":[\n\n\n],\n\"last_seq\":\"T\"}\n\n",
		"?feed=eventsource&limit=1":          "data: " + all[0] + "\nid: \"T\"\n\n",
	} {
		if got := framed(s.Do(t, "GET", "/_db_updates"+query, nil).Want(200).Body); got != want {
			t.Errorf("%s\ngot  %q\nwant %q", query, got, want)
		}
	}
	l := readLines(t, s.Stream(t, context.Background(), "GET", "/_db_updates?feed=continuous&since=now&heartbeat=10", nil))
	for range 4 {
		if text, ok := l.line(); text != "" || !ok {
			t.Errorf("%q %v", text, ok)
		}
	}
	s.Do(t, "DELETE", "/one", nil).Want(200)
	l.want(row("one", "deleted"))
	poll := readLines(t, s.Stream(t, context.Background(), "GET", "/_db_updates?feed=longpoll&since=now", nil))
	s.Do(t, "PUT", "/two", nil).Want(201)
	l.want(row("two", "created"))
	poll.want(`{"results":[`)
	poll.want(row("two", "created"))
	poll.want("],")
	poll.end(`"last_seq":"T"}`)
	// A server that stops ends its feeds in good order.
	s.Stop(t)
	l.end(`{"last_seq":"T"}`)
}

// So do the feeds of a database.
func TestChangesEndWithTheServer(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	s.Do(t, "PUT", "/db", nil).Want(201)
	ctx := context.Background()
	live := readLines(t, s.Stream(t, ctx, "GET", "/db/_changes?feed=continuous", nil))
	poll := readLines(t, s.Stream(t, ctx, "GET", "/db/_changes?feed=longpoll", nil))
	s.Stop(t)
	live.end(`{"last_seq":"T","pending":0}`)
	poll.want(`{"results":[`)
	poll.want("],")
	poll.end(`"last_seq":"T","pending":0}`)
}

// A database that has the name of a deleted one does not show what became of that one.
func TestDBUpdatesOfDeleted(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(asItIs))
	addUser(t, s, "ann")
	listener := as{t, s, basic("ann")}
	s.Do(t, "PUT", "/again", nil).Want(201)
	s.Do(t, "DELETE", "/again", nil).Want(200)
	s.Do(t, "PUT", "/again", nil).Want(201)
	s.Do(t, "PUT", "/again/_security", `{"service":{"ann":["_db_updates"]}}`).Want(200)
	if got := framed(listener.do("GET", "/_db_updates", nil).Want(200).Body); strings.Contains(got, "deleted") || strings.Count(got, `"created"`) != 1 {
		t.Errorf("%s", got)
	}
	if types, _ := updatesOf(t, s, "/again", ""); strings.Join(types, " ") != "deleted created" {
		t.Errorf("as administrator: %v", types)
	}
	s.Do(t, "DELETE", "/again", nil).Want(200)
	listener.do("GET", "/_db_updates", nil).Want(403)
}
