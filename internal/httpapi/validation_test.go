package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/divandb/divan/internal/config"
	"github.com/divandb/divan/internal/testserver"
)

// guarded is a database with validation functions.
type guarded struct {
	*testserver.Server
	path string // "/" and its name
	name string
}

// refusing is what the transcripts use.
const refusing = `function(n,o,u,s){ if(n.bad) throw({forbidden:'no bad'}); if(n.who) throw({unauthorized:'who?'}); }`

// seeing refuses documents with the member see and tells what it saw.
const seeing = `function(n,o,u,s){ if(n.see) throw({forbidden:JSON.stringify({n:n,o:o,u:u,s:s})}); }`

func newGuarded(t *testing.T, s *testserver.Server, functions ...string) *guarded {
	t.Helper()
	g := &guarded{Server: s, name: s.DB(t, "q=4")}
	g.path = "/" + g.name
	for i, f := range functions {
		g.design(t, fmt.Sprint(i), map[string]any{"validate_doc_update": f})
	}
	return g
}

// design writes a design document and gives its revision.
func (g *guarded) design(t *testing.T, name string, body map[string]any) string {
	t.Helper()
	return g.Do(t, "PUT", g.path+"/_design/"+name, body).Want(201).Str("rev")
}

// refused holds an answer to a status and an error body.
func refused(t *testing.T, r *testserver.Response, status int, name, reason string) {
	t.Helper()
	want := `{"error":"` + name + `","reason":"` + reason + `"}`
	if got := strings.TrimSpace(string(r.Body)); r.Status != status || got != want {
		t.Errorf("%d %s, want %d %s", r.Status, got, status, want)
	}
}

// sight is what a validation function saw.
type sight struct {
	N, O, U, S map[string]any
}

// saw gives what the function saw of a refused write.
func saw(t *testing.T, r *testserver.Response) (out sight) {
	t.Helper()
	r.Want(403)
	if err := json.Unmarshal([]byte(r.Str("reason")), &out); err != nil {
		t.Fatalf("%v: %s", err, r.Body)
	}
	return out
}

// TestValidation refuses on every way in, and keeps nothing of what it refuses.
func TestValidation(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, testserver.Shared(t), refusing)
	refused(t, g.Do(t, "PUT", g.path+"/z", `{"bad":1}`), 403, "forbidden", "no bad")
	refused(t, g.Do(t, "PUT", g.path+"/z", `{"who":1}`), 401, "unauthorized", "who?")
	refused(t, g.Do(t, "POST", g.path, `{"_id":"z","bad":1}`), 403, "forbidden", "no bad")
	refused(t, g.Do(t, "POST", g.path, `{"bad":1}`), 403, "forbidden", "no bad")
	refused(t, g.Do(t, "PUT", g.path+"/z?batch=ok", `{"bad":1}`), 403, "forbidden", "no bad")
	refused(t, g.Do(t, "PUT", g.path+"/z?new_edits=false", `{"_rev":"1-a","bad":1}`), 403, "forbidden", "no bad")
	refused(t, g.Do(t, "PUT", g.path+"/z", `{"bad":1,"_attachments":{"f":{"data":"aGk="}}}`), 403, "forbidden", "no bad")
	body := "--x\r\nContent-Type: application/json\r\n\r\n{\"bad\":1,\"_attachments\":{\"f\":{\"follows\":true,\"length\":2}}}\r\n--x\r\n\r\nhi\r\n--x--"
	refused(t, g.Do(t, "PUT", g.path+"/z", body, "Content-Type", `multipart/related; boundary="x"`), 403, "forbidden", "no bad")
	g.Do(t, "GET", g.path+"/z", nil).Want(404)

	rev := g.Do(t, "PUT", g.path+"/z", `{"n":1}`).Want(201).Str("rev")
	refused(t, g.Do(t, "PUT", g.path+"/z?rev="+rev, `{"bad":1}`), 403, "forbidden", "no bad")
	refused(t, g.Do(t, "PUT", g.path+"/z", `{"bad":1}`), 409, "conflict", "Document update conflict.")
	refused(t, g.Do(t, "PUT", g.path+"/z?rev=1-stale", `{"bad":1}`), 409, "conflict", "Document update conflict.")
	refused(t, g.Do(t, "PUT", g.path+"/z?rev="+rev, `{"bad":1,"_deleted":true}`), 403, "forbidden", "no bad")
	if got := g.Do(t, "GET", g.path+"/z", nil).Want(200).Str("_rev"); got != rev {
		t.Errorf("now %s, was %s", got, rev)
	}
	g.Do(t, "DELETE", g.path+"/z?rev="+rev, nil).Want(200)
	if n := g.Do(t, "GET", g.path, nil).Want(200).Object()["doc_count"]; n != 1.0 {
		t.Errorf("%v documents, want the design document alone", n)
	}
}

