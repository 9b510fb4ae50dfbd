package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"

	"github.com/divandb/divan/internal/collate"
	"github.com/divandb/divan/internal/design"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// designInfo tells of the indexes of a design document, all its views and all
// ranges taken together.
func designInfo(a *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	doc, err := a.Designs.Get(rq.ctx(), db, design.Prefix+rq.param("ddoc"))
	if err != nil {
		return err
	}
	sigs := signatures(doc)
	var all shardapi.ViewInfo
	var pending uint64
	if len(sigs) > 0 {
		infos, err := a.Coordinator.ViewInfo(rq.ctx(), db, sigs)
		if err != nil {
			return err
		}
		for _, info := range infos {
			all.Seq += info.Seq
			all.SizeFile += info.SizeFile
			all.SizeActive += info.SizeActive
			all.SizeExternal += info.SizeExternal
			all.Updating = all.Updating || info.Updating
			all.Waiting += info.Waiting
			pending += info.CopySeq - min(info.Seq, info.CopySeq)
		}
	}
	b := append([]byte(`{"name":`), rawjson.AppendString(nil, rq.param("ddoc"))...)
	b = append(b, `,"view_index":{"updates_pending":{"minimum":`...)
	// A range has one copy: the best, the preferred and all of them are the same.
	b = strconv.AppendUint(b, pending, 10)
	b = append(b, `,"preferred":`...)
	b = strconv.AppendUint(b, pending, 10)
	b = append(b, `,"total":`...)
	b = strconv.AppendUint(b, pending, 10)
	// An index never waits for a commit: what it loses in a crash it builds again.
	b = append(b, `},"waiting_commit":false,"waiting_clients":`...)
	b = strconv.AppendInt(b, all.Waiting, 10)
	b = append(b, `,"updater_running":`...)
	b = strconv.AppendBool(b, all.Updating)
	b = append(b, `,"update_seq":`...)
	b = strconv.AppendUint(b, all.Seq, 10)
	b = append(b, `,"sizes":{"file":`...)
	b = strconv.AppendInt(b, all.SizeFile, 10)
	b = append(b, `,"external":`...)
	b = strconv.AppendInt(b, all.SizeExternal, 10)
	b = append(b, `,"active":`...)
	b = strconv.AppendInt(b, all.SizeActive, 10)
	b = append(b, `},"signature":"`...)
	b = append(b, jointSignature(sigs)...)
	b = append(b, `","purge_seq":0,"language":`...)
	b = rawjson.AppendString(b, doc.Language)
	b = append(b, `,"compact_running":false,"collator_versions":[`...)
	b = rawjson.AppendString(b, collate.TableVersion)
	rq.json(http.StatusOK, append(b, "]}}"...))
	return nil
}

// signatures gives the signatures of the views of a design document, each once, in
// an order of their own.
func signatures(doc *design.Doc) []string {
	sigs := make([]string, 0, len(doc.Views))
	for i := range doc.Views {
		sigs = append(sigs, doc.Views[i].Sig)
	}
	slices.Sort(sigs)
	return slices.Compact(sigs)
}

// jointSignature is one signature for all views together: it changes when one of
// them does.
func jointSignature(sigs []string) string {
	h := sha256.New()
	for _, sig := range sigs {
		h.Write(append([]byte(sig), '\n'))
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}
