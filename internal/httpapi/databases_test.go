package httpapi_test

import (
	"encoding/json"
	"fmt"
	"hash/crc32"
	"maps"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/divandb/divan/internal/testserver"
)

func TestRoot(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	for _, auth := range []string{"", "Basic: xxx", "Foo bar"} {
		o := s.Do(t, "GET", "/", nil, "Authorization", auth).Want(200).Object()
		if o["service"] != "Welcome" || o["couchdb"] != "Welcome" || o["version"] != "3.5.2" {
			t.Errorf("greeting %v", o)
		}
		if len(o["uuid"].(string)) != 32 {
			t.Errorf("uuid %v", o["uuid"])
		}
		v := o["vendor"].(map[string]any)
		if v["name"] != "Divan" || v["version"] == "" || v["service_build"] == "" {
			t.Errorf("vendor %v", v)
		}
		if _, ok := o["features"].([]any); !ok {
			t.Errorf("features %v", o["features"])
		}
	}
	s.Do(t, "GET", "/_up", nil, "Authorization", "").Want(200)
}

// Every answer names its request, by the client's word for it where that is safe.
func TestRequestIDs(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	for _, path := range []string{"/", "/_up", "/_all_dbs", db, db + "/none", db + "/_all_docs", db + "/_changes", db + "/_all_docs?limit=x", "/none/x"} {
		for _, auth := range [][]string{nil, {"Authorization", ""}} {
			r := s.Do(t, "GET", path, nil, append([]string{"X-Couch-Request-ID", "my_id-7"}, auth...)...)
			if got := r.Header.Get("X-Couch-Request-ID"); got != "my_id-7" {
				t.Errorf("%s %v: %q", path, auth, got)
			}
		}
	}
	seen := map[string]bool{}
	for _, id := range []string{"", "", strings.Repeat("x", 37), "a b", "a=\"b\"", "é", "<b>"} {
		got := s.Do(t, "GET", "/_up", nil, "X-Couch-Request-ID", id).Header.Get("X-Couch-Request-ID")
		if got == "" || got == id || seen[got] {
			t.Errorf("%q: %q", id, got)
		}
		seen[got] = true
	}
}

// Only / and /_up answer strangers.
func TestStrangersStayOutside(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := s.DB(t)
	for _, path := range []string{"/_all_dbs", "/_uuids", "/_active_tasks", "/_membership", "/_db_updates", "/_dbs_info", "/" + db,
		"/" + db + "/x", "/" + db + "/_all_docs", "/" + db + "/_changes", "/nope", "/nope/x/y/z", "/" + db + "/_shards", "/_utils/x",
		"/" + db + "/_design%2Fx", "/" + db + "/_local%2Fx"} {
		r := s.Do(t, "GET", path, nil, "Authorization", "").Want(401)
		if r.Str("error") != "unauthorized" || r.Header.Get("WWW-Authenticate") == "" {
			t.Errorf("%s: %s", path, r.Body)
		}
	}
	s.Do(t, "PUT", "/"+db+"/x", `{}`, "Authorization", "").Want(401)
	s.Do(t, "GET", "/"+db, nil, "Authorization", "Basic Z2hvc3Q6bm8=").Want(401)
	s.Do(t, "GET", "/", nil, "Authorization", "Basic %%%").Want(400)
	s.Do(t, "GET", "/"+db+"/x", nil).Want(404)
}

func TestUUIDs(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	seen := map[string]bool{}
	r := s.Do(t, "GET", "/_uuids?count=1000", nil).Want(200)
	for _, u := range r.Object()["uuids"].([]any) {
		if len(u.(string)) != 32 || seen[u.(string)] {
			t.Fatalf("uuid %v", u)
		}
		seen[u.(string)] = true
	}
	if len(seen) != 1000 || !strings.Contains(r.Header.Get("Cache-Control"), "no-cache") {
		t.Errorf("%d uuids, %v", len(seen), r.Header)
	}
	if n := len(s.Do(t, "GET", "/_uuids", nil).Want(200).Object()["uuids"].([]any)); n != 1 {
		t.Errorf("%d uuids by default", n)
	}
	for _, bad := range []string{"0", "-1", "1001", "x", ""} {
		s.Do(t, "GET", "/_uuids?count="+bad, nil).Want(400)
	}
}