// TestValidationInBulk refuses by entry.
func TestValidationInBulk(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, testserver.Shared(t), refusing)
	r := results(t, g.Do(t, "POST", g.path+"/_bulk_docs", `{"docs":[{"_id":"z1"},{"_id":"z2","bad":1},{"_id":"z3","who":1},
		{"_id":"_design/s","views":{"v":{"map":"function(doc){ emit( }"}}},{"_id":"_design/w","views":3},{"_id":"_local/l","bad":1},{"_id":"z4"}]}`).Want(201))
	reason, _ := r[3]["reason"].(string)
	if !strings.HasPrefix(reason, "Compilation of the map function in the 'v' view failed: ") {
		t.Errorf("%v", r[3])
	}
	delete(r[3], "reason")
	want := []string{"map[id:z1 ok:true]", "map[error:forbidden id:z2 reason:no bad]", "map[error:unauthorized id:z3 reason:who?]",
		"map[error:compilation_error id:_design/s]", "map[error:invalid_design_doc id:_design/w reason:`views` field must have object type]",
		"map[id:_local/l ok:true]", "map[id:z4 ok:true]"}
	for i := range r {
		delete(r[i], "rev")
		if got := fmt.Sprint(r[i]); got != want[i] {
			t.Errorf("%d: %s, want %s", i, got, want[i])
		}
	}
	rep := results(t, g.Do(t, "POST", g.path+"/_bulk_docs", `{"new_edits":false,"docs":[{"_id":"r1","_rev":"1-a"},{"_id":"r2","_rev":"1-a","bad":1},{"_id":"_design/r","_rev":"1-a","views":3}]}`).Want(201))
	if len(rep) != 2 || rep[0]["id"] != "r2" || rep[0]["error"] != "forbidden" || rep[1]["id"] != "_design/r" || rep[1]["error"] != "invalid_design_doc" {
		t.Errorf("%v", rep)
	}
	g.Do(t, "GET", g.path+"/r1", nil).Want(200)
	g.Do(t, "GET", g.path+"/r2", nil).Want(404)
	g.Do(t, "GET", g.path+"/_design/r", nil).Want(404)
}

// TestValidationArguments shows what functions are given on every way in.
func TestValidationArguments(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, testserver.Shared(t), seeing)
	s := saw(t, g.Do(t, "PUT", g.path+"/d", `{"see":1}`))
	if fmt.Sprint(s.N) != "map[_id:d see:1]" || s.O != nil {
		t.Errorf("create: %v, %v", s.N, s.O)
	}
	if got := fmt.Sprint(s.U); got != fmt.Sprintf("map[db:%s name:%s roles:[_admin]]", g.name, testserver.AdminName) {
		t.Errorf("userCtx %s", got)
	}
	if s.S == nil || len(s.S) != 0 {
		t.Errorf("secObj of a database that has none: %v", s.S)
	}
	rev := g.Do(t, "PUT", g.path+"/d", `{"n":1,"_attachments":{"f":{"content_type":"text/plain","data":"aGk="}}}`).Want(201).Str("rev")
	s = saw(t, g.Do(t, "PUT", g.path+"/d?rev="+rev, `{"see":1}`))
	if s.N["_rev"] != rev || s.N["_attachments"] != nil || s.O["_rev"] != rev || s.O["n"] != 1.0 || s.O["_id"] != "d" {
		t.Errorf("update: %v, %v", s.N, s.O)
	}
	att, _ := s.O["_attachments"].(map[string]any)["f"].(map[string]any)
	if att["stub"] != true || att["length"] != 2.0 || att["content_type"] != "text/plain" || att["revpos"] != 1.0 || att["digest"] == nil || att["data"] != nil {
		t.Errorf("attachment of the old document: %v", att)
	}
	s = saw(t, g.Do(t, "PUT", g.path+"/d?rev="+rev, `{"see":1,"_deleted":true}`))
	if s.N["_deleted"] != true || s.O["n"] != 1.0 {
		t.Errorf("deletion: %v, %v", s.N, s.O)
	}
	s = saw(t, g.Do(t, "PUT", g.path+"/d?new_edits=false", `{"see":1,"_rev":"3-c","_revisions":{"start":3,"ids":["c","b","`+rev[2:]+`"]}}`))
	if s.N["_rev"] != "3-c" || s.O["_rev"] != rev || fmt.Sprint(s.N["_revisions"]) != "map[ids:[c b "+rev[2:]+"] start:3]" {
		t.Errorf("replicated: %v, %v", s.N, s.O)
	}
	g.Do(t, "DELETE", g.path+"/d?rev="+rev, nil).Want(200)
	if s = saw(t, g.Do(t, "PUT", g.path+"/d", `{"see":1}`)); s.O != nil || s.N["_rev"] != nil {
		t.Errorf("create after a deletion: %v, %v", s.N, s.O)
	}
}

