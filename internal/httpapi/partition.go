package httpapi

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/divandb/divan/internal/cluster"
	"github.com/divandb/divan/internal/coordinator"
	"github.com/divandb/divan/internal/document"
	"github.com/divandb/divan/internal/model"
	"github.com/divandb/divan/internal/rawjson"
	"github.com/divandb/divan/internal/shardapi"
)

// partition gives the database and the partition of the path.
func (rq *request) partition() (*cluster.Database, string, error) {
	db, err := rq.database()
	if err != nil {
		return nil, "", err
	}
	if !db.Partitioned {
		return nil, "", model.BadRequest("database is not partitioned")
	}
	p := rq.param("partition")
	return db, p, document.ValidatePartition(p)
}

// partitionElse answers what else a path may say about a partition: none at all, one
// that cannot be, or something that no partition has.
func partitionElse(_ *API, rq *request) error {
	db, err := rq.database()
	if err != nil {
		return err
	}
	if !db.Partitioned {
		return model.BadRequest("database is not partitioned")
	}
	name, _, _ := strings.Cut(rq.param("rest"), "/")
	if err := document.ValidatePartition(name); err != nil {
		return err
	}
	return model.ErrMissing
}

func partitionInfo(a *API, rq *request) error {
	db, p, err := rq.partition()
	if err != nil {
		return err
	}
	info, err := a.Coordinator.PartitionInfo(rq.ctx(), db, p)
	if err != nil {
		return err
	}
	b := []byte(`{"db_name":`)
	b = rawjson.AppendString(b, db.Name)
	b = append(b, `,"sizes":{"active":`...)
	b = strconv.AppendInt(b, info.SizeActive, 10)
	b = append(b, `,"external":`...)
	b = strconv.AppendInt(b, info.SizeExternal, 10)
	b = append(b, `},"partition":`...)
	b = rawjson.AppendString(b, p)
	b = append(b, `,"doc_count":`...)
	b = strconv.AppendInt(b, info.DocCount, 10)
	b = append(b, `,"doc_del_count":`...)
	b = strconv.AppendInt(b, info.DocDelCount, 10)
	rq.json(http.StatusOK, append(b, '}'))
	return nil
}

func partitionAllDocs(a *API, rq *request) error {
	db, p, err := rq.partition()
	if err != nil {
		return err
	}
	return a.listIn(rq, db, shardapi.TableDocs, p)
}

// partitionBase is what the numbers of a list count from.
type partitionBase struct {
	total  int64 // documents of the partition; -1 when the list is of the whole database
	offset int64 // documents of the range before the partition
}

// boundPartition keeps a list inside its partition: the ids from "p:" up to, and
// without, "p;", which is the next character.
func (a *API) boundPartition(rq *request, db *cluster.Database, p string, req *coordinator.ListRequest) (partitionBase, error) {
	base := partitionBase{total: -1}
	if p == "" {
		return base, nil
	}
	low, high := p+":", p+";"
	before, _, err := a.countBefore(rq, db, p, low)
	if err != nil {
		return base, err
	}
	until, all, err := a.countBefore(rq, db, p, high)
	if err != nil {
		return base, err
	}
	base.total, base.offset = max(until-before, 0), before
	if req.Descending {
		base.offset = all - until
		if req.Start == nil || *req.Start > high {
			req.Start = &high // no id ends in the partition's name and ";": high itself is not met
		}
		if req.End == nil || *req.End < low {
			req.End, req.ExclusiveEnd = &low, false
		}
	} else {
		if req.Start == nil || *req.Start < low {
			req.Start = &low
		}
		if req.End == nil || *req.End >= high {
			req.End, req.ExclusiveEnd = &high, true
		}
	}
	return base, nil
}

// countBefore counts the documents before an id, and all of them, in the range
// that holds a partition. It reads next to nothing, however large the partition.
func (a *API) countBefore(rq *request, db *cluster.Database, p, id string) (before, all int64, err error) {
	edge := &coordinator.ListRequest{Partition: p}
	edge.Limit, edge.Offset, edge.Start = 0, true, &id
	head, rows, err := a.Coordinator.List(rq.ctx(), db, edge)
	if err != nil {
		return 0, 0, err
	}
	return head.Offset, head.TotalRows, rows.Close()
}
