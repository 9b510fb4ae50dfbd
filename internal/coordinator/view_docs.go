package coordinator

import (
	"context"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// ViewDocsBatch is how many rows a caller should give ViewDocs at once: enough to
// share the way to the copies, few enough to stay small in memory.
const ViewDocsBatch = 64

// ViewDocs gives the documents of rows of a view (include_docs), parallel to rows.
// It is the document the row came from, or the one that the row's value names: an
// object with the member _id links to another document, and its member _rev, with
// _id or without, chooses a revision. nil stands for null: nothing is there, or the
// link names no document, or the document is deleted and no revision was chosen (a
// chosen one is shown even if it is a deletion). want says what is read beside the
// bodies. The documents are valid as long as the rows; equal links share one.
func (c *Coordinator) ViewDocs(ctx context.Context, db *cluster.Database, rows []shardapi.ViewRow, want shardapi.Want) ([]*model.Doc, error) {
	links := make([]docLink, 0, len(rows))
	asked := make(map[docLink]int, len(rows))
	queries := make([]shardapi.DocQuery, 0, len(rows))
	for i := range rows {
		l := linkOf(&rows[i])
		links = append(links, l)
		if _, known := asked[l]; known || l == (docLink{}) {
			continue
		}
		asked[l] = len(queries)
		q := shardapi.DocQuery{ID: l.id, Want: want | shardapi.WantBody}
		if !l.rev.IsZero() {
			q.Revs = []model.Rev{l.rev}
		}
		queries = append(queries, q)
	}
	answers, err := c.Read(ctx, db, queries, 0)
	if err != nil {
		return nil, err
	}
	docs := make([]*model.Doc, len(rows))
	for i, l := range links {
		at, ok := asked[l]
		if !ok {
			continue
		}
		a := &answers[at]
		if len(a.Docs) > 0 && (!l.rev.IsZero() || !a.Docs[0].Deleted) {
			docs[i] = &a.Docs[0]
		}
	}
	return docs, nil
}

// docLink names the document that a row shows. The zero value names none.
type docLink struct {
	id  string
	rev model.Rev // zero: the winner
}

// linkOf reads the link of a row.
func linkOf(row *shardapi.ViewRow) docLink {
	// Get finds nothing in a value that is no object.
	link, linked := rawjson.Get(row.Value, "_id")
	chosen, hasRev := rawjson.Get(row.Value, "_rev")
	l := docLink{id: row.ID}
	if linked {
		var ok bool
		if l.id, ok = rawjson.String(link); !ok {
			return docLink{}
		}
	}
	if hasRev {
		text, ok := rawjson.String(chosen)
		if !ok {
			return docLink{}
		}
		rev, err := model.ParseRev(text)
		if err != nil {
			return docLink{}
		}
		l.rev = rev
	}
	return l
}