// TestValidationOfParts has functions see what attachments and copies do to a
// document: the whole new document, not the part that was sent.
func TestValidationOfParts(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, testserver.Shared(t), `function(n, o) { if (n.locked || o && o.locked) throw({forbidden: JSON.stringify({n:n,o:o})}); }`)
	// Written before the function was, so to speak: by a document that is not locked yet.
	rev := g.Do(t, "PUT", g.path+"/d", `{"x":1}`).Want(201).Str("rev")
	rev = g.Do(t, "PUT", g.path+"/d/f?rev="+rev, "hi", "Content-Type", "text/plain").Want(201).Str("rev")
	drev := g.Do(t, "GET", g.path+"/_design/0", nil).Want(200).Str("_rev")
	g.Do(t, "DELETE", g.path+"/_design/0?rev="+drev, nil).Want(200)
	rev = g.Do(t, "PUT", g.path+"/d?rev="+rev, `{"locked":true,"_attachments":{"f":{"stub":true}}}`).Want(201).Str("rev")
	g.design(t, "0", map[string]any{"validate_doc_update": `function(n, o) { if (n.locked || o && o.locked) throw({forbidden: JSON.stringify({n:n,o:o})}); }`})

	s := saw(t, g.Do(t, "PUT", g.path+"/d/g?rev="+rev, "new", "Content-Type", "text/plain"))
	atts, _ := s.N["_attachments"].(map[string]any)
	if len(atts) != 2 || s.N["locked"] != true || s.O["_rev"] != rev || atts["g"].(map[string]any)["revpos"] != 4.0 || atts["f"].(map[string]any)["revpos"] != 2.0 {
		t.Errorf("PUT of an attachment: %v, %v", s.N, s.O)
	}
	s = saw(t, g.Do(t, "DELETE", g.path+"/d/f?rev="+rev, nil))
	if s.N["_attachments"] != nil || s.N["locked"] != true || s.O["_attachments"] == nil {
		t.Errorf("DELETE of an attachment: %v, %v", s.N, s.O)
	}
	s = saw(t, g.Do(t, "COPY", g.path+"/d", nil, "Destination", "copy"))
	if s.N["_id"] != "copy" || s.O != nil || s.N["_attachments"] == nil {
		t.Errorf("COPY: %v, %v", s.N, s.O)
	}
	s = saw(t, g.Do(t, "DELETE", g.path+"/d?rev="+rev, nil))
	if fmt.Sprint(s.N) != fmt.Sprintf("map[_deleted:true _id:d _rev:%s _revisions:map[ids:[%s] start:3]]", rev, rev[2:]) || s.O["locked"] != true {
		t.Errorf("DELETE: %v, %v", s.N, s.O)
	}
	g.Do(t, "GET", g.path+"/copy", nil).Want(404)
	got := g.Do(t, "GET", g.path+"/d", nil).Want(200).Object()
	if got["_rev"] != rev || len(got["_attachments"].(map[string]any)) != 1 {
		t.Errorf("%v", got)
	}
}

// TestValidationFunctionsChange has a write use the functions that were there when
// it began: nobody waits for anything.
func TestValidationFunctionsChange(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, testserver.Shared(t))
	g.Do(t, "PUT", g.path+"/a", `{"bad":1}`).Want(201)
	for i := range 10 {
		rev := g.design(t, "v", map[string]any{"validate_doc_update": fmt.Sprintf("function(n){ if(n.bad) throw({forbidden:'round %d'}); }", i)})
		for k := range 4 { // in every range
			refused(t, g.Do(t, "PUT", fmt.Sprintf("%s/x%d", g.path, k), `{"bad":1}`), 403, "forbidden", fmt.Sprintf("round %d", i))
		}
		g.Do(t, "DELETE", g.path+"/_design/v?rev="+rev, nil).Want(200)
		for k := range 4 {
			g.Do(t, "PUT", fmt.Sprintf("%s/r%d-%d", g.path, i, k), `{"bad":1}`).Want(201)
		}
	}
	// Several functions must all let a document pass; modules are there for them.
	g.design(t, "a", map[string]any{"validate_doc_update": "function(n){ if(n.a) throw({forbidden:'a'}); }"})
	g.design(t, "b", map[string]any{"lib": map[string]any{"check": "exports.ok = function(n){ return !n.b; }"},
		"validate_doc_update": "function(n){ if(!require('lib/check').ok(n)) throw({forbidden:'b by '+this._id}); }"})
	refused(t, g.Do(t, "PUT", g.path+"/y", `{"a":1,"b":1}`), 403, "forbidden", "a")
	refused(t, g.Do(t, "PUT", g.path+"/y", `{"b":1}`), 403, "forbidden", "b by _design/b")
	g.Do(t, "PUT", g.path+"/y", `{}`).Want(201)
}