func TestDatabaseLife(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	name := s.DB(t) + "/with+plus"
	path := "/" + url.PathEscape(name)
	r := s.Do(t, "PUT", path+"?q=3&n=2", nil).Want(201)
	if !strings.HasSuffix(r.Header.Get("Location"), strings.ReplaceAll(path, "+", "+")) {
		t.Errorf("Location %q", r.Header.Get("Location"))
	}
	s.Do(t, "PUT", path, nil).Want(412)
	r = s.Do(t, "PUT", path+"/doc", `{}`, "X-Forwarded-Host", "db.example", "X-Forwarded-Proto", "https").Want(201)
	if l := r.Header.Get("Location"); l != "https://db.example"+path+"/doc" {
		t.Errorf("Location behind a proxy: %q", l)
	}
	s.Do(t, "HEAD", path, nil).Want(200)
	info := s.Do(t, "GET", path, nil).Want(200).Object()
	cl := info["cluster"].(map[string]any)
	if info["db_name"] != name || cl["q"] != 3.0 || cl["n"] != 1.0 || cl["w"] != 1.0 || cl["r"] != 1.0 {
		t.Errorf("info %v", info)
	}
	shards := s.Do(t, "GET", path+"/_shards", nil).Want(200).Object()["shards"].(map[string]any)
	if len(shards) != 3 {
		t.Errorf("shards %v", shards)
	}
	nodes := fmt.Sprint(s.Do(t, "GET", "/_membership", nil).Want(200).Object()["all_nodes"])
	for r, on := range shards {
		if fmt.Sprint(on) != nodes {
			t.Errorf("range %s is on %v, the nodes are %s", r, on, nodes)
		}
	}
	for i := range 20 {
		id := fmt.Sprint("doc", i)
		sh := s.Do(t, "GET", path+"/_shards/"+id, nil).Want(200).Object()
		var first, last uint32
		if _, err := fmt.Sscanf(sh["range"].(string), "%08x-%08x", &first, &last); err != nil {
			t.Fatalf("%v: %v", sh, err)
		}
		if at := crc32.ChecksumIEEE([]byte(id)); shards[sh["range"].(string)] == nil || at < first || at > last || fmt.Sprint(sh["nodes"]) != nodes {
			t.Errorf("%s (%08x): %v of %v", id, at, sh, shards)
		}
	}
	s.Do(t, "DELETE", path+"?rev=1-a", nil).Want(400)
	s.Do(t, "DELETE", path, nil).Want(200)
	s.Do(t, "DELETE", path, nil).Want(404)
	s.Do(t, "GET", path, nil).Want(404)
	if e := s.Do(t, "GET", path+"/x", nil).Want(404); e.Str("reason") != "no_db_file" {
		t.Errorf("%s", e.Body)
	}
	s.Do(t, "HEAD", path, nil).Want(404)
	// Created again, it is empty and another instance.
	s.Do(t, "PUT", path, nil).Want(201)
	if n := s.Do(t, "GET", path, nil).Want(200).Object()["doc_count"]; n != 0.0 {
		t.Errorf("%v documents in a new database", n)
	}
	s.Do(t, "DELETE", path, nil).Want(200)
}

func TestDatabaseNames(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	for _, bad := range []string{"/T1", "/_x", "/1a", "/a.b", "/a%00", "/..%2f..%2fetc", "/a%5cb", "/" + strings.Repeat("a", 300)} {
		r := s.Do(t, "PUT", bad, nil).Want(403)
		if !strings.Contains(r.Str("error"), "database_name") {
			t.Errorf("%s: %s", bad, r.Body)
		}
	}
	for _, sys := range []string{"/_users", "/_replicator"} {
		s.Do(t, "GET", sys, nil).Want(200)
		s.Do(t, "PUT", sys, nil).Want(412)
	}
	db := s.DB(t)
	for _, bad := range []string{"q=0", "q=-1", "q=x", "n=0", "n=x", "q=100000", "partitioned=maybe"} {
		s.Do(t, "PUT", "/"+db+"x?"+bad, nil).Want(400)
	}
	s.Do(t, "GET", "/"+db+"x", nil).Want(404)
}

