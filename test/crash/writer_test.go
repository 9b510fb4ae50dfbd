package crash_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/divandb/divan/internal/testserver"
)

// docsPerWriter is how many documents a writer has in each database: few, so that
// each of them is created, updated and deleted often.
const docsPerWriter = 10

// writer is a client that writes to documents of its own.
type writer struct {
	w      *world
	id     int
	n      int // counts its writes
	rng    *rand.Rand
	server *testserver.Server
	large  bool // also attachments that become files
	broken bool // the disk breaks: an answer of 500 and above ends it too
	docs   int  // how many documents it has in each database; 0: docsPerWriter
}

// hungUp is how a writer ends when the server is gone; nothing is wrong with that.
type hungUp struct{ error }

// run writes until the server is gone or the power is cut. Any other answer than
// success is an error: no two writers share a document.
func (c *writer) run() error {
	for {
		more, err := c.step()
		if _, gone := err.(hungUp); gone || !more && err == nil {
			return nil
		}
		if err != nil {
			return fmt.Errorf("writer %d: %w", c.id, err)
		}
	}
}

// step is one request.
func (c *writer) step() (more bool, err error) {
	db := c.pick()
	if !db.exists {
		return c.changeDB(db, "create")
	}
	switch k := c.rng.IntN(100); {
	case k < 2 && db.name == ownName(c.id):
		return c.changeDB(db, "delete")
	case k < 12:
		return c.putLocal(db)
	case k < 30:
		return c.bulk(db)
	}
	d := c.doc(db)
	if d.now == nil || d.now.deleted {
		return c.put(db, d)
	}
	switch k := c.rng.IntN(100); {
	case k < 15:
		return c.remove(db, d)
	case k < 30:
		return c.attach(db, d, 1+c.rng.IntN(4000))
	case k < 42 && c.large:
		return c.attach(db, d, 65<<10+c.rng.IntN(100_000))
	}
	return c.put(db, d)
}

// pick chooses a database. The shared ones exist before writers start.
func (c *writer) pick() *database {
	if k := c.rng.IntN(len(sharedNames) + 1); k < len(sharedNames) {
		return c.w.dbs[sharedNames[k]]
	}
	return c.w.dbs[ownName(c.id)]
}

// doc chooses a document.
func (c *writer) doc(db *database) *doc {
	return c.find(db, &doc{id: fmt.Sprintf("c%d-%d", c.id, c.rng.IntN(cmp.Or(c.docs, docsPerWriter)))})
}

func (c *writer) find(db *database, d *doc) *doc {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if known := db.docs[docKey(d)]; known != nil {
		return known
	}
	return d
}

// send sends a request that must succeed if it is answered.
func (c *writer) send(method, path string, body any, header ...string) (*testserver.Response, error) {
	r, err := c.server.Try(context.Background(), method, path, body, header...)
	if err != nil {
		return nil, hungUp{err}
	}
	if c.broken && r.Status >= 500 {
		return nil, hungUp{fmt.Errorf("%d %s", r.Status, r.Body)}
	}
	if r.Status >= 300 {
		return nil, fmt.Errorf("%s %s: %d %s", method, path, r.Status, r.Body)
	}
	return r, nil
}

// one sends a write to one document and notes the answer.
func (c *writer) one(db *database, d *doc, next *state, method, path string, body any, header ...string) (bool, error) {
	if !c.w.begin(db, map[*doc]*state{d: next}) {
		return false, nil
	}
	r, err := c.send(method, path, body, header...)
	if err != nil {
		return false, err
	}
	var answer struct {
		OK  bool   `json:"ok"`
		Rev string `json:"rev"`
	}
	if err := json.Unmarshal(r.Body, &answer); err != nil || !answer.OK || answer.Rev == "" {
		return false, fmt.Errorf("%s %s: %d %s", method, path, r.Status, r.Body)
	}
	c.w.acknowledged(d, answer.Rev)
	return true, nil
}

func (c *writer) changeDB(db *database, op string) (bool, error) {
	if !c.w.beginDB(db, op) {
		return false, nil
	}
	method := "PUT"
	if op == "delete" {
		method = "DELETE"
	}
	if _, err := c.send(method, db.path(), nil); err != nil {
		return false, err
	}
	c.w.acknowledgedDB(db)
	return true, nil
}