// TestValidationOfDesignDocuments refuses broken ones, with the place.
func TestValidationOfDesignDocuments(t *testing.T) {
	t.Parallel()
	g := newGuarded(t, testserver.Shared(t))
	put := func(body string) *testserver.Response { return g.Do(t, "PUT", g.path+"/_design/bad", body) }
	refused(t, put(`{"views":3}`), 400, "invalid_design_doc", "`views` field must have object type")
	refused(t, put(`{"views":{"v":{"map":"function(d){emit(1,1)}","reduce":"_foo"}}}`), 400, "invalid_design_doc", "`_foo` is not a supported reduce function.")
	for body, place := range map[string]string{
		`{"views":{"v":{"map":"function(doc){ emit( }"}}}`: "Compilation of the map function in the 'v' view failed: ",
		`{"views":{"v":{"map":"1"}}}`:                      "Compilation of the map function in the 'v' view failed: ",
		`{"validate_doc_update":"function(n){"}`:           "Compilation of the validate_doc_update function failed: ",
		`{"filters":{"f":"function(doc, req) { return"}}`:  "Compilation of the filter function 'f' failed: ",
	} {
		r := put(body).Want(400)
		if r.Str("error") != "compilation_error" || !strings.HasPrefix(r.Str("reason"), place) || len(r.Str("reason")) < len(place)+5 {
			t.Errorf("%s: %s", body, r.Body)
		}
	}
	g.Do(t, "GET", g.path+"/_design/bad", nil).Want(404)
	// A function of a language that nobody runs lets nothing pass, and can be taken away.
	rev := g.design(t, "erl", map[string]any{"language": "erlang", "validate_doc_update": "fun(N, O, U, S) -> 1 end."})
	refused(t, g.Do(t, "PUT", g.path+"/a", `{}`), 500, "unknown_query_language", "erlang")
	g.Do(t, "DELETE", g.path+"/_design/erl?rev="+rev, nil).Want(200)
	g.design(t, "query", map[string]any{"language": "query", "validate_doc_update": map[string]any{"newDoc": map[string]any{}},
		"views": map[string]any{"i": map[string]any{"map": map[string]any{"fields": map[string]any{"a": "asc"}}, "reduce": "_count"}}})
	g.Do(t, "PUT", g.path+"/a", `{}`).Want(201)
	// In a partitioned database too.
	p := "/" + g.DB(t, "partitioned=true")
	g.Do(t, "PUT", p+"/_design/d", `{"options":{"partitioned":true},"validate_doc_update":"function(n){ if(n.bad) throw({forbidden:'no'}); }"}`).Want(201)
	refused(t, g.Do(t, "PUT", p+"/x:y", `{"bad":1}`), 403, "forbidden", "no")
	refused(t, g.Do(t, "PUT", g.path+"/_design/p", `{"options":{"partitioned":true}}`), 400, "invalid_design_doc", "partitioned option cannot be true in a non-partitioned database.")
}

// TestValidationThatFails writes nothing that a function did not let pass: one that
// throws something else, one that never ends.
func TestValidationThatFails(t *testing.T) {
	t.Parallel()
	s := testserver.Start(t, testserver.Config(func(c *config.Config) { c.JSCallTime = 2 * time.Second }))
	g := newGuarded(t, s, `function(n) {
		if (n.type) n.none.none;
		if (n.text) throw('some text');
		if (n.object) throw({other: 'some message'});
		if (n.error) throw(new Error('some error'));
		while (n.forever) {}
	}`)
	for body, name := range map[string]string{
		`{"type":1}`: "TypeError", `{"text":1}`: "unknown_error", `{"object":1}`: "unknown_error", `{"error":1}`: "Error",
		`{"forever":1}`: "script_stopped",
	} {
		r := g.Do(t, "PUT", g.path+"/x", body).Want(http.StatusInternalServerError)
		if got := r.Str("error"); name != "" && got != name || r.Str("reason") == "" {
			t.Errorf("%s: %s", body, r.Body)
		}
		g.Do(t, "GET", g.path+"/x", nil).Want(404)
		g.Do(t, "PUT", g.path+"/ok", `{"_deleted":true}`) // others go on
	}
	r := results(t, g.Do(t, "POST", g.path+"/_bulk_docs", `{"docs":[{"_id":"b1"},{"_id":"b2","forever":1},{"_id":"b3","type":1},{"_id":"b4"}]}`).Want(201))
	if r[0]["ok"] != true || r[1]["error"] != "script_stopped" || r[2]["error"] != "TypeError" || r[3]["ok"] != true {
		t.Errorf("%v", r)
	}
}
