package httpapi

import (
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"strconv"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
)

// getRoot greets. Both greeting keys are there: `service` for the spec, `couchdb`
// because clients look for it.
func getRoot(a *API, rq *request) error {
	b := append([]byte(nil), `{"service":"Welcome","couchdb":"Welcome","version":"`+ProtocolVersion+`","uuid":`...)
	b = rawjson.AppendString(b, a.UUID)
	b = append(b, `,"features":["partitioned","pluggable-storage-engines"],"vendor":{"name":"Divan","version":`...)
	b = rawjson.AppendString(b, a.Version)
	b = append(b, `,"service_build":`...)
	b = rawjson.AppendString(b, a.Build)
	rq.json(http.StatusOK, append(b, "}}"...))
	return nil
}

func getUp(_ *API, rq *request) error {
	rq.json(http.StatusOK, []byte(`{"status":"ok","seeds":{}}`))
	return nil
}

const maxUUIDs = 1000

func getUUIDs(a *API, rq *request) error {
	if _, err := rq.q(); err != nil {
		return err
	}
	n := 1
	if s, ok := rq.str("count"); ok {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 1 {
			return model.BadRequest("count must be a positive integer")
		}
		if n > maxUUIDs {
			return model.BadRequest("count parameter too large")
		}
	}
	b := append(make([]byte, 0, 12+n*36), `{"uuids":[`...)
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '"')
		b = append(b, a.uuids.next()...)
		b = append(b, '"')
	}
	h := rq.w.Header()
	h.Set("Cache-Control", "must-revalidate, no-cache")
	h.Set("Pragma", "no-cache")
	h.Set("Expires", "Mon, 01 Jan 1990 00:00:00 GMT")
	h.Set("ETag", randomETag())
	rq.json(http.StatusOK, append(b, "]}"...))
	return nil
}

// randomETag is the ETag of lists, which cannot be used to revalidate.
func randomETag() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	return `"` + hex.EncodeToString(b[:]) + `"`
}

// namesQuery reads the range parameters of _all_dbs.
func (rq *request) namesQuery() (cluster.NamesQuery, error) {
	q := cluster.NamesQuery{Limit: -1}
	if _, err := rq.q(); err != nil {
		return q, err
	}
	var err error
	if q.Descending, err = rq.boolean("descending", false); err != nil {
		return q, err
	}
	inclusive, err := rq.boolean("inclusive_end", true)
	if err != nil {
		return q, err
	}
	q.ExclusiveEnd = !inclusive
	if q.Limit, err = rq.nonNegative("limit", -1); err != nil {
		return q, err
	}
	if q.Skip, err = rq.nonNegative("skip", 0); err != nil {
		return q, err
	}
	start, err := rq.jsonParam("startkey", "start_key")
	if err != nil {
		return q, err
	}
	end, err := rq.jsonParam("endkey", "end_key")
	if err != nil {
		return q, err
	}
	q.Start = nameBound(start)
	q.End = nameBound(end)
	return q, nil
}

// nameBound turns a JSON key into a bound among names. A key of another type sorts
// before or after every name.
func nameBound(key []byte) *string {
	if key == nil {
		return nil
	}
	if s, ok := rawjson.String(key); ok {
		return &s
	}
	s := ""
	if collate.Compare(key, []byte(`""`)) > 0 {
		s = "\xff" // above every name
	}
	return &s
}

func getAllDBs(a *API, rq *request) error {
	q, err := rq.namesQuery()
	if err != nil {
		return err
	}
	rq.jsonHeaders()
	rq.w.Header().Set("ETag", randomETag())
	st := rq.startStream(http.StatusOK, true)
	st.buf = append(st.buf, '[')
	first := true
	for name := range a.Registry.Names(q) {
		if !first {
			st.buf = append(st.buf, ',')
		}
		first = false
		st.buf = rawjson.AppendString(st.buf, name)
		if err := st.sendIfFull(); err != nil {
			return err
		}
	}
	st.buf = append(st.buf, "]\n"...)
	return st.end()
}

func getMembership(a *API, rq *request) error {
	list := func(dst []byte, keep func(cluster.Node) bool) []byte {
		dst = append(dst, '[')
		n := 0
		for _, node := range a.Registry.Nodes() {
			if !keep(node) {
				continue
			}
			if n > 0 {
				dst = append(dst, ',')
			}
			n++
			dst = rawjson.AppendString(dst, node.Name)
		}
		return append(dst, ']')
	}
	b := list([]byte(`{"all_nodes":`), func(cluster.Node) bool { return true })
	b = list(append(b, `,"cluster_nodes":`...), func(n cluster.Node) bool { return n.Live })
	rq.json(http.StatusOK, append(b, '}'))
	return nil
}

func getActiveTasks(a *API, rq *request) error {
	tasks, err := a.Coordinator.Tasks(rq.ctx())
	if err != nil {
		return err
	}
	b := []byte{'['}
	for i := range tasks {
		t := &tasks[i]
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(b, `{"node":`...)
		b = rawjson.AppendString(b, t.Node)
		b = append(b, `,"pid":"<0.`...)
		b = strconv.AppendUint(b, uint64(t.Copy), 10)
		b = append(b, `.0>","type":`...)
		b = rawjson.AppendString(b, t.Type)
		b = append(b, `,"user":null,"started_on":`...)
		b = strconv.AppendInt(b, t.StartedOn, 10)
		b = append(b, `,"updated_on":`...)
		b = strconv.AppendInt(b, t.UpdatedOn, 10)
		b = append(b, `,"database":`...)
		b = rawjson.AppendString(b, t.Database.Name)
		if t.Design != "" {
			b = append(b, `,"design_document":`...)
			b = rawjson.AppendString(b, t.Design)
		}
		b = append(b, `,"changes_done":`...)
		b = strconv.AppendInt(b, t.ChangesDone, 10)
		b = append(b, `,"total_changes":`...)
		b = strconv.AppendInt(b, t.TotalChanges, 10)
		if t.TotalChanges > 0 {
			b = append(b, `,"progress":`...)
			b = strconv.AppendInt(b, min(100, t.ChangesDone*100/t.TotalChanges), 10)
		}
		if t.Phase != "" {
			b = append(b, `,"phase":`...)
			b = rawjson.AppendString(b, t.Phase)
		}
		b = append(b, '}')
	}
	rq.json(http.StatusOK, append(b, ']'))
	return nil
}