// Every field of the information is true.
func TestDatabaseInformation(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	get := func() map[string]any { return s.Do(t, "GET", db, nil).Want(200).Object() }
	empty := get()
	members := "cluster compact_running db_name disk_format_version disk_size doc_count doc_del_count instance_start_time other props purge_seq sizes update_seq"
	if got := strings.Join(slices.Sorted(maps.Keys(empty)), " "); got != members {
		t.Errorf("members %s", got)
	}
	if empty["db_name"] != db[1:] || empty["disk_format_version"].(float64) < 1 || len(empty["props"].(map[string]any)) != 0 {
		t.Errorf("%v", empty)
	}
	parts := s.Do(t, "GET", "/"+s.DB(t, "partitioned=true"), nil).Want(200).Object()["props"]
	if parts.(map[string]any)["partitioned"] != true {
		t.Errorf("props of a partitioned database: %v", parts)
	}
	if empty["instance_start_time"] != "0" || empty["purge_seq"] != 0.0 || empty["compact_running"] != false {
		t.Errorf("%v", empty)
	}
	var revs []string
	for i := range 20 {
		revs = append(revs, s.Do(t, "PUT", fmt.Sprintf("%s/d%d", db, i), map[string]any{"text": strings.Repeat("x", 1000)}).Want(201).Str("rev"))
	}
	for i := range 5 {
		s.Do(t, "DELETE", fmt.Sprintf("%s/d%d?rev=%s", db, i, revs[i]), nil).Want(200)
	}
	full := get()
	sizes := full["sizes"].(map[string]any)
	if full["doc_count"] != 15.0 || full["doc_del_count"] != 5.0 {
		t.Errorf("%v documents, %v deleted", full["doc_count"], full["doc_del_count"])
	}
	if full["update_seq"] == empty["update_seq"] || !strings.HasPrefix(full["update_seq"].(string), "25-") {
		t.Errorf("update_seq %v after 25 writes", full["update_seq"])
	}
	ext, file, active := sizes["external"].(float64), sizes["file"].(float64), sizes["active"].(float64)
	if ext < 15*1000 || ext > 15*1000+20*100 {
		t.Errorf("external %v for 15 documents of 1,000 bytes", ext)
	}
	// The bytes just written count although they are not flushed yet.
	if file < 1000 || active < 1000 {
		t.Errorf("file %v, active %v", file, active)
	}
	if full["disk_size"] != file || full["other"].(map[string]any)["data_size"] != ext {
		t.Errorf("aliases: %v", full)
	}
}

func TestAllDBs(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	base := s.DB(t)
	names := []string{base}
	for _, suffix := range []string{"a", "b", "c"} {
		s.Do(t, "PUT", "/"+base+suffix, nil).Want(201)
		t.Cleanup(func() { s.Do(t, "DELETE", "/"+base+suffix, nil) })
		names = append(names, base+suffix)
	}
	list := func(query string) string {
		var out []string
		if err := json.Unmarshal(s.Do(t, "GET", "/_all_dbs?"+query, nil).Want(200).Body, &out); err != nil {
			t.Fatal(err)
		}
		return strings.Join(out, ",")
	}
	bounds := url.Values{"startkey": {`"` + base + `"`}, "endkey": {`"` + base + `z"`}}.Encode()
	reversed := url.Values{"startkey": {`"` + base + `z"`}, "endkey": {`"` + base + `"`}, "descending": {"true"}}.Encode()
	for query, want := range map[string][]string{
		bounds:                            names,
		bounds + "&limit=2":               names[:2],
		bounds + "&skip=1&limit=2":        names[1:3],
		bounds + "&limit=0":               {},
		reversed:                          {names[3], names[2], names[1], names[0]},
		reversed + "&inclusive_end=false": {names[3], names[2], names[1]},
	} {
		if got := list(query); got != strings.Join(want, ",") {
			t.Errorf("%s: %s, want %v", query, got, want)
		}
	}
	s.Do(t, "GET", "/_all_dbs?limit=-1", nil).Want(400)
	s.Do(t, "GET", "/_all_dbs?startkey=x", nil).Want(400)
	s.Do(t, "GET", "/_all_dbs/x", nil).Want(404)
}

