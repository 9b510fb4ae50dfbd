package crash_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/divandb/divan/internal/testserver"
)

// inspector looks at a server after a crash, compares it with the ledger and
// settles what was under way.
type inspector struct {
	w        *world
	server   *testserver.Server
	all      bool // read the bytes of all attachments, not only of those touched
	problems []string
}

// inspect says everything that is wrong, nothing if all is well.
func (w *world) inspect(server *testserver.Server, all bool) []string {
	i := &inspector{w: w, server: server, all: all}
	i.databases()
	for _, db := range w.dbs {
		if db.exists {
			i.database(db)
		}
	}
	return i.problems
}

func (i *inspector) wrong(format string, args ...any) {
	i.problems = append(i.problems, fmt.Sprintf(format, args...))
}

// get reads an answer with the given status into v; it notes what is wrong and
// says whether nothing is.
func (i *inspector) get(v any, status int, method, path string, body any) bool {
	r, err := i.server.Try(context.Background(), method, path, body)
	if err != nil {
		i.wrong("%s %s: %v", method, path, err)
		return false
	}
	if r.Status != status {
		i.wrong("%s %s: %d %s", method, path, r.Status, r.Body)
		return false
	}
	if v != nil {
		if err := json.Unmarshal(r.Body, v); err != nil {
			i.wrong("%s %s: %v in %s", method, path, err, r.Body)
			return false
		}
	}
	return true
}

// databases looks at which there are.
func (i *inspector) databases() {
	var names []string
	if !i.get(&names, 200, "GET", "/_all_dbs", nil) {
		return
	}
	for _, name := range names {
		if i.w.dbs[name] == nil && !strings.HasPrefix(name, "_") {
			i.wrong("database %s was never made", name)
		}
	}
	for _, db := range i.w.dbs {
		there := slices.Contains(names, db.name)
		switch {
		case there == db.exists:
		case there && db.next == "create", !there && db.next == "delete":
			db.exists = there
			db.forget()
		default:
			i.wrong("database %s: there %v, acknowledged %v, under way %q", db.name, there, db.exists, db.next)
			db.exists = there
			db.forget()
		}
		db.next = ""
		status := 404
		if there {
			status = 200
		}
		i.get(nil, status, "GET", db.path(), nil)
	}
}

// changesRow is a row of the feed.
type changesRow struct {
	ID      string                 `json:"id"`
	Changes []struct{ Rev string } `json:"changes"`
	Deleted bool                   `json:"deleted"`
	Doc     *stored                `json:"doc"`
}

type changesAnswer struct {
	Results []changesRow `json:"results"`
	LastSeq string       `json:"last_seq"`
	Pending int          `json:"pending"`
}

// database looks at one.
func (i *inspector) database(db *database) {
	found := i.documents(db)
	for _, d := range db.docs {
		if d.local {
			i.local(db, d)
			continue
		}
		if err := d.settle(found[d.id]); err != nil {
			i.wrong("%s: %v", db.name, err)
			continue
		}
		if d.now != nil && (d.touched || i.all) {
			i.document(db, d)
			d.touched = false
		}
	}
	for id := range found {
		if db.docs[id] == nil {
			i.wrong("%s: document %s was never written", db.name, id)
		}
	}
	i.lists(db, found)
}

// documents fetches all leaves of all documents of the ledger, and of those the
// feed knows beyond it.
func (i *inspector) documents(db *database) map[string]*stored {
	var feed changesAnswer
	if !i.get(&feed, 200, "GET", db.path()+"/_changes", nil) {
		return nil
	}
	type query struct {
		ID string `json:"id"`
	}
	queries := []query{}
	for _, row := range feed.Results {
		if db.docs[row.ID] == nil {
			queries = append(queries, query{row.ID})
		}
	}
	for _, d := range db.docs {
		if !d.local {
			queries = append(queries, query{d.id})
		}
	}
	var answer struct {
		Results []struct {
			ID   string `json:"id"`
			Docs []struct {
				OK *stored `json:"ok"`
			} `json:"docs"`
		} `json:"results"`
	}
	if !i.get(&answer, 200, "POST", db.path()+"/_bulk_get?revs=true", map[string]any{"docs": queries}) {
		return nil
	}
	found := make(map[string]*stored)
	for _, r := range answer.Results {
		for _, d := range r.Docs {
			if d.OK == nil {
				continue // not there
			}
			if found[r.ID] != nil {
				i.wrong("%s: %s has two leaves, %s and %s", db.name, r.ID, found[r.ID].Rev, d.OK.Rev)
			}
			found[r.ID] = d.OK
		}
	}
	return found
}