// newBody gives the text of a document and the state it will have. Attachments
// stay as stubs, or go, or a new one comes inline.
func (c *writer) newBody(d *doc, withID bool) (string, *state) {
	c.n++
	next := &state{n: c.n}
	var b strings.Builder
	b.WriteString("{" + body(d.id, c.n, strings.Repeat("x", c.rng.IntN(300)*c.rng.IntN(10))))
	if withID {
		fmt.Fprintf(&b, `,"_id":"%s"`, d.id)
	}
	if d.now != nil && !(d.now.deleted && c.rng.IntN(2) == 0) { // a deleted one may be made anew without naming its revision
		fmt.Fprintf(&b, `,"_rev":"%s"`, d.now.rev)
	}
	if d.now != nil && !d.now.deleted && len(d.now.atts) > 0 && c.rng.IntN(5) > 0 {
		next.atts = d.now.atts
	}
	atts := make([]string, 0, 2)
	for name := range next.atts {
		atts = append(atts, fmt.Sprintf(`"%s":{"stub":true}`, name))
	}
	if c.rng.IntN(12) == 0 && !d.local && next.atts["inline"].size == 0 {
		data, a := newAttachment(c.rng, 1+c.rng.IntN(500))
		next.atts = with(next.atts, "inline", a)
		atts = append(atts, fmt.Sprintf(`"inline":{"content_type":"application/octet-stream","data":"%s"}`,
			base64.StdEncoding.EncodeToString(data)))
	}
	if len(atts) > 0 {
		b.WriteString(`,"_attachments":{` + strings.Join(atts, ",") + "}")
	}
	if d.now != nil && !d.now.deleted && !d.local && len(atts) == 0 && c.rng.IntN(10) == 0 {
		b.WriteString(`,"_deleted":true`)
		next.deleted = true
	}
	b.WriteString("}")
	return b.String(), next
}

// put creates or updates.
func (c *writer) put(db *database, d *doc) (bool, error) {
	text, next := c.newBody(d, false)
	return c.one(db, d, next, "PUT", db.path()+"/"+d.id, text)
}

func (c *writer) remove(db *database, d *doc) (bool, error) {
	return c.one(db, d, &state{deleted: true}, "DELETE", db.path()+"/"+d.id+"?rev="+d.now.rev, nil)
}

// attach puts an attachment beside those that are there.
func (c *writer) attach(db *database, d *doc, size int) (bool, error) {
	name := []string{"a", "b/c"}[c.rng.IntN(2)]
	data, a := newAttachment(c.rng, size)
	next := &state{n: d.now.n, atts: with(d.now.atts, name, a)}
	return c.one(db, d, next, "PUT", db.path()+"/"+d.id+"/"+name+"?rev="+d.now.rev, data, "Content-Type", "application/octet-stream")
}

// putLocal writes or deletes a document that is not replicated.
func (c *writer) putLocal(db *database) (bool, error) {
	d := c.find(db, &doc{id: fmt.Sprintf("c%d-%d", c.id, c.rng.IntN(3)), local: true})
	path := db.path() + "/_local/" + d.id
	if d.now != nil && !d.now.deleted && c.rng.IntN(8) == 0 {
		return c.one(db, d, &state{deleted: true}, "DELETE", path+"?rev="+d.now.rev, nil)
	}
	c.n++
	text := "{" + body(d.id, c.n, strings.Repeat("l", c.rng.IntN(100)))
	if d.now != nil && !d.now.deleted {
		text += fmt.Sprintf(`,"_rev":"%s"`, d.now.rev)
	}
	return c.one(db, d, &state{n: c.n}, "PUT", path, text+"}")
}

// bulk writes several documents in one request; each is acknowledged for itself.
func (c *writer) bulk(db *database) (bool, error) {
	next := make(map[*doc]*state)
	var order []*doc
	var texts []string
	for range 2 + c.rng.IntN(8) {
		d := c.doc(db)
		for _, o := range order {
			if o.id == d.id {
				d = o
			}
		}
		if next[d] != nil {
			continue // one write per document
		}
		text, s := c.newBody(d, true)
		next[d] = s
		order, texts = append(order, d), append(texts, text)
	}
	if !c.w.begin(db, next) {
		return false, nil
	}
	r, err := c.send("POST", db.path()+"/_bulk_docs", `{"docs":[`+strings.Join(texts, ",")+`]}`)
	if err != nil {
		return false, err
	}
	var answers []struct {
		OK  bool   `json:"ok"`
		ID  string `json:"id"`
		Rev string `json:"rev"`
	}
	if err := json.Unmarshal(r.Body, &answers); err != nil || len(answers) != len(order) {
		return false, fmt.Errorf("_bulk_docs: %d %s", r.Status, r.Body)
	}
	for i, a := range answers {
		if c.broken && !a.OK {
			return false, hungUp{fmt.Errorf("%s", r.Body)}
		}
		if !a.OK || a.ID != order[i].id || a.Rev == "" {
			return false, fmt.Errorf("_bulk_docs: entry %d of %s: %s", i, r.Body, texts[i])
		}
		c.w.acknowledged(order[i], a.Rev)
	}
	return true, nil
}
