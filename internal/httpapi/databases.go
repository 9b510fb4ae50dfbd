package httpapi

import (
	"fmt"
	"net/http"
	"path"
	"strconv"
	"strings"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// location sets the Location header to the full URL of a resource of this server.
func (rq *request) location(segments ...string) {
	scheme, host := "http://", rq.r.Host
	if rq.r.TLS != nil {
		scheme = "https://"
	}
	// Behind a proxy the client knows another name of this server. (Who sends such a
	// header itself fools nobody else.)
	if h := rq.r.Header.Get("X-Forwarded-Host"); h != "" {
		host = h
	}
	if p := rq.r.Header.Get("X-Forwarded-Proto"); p == "http" || p == "https" {
		scheme = p + "://"
	}
	path := ""
	for _, s := range segments {
		path += "/" + escapeSegment(s)
	}
	rq.w.Header().Set("Location", scheme+host+rq.outside(path))
}

var okBody = []byte(`{"ok":true}`)

func (rq *request) ok(status int) error {
	rq.json(status, append([]byte(nil), okBody...))
	return nil
}

// positive reads a topology parameter of database creation.
func (rq *request) positive(name string, limit int) (int, error) {
	s, ok := rq.str(name)
	if !ok {
		return 0, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 {
		return 0, model.BadRequest("The `" + name + "` value should be a positive integer.")
	}
	if n > limit {
		return 0, model.BadRequest(fmt.Sprintf("The `%s` value is at most %d on this server.", name, limit))
	}
	return n, nil
}

// maxN bounds the copies that a client may ask for.
const maxN = 64

func putDatabase(a *API, rq *request) error {
	if _, err := rq.q(); err != nil {
		return err
	}
	name := rq.param("db")
	if !model.ValidDBName(name) {
		return model.IllegalDBName(name)
	}
	q, err := rq.positive("q", a.Limits.MaxQ)
	if err != nil {
		return err
	}
	n, err := rq.positive("n", maxN)
	if err != nil {
		return err
	}
	if q == 0 {
		q = a.DefaultQ
	}
	if n == 0 {
		n = a.DefaultN
	}
	partitioned := false
	if s, ok := rq.str("partitioned"); ok {
		if partitioned, err = parseBool(s); err != nil {
			return model.BadRequest("Invalid `partitioned` parameter")
		}
		if partitioned && strings.HasPrefix(path.Base(name), "_") {
			return model.BadRequest("Cannot partition a system database")
		}
	}
	if _, err := a.Registry.Create(rq.ctx(), cluster.CreateSpec{Name: name, Q: q, N: n, Partitioned: partitioned}); err != nil {
		return err
	}
	a.audit(rq, "database created", "database", name)
	rq.location(name)
	return rq.ok(http.StatusCreated)
}

func deleteDatabase(a *API, rq *request) error {
	if _, err := rq.q(); err != nil {
		return err
	}
	if _, ok := rq.str("rev"); ok {
		return model.BadRequest("You tried to DELETE a database with a ?=rev parameter. Did you mean to DELETE a document instead?")
	}
	if _, err := a.Registry.Delete(rq.ctx(), rq.param("db")); err != nil {
		return err
	}
	a.audit(rq, "database deleted", "database", rq.param("db"))
	return rq.ok(http.StatusOK)
}

func getDatabase(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	b, err := a.appendInfo(rq, nil, db)
	if err != nil {
		return err
	}
	rq.json(http.StatusOK, b)
	return nil
}

// appendInfo appends the database information object.
func (a *API) appendInfo(rq *request, b []byte, db *cluster.Database) ([]byte, error) {
	info, err := a.Coordinator.Info(rq.ctx(), db)
	if err != nil {
		return b, err
	}
	num := func(name string, v int64) {
		b = append(b, name...)
		b = strconv.AppendInt(b, v, 10)
	}
	b = append(b, `{"instance_start_time":"0","db_name":`...)
	b = rawjson.AppendString(b, db.Name)
	b = append(b, `,"purge_seq":0,"update_seq":`...)
	b = a.appendToken(b, db, info.Seqs)
	num(`,"sizes":{"file":`, info.SizeFile)
	num(`,"external":`, info.SizeExternal)
	num(`,"active":`, info.SizeActive)
	num(`},"disk_size":`, info.SizeFile)
	num(`,"other":{"data_size":`, info.SizeExternal)
	b = append(b, `},"props":{`...)
	if db.Partitioned {
		b = append(b, `"partitioned":true`...)
	}
	num(`},"doc_del_count":`, info.DocDelCount)
	num(`,"doc_count":`, info.DocCount)
	num(`,"disk_format_version":`, int64(a.DiskFormat))
	b = append(b, `,"compact_running":`...)
	b = strconv.AppendBool(b, info.Compacting)
	num(`,"cluster":{"q":`, int64(db.Q))
	num(`,"n":`, int64(db.Copies()))
	num(`,"w":`, int64(db.W()))
	num(`,"r":`, int64(db.R()))
	return append(b, "}}"...), nil
}

// maxInfoKeys is how many databases one POST _dbs_info may name.
const maxInfoKeys = 100

func dbsInfo(a *API, rq *request) error {
	if rq.method == http.MethodPost {
		return a.dbsInfoKeys(rq)
	}
	q, err := rq.namesQuery()
	if err != nil {
		return err
	}
	rq.jsonHeaders()
	st := rq.startStream(http.StatusOK, true)
	st.buf = append(st.buf, '[')
	first := true
	for name := range a.Registry.Names(q) {
		if st.buf, err = a.appendKeyedInfo(rq, st.buf, name, &first); err != nil {
			return err
		}
		if err := st.sendIfFull(); err != nil {
			return err
		}
	}
	st.buf = append(st.buf, "]\n"...)
	return st.end()
}

func (a *API) dbsInfoKeys(rq *request) error {
	if err := rq.requireJSON(); err != nil {
		return err
	}
	body, release, err := rq.readJSON()
	defer release()
	if err != nil {
		return err
	}
	keys, ok := rawjson.Get(body, "keys")
	if !ok || rawjson.KindOf(keys) != rawjson.KindArray {
		return model.BadRequest("`keys` member must exist and be an array.")
	}
	if rawjson.Len(keys) > maxInfoKeys {
		return &model.Error{Kind: model.KindBadRequest, Name: "too_many_keys", Reason: fmt.Sprintf("`keys` names more than %d databases.", maxInfoKeys)}
	}
	b := []byte{'['}
	first := true
	for k := range rawjson.Elements(keys) {
		name, ok := rawjson.String(k)
		if !ok {
			return model.BadRequest("`keys` must be an array of strings.")
		}
		if b, err = a.appendKeyedInfo(rq, b, name, &first); err != nil {
			return err
		}
	}
	rq.json(http.StatusOK, append(b, ']'))
	return nil
}

// appendKeyedInfo appends {"key":…,"info":…}, or the error of a database that is not there.
func (a *API) appendKeyedInfo(rq *request, b []byte, name string, first *bool) ([]byte, error) {
	if !*first {
		b = append(b, ',')
	}
	*first = false
	b = append(b, `{"key":`...)
	b = rawjson.AppendString(b, name)
	db, err := a.Registry.Get(name)
	if err == nil {
		mark := len(b)
		b = append(b, `,"info":`...)
		if b, err = a.appendInfo(rq, b, db); err == nil {
			return append(b, '}'), nil
		}
		b = b[:mark]
		// Deleted while we looked: the same as never there.
		if k := model.KindOf(err); k != model.KindNotFound && err != model.ErrCopyClosed {
			return b, err
		}
	}
	return append(b, `,"error":"not_found"}`...), nil
}

func getRevsLimit(_ *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	rq.json(http.StatusOK, strconv.AppendInt(nil, int64(db.RevsLimit), 10))
	return nil
}

func putRevsLimit(a *API, rq *request) error {
	if _, err := rq.database(); err != nil {
		return err
	}
	body, release, err := rq.readJSON()
	defer release()
	if err != nil {
		return err
	}
	n, ok := rawjson.Int(body)
	if !ok || n < 1 || n > 1<<31-1 {
		return model.BadRequest("`_revs_limit` must be a positive integer.")
	}
	if _, err := a.Registry.SetRevsLimit(rq.ctx(), rq.param("db"), int(n)); err != nil {
		return err
	}
	a.audit(rq, "revision limit changed", "database", rq.param("db"), "limit", n)
	return rq.ok(http.StatusOK)
}

func ensureFullCommit(a *API, rq *request) error {
	if err := rq.requireJSON(); err != nil {
		return err
	}
	db, err := rq.database()
	if err != nil {
		return err
	}
	if err := a.Coordinator.Sync(rq.ctx(), db); err != nil {
		return err
	}
	rq.json(http.StatusCreated, []byte(`{"ok":true,"instance_start_time":"0"}`))
	return nil
}

func appendNodes(b []byte, s *cluster.Shard) []byte {
	b = append(b, '[')
	for i := range s.Copies {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, s.Copies[i].Node)
	}
	return append(b, ']')
}

func getShards(_ *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	b := []byte(`{"shards":{`)
	for i := range db.Shards {
		if i > 0 {
			b = append(b, ',')
		}
		b = rawjson.AppendString(b, db.Shards[i].Range.String())
		b = append(b, ':')
		b = appendNodes(b, &db.Shards[i])
	}
	rq.json(http.StatusOK, append(b, "}}"...))
	return nil
}

func getDocShard(_ *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	s := &db.Shards[db.ShardOf(rq.param("doc"))]
	b := []byte(`{"range":`)
	b = rawjson.AppendString(b, s.Range.String())
	b = append(b, `,"nodes":`...)
	rq.json(http.StatusOK, append(appendNodes(b, s), '}'))
	return nil
}

// syncShards is accepted: copies catch up with each other by themselves.
func syncShards(_ *API, rq *request) error {
	if _, err := rq.database(); err != nil {
		return err
	}
	return rq.ok(http.StatusAccepted)
}