func TestDBsInfo(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := s.DB(t)
	var rows []map[string]any
	body := s.Do(t, "POST", "/_dbs_info", map[string]any{"keys": []string{db, "nope"}}).Want(200).Body
	if err := json.Unmarshal(body, &rows); err != nil {
		t.Fatal(err)
	}
	if len(rows) != 2 || rows[0]["info"].(map[string]any)["db_name"] != db || rows[1]["error"] != "not_found" {
		t.Errorf("%s", body)
	}
	many := make([]string, 101)
	if e := s.Do(t, "POST", "/_dbs_info", map[string]any{"keys": many}).Want(400); e.Str("error") != "too_many_keys" {
		t.Errorf("%s", e.Body)
	}
	s.Do(t, "POST", "/_dbs_info", `{"keys":3}`).Want(400)
	s.Do(t, "GET", "/_dbs_info", nil).Want(200)
}

func TestRevsLimit(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	if b := s.Do(t, "GET", db+"/_revs_limit", nil).Want(200).Body; string(b) != "1000\n" {
		t.Errorf("%q", b)
	}
	s.Do(t, "PUT", db+"/_revs_limit", "3").Want(200)
	for _, bad := range []string{"0", "-5", `"x"`, "{}", "", "1.5"} {
		s.Do(t, "PUT", db+"/_revs_limit", bad).Want(400)
	}
	rev := ""
	for i := range 6 {
		rev = s.Do(t, "PUT", db+"/d", fmt.Sprintf(`{"i":%d}`, i), "If-Match", rev).Want(201).Str("rev")
	}
	ids := s.Do(t, "GET", db+"/d?revs=true", nil).Want(200).Object()["_revisions"].(map[string]any)["ids"].([]any)
	if len(ids) != 3 {
		t.Errorf("%d revisions are known with a limit of 3", len(ids))
	}
	// A lower limit shows at once, though only the next edit forgets.
	s.Do(t, "PUT", db+"/_revs_limit", "2").Want(200)
	if got := s.Do(t, "GET", db+"/d?revs=true", nil).Want(200).Object()["_revisions"]; fmt.Sprint(got) != fmt.Sprint(map[string]any{"start": 6.0, "ids": ids[:2]}) {
		t.Errorf("%v", got)
	}
}

func TestUnsupported(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{"POST", db + "/_temp_view", 410}, {"POST", "/_restart", 501}, {"GET", "/_stats", 501}, {"POST", db + "/_purge", 501},
		{"GET", db + "/_purged_infos_limit", 501}, {"PUT", db + "/_purged_infos_limit", 501}, {"POST", db + "/_compact", 501},
		{"POST", db + "/_compact/d", 501}, {"POST", db + "/_view_cleanup", 501},
	} {
		r := s.Do(t, c.method, c.path, `{}`).Want(c.status)
		if r.Str("reason") == "" {
			t.Errorf("%s %s gives no reason", c.method, c.path)
		}
	}
	r := s.Do(t, "POST", db+"/_bulk_docs", `{"all_or_nothing":true,"docs":[{"_id":"a"}]}`).Want(417)
	if r.Str("error") != "expectation_failed" {
		t.Errorf("%s", r.Body)
	}
	s.Do(t, "GET", db+"/a", nil).Want(404)
	if a := s.Do(t, "PATCH", db, nil).Want(405).Header.Get("Allow"); !strings.Contains(a, "GET") {
		t.Errorf("Allow %q", a)
	}
}

func TestMembershipAndCommit(t *testing.T) {
	t.Parallel()
	s := testserver.Shared(t)
	db := "/" + s.DB(t)
	m := s.Do(t, "GET", "/_membership", nil).Want(200).Object()
	if len(m["all_nodes"].([]any)) == 0 || len(m["cluster_nodes"].([]any)) == 0 {
		t.Errorf("%v", m)
	}
	s.Do(t, "PUT", db+"/x", `{}`).Want(201)
	r := s.Do(t, "POST", db+"/_ensure_full_commit", `{}`).Want(201)
	if r.Str("instance_start_time") != "0" {
		t.Errorf("%s", r.Body)
	}
	s.Do(t, "GET", "/_active_tasks", nil).Want(200)
	s.Do(t, "POST", db+"/_sync_shards", `{}`).Want(202)
}
