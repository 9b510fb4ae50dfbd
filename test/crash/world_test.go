// Package crash_test breaks servers and looks at what is left: it kills them,
// cuts their power, fills their disk, refuses their writes and hangs up on them,
// always through HTTP.
//
// The writers keep a ledger (world) of what they were told and what they were
// about to be told. After a crash each document must be in the last acknowledged
// state or in the one state that was under way, and nothing else may be there.
package crash_test

import (
	"crypto/md5"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/url"
	"strings"
	"sync"
)

// attachment is what must come back of one.
type attachment struct {
	size   int
	digest string // as the interface spells it
}

// newAttachment makes bytes that no other attachment has.
func newAttachment(rng *rand.Rand, size int) ([]byte, attachment) {
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(rng.Uint32())
	}
	return data, attachment{size, digestOf(data)}
}

func digestOf(data []byte) string {
	sum := md5.Sum(data)
	return "md5-" + base64.StdEncoding.EncodeToString(sum[:])
}

// state is one revision of a document as its writer knows it.
type state struct {
	rev     string // unknown while it is under way
	deleted bool
	n       int // which write it was; 0 for a deletion without a body
	atts    map[string]attachment
}

// doc is a document of the ledger. One writer at a time touches it.
type doc struct {
	id      string
	local   bool
	now     *state // acknowledged; nil: never
	next    *state // under way; nil: none
	touched bool   // since the last look
}

// database is a database of the ledger.
type database struct {
	name   string
	exists bool
	next   string // "create" or "delete" while that is under way
	docs   map[string]*doc
	life   int // counts how often it was made or deleted

	// What the last look found: its sequence, and the revision of each document.
	seq  string
	revs map[string]string
}

func (d *database) path() string { return "/" + url.PathEscape(d.name) }

// forget is for a database that is new or gone.
func (d *database) forget() {
	d.docs, d.seq, d.revs = make(map[string]*doc), "", nil
	d.life++
}

// world is the ledger. Its lock makes the moment of a power cut sharp: nothing
// begins and nothing is noted as acknowledged while it is held.
type world struct {
	mu    sync.Mutex
	cut   bool // writers end, and what they are told counts no more
	dbs   map[string]*database
	acks  int // of this round
	ackAt int // reach is closed at this many
	reach chan struct{}
	total int              // acknowledgements of all rounds
	uses  map[string][]use // by digest: what has ever named an attachment
}

// use is a revision that names an attachment, if it came to be.
type use struct {
	db   *database
	life int
	id   string
	name string
	rev  *state
}

// The databases all writers share; the second one needs its name escaped.
var sharedNames = []string{"shared", "shared/2"}

// newWorld is a ledger of databases that do not exist yet.
func newWorld(writers int) *world {
	w := &world{dbs: make(map[string]*database), uses: make(map[string][]use)}
	for _, name := range sharedNames {
		w.dbs[name] = &database{name: name}
	}
	for i := range writers {
		name := ownName(i)
		w.dbs[name] = &database{name: name}
	}
	for _, d := range w.dbs {
		d.forget()
	}
	return w
}

// ownName is the database that a writer creates and deletes.
func ownName(writer int) string { return fmt.Sprintf("own-%d", writer) }

// beginRound lets writers work until so many writes were acknowledged.
func (w *world) beginRound(acks int) <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut, w.acks, w.ackAt, w.reach = false, 0, acks, make(chan struct{})
	return w.reach
}

// begin notes writes as under way; false means that the power is cut.
func (w *world) begin(db *database, next map[*doc]*state) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return false
	}
	for d, s := range next {
		db.docs[docKey(d)] = d
		d.next, d.touched = s, true
		for name, a := range s.atts {
			w.uses[a.digest] = append(w.uses[a.digest], use{db, db.life, d.id, name, s})
		}
	}
	return true
}

func docKey(d *doc) string {
	if d.local {
		return "_local/" + d.id
	}
	return d.id
}

// acknowledged notes that the write under way is done.
func (w *world) acknowledged(d *doc, rev string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return
	}
	d.next.rev = rev
	d.now, d.next = d.next, nil
	w.counted()
}

// counted is called with the lock held.
func (w *world) counted() {
	w.total++
	if w.acks++; w.acks == w.ackAt {
		close(w.reach)
	}
}