// document reads one in the plain way, with the bytes of its attachments.
func (i *inspector) document(db *database, d *doc) {
	path := db.path() + "/" + d.id
	if d.now.deleted {
		i.get(nil, 404, "GET", path, nil)
	} else {
		var got stored
		if i.get(&got, 200, "GET", path, nil) && (got.Rev != d.now.rev || !got.is(d.now)) {
			i.wrong("%s: GET gives %s, leaf is %s", path, got.Rev, d.now.rev)
		}
	}
	i.get(nil, 200, "GET", path+"?rev="+d.now.rev, nil)
	for name, a := range d.now.atts {
		r, err := i.server.Try(context.Background(), "GET", path+"/"+name+"?rev="+d.now.rev, nil)
		if err != nil || r.Status != 200 || len(r.Body) != a.size || digestOf(r.Body) != a.digest {
			i.wrong("%s/%s: %v %+v, want %d bytes", path, name, err, r, a.size)
		}
	}
}

// local settles one that is not replicated.
func (i *inspector) local(db *database, d *doc) {
	path := db.path() + "/_local/" + d.id
	r, err := i.server.Try(context.Background(), "GET", path, nil)
	if err != nil {
		i.wrong("GET %s: %v", path, err)
		return
	}
	var found *stored
	if r.Status == 200 {
		if err := json.Unmarshal(r.Body, &found); err != nil {
			i.wrong("GET %s: %v", path, err)
		}
	} else if r.Status != 404 {
		i.wrong("GET %s: %d %s", path, r.Status, r.Body)
	}
	if err := d.settle(found); err != nil {
		i.wrong("%s: %v", db.name, err)
	}
}

// lists compares the counters, the list of documents and the feed with each
// other and with what was found.
func (i *inspector) lists(db *database, found map[string]*stored) {
	var info struct {
		Docs    int    `json:"doc_count"`
		Deleted int    `json:"doc_del_count"`
		Seq     string `json:"update_seq"`
	}
	var list struct {
		Total int `json:"total_rows"`
		Rows  []struct {
			ID    string
			Value struct{ Rev string }
			Doc   *stored
		}
	}
	var feed, since, after changesAnswer
	if !i.get(&info, 200, "GET", db.path(), nil) ||
		!i.get(&list, 200, "GET", db.path()+"/_all_docs?include_docs=true", nil) ||
		!i.get(&feed, 200, "GET", db.path()+"/_changes?style=all_docs&include_docs=true", nil) ||
		!i.get(&after, 200, "GET", db.path()+"/_changes?since="+url.QueryEscape(info.Seq), nil) ||
		!i.get(&since, 200, "GET", db.path()+"/_changes?since="+url.QueryEscape(db.seq), nil) {
		return
	}
	revs := make(map[string]string)
	alive := 0
	for id, d := range found {
		revs[id] = d.Rev
		if !d.Deleted {
			alive++
		}
	}
	if info.Docs != alive || info.Deleted != len(found)-alive || list.Total != alive || len(list.Rows) != alive || len(feed.Results) != len(found) {
		i.wrong("%s: counted %d documents and %d deleted; doc_count %d, doc_del_count %d, total_rows %d, %d rows, %d changes", db.name,
			alive, len(found)-alive, info.Docs, info.Deleted, list.Total, len(list.Rows), len(feed.Results))
	}
	last := ""
	for _, row := range list.Rows {
		d := found[row.ID]
		if d == nil || d.Deleted || d.Rev != row.Value.Rev || row.Doc == nil || row.Doc.Rev != d.Rev || row.ID <= last {
			i.wrong("%s: row %+v of _all_docs for %+v", db.name, row, d)
			continue
		}
		last = row.ID
		if err := row.Doc.whole(); err != nil {
			i.wrong("%s: _all_docs: %v", db.name, err)
		}
	}
	seen := make(map[string]bool)
	for _, row := range feed.Results {
		d := found[row.ID]
		if d == nil || seen[row.ID] || len(row.Changes) != 1 || row.Changes[0].Rev != d.Rev || row.Deleted != d.Deleted || row.Doc == nil {
			i.wrong("%s: row %+v of _changes for %+v, seen before %v", db.name, row, d, seen[row.ID])
			continue
		}
		seen[row.ID] = true
		if err := row.Doc.whole(); err != nil {
			i.wrong("%s: _changes: %v", db.name, err)
		}
	}
	if len(after.Results) != 0 || feed.Pending != 0 {
		i.wrong("%s: %d changes after update_seq, %d pending", db.name, len(after.Results), feed.Pending)
	}
	i.since(db, since, revs)
	db.seq, db.revs = info.Seq, revs
}

// since compares what came after the last look with what has changed.
func (i *inspector) since(db *database, since changesAnswer, revs map[string]string) {
	listed := make(map[string]bool)
	for _, row := range since.Results {
		listed[row.ID] = true
		if db.revs[row.ID] == revs[row.ID] {
			i.wrong("%s: %s is a change since the last look, and has not changed", db.name, row.ID)
		}
	}
	for id, rev := range revs {
		if db.revs[id] != rev && !listed[id] {
			i.wrong("%s: %s has changed since the last look, and the feed does not say so", db.name, id)
		}
	}
}