// beginDB notes that a database is being made or deleted.
func (w *world) beginDB(d *database, op string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return false
	}
	d.next = op
	return true
}

// acknowledgedDB notes that this is done.
func (w *world) acknowledgedDB(d *database) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		return
	}
	d.exists = d.next == "create"
	d.next = ""
	d.forget()
	w.counted()
}

// cutPower calls cut at a moment at which nothing is told to anybody.
func (w *world) cutPower(cut func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	cut()
	w.cut = true
}

// body gives the members of a document's body. It holds a checksum of itself, so
// that half of one or a mixture of two is noticed.
func body(id string, n int, pad string) string {
	return fmt.Sprintf(`"n":%d,"pad":"%s","sum":"%s"`, n, pad, bodySum(id, n, pad))
}

func bodySum(id string, n int, pad string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %d %s", id, n, pad))
	return hex.EncodeToString(sum[:])
}

// stored is a document as the server gives it.
type stored struct {
	ID        string                `json:"_id"`
	Rev       string                `json:"_rev"`
	Deleted   bool                  `json:"_deleted"`
	N         int                   `json:"n"`
	Pad       string                `json:"pad"`
	Sum       string                `json:"sum"`
	Atts      map[string]storedStub `json:"_attachments"`
	Revisions struct {
		Start int      `json:"start"`
		IDs   []string `json:"ids"`
	} `json:"_revisions"`
}

type storedStub struct {
	Digest string `json:"digest"`
	Length int    `json:"length"`
	Stub   bool   `json:"stub"`
}

// whole tells what is wrong with a document in itself.
func (s *stored) whole() error {
	if s.Deleted && s.N == 0 && s.Pad == "" && s.Sum == "" {
		return nil
	}
	id := strings.TrimPrefix(s.ID, "_local/")
	if want := bodySum(id, s.N, s.Pad); s.Sum != want {
		return fmt.Errorf("half a document: %s %s with n=%d, %d bytes and sum %q", s.ID, s.Rev, s.N, len(s.Pad), s.Sum)
	}
	return nil
}

// is tells whether a document has the contents of a state.
func (s *stored) is(want *state) bool {
	if want == nil || s.N != want.n || s.Deleted != want.deleted || len(s.Atts) != len(want.atts) {
		return false
	}
	for name, a := range want.atts {
		got, ok := s.Atts[name]
		if !ok || got.Digest != a.digest || got.Length != a.size {
			return false
		}
	}
	return true
}

// parent is the revision before, "" for a first one.
func (s *stored) parent() string {
	if len(s.Revisions.IDs) < 2 {
		return ""
	}
	return fmt.Sprintf("%d-%s", s.Revisions.Start-1, s.Revisions.IDs[1])
}

// settle decides which of the two possible states a document is in after a
// crash, or says that it is in neither. found is nil for a document that is not
// there.
func (d *doc) settle(found *stored) error {
	defer func() { d.next = nil }()
	if found == nil {
		switch {
		case d.now == nil || d.local && d.now.deleted:
			return nil
		case d.local && d.next != nil && d.next.deleted:
			d.now = d.next
			return nil
		}
		return fmt.Errorf("%s: revision %s was acknowledged and is lost", docKey(d), d.now.rev)
	}
	if err := found.whole(); err != nil {
		return err
	}
	if d.now != nil && found.Rev == d.now.rev {
		if !found.is(d.now) {
			return fmt.Errorf("%s: revision %s came back as n=%d with %d attachments, was n=%d with %d",
				docKey(d), found.Rev, found.N, len(found.Atts), d.now.n, len(d.now.atts))
		}
		return nil
	}
	before := ""
	if d.now != nil {
		before = d.now.rev
	}
	if !found.is(d.next) || !d.local && found.parent() != before {
		return fmt.Errorf("%s: found revision %s (after %q, n=%d), acknowledged was %q, under way %+v",
			docKey(d), found.Rev, found.parent(), found.N, before, d.next)
	}
	d.next.rev = found.Rev
	d.now = d.next
	return nil
}

// with gives a copy of attachments with one more.
func with(atts map[string]attachment, name string, a attachment) map[string]attachment {
	out := maps.Clone(atts)
	if out == nil {
		out = make(map[string]attachment)
	}
	out[name] = a
	return out
}
